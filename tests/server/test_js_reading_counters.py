"""Reading counters (2.12): their values, their last change, and where a sum comes from."""

from __future__ import annotations

from typing import Any

import pytest

from jetspark import Client, CounterValue, JetStream, Stream, StreamSource, SubjectTransform
from jetspark.errors import InvalidOptionError, InvalidResponseError, MessageNotFoundError
from jetspark.server import NatsServer
from tests.support.clients import eventually
from tests.support.streams import if_supported, new_name, store

HUGE = 10**30  # counters have no largest value


async def counters(server: NatsServer, js: JetStream, **config: Any) -> Stream | None:
    """A stream of counters; None where the server is too old, which it must say."""
    name = new_name()
    fields = {"name": name, "subjects": [f"{name}.*"], "allow_direct": True, **config}
    call = js.create_stream(allow_msg_counter=True, **fields)
    return await if_supported(server, (2, 12), call, "allow_msg_counter", "of 2.12")


async def count(nc: Client, subject: str, *increments: str) -> None:
    for increment in increments:
        await store(nc, subject, headers={"Nats-Incr": increment})


@pytest.mark.parametrize("allow_direct", [True, False])
async def test_the_value_of_a_counter(
    nats_server: NatsServer, nc: Client, js: JetStream, allow_direct: bool
) -> None:
    stream = await counters(nats_server, js, allow_direct=allow_direct)
    if stream is None:
        return
    subject = f"{stream.name}.a"
    with pytest.raises(MessageNotFoundError, match=subject):
        await stream.get_counter(subject)
    await count(nc, subject, "5", "+2", "-10")
    assert await stream.get_counter(subject) == CounterValue(
        subject=subject, value=-3, increment=-10, sequence=3
    )
    await count(nc, subject, f"+{HUGE}")
    assert (await stream.get_counter(subject)).value == HUGE - 3


async def test_the_values_of_many_counters(
    nats_server: NatsServer, nc: Client, js: JetStream
) -> None:
    stream = await counters(nats_server, js)
    if stream is None:
        return
    for number in range(5):
        await count(nc, f"{stream.name}.{number}", "1", str(number))
    found = {value.subject: value.value async for value in stream.get_counters(f"{stream.name}.*")}
    assert found == {f"{stream.name}.{number}": number + 1 for number in range(5)}
    some = [f"{stream.name}.3", f"{stream.name}.1", f"{stream.name}.missing"]
    assert [value.value async for value in stream.get_counters(some)] == [2, 4]


async def test_the_values_of_very_many_counters_that_go_on(
    nats_server: NatsServer, nc: Client, js: JetStream
) -> None:
    stream = await counters(nats_server, js, max_msgs_per_subject=1)
    if stream is None:
        return
    subjects = [f"{stream.name}.{number}" for number in range(2000)]
    one = {"Nats-Incr": "1"}
    for subject in subjects:
        await js.publish_async(subject, b"", headers=one)
    await js.publish_async_complete(timeout=10)
    found: list[str] = []
    async for value in stream.get_counters(subjects):
        if not found:
            for subject in subjects:
                await js.publish_async(subject, b"", headers=one)
            await js.publish_async_complete(timeout=10)
        found.append(value.subject)
    assert found == subjects


async def test_a_sum_tells_where_it_comes_from(
    nats_server: NatsServer, nc: Client, js: JetStream
) -> None:
    one, two = await counters(nats_server, js), await counters(nats_server, js)
    if one is None or two is None:
        return
    total = new_name()
    sources = [
        StreamSource(
            name=stream.name,
            subject_transforms=[SubjectTransform(src=f"{stream.name}.*", dest=f"{total}.sum")],
        )
        for stream in (one, two)
    ]
    stream = await js.create_stream(
        name=total, allow_msg_counter=True, allow_direct=True, sources=sources
    )
    await count(nc, f"{one.name}.a", "2", "3")
    await count(nc, f"{two.name}.b", "10")

    async def summed() -> bool:
        try:
            return (await stream.get_counter(f"{total}.sum")).value == 15
        except MessageNotFoundError:
            return False

    await eventually(summed)
    value = await stream.get_counter(f"{total}.sum")
    assert value.sources == {one.name: {f"{one.name}.a": 5}, two.name: {f"{two.name}.b": 10}}


async def test_what_is_no_counter(nc: Client, js: JetStream) -> None:
    stream = await js.create_stream(name=new_name(), allow_direct=True)
    for data in (b"", b"5", b'{"val":5}', b'{"val":"x"}', b"\xff"):
        await store(nc, stream.name, data)
        with pytest.raises(InvalidResponseError, match=f"{stream.name}.*is no counter"):
            await stream.get_counter(stream.name)
    with pytest.raises(InvalidOptionError, match="subject"):
        await stream.get_counter(f"{stream.name}.*")
