"""Runs pipelines in tests, and reads what they left."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jetspark.sync
from jetspark.pipeline.job import load
from jetspark.pipeline.spec import Pipeline
from jetspark.server import NatsServer

__all__ = [
    "LocalSystem",
    "bucket_of",
    "dead_letters",
    "messages_of",
    "pipeline_file",
    "publish_lines",
]


class LocalSystem:
    """A server of the tests, as pipelines see it."""

    def __init__(self, server: NatsServer) -> None:
        self.servers = server.url
        self.spark_options = {"servers": server.url}

    @contextmanager
    def jetstream(self) -> Iterator[jetspark.sync.JetStream]:
        with jetspark.sync.connect(self.servers) as client:
            yield client.jetstream()


def pipeline_file(directory: Path, text: str) -> Pipeline:
    """Write a pipeline file, and read it."""
    path = directory / "pipeline.yml"
    path.write_text(textwrap.dedent(text))
    return load(path)


def publish_lines(js: jetspark.sync.JetStream, subject: str, lines: list[bytes]) -> None:
    """Publish payloads."""
    for line in lines:
        js.publish_async(subject, line)
    js.publish_async_complete(timeout=60)


def messages_of(js: jetspark.sync.JetStream, stream: str, subject: str = ">") -> list[Any]:
    """All messages of a stream with a subject."""
    state = js.get_stream(stream).info(subjects_filter=subject).state
    if not state.subjects:
        return []
    return list(js.get_stream(stream).direct_get_batch(subject=subject, seq=1))


def bucket_of(js: jetspark.sync.JetStream, name: str) -> dict[str, bytes]:
    """All that a bucket has."""
    bucket = js.key_value(name)
    keys = list(bucket.keys())
    return {key: bucket.get(key).value for key in keys}


def dead_letters(
    js: jetspark.sync.JetStream, pipeline: str, name: str, stream: str = "DEAD"
) -> dict[int, str]:
    """The reasons of dead letters, by the sequence of the origin."""
    letters = messages_of(js, stream, f"dead.{pipeline}.{name}")
    found = {
        int(one.headers["Jetspark-Sequence"]): one.headers["Jetspark-Reason"] for one in letters
    }
    assert len(found) == len(letters), "a dead letter is there twice"
    return found
