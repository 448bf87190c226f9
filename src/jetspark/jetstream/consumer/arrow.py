"""Messages as Arrow record batches, made from the frames of the parser column by column.

No Python object is made per message: the slices that the parser cut go into the columns as they
are, and the sequences and times are read out of the reply subjects by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from jetspark.errors import InvalidOptionError, MissingExtraError
from jetspark.jetstream.message import parse_metadata
from jetspark.protocol import Frame, parse_headers

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

_HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))

SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("subject", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("headers", _HEADERS),
        pa.field("data", pa.binary()),
    ]
)


class _Columns:
    """Messages in the making of a record batch, column by column.

    Only bytes are kept, not the tuples of the parser, which would be many objects for the garbage
    collector to look through while they wait.
    """

    def __init__(self) -> None:
        self._subjects: list[bytes] = []
        self._replies: list[bytes | None] = []
        self._headers: list[bytes | None] = []
        self._payloads: list[bytes] = []

    def __len__(self) -> int:
        return len(self._replies)

    def __iter__(self) -> Iterator[Frame]:
        columns = (self._subjects, self._replies, self._headers, self._payloads)
        return zip(*columns, strict=True)

    @property
    def last_reply(self) -> bytes:
        return self._replies[-1] or b""

    def add(self, frames: list[Frame]) -> None:
        subjects, replies, headers, payloads = zip(*frames, strict=True)
        self._subjects += subjects
        self._replies += replies
        self._headers += headers
        self._payloads += payloads

    def record_batch(self) -> pa.RecordBatch:
        count = len(self)
        stream, sequences, nanoseconds = _places(self._replies)
        columns = [
            pa.repeat(pa.scalar(stream, pa.string()), count),
            _subject_column(self._subjects),
            sequences,
            pc.divide(nanoseconds, 1000).cast(pa.timestamp("us", tz="UTC")),
            _header_column(self._headers, count),
            pa.array(self._payloads, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def record_batch(frames: list[Frame]) -> pa.RecordBatch:
    """The columns of messages that a consumer delivered."""
    if not frames:
        return pa.RecordBatch.from_pylist([], SCHEMA)
    columns = _Columns()
    columns.add(frames)
    return columns.record_batch()


_SHORT_FORM = 9  # tokens
_SEQUENCE, _TIMESTAMP = 5, 7  # among the tokens of the short form of a reply subject
_DOMAIN_TOKENS = 2  # which the long form has in front of them


def _places(replies: list[bytes | None]) -> tuple[str, Any, Any]:
    """Stream, sequences and times out of the reply subjects."""
    first = parse_metadata(replies[0])
    width = replies[0].count(b".") + 1  # type: ignore[union-attr]
    shift = 0 if width == _SHORT_FORM else _DOMAIN_TOKENS
    names = [str(number) for number in range(width)]
    wanted = names[_SEQUENCE + shift], names[_TIMESTAMP + shift]
    lines = b"\n".join(replies)  # type: ignore[arg-type]
    try:
        table = csv.read_csv(
            pa.BufferReader(lines),
            csv.ReadOptions(column_names=names, use_threads=False, block_size=len(lines) + 1),
            csv.ParseOptions(delimiter=".", quote_char=False, double_quote=False),
            csv.ConvertOptions(
                include_columns=wanted, column_types=dict.fromkeys(wanted, pa.int64())
            ),
        )
    except pa.ArrowInvalid:  # of several forms: the consumer has moved to another server
        places = [parse_metadata(reply) for reply in replies]
        sequences = pa.array([place.stream_sequence for place in places], pa.int64())
        times = pa.array([place.timestamp_ns for place in places], pa.int64())
    else:
        sequences, times = (column.combine_chunks() for column in table.columns)
    return first.stream, sequences, times


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
                or taken.last_reply.endswith(b".0")  # nothing is pending
                or self._loop.time() >= self._until
                or self._ended
            ):
                self._partial, self._until = _Columns(), None
                return taken.record_batch()
            await self._arrival(self._until)

    def _discard(self) -> None:
        super()._discard()
        self._partial, self._until = _Columns(), None

    def _adapt(self, frames: list[Frame]) -> None:
        """Have so many messages on order as make up a certain size."""
        size = sum([len(frame[3]) for frame in frames]) + OVERHEAD * len(frames)
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
