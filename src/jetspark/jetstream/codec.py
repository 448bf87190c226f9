"""The one codec between JetStream's JSON and the typed configurations and infos.

A class lists its fields once, under their names on the wire and with the types that Python code
sees; everything else follows from the annotations:

- durations are `timedelta` (a number means seconds) and integer nanoseconds on the wire,
- times are aware datetimes and RFC 3339 text, where year 1 means none,
- bytes are base64, policies are string enums, objects and lists of them are nested classes.

Unset fields are not sent, because a server refuses a request with a field that it does not know
(since 2.12). What a newer server sends is kept in `extra` and sent back with an update.

Nothing here does I/O. Which fields there are is in the modules of the nouns (`stream_config`,
`consumer_info`, ...), and so is what a server would refuse.
"""

from __future__ import annotations

import base64
import difflib
import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import msgspec

from jetspark.errors import APIError, InvalidOptionError, InvalidResponseError

__all__ = [
    "NOT_JSON",
    "NO_DURATION",
    "NO_DURATIONS",
    "Config",
    "Duration",
    "Durations",
    "ErrorDetail",
    "UnknownValue",
    "Wire",
    "decode_response",
    "decode_time",
    "encode",
    "encode_time",
    "from_nanoseconds",
    "to_nanoseconds",
    "to_timedelta",
]

_W = typing.TypeVar("_W", bound="Wire")

_MAX_NANOSECONDS = 2**63 - 1
_ZERO_DURATION = timedelta(0)
_ZERO_TIME = "0001-01-01T00:00:00"


class UnknownValue(str):
    """A policy that a newer server has and this version does not know, kept as it came."""

    __slots__ = ()


# --- durations and times


def to_timedelta(value: timedelta | float) -> timedelta:
    """A duration as it is stored; a number means seconds."""
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            duration = timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise ValueError(f"must be a finite number of seconds, not {value!r}") from None
        if value and not duration:
            # It would be sent as 0, which means "not set".
            raise ValueError(f"must be at least a microsecond, not {value!r} s")
    else:
        raise TypeError(f"must be seconds or a timedelta, not {value!r}")
    if abs(_nanoseconds(duration)) > _MAX_NANOSECONDS:
        raise ValueError(f"must be less than 292 years, not {duration}")
    return duration


def _nanoseconds(duration: timedelta) -> int:
    # Integers all the way: total_seconds() is a float and exact only up to some months.
    seconds = duration.days * 86_400 + duration.seconds
    return (seconds * 1_000_000 + duration.microseconds) * 1_000


def to_nanoseconds(value: timedelta | float) -> int:
    """A duration as it goes over the wire."""
    return _nanoseconds(to_timedelta(value))


def from_nanoseconds(value: object) -> timedelta:
    """A duration from the wire, cut to microseconds."""
    if type(value) is not int:
        raise TypeError(f"must be nanoseconds, not {value!r}")
    try:
        return timedelta(microseconds=value // 1_000) if value else _ZERO_DURATION
    except OverflowError:
        raise ValueError(f"must be nanoseconds, not {value!r}") from None


def encode_time(value: datetime) -> str:
    """An aware datetime as RFC 3339 in UTC, without trailing zeros, as the server writes it."""
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def decode_time(text: object) -> datetime | None:
    """A time from the wire in UTC, cut to microseconds; None for the zero time.

    Servers before 2.10 write the time of a direct get as `2022-09-01 10:00:00.5 +0000 UTC`.
    """
    if not isinstance(text, str):
        raise TypeError(f"must be a time, not {text!r}")
    if text.startswith(_ZERO_TIME):
        return None
    if text.endswith(" +0000 UTC"):
        text = text.removesuffix(" +0000 UTC") + "Z"
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"must be a time with its zone, not {text!r}")
    return time.astimezone(UTC)


def _check_time(value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise TypeError(f"must be a datetime with a tzinfo, not {value!r}")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"is out of range: {value!r}") from None


if TYPE_CHECKING:
    # What may be given differs from what is read: these tell it to the type checker.
    class Duration:
        """A field that takes seconds or a timedelta and reads as a timedelta."""

        def __get__(self, instance: object, owner: Any) -> timedelta: ...
        def __set__(self, instance: object, value: timedelta | float) -> None: ...

    class Durations:
        """A list of durations."""

        def __get__(self, instance: object, owner: Any) -> list[timedelta]: ...
        def __set__(self, instance: object, value: Sequence[timedelta | float]) -> None: ...
else:
    Duration = timedelta
    Durations = Sequence[timedelta]

# The defaults of such fields.
NO_DURATION: Any = _ZERO_DURATION
NO_DURATIONS: Any = msgspec.field(default_factory=list)


# --- fields


class _Kind(NamedTuple):
    """How values of one type are handled. None stands for "as it is"."""

    # What a caller gave, to what is stored; TypeError or ValueError complete "field ...".
    check: Callable[[Any], Any]
    # JSON, to what is stored; with the path of the value and the list of unknown fields.
    decode: Callable[[Any, str, list[str]], Any] | None = None
    # What is stored, to JSON.
    encode: Callable[[Any], Any] | None = None
    # Whether JSON may hold more than what is stored: nanoseconds.
    finer: bool = False


def _scalar(kind: type) -> Callable[[Any], Any]:
    article = "an" if kind is int else "a"

    def check(value: Any) -> Any:
        # Exactly: True is no number here.
        if type(value) is not kind:
            raise TypeError(f"must be {article} {kind.__name__}, not {value!r}")
        return value

    return check


def _enum_kind(kind: type[enum.StrEnum]) -> _Kind:
    members = {member.value: member for member in kind}

    def check(value: Any) -> Any:
        if isinstance(value, kind | UnknownValue):
            return value
        if isinstance(value, str) and value in members:
            return members[value]
        raise ValueError(f"must be one of {', '.join(members)}, not {value!r}")

    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, str):
            raise TypeError(f"must be a str, not {value!r}")
        # The empty text stands for the default.
        return members.get(value) or (UnknownValue(value) if value else None)

    return _Kind(check, decode, str)


def _wire_kind(kind: type[Wire]) -> _Kind:
    def check(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if isinstance(value, Mapping):
            return kind(**value)
        raise TypeError(f"must be a {kind.__name__}, not {value!r}")

    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        return _decode(kind, value, path, unknown)

    return _Kind(check, decode, lambda value: value.to_wire())


def _optional_kind(kind: _Kind) -> _Kind:
    def check(value: Any) -> Any:
        return None if value is None else kind.check(value)

    # A negative duration, in an info, is one that nothing is known about.
    decode = _decode_known_duration if kind is _DURATION else kind.decode
    return kind._replace(check=check, decode=decode)


def _list_kind(item: _Kind) -> _Kind:
    def check(value: Any) -> Any:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            raise TypeError(f"must be a list, not {value!r}")
        return [item.check(element) for element in value]

    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, list):
            raise TypeError(f"must be a list, not {value!r}")
        if item.decode is None:
            return value
        return [item.decode(element, path, unknown) for element in value]

    def encode(value: Any) -> Any:
        return value if item.encode is None else [item.encode(element) for element in value]

    return _Kind(check, decode, encode, item.finer)


def _mapping_kind(item: _Kind) -> _Kind:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise TypeError(f"must be a mapping with str keys, not {value!r}")
        return {key: item.check(element) for key, element in value.items()}

    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"must be an object, not {value!r}")
        if item.decode is None:
            return value
        return {
            key: item.decode(element, f"{path}.{key}", unknown) for key, element in value.items()
        }

    def encode(value: Any) -> Any:
        if item.encode is None:
            return value
        return {key: item.encode(element) for key, element in value.items()}

    return _Kind(check, decode, encode, item.finer)


def _decode_bytes(value: Any, path: str, unknown: list[str]) -> bytes:
    return base64.b64decode(value, validate=True)


def _decode_duration(value: Any, path: str, unknown: list[str]) -> timedelta:
    return from_nanoseconds(value)


def _decode_known_duration(value: Any, path: str, unknown: list[str]) -> timedelta | None:
    duration = from_nanoseconds(value)
    return None if duration < _ZERO_DURATION else duration


_DURATION = _Kind(to_timedelta, _decode_duration, _nanoseconds, finer=True)
_KINDS: dict[Any, _Kind] = {
    int: _Kind(_scalar(int)),
    str: _Kind(_scalar(str)),
    bool: _Kind(_scalar(bool)),
    bytes: _Kind(_scalar(bytes), _decode_bytes, lambda value: base64.b64encode(value).decode()),
    timedelta: _DURATION,
    datetime: _Kind(_check_time, lambda value, *_: decode_time(value), encode_time, finer=True),
}


def _kind(annotation: Any) -> _Kind:
    if annotation in _KINDS:
        return _KINDS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        choices = [choice for choice in arguments if choice is not type(None)]
        # Two choices are a policy, and text for the policies of newer servers.
        kind = _enum_kind(choices[0]) if len(choices) == 2 else _kind(choices[0])
        return _optional_kind(kind) if len(choices) < len(arguments) else kind
    if origin is Sequence:
        return _list_kind(_kind(arguments[0]))
    if origin is Mapping:
        return _mapping_kind(_kind(arguments[1]))
    return _wire_kind(annotation)


@functools.cache
def _fields(cls: type[Wire]) -> dict[str, tuple[_Kind, Any]]:
    """The fields of a class: how each is handled, and its default."""
    hints = typing.get_type_hints(cls)
    fields = {}
    for field in msgspec.structs.fields(cls):
        if field.name == "extra":
            continue
        factory = field.default_factory
        default = field.default if factory is msgspec.NODEFAULT else factory()
        fields[field.name] = _kind(hints[field.name]), default
    return fields


# --- the classes


class _WireMeta(msgspec.StructMeta):
    """Turns a wrong keyword into an error that says which one was meant."""

    if not TYPE_CHECKING:

        def __call__(cls, **fields: Any) -> Any:
            known = _fields(cls)
            for name in fields:
                if name not in known and name != "extra":
                    raise InvalidOptionError(_unknown_field(cls, name))
            try:
                return super().__call__(**fields)
            except TypeError as error:  # a required field is missing
                raise InvalidOptionError(f"{cls.__name__}: {error}") from None


def _unknown_field(cls: type[Wire], name: str) -> str:
    close = difflib.get_close_matches(name, _fields(cls))
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{cls.__name__} has no field {name!r}{hint}"


class Wire(msgspec.Struct, metaclass=_WireMeta, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The base of everything that the codec reads and writes."""

    # What the server sent and no other field can hold, by its name on the wire.
    extra: Mapping[str, Any] = {}

    # Names that come with this object in some replies and are not part of it.
    _envelope: ClassVar[frozenset[str]] = frozenset()
    # Fields that are sent even when they have their default.
    _always: ClassVar[frozenset[str]] = frozenset()
    # Fields that are not on the wire.
    _local: ClassVar[frozenset[str]] = frozenset()
    # Whether finer values than Python can hold are kept in `extra`, to be sent back.
    _keeps_finer: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Bring the values to their types: seconds to timedelta, text to policies."""
        for name, (kind, default) in _fields(type(self)).items():
            value = getattr(self, name)
            if value is default:
                continue
            try:
                checked = kind.check(value)
            except (TypeError, ValueError) as error:
                if isinstance(error, InvalidOptionError):  # of a nested object
                    raise
                raise InvalidOptionError(f"{type(self).__name__}.{name} {error}") from None
            if checked is not value:
                msgspec.structs.force_setattr(self, name, checked)

    @classmethod
    def from_wire(cls, raw: object, *, strict: bool = False) -> Self:
        """The object in decoded JSON.

        Unknown fields are kept in `extra`; with `strict` they raise `InvalidResponseError`.
        """
        unknown: list[str] = []
        try:
            decoded = _decode(cls, raw, cls.__name__, unknown)
        except InvalidOptionError as error:
            raise InvalidResponseError(f"not a {cls.__name__}: {error}") from error
        if strict and unknown:
            raise InvalidResponseError(
                f"the server sent fields that are not known: {', '.join(unknown)}"
            )
        return decoded

    def to_wire(self) -> dict[str, Any]:
        """The object as JSON would have it, without what is not set."""
        wire: dict[str, Any] = {}
        for name, (kind, default) in _fields(type(self)).items():
            value = getattr(self, name)
            if (value != default or name in self._always) and name not in self._local:
                wire[name] = value if kind.encode is None else kind.encode(value)
        wire.update(self.extra)
        return wire


class Config(Wire, frozen=True, kw_only=True):
    """The base of configurations: what is read from a server can be sent back unharmed.

    A server has times and durations in nanoseconds, and refuses an update that changes some of
    them. A value that is finer than a microsecond is therefore also kept in `extra`.
    """

    _keeps_finer: ClassVar[bool] = True

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["extra"] = {k: v for k, v in self.extra.items() if k not in changes}
        return type(self)(**{**fields, **changes})


class ErrorDetail(Wire, frozen=True, kw_only=True):
    """An error as it is reported inside of an info."""

    code: int = 0
    err_code: int = 0
    description: str = ""


def _decode(cls: type[_W], raw: object, path: str, unknown: list[str]) -> _W:
    if not isinstance(raw, dict):
        raise InvalidOptionError(f"{path} must be an object, not {raw!r}")
    known = _fields(cls)
    fields: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in known or name in cls._local:
            if name not in cls._envelope:
                extra[name] = value
                unknown.append(f"{path}.{name}")
            continue
        if value is None:
            continue
        kind, _ = known[name]
        if kind.decode is None:
            fields[name] = value
            continue
        try:
            decoded = kind.decode(value, f"{path}.{name}", unknown)
        except (TypeError, ValueError) as error:
            if isinstance(error, InvalidOptionError):
                raise
            raise InvalidOptionError(f"{path}.{name} {error}") from None
        if decoded is not None:
            fields[name] = decoded
            if kind.finer and cls._keeps_finer and kind.encode and kind.encode(decoded) != value:
                extra[name] = value
    if extra:
        fields["extra"] = extra
    return cls(**fields)


# --- whole messages

# What decoding JSON can raise: bad syntax or types, bad UTF-8, nesting without end.
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _plain(value: Any) -> Any:
    if isinstance(value, Wire):
        return value.to_wire()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, timedelta):
        return _nanoseconds(value)
    if isinstance(value, datetime):
        return encode_time(value)
    return value


def encode(body: Wire | Mapping[str, Any]) -> bytes:
    """The JSON of a request; what is None is left out."""
    return msgspec.json.encode(_plain(body))


def decode_response(payload: bytes, *, context: str) -> dict[str, Any]:
    """The JSON object of a reply; raises the `APIError` that it carries instead.

    `context` names what was attempted, for the message of the error.
    """
    try:
        response = msgspec.json.decode(payload)
    except NOT_JSON as error:
        raise InvalidResponseError(f"{context}: the reply is not JSON: {error}") from error
    if not isinstance(response, dict):
        raise InvalidResponseError(f"{context}: the reply is not a JSON object")
    if isinstance(response.get("error"), dict):
        raise APIError.from_response(response["error"], context=context)
    return response
