"""Elect a leader among threads with compare-and-set, without asyncio.

The lock is a key in a bucket whose entries live for a second. The leader renews it before that; if
it dies, the key expires and the server leaves a marker, which wakes those who wait (a server of
2.11 or newer).
"""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import jetspark.sync
from jetspark.errors import KeyExistsError, RevisionMismatchError
from jetspark.server import run_server

KEY = "leader"
TTL = 1.0


class Candidate:
    """One of several threads or processes that want to be the leader."""

    def __init__(self, name: str, bucket: jetspark.sync.KeyValue[bytes]) -> None:
        self.name = name
        self.bucket = bucket
        self.revision = 0

    def acquire(self) -> None:
        """Wait until this is the leader."""
        while True:
            try:
                self.revision = self.bucket.create(KEY, self.name.encode())
                return
            except KeyExistsError:
                self._lock_is_free()

    def renew(self) -> bool:
        """Stay the leader; False if that was too late and another one is."""
        try:
            self.revision = self.bucket.update(KEY, self.name.encode(), self.revision)
        except RevisionMismatchError:
            return False
        return True

    def release(self) -> None:
        """Let another one be the leader, unless one is already."""
        with contextlib.suppress(RevisionMismatchError):
            self.bucket.delete(KEY, revision=self.revision)

    def _lock_is_free(self) -> None:
        held = False
        with self.bucket.watch(KEY) as watcher:
            for entry in watcher:
                if entry is not None:
                    held = not entry.deleted
                if not held:
                    return


def lead(candidate: Candidate, turns: int, *, dies: bool) -> None:
    candidate.acquire()
    print(candidate.name, "leads")
    for _ in range(turns):
        time.sleep(TTL / 4)  # the work
        if not candidate.renew():
            print(candidate.name, "was too slow")
            return
    if dies:
        print(candidate.name, "dies without a word")
    else:
        candidate.release()
        print(candidate.name, "resigns")


def main() -> None:
    with run_server() as server, jetspark.sync.connect(server.url) as nc:
        js = nc.jetstream()
        bucket = js.create_key_value(bucket="LOCKS", ttl=TTL, limit_marker_ttl=TTL)
        with ThreadPoolExecutor() as pool:
            leading = [
                pool.submit(lead, Candidate(name, bucket), 4, dies=name == "ann")
                for name in ("ann", "bob", "cleo")
            ]
        for future in leading:
            future.result()


main()
