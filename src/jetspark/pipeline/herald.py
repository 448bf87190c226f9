"""Tells the world about a running pipeline: its status in a bucket, which `jetspark top` shows.

It also counts dead letters. All of it is best effort, in a thread of its own: whether the server
answers or not, the pipeline goes on.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jetspark.errors import JetSparkError

from .progress import Progress
from .server_checks import System
from .spec import Pipeline

if TYPE_CHECKING:
    from jetspark.sync import JetStream, KeyValue

__all__ = ["BUCKET", "Herald"]

BUCKET = "jetspark_pipelines"
_EVERY = 1.0  # seconds
_KEPT = 3600.0  # seconds that the status of a pipeline that was killed stays


class Herald:
    """Runs as long as the context lasts."""

    def __init__(self, pipeline: Pipeline, system: System) -> None:
        self._pipeline = pipeline
        self._system = system
        self._started = _now()
        self._progress: Progress | None = None
        self._dead: dict[str, int] = {}
        self._before: dict[str, int] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jetspark herald", daemon=True)

    def __enter__(self) -> Herald:
        self._before = self._once(self._count)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=10)

    def tell(self, progress: Progress) -> None:
        """The latest state, which is published soon."""
        self._progress = progress

    def dead(self, name: str) -> int:
        """Dead letters of a source or sink since the start, as of the last look."""
        subject = self._pipeline.dead_subject(name)
        return max(self._dead.get(subject, 0) - (self._before or {}).get(subject, 0), 0)

    def count(self) -> bool:
        """Count dead letters once more, now; False if the server does not answer."""
        found = self._once(self._count)
        self._dead = found if found is not None else self._dead
        return found is not None

    def _once(self, ask: Callable[[JetStream], dict[str, int]]) -> dict[str, int] | None:
        try:
            with self._system.jetstream() as js:
                return ask(js)
        except (JetSparkError, OSError):
            return None

    def _count(self, js: JetStream) -> dict[str, int]:
        stream = js.get_stream(self._pipeline.dead_letters.stream)
        info = stream.info(subjects_filter=self._pipeline.dead_subject(">"))
        return dict(info.state.subjects or {})

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(JetSparkError, OSError), self._system.jetstream() as js:
                self._publish(js)
            self._ended.wait(_EVERY)

    def _publish(self, js: JetStream) -> None:
        bucket = _open(js)
        try:
            while not self._ended.wait(_EVERY):
                self._dead = self._count(js)
                if self._before is None:
                    self._before = self._dead
                if self._progress is not None:
                    status = json.dumps(self._status(self._progress))
                    bucket.put(self._pipeline.name, status.encode())
        finally:
            with suppress(JetSparkError):
                bucket.purge(self._pipeline.name)

    def _status(self, progress: Progress) -> dict[str, object]:
        return {
            "pipeline": self._pipeline.name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": self._started,
            "updated": _now(),
            "queries": [
                {
                    "name": query.name,
                    "rows": query.rows,
                    "rate": round(query.rate, 1),
                    "lag": query.lag,
                    "dead": query.dead,
                    "state": query.state,
                }
                for query in progress.queries
            ],
        }


def _open(js: JetStream) -> KeyValue[bytes]:
    try:
        return js.create_key_value(bucket=BUCKET, history=1, ttl=_KEPT)
    except JetSparkError:
        return js.key_value(BUCKET)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
