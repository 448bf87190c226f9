"""Messages as Arrow record batches, made from the frames of the parser column by column.

No Python object is made per message: the slices that the parser cut go into the columns as they
are, and the sequences and times are read out of the reply subjects by Arrow.
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
    from pyarrow import csv
except ImportError as error:
    raise MissingExtraError(
        'columns need the package pyarrow: pip install "jetspark[spark]"'
    ) from error

__all__ = ["SCHEMA", "ArrowStream", "record_batch"]

# What is on order adapts to the size of the messages, between these limits.
ON_ORDER_BYTES = 16 * 1024 * 1024
OVERHEAD = 128  # bytes of a message that are not its payload, about
FEWEST_ON_ORDER = 500
MOST_ON_ORDER = 50_000

LONG_RUN = 200  # so many messages, and the columns of a run are faster than rows
MANY_ROWS = 50  # so many, and Arrow reads their places faster

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

    Long runs of messages wait as they came, and are cut into columns in the end. Of others, only
    the bytes are kept, not the tuples of the parser, which would be many objects for the garbage
    collector to look through while they wait.
    """

    def __init__(self) -> None:
        self._parts: list[Run | _Rows] = []
        self._count = 0
        self.last_reply = b""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Frame]:
        return chain.from_iterable(self._parts)

    def add(self, frames: Sequence[Frame]) -> None:
        if isinstance(frames, Run) and len(frames) >= LONG_RUN:
            self._parts.append(frames)
        else:
            if not self._parts or isinstance(self._parts[-1], Run):
                self._parts.append(_Rows())
            self._parts[-1].add(frames)  # type: ignore[union-attr]
        self._count += len(frames)
        self.last_reply = frames[-1][1] or b""

    def record_batch(self) -> pa.RecordBatch:
        parts = [
            part.columns() if isinstance(part, _Rows) else _columns(part) for part in self._parts
        ]
        subjects, sequences, times, headers, payloads = (
            pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)
        )
        try:
            sequences, times = (
                column.cast(pa.string()).cast(pa.int64()) for column in (sequences, times)
            )
        except pa.ArrowInvalid:
            for frame in self:
                parse_metadata(frame[1])  # says which one it is, and what is wrong
            raise
        columns = [
            pa.repeat(parse_metadata(self.last_reply).stream, self._count),
            subjects,
            sequences,
            pc.divide(times, _THOUSAND).cast(_TIMESTAMP_TYPE),
            headers,
            payloads,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


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


def _columns(run: Run) -> list[Any]:
    return _run_columns(run) or _Rows(run).columns()


def _run_columns(run: Run) -> list[Any] | None:
    """The columns of a run, straight from the read; None if they cannot be had so."""
    count, layout, reply = len(run), run.layout, run[0][1]
    tokens = reply.split(b".") if reply else []
    if len(tokens) < _SHORT_FORM:
        return None
    starts = list(accumulate([len(token) + 1 for token in tokens], initial=layout.reply))
    # All replies must be divided as the first one is, not only be as long.
    if any(run.column(start - 1).count(b".") != count for start in starts[1:-1]):
        return None
    shift = 0 if len(tokens) == _SHORT_FORM else _DOMAIN_TOKENS
    read = pa.py_buffer(run.data)[run.start :]
    messages = pa.Array.from_buffers(pa.binary(layout.width), count, [None, read])

    def column(start: int, size: int) -> Any:
        return pc.binary_slice(messages, start, start + size).cast(pa.binary())

    sequence, timestamp = _SEQUENCE + shift, _TIMESTAMP + shift
    return [
        pa.repeat(pa.scalar(_utf8(run.subject).decode(), pa.string()), count),
        column(starts[sequence], len(tokens[sequence])),
        column(starts[timestamp], len(tokens[timestamp])),
        pa.nulls(count, _HEADERS),
        column(layout.payload, layout.payload_size),
    ]


def _place_columns(replies: list[bytes | None]) -> list[Any]:
    """Sequences and times out of the reply subjects, as they are written there."""
    if len(replies) >= MANY_ROWS:
        try:
            return _read_places(replies)
        except pa.ArrowInvalid:
            pass  # of several forms: the consumer has moved to another server
    places = [parse_metadata(reply) for reply in replies]
    return [
        pa.array([b"%d" % place.stream_sequence for place in places], pa.binary()),
        pa.array([b"%d" % place.timestamp_ns for place in places], pa.binary()),
    ]


def _read_places(replies: list[bytes | None]) -> list[Any]:
    """The same for replies of one form, which Arrow reads as lines of fields."""
    width = (replies[0] or b"").count(b".") + 1
    shift = 0 if width <= _SHORT_FORM else _DOMAIN_TOKENS
    names = [str(number) for number in range(width)]
    wanted = [str(_SEQUENCE + shift), str(_TIMESTAMP + shift)]
    lines = b"\n".join(replies)  # type: ignore[arg-type]
    table = csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(column_names=names, use_threads=False, block_size=len(lines) + 1),
        csv.ParseOptions(delimiter=".", quote_char=False, double_quote=False),
        csv.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(wanted, pa.binary())),
    )
    return [column.combine_chunks() for column in table.columns]


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
                if self._options.by_default:
                    self._adapt(frames)
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

    def _adapt(self, frames: Sequence[Frame]) -> None:
        """Have so many messages on order as make up a certain size."""
        if isinstance(frames, Run):
            size = frames.layout.payload_size * len(frames)
        else:
            size = sum([len(frame[3]) for frame in frames])
        size += OVERHEAD * len(frames)
        fitting = ON_ORDER_BYTES * len(frames) // size
        window = self._window
        window.max_messages = min(max(fitting, FEWEST_ON_ORDER), MOST_ON_ORDER)
        window.threshold_messages = -(-window.max_messages // 2)

    async def __aenter__(self) -> Self:
        if not self._started:
            self._start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()
