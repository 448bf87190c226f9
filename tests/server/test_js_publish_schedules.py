"""Messages that the server publishes again at given times (ADR-51)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, Schedule, StoredMessage, Stream
from jetspark.errors import (
    APIError,
    InvalidMessageTTLError,
    MessageNotFoundError,
    MessageTTLDisabledError,
    ScheduleError,
)
from jetspark.server import NatsServer
from tests.support.leaks import GUARD
from tests.support.streams import new_name, version_of

ALL_PATTERNS = (2, 14)


@pytest_asyncio.fixture
async def stream(nats_server: NatsServer, js: JetStream) -> Stream:
    if version_of(nats_server) < (2, 12):
        pytest.skip("schedules came with 2.12")
    name = new_name()
    return await js.create_stream(
        name=name,
        subjects=[f"{name}.>"],
        allow_msg_schedules=True,
        allow_msg_ttl=True,
        storage="memory",
    )


async def produced(stream: Stream, subject: str) -> StoredMessage:
    """The message that the server publishes to a subject."""
    async with asyncio.timeout(GUARD):
        while True:
            try:
                return await stream.get_last_message(subject)
            except MessageNotFoundError:
                await asyncio.sleep(0.02)


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(milliseconds=50)


async def test_once_at_a_time(nc: Client, js: JetStream, stream: Stream) -> None:
    name = stream.name
    listener = await nc.subscribe(f"{name}.due")
    schedule = Schedule.at(soon(), f"{name}.due", ttl=60)
    await js.publish(f"{name}.plan", b"wake up", schedule=schedule, headers={"Who": "me"})
    message = await produced(stream, f"{name}.due")
    assert message.data == b"wake up"
    assert message.headers["Who"] == "me"
    assert message.headers["Nats-Scheduler"] == f"{name}.plan"
    assert message.headers["Nats-Schedule-Next"] == "purge"
    assert message.headers["Nats-TTL"] == "60s"
    with pytest.raises(MessageNotFoundError):
        await stream.get_last_message(f"{name}.plan")
    await nc.flush()
    assert listener.pending_messages == 0, "it goes straight into the stream"


async def test_a_time_that_is_past_is_now(js: JetStream, stream: Stream) -> None:
    name = stream.name
    past = datetime.now(UTC) - timedelta(days=1)
    await js.publish(f"{name}.plan", b"late", schedule=Schedule.at(past, f"{name}.due"))
    assert (await produced(stream, f"{name}.due")).data == b"late"


async def test_a_new_schedule_replaces_the_one_of_its_subject(
    js: JetStream, stream: Stream
) -> None:
    name = stream.name
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for number in range(3):
        schedule = Schedule.at(tomorrow, f"{name}.due")
        await js.publish(f"{name}.plan", b"%d" % number, schedule=schedule)
    assert (await stream.info()).state.messages == 1
    stored = await stream.get_last_message(f"{name}.plan")
    assert (stored.data, stored.headers["Nats-Rollup"]) == (b"2", "sub")


async def test_a_schedule_is_cancelled_by_a_purge(js: JetStream, stream: Stream) -> None:
    name = stream.name
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await js.publish(f"{name}.plan", b"", schedule=Schedule.at(tomorrow, f"{name}.due"))
    await stream.purge(subject=f"{name}.plan")
    assert (await stream.info()).state.messages == 0


async def test_again_and_again(nats_server: NatsServer, js: JetStream, stream: Stream) -> None:
    if version_of(nats_server) < ALL_PATTERNS:
        pytest.skip("this pattern came with 2.14")
    name = stream.name
    schedule = Schedule.every(1, f"{name}.due", rollup=True, source=f"{name}.latest")
    await js.publish(f"{name}.latest", b"21 degrees")
    await js.publish(f"{name}.plan", b"nothing measured", schedule=schedule)
    message = await produced(stream, f"{name}.due")
    assert message.data == b"21 degrees"
    assert message.headers["Nats-Rollup"] == "sub"
    next_time = datetime.fromisoformat(message.headers["Nats-Schedule-Next"])
    assert next_time > datetime.now(UTC) - timedelta(seconds=5)
    assert (await stream.get_last_message(f"{name}.plan")).data == b"nothing measured"


async def test_the_body_of_the_schedule_is_used_without_a_source(
    nats_server: NatsServer, js: JetStream, stream: Stream
) -> None:
    if version_of(nats_server) < ALL_PATTERNS:
        pytest.skip("sources came with 2.14")
    name = stream.name
    schedule = Schedule.at(soon(), f"{name}.due", source=f"{name}.latest")
    await js.publish(f"{name}.plan", b"nothing measured", schedule=schedule)
    assert (await produced(stream, f"{name}.due")).data == b"nothing measured"


@pytest.mark.parametrize("pattern", ["0 0 8 * * mon-fri", "@daily", "@hourly", "* * * * * *"])
@pytest.mark.parametrize("time_zone", [None, "Europe/Rome", "UTC"])
async def test_cron_patterns_are_taken(
    nats_server: NatsServer, js: JetStream, stream: Stream, pattern: str, time_zone: str | None
) -> None:
    if version_of(nats_server) < ALL_PATTERNS:
        pytest.skip("cron patterns came with 2.14")
    name = stream.name
    schedule = Schedule.cron(pattern, f"{name}.due", time_zone=time_zone)
    await js.publish(f"{name}.plan", b"", schedule=schedule)
    stored = await stream.get_last_message(f"{name}.plan")
    assert stored.headers.get("Nats-Schedule-Time-Zone") == time_zone


@pytest.mark.parametrize(
    ("headers", "err_code"),
    [
        ({"Nats-Schedule": "@at tomorrow"}, 10189),
        ({"Nats-Schedule": "99 * * * * *"}, 10189),
        ({"Nats-Schedule": "@every 1ms"}, 10189),
        ({"Nats-Schedule-Target": "OWN"}, 10190),
        ({"Nats-Schedule-Target": "elsewhere"}, 10190),
        ({"Nats-Schedule-Source": "OWN"}, 10203),
        ({"Nats-Schedule-TTL": "soon"}, 10191),
        ({"Nats-Schedule-Rollup": "all"}, 10192),
        ({"Nats-Schedule-Time-Zone": "Mars/Olympus"}, 10223),
        ({"Nats-Schedule": "@every 5s", "Nats-Schedule-Time-Zone": "UTC"}, 10189),
        ({"Nats-TTL": "soon"}, 10165),
    ],
)
async def test_what_the_server_refuses(
    nats_server: NatsServer, js: JetStream, stream: Stream, headers: dict[str, str], err_code: int
) -> None:
    if version_of(nats_server) < ALL_PATTERNS:
        pytest.skip("these rules are of 2.14")
    own = f"{stream.name}.plan"
    good = {"Nats-Schedule": "@daily", "Nats-Schedule-Target": f"{stream.name}.due"}
    changed = {name: value.replace("OWN", own) for name, value in headers.items()}
    with pytest.raises(APIError) as caught:
        await js.publish(own, b"", headers={**good, **changed})
    assert caught.value.err_code == err_code
    assert isinstance(caught.value, ScheduleError | InvalidMessageTTLError)
    assert (await stream.info()).state.messages == 0


@pytest.mark.parametrize(
    ("fields", "error"), [({}, ScheduleError), ({"allow_msg_schedules": True}, None)]
)
async def test_what_the_stream_must_allow(
    nats_server: NatsServer, js: JetStream, fields: dict[str, Any], error: type[APIError] | None
) -> None:
    if version_of(nats_server) < (2, 12):
        pytest.skip("schedules came with 2.12")
    name = new_name()
    await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory", **fields)
    if error is not None:
        with pytest.raises(error) as caught:
            await js.publish(f"{name}.a", b"", schedule=Schedule.at(soon(), f"{name}.b"))
        assert caught.value.err_code == 10188
    else:
        with pytest.raises(MessageTTLDisabledError):
            await js.publish(f"{name}.a", b"", schedule=Schedule.at(soon(), f"{name}.b", ttl=5))
