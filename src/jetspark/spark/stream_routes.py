"""Which stream stores which subject, for rows that are written."""

from __future__ import annotations

from jetspark.context import JetStream
from jetspark.errors import (
    InvalidOptionError,
    InvalidSubjectError,
    JetSparkError,
    NoMatchingStreamError,
    OfflineError,
    StreamNotFoundError,
)
from jetspark.jetstream import Stream
from jetspark.protocol import check_subject, subject_matches

__all__ = ["SINK", "Routes"]

SINK = "jetstream"
SUBJECTS_KEPT = 10_000


class Routes:
    """The streams of subjects; `expected` names the only one that is right."""

    def __init__(self, js: JetStream, expected: str | None, option: str = "subject") -> None:
        self._js = js
        self._expected = expected
        self._option = option
        self._streams: list[tuple[Stream, list[str]]] = []
        self._complete = False
        self._known: dict[str, Stream | JetSparkError] = {}

    async def of(self, subject: str | None) -> Stream:
        """The stream of a subject; raises if there is none."""
        if not subject:
            raise InvalidOptionError(
                f"{SINK}: a row has no subject; fill the column, or filter such rows out"
            )
        found = self._known.get(subject)
        if found is None:
            if len(self._known) >= SUBJECTS_KEPT:
                self._known.clear()
            if not self._streams:
                await self._list()
            found = self._find(subject)
            if isinstance(found, NoMatchingStreamError) and not self._complete:
                found = await self._ask(subject) or found
            self._known[subject] = found
        if isinstance(found, JetSparkError):
            raise found
        return found

    def _find(self, subject: str) -> Stream | JetSparkError:
        try:
            check_subject(subject)
        except InvalidSubjectError as error:
            return error
        for stream, patterns in self._streams:
            if any(subject_matches(pattern, subject) for pattern in patterns):
                return stream
        who = f"stream {self._expected!r} does not store" if self._expected else "no stream stores"
        return NoMatchingStreamError(
            f"{SINK}: {who} subject {subject!r}; add it to the subjects of a stream, or correct "
            f"the column or option {self._option!r}"
        )

    async def _ask(self, subject: str) -> Stream | None:
        """The stream of a subject, if there is one; it did not answer when all were listed."""
        async for name in self._js.stream_names(subject=subject):
            return await self._js.get_stream(name)
        return None

    async def _list(self) -> None:
        self._complete = True
        streams = []
        if self._expected is None:
            try:
                async for stream in self._js.streams():
                    streams.append(stream)  # noqa: PERF401 - those that answer count
            except OfflineError:
                self._complete = False
        else:
            try:
                streams = [await self._js.get_stream(self._expected)]
            except StreamNotFoundError as error:
                raise StreamNotFoundError(
                    f"{SINK}: there is no stream {self._expected!r}; correct option "
                    "'expectedStream', or create it",
                    code=error.code,
                    err_code=error.err_code,
                ) from None
        self._streams = [
            (stream, list(stream.cached_info.config.subjects or ())) for stream in streams
        ]
