"""Durations, times and objects between JSON and Python."""

from __future__ import annotations

import enum
import json
import pickle
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspark import errors
from jetspark.errors import InvalidOptionError, InvalidResponseError
from jetspark.jetstream.codec import (
    NO_DURATION,
    NO_DURATIONS,
    Config,
    Duration,
    Durations,
    UnknownValue,
    Wire,
    decode_response,
    decode_time,
    encode,
    encode_time,
    from_nanoseconds,
    to_nanoseconds,
    to_timedelta,
)

LONGEST = timedelta(microseconds=(2**63 - 1) // 1000)


class Color(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Part(Config, frozen=True, kw_only=True):
    name: str
    wait: Duration = NO_DURATION


class Thing(Config, frozen=True, kw_only=True):
    number: int = -1
    text: str = ""
    flag: bool = False
    blob: bytes = b""
    wait: Duration = NO_DURATION
    waits: Durations = NO_DURATIONS
    at: datetime | None = None
    color: Color | str = Color.RED
    part: Part | None = None
    parts: Sequence[Part] = []
    words: Sequence[str] = []
    labels: Mapping[str, str] = {}
    named: Mapping[str, Part] = {}
    secret: str = ""

    _always: ClassVar[frozenset[str]] = frozenset({"number"})
    _local: ClassVar[frozenset[str]] = frozenset({"secret"})
    _envelope: ClassVar[frozenset[str]] = frozenset({"type"})


class Report(Wire, frozen=True, kw_only=True):
    at: datetime | None = None
    age: timedelta | None = None
    thing: Thing | None = None


# Durations.


@settings(deadline=None)
@given(st.timedeltas(min_value=-LONGEST, max_value=LONGEST))
def test_durations_are_exact(duration: timedelta) -> None:
    nanoseconds = to_nanoseconds(duration)
    assert nanoseconds == duration // timedelta(microseconds=1) * 1000
    assert from_nanoseconds(nanoseconds) == duration


@settings(deadline=None)
@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_every_duration_of_the_wire_can_be_read(nanoseconds: int) -> None:
    read = from_nanoseconds(nanoseconds) // timedelta(microseconds=1) * 1000
    assert 0 <= nanoseconds - read < 1000


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=10**9))
def test_whole_seconds_and_milliseconds_are_exact(number: int) -> None:
    assert to_nanoseconds(number) == number * 10**9
    assert to_nanoseconds(float(number)) == number * 10**9
    assert to_nanoseconds(number / 1000) == number * 10**6


def test_a_number_means_seconds() -> None:
    assert to_timedelta(1.5) == timedelta(seconds=1, milliseconds=500)
    assert to_nanoseconds(0.1) == 100_000_000
    assert to_nanoseconds(0) == 0


@pytest.mark.parametrize(
    "value",
    [True, "5", None, float("nan"), float("inf"), 1e300, 1e-7, timedelta.max, 300 * 365 * 86400],
)
def test_bad_durations(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        to_timedelta(value)
    with pytest.raises(InvalidOptionError, match=r"Thing\.wait must be"):
        Thing(wait=value)


# Times.


@settings(deadline=None)
@given(st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC)))
def test_times_survive_a_round_trip(time: datetime) -> None:
    assert decode_time(encode_time(time)) == time


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-02-03T04:05:06Z", datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("2024-02-03T04:05:06.1Z", datetime(2024, 2, 3, 4, 5, 6, 100_000, tzinfo=UTC)),
        ("2024-02-03T04:05:06.123456789Z", datetime(2024, 2, 3, 4, 5, 6, 123_456, tzinfo=UTC)),
        ("2024-02-03T06:05:06+02:00", datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("2022-09-01 10:00:00.5 +0000 UTC", datetime(2022, 9, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_times_of_servers(text: str, time: datetime | None) -> None:
    decoded = decode_time(text)
    assert decoded == time
    assert decoded is None or decoded.tzinfo is UTC


def test_times_are_written_as_the_server_writes_them() -> None:
    east = timezone(timedelta(hours=2))
    assert encode_time(datetime(2024, 1, 1, 2, 0, 0, 120_000, tzinfo=east)) == (
        "2024-01-01T00:00:00.12Z"
    )
    assert encode_time(datetime(2024, 1, 1, tzinfo=UTC)) == "2024-01-01T00:00:00Z"


@pytest.mark.parametrize("value", ["", "yesterday", "2024-01-01", "2024-01-01T00:00:00", 5, None])
def test_bad_times_on_the_wire(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        decode_time(value)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2024, 1, 1),
        "2024-01-01T00:00:00Z",
        datetime.min.replace(tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_bad_times_of_a_caller(value: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"Thing\.at "):
        Thing(at=value)


# Objects.


FULL = {
    "number": 7,
    "text": "t",
    "flag": True,
    "blob": "AAEC",
    "wait": 1_500_000_000,
    "waits": [1_000_000, 2_000_000_000],
    "at": "2024-01-01T00:00:00.25Z",
    "color": "blue",
    "part": {"name": "p", "wait": 1000},
    "parts": [{"name": "q"}, {"name": "r"}],
    "words": ["a", "b"],
    "labels": {"k": "v"},
    "named": {"x": {"name": "y"}},
}


def test_json_to_python_and_back() -> None:
    thing = Thing.from_wire(FULL, strict=True)
    assert thing == Thing(
        number=7,
        text="t",
        flag=True,
        blob=b"\x00\x01\x02",
        wait=1.5,
        waits=[0.001, timedelta(seconds=2)],
        at=datetime(2024, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC),
        color="blue",
        part=Part(name="p", wait=timedelta(microseconds=1)),
        parts=[Part(name="q"), Part(name="r")],
        words=("a", "b"),
        labels={"k": "v"},
        named={"x": Part(name="y")},
    )
    assert thing.color is Color.BLUE
    assert thing.waits == [timedelta(milliseconds=1), timedelta(seconds=2)]
    assert thing.to_wire() == FULL
    assert json.loads(encode(thing)) == FULL
    assert pickle.loads(pickle.dumps(thing)) == thing


def test_unset_fields_are_not_sent() -> None:
    assert Thing().to_wire() == {"number": -1}
    assert Thing(number=-1, wait=0, color="red", words=[], secret="s").to_wire() == {"number": -1}


def test_nulls_and_empty_policies_are_defaults() -> None:
    thing = Thing.from_wire({"words": None, "number": None, "color": "", "part": None}, strict=True)
    assert thing == Thing()


def test_unknown_fields_are_kept_and_sent_back() -> None:
    raw = {"number": 1, "new": {"a": [1]}, "part": {"name": "p", "newer": True}}
    thing = Thing.from_wire(raw)
    assert thing.extra == {"new": {"a": [1]}}
    assert thing.part is not None
    assert thing.part.extra == {"newer": True}
    assert thing.replace(text="t").to_wire() == {**raw, "text": "t"}


def test_strict_decoding_names_every_unknown_field() -> None:
    raw = {
        "type": "ignored",
        "new": 1,
        "part": {"name": "p", "x": 1},
        "parts": [{"name": "", "y": 1}],
    }
    with pytest.raises(InvalidResponseError) as caught:
        Thing.from_wire(raw, strict=True)
    for name in ("Thing.new", "Thing.part.x", "Thing.parts.y"):
        assert name in str(caught.value)
    assert "Thing.type" not in str(caught.value)


def test_policies_of_a_newer_server_are_kept_as_text() -> None:
    thing = Thing.from_wire({"color": "green"}, strict=True)
    assert thing.color == "green"
    assert isinstance(thing.color, UnknownValue)
    copy = pickle.loads(pickle.dumps(thing.replace(text="t")))
    assert copy.to_wire() == {"number": -1, "text": "t", "color": "green"}
    assert type(copy.to_wire()["color"]) is str


def test_values_finer_than_microseconds_are_sent_back_unharmed() -> None:
    raw = {
        "number": -1,
        "wait": 1,
        "waits": [1_000_000_001, 5000],
        "at": "2024-01-01T00:00:00.123456789Z",
    }
    thing = Thing.from_wire(raw, strict=True)
    assert thing.at == datetime(2024, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)
    assert thing.waits == [timedelta(seconds=1), timedelta(microseconds=5)]
    assert thing.to_wire() == raw
    changed = thing.replace(wait=2, at=None)
    assert changed.to_wire() == {"number": -1, "wait": 2 * 10**9, "waits": raw["waits"]}


def test_infos_do_not_keep_what_is_never_sent_back() -> None:
    report = Report.from_wire({"at": "2024-01-01T00:00:00.123456789Z", "age": -1, "new": 1})
    assert report.extra == {"new": 1}
    assert report.age is None
    assert Report.from_wire({"age": 2_000_001}).age == timedelta(milliseconds=2)


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ([], "Thing must be an object"),
        ({"number": "1"}, "Thing.number must be an int"),
        ({"number": True}, "Thing.number must be an int"),
        ({"flag": 1}, "Thing.flag must be a bool"),
        ({"wait": 1.5}, "Thing.wait must be nanoseconds"),
        ({"wait": 10**30}, "Thing.wait must be nanoseconds"),
        ({"at": "soon"}, "Thing.at "),
        ({"blob": "!"}, "Thing.blob "),
        ({"color": 1}, "Thing.color must be a str"),
        ({"words": "ab"}, "Thing.words must be a list"),
        ({"words": [1]}, "Thing.words must be a str"),
        ({"labels": []}, "Thing.labels must be an object"),
        ({"part": {}}, "name"),
        ({"parts": [{"name": 1}]}, "Part.name must be a str"),
        ({"named": {"x": 5}}, "Thing.named.x must be an object"),
    ],
)
def test_json_of_the_wrong_shape(raw: object, where: str) -> None:
    with pytest.raises(InvalidResponseError) as caught:
        Thing.from_wire(raw)
    assert where in str(caught.value)


def test_a_wrong_keyword_says_which_one_was_meant() -> None:
    wrong: dict[str, Any] = {"nummer": 1}
    with pytest.raises(InvalidOptionError, match=r"Thing has no field 'nummer'.*number"):
        Thing(**wrong)
    with pytest.raises(InvalidOptionError, match=r"'nummer'.*number"):
        Thing().replace(**wrong)
    with pytest.raises(InvalidOptionError, match=r"Part has no field 'zzz'$"):
        Thing(part={"zzz": 1})  # type: ignore[arg-type]


def test_a_required_field_is_demanded() -> None:
    with pytest.raises(InvalidOptionError, match=r"Part.*name"):
        Part()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "fields",
    [
        {"number": "1"},
        {"number": None},
        {"flag": 0},
        {"text": b""},
        {"words": "ab"},
        {"words": 5},
        {"words": ["a", 1]},
        {"labels": ["a"]},
        {"labels": {1: "a"}},
        {"labels": {"a": 1}},
        {"color": "green"},
        {"color": 5},
        {"part": "p"},
        {"parts": {"name": "p"}},
        {"waits": [1, "2"]},
    ],
)
def test_values_of_the_wrong_type_name_the_field(fields: dict[str, Any]) -> None:
    name = next(iter(fields))
    with pytest.raises(InvalidOptionError, match=rf"Thing\.{name} must be"):
        Thing(**fields)


def test_nested_objects_may_be_given_as_mappings() -> None:
    given: dict[str, Any] = {"part": {"name": "p", "wait": 2}, "parts": [{"name": "q"}]}
    assert Thing(**given) == Thing(part=Part(name="p", wait=2), parts=[Part(name="q")])


def test_objects_do_not_change() -> None:
    words = ["a"]
    thing = Thing(words=words)
    words.append("b")
    assert thing.words == ["a"]
    with pytest.raises(AttributeError):
        thing.number = 1  # type: ignore[misc]
    assert thing.replace(number=5).number == 5
    assert thing.number == -1


@settings(deadline=None)
@given(
    st.builds(
        Thing,
        number=st.integers(min_value=-(2**63), max_value=2**64 - 1),
        text=st.text(),
        flag=st.booleans(),
        blob=st.binary(),
        wait=st.timedeltas(min_value=timedelta(0), max_value=LONGEST),
        waits=st.lists(st.timedeltas(min_value=timedelta(0), max_value=LONGEST)),
        at=st.none() | st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC)),
        color=st.sampled_from(Color),
        part=st.none() | st.builds(Part, name=st.text()),
        labels=st.dictionaries(st.text(), st.text()),
    )
)
def test_anything_survives_a_round_trip(thing: Thing) -> None:
    assert Thing.from_wire(json.loads(encode(thing)), strict=True) == thing


# Whole messages.


def test_requests_leave_out_what_is_none() -> None:
    body = encode(
        {
            "stream_name": "S",
            "config": Part(name="p"),
            "action": None,
            "until": datetime(2024, 1, 1, tzinfo=UTC),
            "wait": timedelta(seconds=1),
            "list": [Part(name="q"), None],
        }
    )
    assert json.loads(body) == {
        "stream_name": "S",
        "config": {"name": "p"},
        "until": "2024-01-01T00:00:00Z",
        "wait": 10**9,
        "list": [{"name": "q"}, None],
    }


def test_a_reply_with_an_error_raises_it() -> None:
    payload = b'{"type":"x","error":{"code":404,"err_code":10059,"description":"gone"},"total":0}'
    with pytest.raises(errors.StreamNotFoundError, match=r"get stream 'S': gone"):
        decode_response(payload, context="get stream 'S'")


def test_a_good_reply_is_its_object() -> None:
    assert decode_response(b'{"success": true, "error": null}', context="x")["success"] is True


@pytest.mark.parametrize("payload", [b"", b"+OK", b"[]", b"5", b'"\xff"', b"[" * 100_000])
def test_a_reply_that_is_not_json(payload: bytes) -> None:
    with pytest.raises(InvalidResponseError, match="delete stream"):
        decode_response(payload, context="delete stream")
