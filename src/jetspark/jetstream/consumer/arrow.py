"""Messages as Arrow record batches, made from the frames of the parser column by column.

Messages that are alike are cut out of the reads without a Python object for each. Of others, the
slices that the parser cut go into the columns as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Self

from jetspark.errors import InvalidOptionError, MissingExtraError
from jetspark.jetstream.message import parse_metadata
from jetspark.protocol import Frame, Run, parse_headers

from .messages import PullFeed, WarningHandler
from .pull_options import StreamOptions

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise MissingExtraError(
        'columns need the package pyarrow: pip install "jetspark[spark]"'
    ) from error

try:
    import numpy as np
except ImportError:  # an executor may have only what pyarrow needs; then all messages are rows
    np = None  # type: ignore[assignment]

__all__ = ["SCHEMA", "ArrowStream", "record_batch"]

LONG_RUN = 200  # so many messages that are alike, and they are cut faster than as rows

_THOUSAND = pa.scalar(1000, pa.int64())
_TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
_HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))

SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("subject", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("timestamp", _TIMESTAMP_TYPE),
        pa.field("headers", _HEADERS),
        pa.field("data", pa.binary()),
    ]
)


class _Columns:
    """Messages in the making of a record batch.

    Those that are alike wait as they came, and are cut into columns in the end, all at once. Of
    others, only the bytes are kept, not the tuples of the parser, which would be many objects for
    the garbage collector to look through while they wait.
    """

    def __init__(self) -> None:
        self._parts: list[_Alike | _Rows] = []
        self._count = 0
        self.last_reply = b""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Frame]:
        return chain.from_iterable(self._parts)

    def add(self, frames: Sequence[Frame]) -> None:
        self._count += len(frames)
        self.last_reply = frames[-1][1] or b""
        last = self._parts[-1] if self._parts else None
        if isinstance(last, _Alike) and last.add(frames):
            return
        if np and isinstance(frames, Run) and len(frames) >= LONG_RUN and frames[0][1]:
            self._parts.append(_Alike(frames))
            return
        if not isinstance(last, _Rows):
            last = _Rows()
            self._parts.append(last)
        last.add(frames)

    def record_batch(self) -> pa.RecordBatch:
        subjects, sequences, times, headers, payloads = _joined_columns(self._parts)
        columns = [
            pa.repeat(parse_metadata(self.last_reply).stream, self._count),
            subjects,
            sequences,
            pc.divide(times, _THOUSAND).cast(_TIMESTAMP_TYPE),
            headers,
            payloads,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class _Alike:
    """Runs of messages that are alike: they have one subject, and the same layout."""

    def __init__(self, run: Run) -> None:
        self._runs = [run]
        self._layout = run.layout
        self._subject = run.subject

    def __iter__(self) -> Iterator[Frame]:
        return chain.from_iterable(self._runs)

    def add(self, frames: Sequence[Frame]) -> bool:
        """Take messages that are like the others; False if they are not."""
        if isinstance(frames, Run):
            alike = frames.subject == self._subject and frames.layout == self._layout
            if alike and frames[0][1]:
                self._runs.append(frames)
                return True
            return False
        # The message that lay across the end of a read comes by itself.
        run = self._run_of(frames[0]) if len(frames) == 1 else None
        if run is not None:
            self._runs.append(run)
        return run is not None

    def _run_of(self, frame: Frame) -> Run | None:
        subject, reply, header, payload = frame
        layout = self._layout
        if (
            subject != self._subject
            or reply is None
            or len(reply) != layout.reply_size
            or header is not None
            or len(payload) != layout.payload_size
        ):
            return None
        text = (bytes(layout.reply) + reply).ljust(layout.payload) + payload
        return Run(text.ljust(layout.width), 0, subject, layout, [reply], 1)

    def columns(self) -> list[Any]:
        if columns := self._cut():
            return columns
        if len(self._runs) > 1:  # perhaps it is only one that cannot be cut so
            return _joined_columns([_Alike(run) for run in self._runs])
        return _Rows(self).columns()

    def _cut(self) -> list[Any] | None:
        """The columns, straight from the reads; None if they cannot be had so."""
        layout, reply = self._layout, self._runs[0][0][1] or b""
        tokens = reply.split(b".")
        if len(tokens) < _SHORT_FORM:
            return None
        count, size = sum(map(len, self._runs)), layout.payload_size
        if count * size > _MOST_BYTES:
            return None
        read = np.frombuffer(b"".join([run.view() for run in self._runs]), np.uint8)
        messages = read.reshape(count, layout.width)
        starts = list(accumulate([len(token) + 1 for token in tokens], initial=layout.reply))
        # All replies must be divided as the first one is, not only be as long.
        dots = messages[:, [start - 1 for start in starts[1:-1]]]
        if (dots != ord(".")).any():
            return None
        shift = 0 if len(tokens) == _SHORT_FORM else _DOMAIN_TOKENS
        sequences, times = (
            _numbers(messages[:, starts[token] : starts[token + 1] - 1])
            for token in (_SEQUENCE + shift, _TIMESTAMP + shift)
        )
        if sequences is None or times is None:
            return None
        ends = np.arange(count + 1, dtype=np.int32) * size
        payloads = np.ascontiguousarray(messages[:, layout.payload : layout.payload + size])
        return [
            pa.repeat(pa.scalar(_utf8(self._subject).decode(), pa.string()), count),
            sequences,
            times,
            pa.nulls(count, _HEADERS),
            pa.Array.from_buffers(
                pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(payloads)]
            ),
        ]


class _Rows:
    """Messages of any kind."""

    def __init__(self, frames: Iterable[Frame] = ()) -> None:
        self._subjects: list[bytes] = []
        self._replies: list[bytes | None] = []
        self._headers: list[bytes | None] = []
        self._payloads: list[bytes] = []
        self.add(frames)

    def __iter__(self) -> Iterator[Frame]:
        columns = (self._subjects, self._replies, self._headers, self._payloads)
        return zip(*columns, strict=True)

    def add(self, frames: Iterable[Frame]) -> None:
        if columns := list(zip(*frames, strict=True)):
            self._subjects += columns[0]
            self._replies += columns[1]
            self._headers += columns[2]
            self._payloads += columns[3]

    def columns(self) -> list[Any]:
        return [
            _subject_column(self._subjects),
            *_place_columns(self._replies),
            _header_column(self._headers, len(self._headers)),
            pa.array(self._payloads, pa.binary()),
        ]


def _joined_columns(parts: Sequence[_Alike | _Rows]) -> list[Any]:
    if len(parts) == 1:
        return parts[0].columns()
    columns = zip(*(part.columns() for part in parts), strict=True)
    return [pa.concat_arrays(arrays) for arrays in columns]


def record_batch(frames: Sequence[Frame]) -> pa.RecordBatch:
    """The columns of messages that a consumer delivered."""
    if not frames:
        return pa.RecordBatch.from_pylist([], SCHEMA)
    columns = _Columns()
    columns.add(frames)
    return columns.record_batch()


_SHORT_FORM = 9  # tokens
_SEQUENCE, _TIMESTAMP = 5, 7  # among the tokens of the short form of a reply subject
_DOMAIN_TOKENS = 2  # which the long form has in front of them
_MOST_BYTES = (1 << 31) - 1  # in a binary column
_MOST_DIGITS = 19  # of 64 bits
_POWERS = [10**place for place in range(_MOST_DIGITS - 1, -1, -1)]


def _numbers(digits: Any) -> Any:
    """The numbers in rows of digits, None if there may be none or too large ones among them."""
    values = digits - ord("0")
    width = values.shape[1]
    if (
        not width
        or values.max() > 9
        or width > _MOST_DIGITS
        or (width == _MOST_DIGITS and values[:, 0].max() == 9)
    ):
        return None
    return pa.array(values @ np.array(_POWERS[_MOST_DIGITS - width :], np.int64))


def _place_columns(replies: list[bytes | None]) -> list[Any]:
    """Sequences and times out of the reply subjects."""
    width = (replies[0] or b"").count(b".") + 1
    shift = 0 if width <= _SHORT_FORM else _DOMAIN_TOKENS
    numbers: list[tuple[int, int]] = []
    for reply in replies:
        tokens = reply.split(b".") if reply else []
        if len(tokens) != width or width < _SHORT_FORM:
            break
        sequence, time = tokens[_SEQUENCE + shift], tokens[_TIMESTAMP + shift]
        if not (sequence.isdigit() and time.isdigit()):
            break
        numbers.append((int(sequence), int(time)))
    else:
        return [pa.array(column, pa.int64()) for column in zip(*numbers, strict=True)]
    # Of several forms, because the consumer has moved to another server; or of a wrong one.
    places = [parse_metadata(reply) for reply in replies]
    return [
        pa.array([place.stream_sequence for place in places], pa.int64()),
        pa.array([place.timestamp_ns for place in places], pa.int64()),
    ]


# Arrow text is UTF-8 and NATS takes any bytes: what is none gets replacement characters, so that
# one odd message cannot stop a pipeline.


def _subject_column(subjects: list[bytes]) -> Any:
    try:
        return pa.array(subjects, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_utf8(subject).decode() for subject in subjects], pa.string())


def _header_column(headers: list[bytes | None], count: int) -> Any:
    if not any(headers):
        return pa.nulls(count, _HEADERS)
    try:
        return pa.array(map(_header_pairs, headers), _HEADERS, size=count)
    except UnicodeEncodeError:
        clean = [raw and _utf8(raw) for raw in headers]
        return pa.array(map(_header_pairs, clean), _HEADERS, size=count)


def _header_pairs(raw: bytes | None) -> list[tuple[str, list[str]]] | None:
    return None if raw is None else list(parse_headers(raw).to_dict().items())


def _utf8(raw: bytes) -> bytes:
    return raw.decode("utf-8", "replace").encode()


class ArrowStream(PullFeed):
    """The messages of a pull consumer as record batches, to iterate over."""

    _most_on_order = 50_000

    def __init__(
        self,
        consumer: Any,
        options: StreamOptions,
        on_warning: WarningHandler | None,
        *,
        rows: int,
        linger: float,
    ) -> None:
        super().__init__(consumer, options, on_warning)
        if rows < 1:
            raise InvalidOptionError(f"option 'rows' must be at least 1, not {rows}")
        self._rows = rows
        self._linger = linger
        self._partial = _Columns()  # the batch in the making
        self._until: float | None = None  # when that must be given out
        self.pending: int = consumer.cached_info.num_pending
        """How many messages were to follow the last one, when the server sent that."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        if not self._started:
            self._start()
        # Kept in the object, so that a caller who gives up waiting loses nothing.
        taken = self._partial
        while True:
            while len(taken) < self._rows and (
                frames := self._take_frames(self._rows - len(taken))
            ):
                taken.add(frames)
            if not taken:
                if self._ended:
                    self._raise_end()
                await self._arrival()
                continue
            if self._until is None:
                self._until = self._loop.time() + self._linger
            if (
                len(taken) >= self._rows
                or not parse_metadata(taken.last_reply).num_pending
                or self._loop.time() >= self._until
                or self._ended
            ):
                self._partial, self._until = _Columns(), None
                self.pending = parse_metadata(taken.last_reply).num_pending
                return taken.record_batch()
            await self._arrival(self._until)

    def _discard(self) -> None:
        super()._discard()
        self._partial, self._until = _Columns(), None

    async def __aenter__(self) -> Self:
        if not self._started:
            self._start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()
