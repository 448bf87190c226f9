"""Checks a pipeline against the world: the server, its streams and buckets, and directories.

What the pipeline is to create is created here, before anything reads or writes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from jetspark.errors import (
    BucketNotFoundError,
    JetSparkError,
    NotFoundError,
    StreamNotFoundError,
)
from jetspark.protocol import subject_is_subset, subjects_collide

from .problems import Mark, Problems, did_you_mean
from .spec import Kind, Pipeline, Sink, Source

if TYPE_CHECKING:
    from jetspark.sync import JetStream

__all__ = ["System", "check_system", "local_path"]

_HEADERS_SIZE = 4096  # bytes of a message that dead letters keep for their headers


class System(Protocol):
    """Where NATS is."""

    @property
    def servers(self) -> str:
        """For messages."""

    @property
    def spark_options(self) -> dict[str, str]:
        """For the Spark sources and sinks."""

    def jetstream(self) -> AbstractContextManager[JetStream]:
        """A blocking JetStream, as long as the context lasts."""


def check_system(pipeline: Pipeline, system: System, problems: Problems, *, create: bool) -> int:
    """Note what is missing; returns how large the payload of a dead letter may be.

    With `create`, streams and buckets that the pipeline says should be created are.
    """
    _check_directories(pipeline, problems)
    try:
        with system.jetstream() as js:
            _Checker(pipeline, js, problems, create=create).check()
            return max(js.client.max_payload - _HEADERS_SIZE, 1)
    except JetSparkError as error:
        passing = bool(error.retryable or isinstance(error, ConnectionError))
        problems.add(
            pipeline.server_mark,
            f"NATS at {system.servers} cannot be used: {error}; is it running, with JetStream?",
            passing=passing,
        )
    return 1


class _Checker:
    def __init__(
        self, pipeline: Pipeline, js: JetStream, problems: Problems, *, create: bool
    ) -> None:
        self._pipeline = pipeline
        self._js = js
        self._problems = problems
        self._create = create

    def check(self) -> None:
        for sink in self._pipeline.sinks.values():
            if sink.target:
                self._sink(sink)
        for source in self._pipeline.sources.values():
            if source.target:
                self._source(source)
        self._dead_letters()

    def _source(self, source: Source) -> None:
        what = f"source {source.name!r}"
        if source.kind is Kind.STREAM:
            for name in source.target.split(","):
                captured = self._subjects(name.strip(), what, source.target_mark)
                wanted = source.subjects.split(",") if source.subjects else []
                for subject in wanted if captured else ():
                    if not any(subjects_collide(subject.strip(), one) for one in captured or ()):
                        self._problems.add(
                            source.target_mark,
                            f"{what}: stream {name!r} has no subject like {subject!r}; it has "
                            f"{', '.join(captured or ())}",
                        )
        elif source.kind in (Kind.BUCKET, Kind.OBJECTS):
            self._bucket(source.kind, source.target, what, source.target_mark, create=False)

    def _sink(self, sink: Sink) -> None:
        what = f"sink {sink.name!r}"
        if sink.kind in (Kind.BUCKET, Kind.OBJECTS):
            self._bucket(sink.kind, sink.target, what, sink.target_mark, create=sink.create)
        if sink.kind is not Kind.STREAM or sink.template is None:
            return
        pattern = sink.template.pattern()
        create = [pattern] if sink.create else None
        subjects = self._subjects(sink.target, what, sink.target_mark, create=create)
        if subjects and not any(subjects_collide(pattern, subject) for subject in subjects):
            self._problems.add(
                sink.template_mark,
                f"{what}: stream {sink.target!r} does not store subjects like {pattern!r}; it has "
                f"{', '.join(subjects)}",
            )

    def _dead_letters(self) -> None:
        dead, subject = self._pipeline.dead_letters, self._pipeline.dead_subject(">")
        create = ["dead.>"] if dead.create else None
        subjects = self._subjects(dead.stream, "dead_letter", dead.mark, create=create)
        if subjects and not any(subject_is_subset(subject, one) for one in subjects):
            self._problems.add(
                dead.mark,
                f"dead_letter: stream {dead.stream!r} does not store {subject!r}; add it to the "
                f"subjects of the stream, which has {', '.join(subjects)}",
            )

    def _subjects(
        self, stream: str, what: str, mark: Mark, *, create: list[str] | None = None
    ) -> list[str] | None:
        """The subjects of a stream; None if there is none (yet)."""
        try:
            return list(self._js.get_stream(stream).config.subjects or ())
        except StreamNotFoundError:
            pass
        if create is None:
            names = [name for name in self._js.stream_names() if not _is_store(name)]
            self._problems.add(
                mark, f"{what}: there is no stream {stream!r}; {did_you_mean(stream, names)}"
            )
        elif self._create:
            self._make(
                what,
                mark,
                lambda: self._js.create_stream(name=stream, subjects=create, allow_direct=True),
            )
            return create
        return None

    def _bucket(self, kind: Kind, name: str, what: str, mark: Mark, *, create: bool) -> None:
        word, prefix = ("bucket", "KV_") if kind is Kind.BUCKET else ("object store", "OBJ_")
        try:
            if kind is Kind.BUCKET:
                self._js.key_value(name)
            else:
                self._js.object_store(name)
            return
        except (BucketNotFoundError, NotFoundError):
            pass
        if not create:
            names = [
                stream.removeprefix(prefix)
                for stream in self._js.stream_names()
                if stream.startswith(prefix)
            ]
            self._problems.add(
                mark, f"{what}: there is no {word} {name!r}; {did_you_mean(name, names)}"
            )
        elif self._create:
            if kind is Kind.BUCKET:
                self._make(what, mark, lambda: self._js.create_key_value(bucket=name))
            else:
                self._make(what, mark, lambda: self._js.create_object_store(bucket=name))

    def _make(self, what: str, mark: Mark, create: Callable[[], object]) -> None:
        try:
            create()
        except JetSparkError as error:
            self._problems.add(mark, f"{what}: it cannot be created: {error}")


def _is_store(stream: str) -> bool:
    return stream.startswith(("KV_", "OBJ_"))


# -- directories -------------------------------------------------------------------------------


def local_path(text: str) -> Path | None:
    """The path, unless it is somewhere else: `s3a://bucket/path`."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text)
    if found is None:
        return Path(text)
    return Path(urlsplit(text).path) if found[1].lower() == "file" else None


def _check_directories(pipeline: Pipeline, problems: Problems) -> None:
    _check_writable(pipeline.checkpoint, pipeline.checkpoint_mark, "checkpoint", problems)
    for sink in pipeline.sinks.values():
        if sink.path is not None:
            _check_writable(sink.path, sink.path_mark, f"sink {sink.name!r}: path", problems)
    for source in pipeline.sources.values():
        path = local_path(source.path) if source.path is not None else None
        if path is not None and not re.search(r"[*?\[{]", str(path)) and not path.exists():
            problems.add(source.mark, f"source {source.name!r}: there is no {path}")


def _check_writable(text: str, mark: Mark, what: str, problems: Problems) -> None:
    path = local_path(text)
    if path is None:
        return
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        problems.add(mark, f"{what} {text!r}: {place} is no directory")
    elif not os.access(place, os.W_OK | os.X_OK):
        problems.add(mark, f"{what} {text!r}: {place} is not writable")
