"""What can be asked of a published message, and the header block that asks for it.

`MessageOptions` lists the keyword arguments that every way to publish takes; `header_block` checks
them and makes the block. Nothing here does I/O: what the server answers is the business of the
publishers.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from jetspark.errors import (
    InvalidArgumentError,
    InvalidHeaderError,
    InvalidOptionError,
    InvalidSubjectError,
)
from jetspark.protocol import Headers, HeadersLike, encode_headers
from jetspark.protocol.subjects import check_subject, check_subscribe_subject

from .codec import encode_time, to_timedelta
from .names import check_stream_name

__all__ = [
    "BATCH_COMMIT",
    "BATCH_ID",
    "BATCH_SEQUENCE",
    "EXPECTED_LAST_MSG_ID",
    "EXPECTED_LAST_SEQUENCE",
    "EXPECTED_LAST_SUBJECT_SEQUENCE",
    "INCREMENT",
    "MSG_ID",
    "ROLLUP",
    "TTL",
    "MessageOptions",
    "PublishOptions",
    "Schedule",
    "encode_block",
    "header_block",
    "message_data",
    "message_headers",
]

MSG_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTED_LAST_MSG_ID = "Nats-Expected-Last-Msg-Id"
EXPECTED_LAST_SEQUENCE = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
ROLLUP = "Nats-Rollup"
MESSAGE_TTL = "Nats-TTL"
INCREMENT = "Nats-Incr"
BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"
SCHEDULE = "Nats-Schedule"
SCHEDULE_TARGET = "Nats-Schedule-Target"
SCHEDULE_SOURCE = "Nats-Schedule-Source"
SCHEDULE_TTL = "Nats-Schedule-TTL"
SCHEDULE_ROLLUP = "Nats-Schedule-Rollup"
SCHEDULE_TIME_ZONE = "Nats-Schedule-Time-Zone"

MAX_BLOCK = 65535  # bytes of headers that a stream stores

TTL: TypeAlias = timedelta | float | Literal["never"]
"""Whole seconds, or that a message outlives the `max_age` of its stream."""

_SECOND = timedelta(seconds=1)
_PLAIN_ID = re.compile(r"[!-~]{1,1024}").fullmatch


class _ScheduleOptions(TypedDict, total=False):
    source: str | None
    ttl: TTL | None
    rollup: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """Makes a message the source of others, which the server publishes at given times.

    Use `at`, `every` or `cron`. The message is stored on its own subject, one for each schedule,
    and the server publishes copies of it to `target`, a subject of the same stream. The stream
    needs `allow_msg_schedules` (2.12; everything but `at` needs 2.14).

    >>> Schedule.every(timedelta(minutes=5), "reports.due").pattern
    '@every 300s'
    """

    pattern: str
    target: str
    _: dataclasses.KW_ONLY
    source: str | None = None
    """Copy the latest message of this subject; the scheduled one only while there is none."""
    ttl: TTL | None = None
    """How long the produced messages live (the stream needs `allow_msg_ttl`)."""
    rollup: bool = False
    """Whether a produced message replaces all older ones on the target."""
    time_zone: str | None = None
    """The IANA name of the zone in which a cron pattern is meant, instead of UTC."""

    def __post_init__(self) -> None:
        _check_subject("target", self.target)
        if self.source is not None:
            _check_subject("source", self.source)
            if self.source == self.target:
                raise InvalidOptionError(f"schedule: source and target are both {self.target!r}")
        if self.ttl is not None:
            _ttl(self.ttl)
        if self.time_zone is not None and self.pattern.startswith(("@at ", "@every ")):
            raise InvalidOptionError("schedule: time_zone goes only with a cron pattern")

    @classmethod
    def at(cls, when: datetime, target: str, **options: Unpack[_ScheduleOptions]) -> Schedule:
        """Once, at a time, or at once if that is past."""
        if not isinstance(when, datetime) or when.tzinfo is None:
            raise InvalidOptionError(f"schedule: the time needs a tzinfo: {when!r}")
        return cls(f"@at {encode_time(when)}", target, **options)

    @classmethod
    def every(
        cls, interval: timedelta | float, target: str, **options: Unpack[_ScheduleOptions]
    ) -> Schedule:
        """Again and again, with at least a second in between."""
        duration = _duration("the interval of a schedule", interval)
        return cls(f"@every {_go_duration(duration)}", target, **options)

    @classmethod
    def cron(
        cls,
        expression: str,
        target: str,
        *,
        time_zone: str | None = None,
        **options: Unpack[_ScheduleOptions],
    ) -> Schedule:
        """When a pattern of six fields says, seconds first, or one such as `@daily`."""
        if not expression.startswith("@") and len(expression.split()) != 6:
            raise InvalidOptionError(
                f"schedule: {expression!r} needs the six fields second, minute, hour, day of "
                "month, month and day of week"
            )
        return cls(expression, target, time_zone=time_zone, **options)

    def headers(self) -> dict[str, str]:
        """The headers that make a message this schedule."""
        headers = {SCHEDULE: self.pattern, SCHEDULE_TARGET: self.target}
        if self.source is not None:
            headers[SCHEDULE_SOURCE] = self.source
        if self.ttl is not None:
            headers[SCHEDULE_TTL] = _ttl(self.ttl)
        if self.rollup:
            headers[SCHEDULE_ROLLUP] = "sub"
        if self.time_zone is not None:
            headers[SCHEDULE_TIME_ZONE] = self.time_zone
        return headers


class MessageOptions(TypedDict, total=False):
    """What a message may carry besides its data; None is the same as leaving an option out."""

    headers: HeadersLike | None
    """Headers of the application. An option below replaces a header that means the same."""
    msg_id: str | None
    """The stream drops a message whose id it has seen within its `duplicate_window`, and
    acknowledges it as a duplicate. A message with an id may therefore be sent again within its
    `timeout`, which the window should be longer than."""
    expected_stream: str | None
    """Refuse the message unless it goes to this stream."""
    expected_last_sequence: int | None
    """... unless this is the last sequence of the stream; 0 for an empty one."""
    expected_last_subject_sequence: int | None
    """... unless this is the sequence of the last message of the subject; 0 if it has none."""
    expected_last_subject_sequence_subject: str | None
    """... where the subject is this one, which may have wildcards (2.11)."""
    expected_last_msg_id: str | None
    """... unless this is the id of the last message of the stream."""
    rollup: Literal["sub", "all"] | None
    """Replace all older messages of the subject or of the stream (`allow_rollup_hdrs`)."""
    ttl: TTL | None
    """How long the message lives (`allow_msg_ttl`, 2.11)."""
    schedule: Schedule | None
    """Have the server publish copies of the message (`allow_msg_schedules`, 2.12)."""


class PublishOptions(MessageOptions, total=False):
    """The options of a message that is published by itself."""

    timeout: float | None
    """Seconds to wait for the acknowledgement."""
    retries: int | None
    """How often to send again when no stream answers, for example while a leader is elected; -1:
    until the timeout."""
    retry_delay: float | None
    """Seconds to wait before that."""


def header_block(options: Mapping[str, Any]) -> bytes | None:
    """The header block for `MessageOptions`, None if they ask for nothing."""
    # The one option that comes with every message of an application that wants each of them stored
    # once gets a short cut; ids that are not plain take the long way.
    msg_id = options.get("msg_id")
    if len(options) == 1 and type(msg_id) is str and _PLAIN_ID(msg_id):
        return b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % msg_id.encode()
    headers = message_headers(options)
    return encode_block(headers) if len(headers) else None


def encode_block(headers: Headers) -> bytes:
    """The header block, if a stream can store it."""
    block = encode_headers(headers)
    if len(block) > MAX_BLOCK:
        raise InvalidHeaderError(
            f"headers of {len(block)} bytes are over the {MAX_BLOCK} that a stream stores; put "
            "large values into the data"
        )
    return block


def message_headers(options: Mapping[str, Any]) -> Headers:
    """The headers for `MessageOptions`, all of them checked."""
    given = options.get("headers")
    if given is None:
        headers = Headers()
    elif isinstance(given, Headers | Mapping):
        headers = Headers(given)
    else:
        raise InvalidHeaderError(f"headers must be a dict or Headers, not {type(given).__name__}")
    for name, value in options.items():
        if name == "headers" or value is None:
            continue
        try:
            add = _OPTIONS[name]
        except KeyError:
            raise InvalidOptionError(_unknown_option(name)) from None
        add(headers, name, value)
    if (
        EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT in headers
        and EXPECTED_LAST_SUBJECT_SEQUENCE not in headers
    ):
        raise InvalidOptionError(
            "expected_last_subject_sequence_subject needs expected_last_subject_sequence"
        )
    return headers


def _unknown_option(name: str) -> str:
    close = difflib.get_close_matches(name, ["headers", *_OPTIONS])
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"a message has no option {name!r}{hint}"


def message_data(data: object) -> bytes:
    """The data as bytes that do not change any more: a message may be sent again later."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidArgumentError(
            f"data must be bytes, not {type(data).__name__}; encode it first, for example with "
            ".encode() or json.dumps(...).encode()"
        )
    return bytes(data)


# --- the options, one by one


def _text(header: str) -> Callable[[Headers, str, Any], None]:
    def add(headers: Headers, name: str, value: Any) -> None:
        # The server takes an empty value for a missing one, and cuts blanks off.
        if not isinstance(value, str) or not value or value != value.strip():
            raise InvalidOptionError(
                f"{name} must be a str that is not empty and has no blanks around it, not {value!r}"
            )
        headers[header] = value

    return add


def _number(header: str) -> Callable[[Headers, str, Any], None]:
    def add(headers: Headers, name: str, value: Any) -> None:
        if type(value) is not int or value < 0:
            raise InvalidOptionError(f"{name} must be a sequence, 0 or more, not {value!r}")
        headers[header] = str(value)

    return add


def _add_stream(headers: Headers, name: str, value: Any) -> None:
    check_stream_name(value, name)
    headers[EXPECTED_STREAM] = value


def _add_last_subject(headers: Headers, name: str, value: Any) -> None:
    try:
        check_subscribe_subject(value, name)
    except InvalidSubjectError as error:
        raise InvalidOptionError(str(error)) from None
    headers[EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT] = value


def _add_rollup(headers: Headers, name: str, value: Any) -> None:
    if value not in ("sub", "all"):
        raise InvalidOptionError(f"rollup must be 'sub' or 'all', not {value!r}")
    headers[ROLLUP] = value


def _add_ttl(headers: Headers, name: str, value: Any) -> None:
    headers[MESSAGE_TTL] = _ttl(value)


def _add_schedule(headers: Headers, name: str, value: Any) -> None:
    if not isinstance(value, Schedule):
        raise InvalidOptionError(f"schedule must be a Schedule, not {value!r}")
    for header, text in value.headers().items():
        headers[header] = text


_OPTIONS: dict[str, Callable[[Headers, str, Any], None]] = {
    "msg_id": _text(MSG_ID),
    "expected_stream": _add_stream,
    "expected_last_sequence": _number(EXPECTED_LAST_SEQUENCE),
    "expected_last_subject_sequence": _number(EXPECTED_LAST_SUBJECT_SEQUENCE),
    "expected_last_subject_sequence_subject": _add_last_subject,
    "expected_last_msg_id": _text(EXPECTED_LAST_MSG_ID),
    "rollup": _add_rollup,
    "ttl": _add_ttl,
    "schedule": _add_schedule,
}


def _check_subject(name: str, subject: str) -> None:
    try:
        check_subject(subject, f"schedule: {name}")
    except InvalidSubjectError as error:
        raise InvalidOptionError(str(error)) from None


def _duration(what: str, value: timedelta | float) -> timedelta:
    try:
        duration = to_timedelta(value)
    except (TypeError, ValueError) as error:
        raise InvalidOptionError(f"{what} {error}") from None
    if duration < _SECOND:
        raise InvalidOptionError(f"{what} must be at least a second, not {value!r}")
    return duration


def _ttl(value: TTL) -> str:
    if isinstance(value, str):
        if value != "never":
            raise InvalidOptionError(f"ttl must be whole seconds or 'never', not {value!r}")
        return value
    duration = _duration("ttl", value)
    if duration % _SECOND:
        # The server would cut the fraction off without a word.
        raise InvalidOptionError(f"ttl must be whole seconds, not {value!r}")
    return f"{duration // _SECOND}s"


def _go_duration(duration: timedelta) -> str:
    microseconds = duration // timedelta(microseconds=1)
    if microseconds % 1_000_000:
        return f"{microseconds}us"
    return f"{microseconds // 1_000_000}s"
