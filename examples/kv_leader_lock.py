"""Elect a leader with compare-and-set: one at a time, and another one when it fails.

The lock is a key in a bucket whose entries live for a second. The leader renews it before that; if
it dies, the key expires and the server leaves a marker, which wakes those who wait (a server of
2.11 or newer).
"""

import asyncio
import contextlib

import jetspark
from jetspark.errors import KeyExistsError, RevisionMismatchError
from jetspark.server import run_server

KEY = "leader"
TTL = 1.0


class Candidate:
    """One of several processes that want to be the leader."""

    def __init__(self, name: str, bucket: jetspark.KeyValue[bytes]) -> None:
        self.name = name
        self.bucket = bucket
        self.revision = 0

    async def acquire(self) -> None:
        """Wait until this is the leader."""
        while True:
            try:
                self.revision = await self.bucket.create(KEY, self.name.encode())
                return
            except KeyExistsError:
                await self._lock_is_free()

    async def renew(self) -> bool:
        """Stay the leader; False if that was too late and another one is."""
        try:
            self.revision = await self.bucket.update(KEY, self.name.encode(), self.revision)
        except RevisionMismatchError:
            return False
        return True

    async def release(self) -> None:
        """Let another one be the leader, unless one is already."""
        with contextlib.suppress(RevisionMismatchError):
            await self.bucket.delete(KEY, revision=self.revision)

    async def _lock_is_free(self) -> None:
        held = False
        async with self.bucket.watch(KEY) as watcher:
            async for entry in watcher:
                if entry is not None:
                    held = not entry.deleted
                if not held:
                    return


async def lead(candidate: Candidate, turns: int, *, dies: bool) -> None:
    await candidate.acquire()
    print(candidate.name, "leads")
    for _ in range(turns):
        await asyncio.sleep(TTL / 4)  # the work
        if not await candidate.renew():
            print(candidate.name, "was too slow")
            return
    if dies:
        print(candidate.name, "dies without a word")
    else:
        await candidate.release()
        print(candidate.name, "resigns")


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        bucket = await js.create_key_value(bucket="LOCKS", ttl=TTL, limit_marker_ttl=TTL)
        async with asyncio.TaskGroup() as group:
            for name in ("ann", "bob", "cleo"):
                group.create_task(lead(Candidate(name, bucket), 4, dies=name == "ann"))


asyncio.run(main())
