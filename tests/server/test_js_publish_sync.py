"""Publish and wait: acknowledgements, conditions, ids, TTLs, counters, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, Message, Stream
from jetspark.errors import (
    APIError,
    ConnectionClosedError,
    CounterError,
    DuplicateInProcessError,
    ExpectedStreamMismatchError,
    InvalidAckError,
    InvalidArgumentError,
    InvalidHeaderError,
    InvalidMessageTTLError,
    InvalidOptionError,
    MaxPayloadError,
    MessageTooLargeError,
    MessageTTLDisabledError,
    NoStreamResponseError,
    NotSupportedError,
    PermissionsError,
    RollupError,
    StoreFailedError,
    StreamSealedError,
    TimeoutError,
    WrongLastMessageIdError,
    WrongLastSequenceError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.servers import StartServer
from tests.support.streams import if_supported, new_name, version_of


@pytest_asyncio.fixture
async def stream(js: JetStream) -> Stream:
    """A stream for any subject that begins with its name."""
    name = new_name()
    return await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")


async def count(stream: Stream) -> int:
    return (await stream.info()).state.messages


# --- acknowledgements


@conformance("RUST", "Publish", "publish returns when the stream has stored the message")
@conformance("RUST", "PublishAck", "the ack has stream, sequence, domain and duplicate")
async def test_a_message_is_acknowledged_with_its_place(js: JetStream, stream: Stream) -> None:
    first = await js.publish(f"{stream.name}.a", b"one")
    second = await js.publish(f"{stream.name}.b", b"two", headers={"Shop": "Rome"})
    assert (first.stream, first.sequence, first.duplicate) == (stream.name, 1, False)
    assert (second.sequence, second.domain, second.value) == (2, "", None)
    stored = await stream.get_message(2)
    assert (stored.subject, stored.data) == (f"{stream.name}.b", b"two")
    assert stored.headers == {"Shop": "Rome"}


async def test_a_domain_is_named_in_the_acknowledgement(
    start_server: StartServer, connect: Connect
) -> None:
    nc = await connect(start_server(domain="hub").url)
    js = nc.jetstream(domain="hub")
    await js.create_stream(name="A", storage="memory")
    assert (await js.publish("A", b"")).domain == "hub"


async def test_many_at_once_keep_their_acknowledgements_apart(
    js: JetStream, stream: Stream
) -> None:
    acks = await asyncio.gather(
        *[js.publish(f"{stream.name}.a", b"%d" % number) for number in range(50)]
    )
    for number, ack in enumerate(acks):
        assert (await stream.get_message(ack.sequence)).data == b"%d" % number


async def test_data_that_can_change_is_taken_as_it_is_now(js: JetStream, stream: Stream) -> None:
    data = bytearray(b"before")
    task = asyncio.create_task(js.publish(f"{stream.name}.a", data))
    await asyncio.sleep(0)
    data[:] = b"after!"
    await task
    assert (await stream.get_message(1)).data == b"before"


@conformance("RUST", "Idempotent Publishing", "a message id is deduplicated in the window")
async def test_a_duplicate_is_acknowledged_with_the_first_sequence(
    js: JetStream, stream: Stream
) -> None:
    first = await js.publish(f"{stream.name}.a", b"1", msg_id="17")
    await js.publish(f"{stream.name}.a", b"2", msg_id="18")
    again = await js.publish(f"{stream.name}.b", b"3", msg_id="17")
    assert (again.sequence, again.duplicate) == (first.sequence, True)
    assert await count(stream) == 2


async def test_no_stream_answers(js: JetStream) -> None:
    with pytest.raises(NoStreamResponseError, match="asked 3 times") as caught:
        await js.publish(f"{new_name()}.none", b"", retry_delay=0.01)
    assert caught.value.subject.endswith(".none")
    assert caught.value.retryable
    assert not caught.value.may_have_taken_effect
    with pytest.raises(NoStreamResponseError, match="asked 1 times"):
        await js.publish("nobody", b"", retries=0)


async def test_retries_end_with_the_timeout(js: JetStream) -> None:
    with pytest.raises(NoStreamResponseError):
        await js.publish("nobody", b"", retries=-1, retry_delay=0.02, timeout=0.1)


async def test_a_stream_that_appears_in_time_gets_the_message(js: JetStream) -> None:
    name = new_name()
    publishing = asyncio.create_task(
        js.publish(name, b"early", retries=-1, retry_delay=0.01, timeout=10)
    )
    await asyncio.sleep(0.03)
    await js.create_stream(name=name, storage="memory")
    assert (await publishing).sequence == 1


async def test_jetstream_that_is_off(start_server: StartServer, connect: Connect) -> None:
    nc = await connect(start_server(jetstream=False).url)
    with pytest.raises(NoStreamResponseError, match="JetStream is off"):
        await nc.jetstream().publish("orders", b"", retry_delay=0.01)


async def test_a_stream_without_acknowledgements_leaves_one_waiting(js: JetStream) -> None:
    name = new_name()
    stream = await js.create_stream(name=name, no_ack=True, storage="memory")
    with pytest.raises(TimeoutError, match=r"no acknowledgement in 0\.05 s") as caught:
        await js.publish(name, b"", timeout=0.05)
    assert caught.value.may_have_taken_effect
    assert await count(stream) == 1


@pytest.mark.parametrize("answer", [b"thanks", b"", b"[]", b'{"ok": true}'])
async def test_somebody_else_answers(nc: Client, js: JetStream, answer: bytes) -> None:
    subject = new_name()

    async def respond(message: Message) -> None:
        await message.respond(answer)

    await nc.subscribe(subject, callback=respond)
    with pytest.raises(InvalidAckError) as caught:
        await js.publish(subject, b"")
    assert caught.value.may_have_taken_effect


async def test_a_status_that_is_no_acknowledgement(nc: Client, js: JetStream) -> None:
    subject = new_name()

    async def respond(message: Message) -> None:
        assert message.raw_reply is not None
        pieces = nc._encoder.pieces  # no public call writes a status line
        nc._encoder.on_output()
        line = b"NATS/1.0 429 Too Many Requests\r\n\r\n"
        pieces += (b"\r\nHPUB %b %d %d\r\n" % (message.raw_reply, len(line), len(line)), line, b"")

    await nc.subscribe(subject, callback=respond)
    with pytest.raises(APIError, match="Too Many Requests") as caught:
        await js.publish(subject, b"")
    assert caught.value.retryable


async def test_a_copy_that_is_being_stored(nc: Client, js: JetStream) -> None:
    subject = new_name()
    in_process = b'{"error":{"code":409,"err_code":10158},"stream":"S","seq":0}'
    answers = [in_process, in_process, b'{"stream":"S","seq":7,"duplicate": true}']

    async def respond(message: Message) -> None:
        if answer := answers.pop(0):
            await message.respond(answer)

    await nc.subscribe(subject, callback=respond)
    assert (await js.publish(subject, b"", msg_id="1", retry_delay=0.01)).sequence == 7
    # Without the time for another attempt, and where another attempt would not be right.
    answers[:] = [in_process, in_process]
    with pytest.raises(DuplicateInProcessError):
        await js.publish(subject, b"", msg_id="1", timeout=0.1)
    with pytest.raises(DuplicateInProcessError):
        await js.publish(subject, b"", msg_id="1", expected_last_sequence=5)
    # The copy that is being stored is an earlier one of this message: it may still be acknowledged.
    answers[:] = [b"", in_process, b"", b""]
    with pytest.raises(TimeoutError) as caught:
        await js.publish(subject, b"", msg_id="1", timeout=0.2, retry_delay=0.3)
    assert caught.value.may_have_taken_effect


# --- conditions


async def test_expected_stream(js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.a", b"", expected_stream=stream.name)
    with pytest.raises(ExpectedStreamMismatchError):
        await js.publish(f"{stream.name}.a", b"", expected_stream="OTHER")
    assert await count(stream) == 1


@conformance("RUST", "Publish", "expected_last_sequence refuses when someone else was faster")
async def test_expected_last_sequence(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    await js.publish(subject, b"", expected_last_sequence=0)
    await js.publish(subject, b"", expected_last_sequence=1)
    with pytest.raises(WrongLastSequenceError) as caught:
        await js.publish(subject, b"", expected_last_sequence=1)
    assert (caught.value.last_sequence, caught.value.may_have_taken_effect) == (2, False)


@conformance("RUST", "Publish", "expected_last_subject_sequence refuses when it has changed")
async def test_expected_last_sequence_of_a_subject(js: JetStream, stream: Stream) -> None:
    a, b = f"{stream.name}.a", f"{stream.name}.b"
    await js.publish(a, b"", expected_last_subject_sequence=0)
    await js.publish(b, b"", expected_last_subject_sequence=0)
    await js.publish(a, b"", expected_last_subject_sequence=1)
    for wrong in (0, 2):
        with pytest.raises(WrongLastSequenceError):
            await js.publish(a, b"", expected_last_subject_sequence=wrong)


async def test_expected_last_sequence_of_another_subject(
    nats_server: NatsServer, js: JetStream, stream: Stream
) -> None:
    if version_of(nats_server) < (2, 11):
        pytest.skip("the header came with 2.11")
    name = stream.name
    await js.publish(f"{name}.order.1", b"")
    await js.publish(f"{name}.order.2", b"")
    for filter_subject in (f"{name}.order.*", f"{name}.>", f"{name}.order.2"):
        with pytest.raises(WrongLastSequenceError):
            await js.publish(
                f"{name}.done",
                b"",
                expected_last_subject_sequence=1,
                expected_last_subject_sequence_subject=filter_subject,
            )
    ack = await js.publish(
        f"{name}.done",
        b"",
        expected_last_subject_sequence=2,
        expected_last_subject_sequence_subject=f"{name}.order.*",
    )
    assert ack.sequence == 3


@conformance("RUST", "Publish", "expected_last_message_id refuses when another one is the last")
async def test_expected_last_message_id(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    await js.publish(subject, b"", msg_id="1")
    await js.publish(subject, b"", msg_id="2", expected_last_msg_id="1")
    with pytest.raises(WrongLastMessageIdError):
        await js.publish(subject, b"", msg_id="3", expected_last_msg_id="1")


# --- rollup, TTL, counters


async def test_rollup_replaces_a_subject_or_everything(js: JetStream) -> None:
    name = new_name()
    stream = await js.create_stream(
        name=name, subjects=[f"{name}.>"], allow_rollup_hdrs=True, storage="memory"
    )
    for subject in ("a", "a", "b"):
        await js.publish(f"{name}.{subject}", b"")
    await js.publish(f"{name}.a", b"", rollup="sub")
    assert (await stream.info()).state.messages == 2
    await js.publish(f"{name}.c", b"", rollup="all")
    assert (await stream.info()).state.messages == 1


async def test_rollup_must_be_allowed(js: JetStream, stream: Stream) -> None:
    with pytest.raises(RollupError):
        await js.publish(f"{stream.name}.a", b"", rollup="sub")


async def test_a_message_with_a_ttl_goes_away(nats_server: NatsServer, js: JetStream) -> None:
    creating = js.create_stream(name=new_name(), allow_msg_ttl=True, storage="memory")
    stream = await if_supported(nats_server, (2, 11), creating)
    if stream is None:
        return
    await js.publish(stream.name, b"short", ttl=1)
    await js.publish(stream.name, b"long", ttl="never")
    assert (await stream.get_message(1)).headers["Nats-TTL"] == "1s"
    assert (await stream.get_message(2)).headers["Nats-TTL"] == "never"

    async def gone() -> bool:
        return await count(stream) == 1

    for _ in range(500):
        if await gone():
            break
        await asyncio.sleep(0.02)
    assert (await stream.get_last_message(stream.name)).data == b"long"


async def test_a_ttl_below_that_of_the_markers_is_raised(
    nats_server: NatsServer, js: JetStream
) -> None:
    creating = js.create_stream(name=new_name(), subject_delete_marker_ttl=5, storage="memory")
    stream = await if_supported(nats_server, (2, 11), creating)
    if stream is not None:
        await js.publish(stream.name, b"", ttl=2)
        assert (await stream.get_message(1)).headers["Nats-TTL"] == "5"


async def test_ttl_errors(nats_server: NatsServer, js: JetStream, stream: Stream) -> None:
    if version_of(nats_server) < (2, 11):
        pytest.skip("TTLs of messages came with 2.11")
    with pytest.raises(MessageTTLDisabledError, match="allow_msg_ttl"):
        await js.publish(f"{stream.name}.a", b"", ttl=5)
    ttls = await js.create_stream(name=new_name(), allow_msg_ttl=True, storage="memory")
    for bad in ("0", "-5s", "soon", "100ms"):
        with pytest.raises(InvalidMessageTTLError):
            await js.publish(ttls.name, b"", headers={"Nats-TTL": bad})
    await js.publish(ttls.name, b"", headers={"Nats-TTL": ""})
    assert await count(ttls) == 1


async def test_counters(nats_server: NatsServer, js: JetStream) -> None:
    name = new_name()
    creating = js.create_stream(
        name=name,
        subjects=[f"{name}.>"],
        allow_msg_counter=True,
        allow_direct=True,
        storage="memory",
    )
    stream = await if_supported(nats_server, (2, 12), creating)
    if stream is None:
        return
    assert await js.counter_add(f"{name}.a") == 1
    assert await js.counter_add(f"{name}.a", 41, headers={"Who": "me"}) == 42
    assert await js.counter_add(f"{name}.b", -(10**30)) == -(10**30)
    ack = await js.publish(f"{name}.a", b"", headers={"Nats-Incr": "-2"})
    assert ack.value == 40
    assert (await stream.get_counter(f"{name}.a")).value == 40
    assert (await stream.get_message(2)).headers["Who"] == "me"
    with pytest.raises(CounterError):
        await js.publish(f"{name}.a", b"5")
    with pytest.raises(CounterError):
        await js.counter_add(f"{name}.a", 1, expected_last_sequence=4)
    with pytest.raises(InvalidOptionError, match="increment"):
        await js.counter_add(f"{name}.a", 1.5)  # type: ignore[arg-type]


async def test_a_stream_that_does_not_count(
    nats_server: NatsServer, js: JetStream, stream: Stream
) -> None:
    if version_of(nats_server) >= (2, 12):
        with pytest.raises(CounterError):
            await js.counter_add(f"{stream.name}.a")
        assert await count(stream) == 0
    else:
        with pytest.raises(NotSupportedError, match="does not count") as caught:
            await js.counter_add(f"{stream.name}.a")
        assert caught.value.may_have_taken_effect


async def test_a_server_that_does_not_count(nc: Client, js: JetStream) -> None:
    name = new_name()

    async def store(message: Message) -> None:
        await message.respond(b'{"stream":"OLD", "seq":1}')

    await nc.subscribe(name, callback=store)
    with pytest.raises(NotSupportedError, match="does not count") as caught:
        await js.counter_add(name)
    assert caught.value.may_have_taken_effect


# --- refusals


async def test_a_full_stream(js: JetStream) -> None:
    name = new_name()
    await js.create_stream(name=name, max_msgs=1, discard="new", storage="memory")
    await js.publish(name, b"")
    with pytest.raises(StoreFailedError, match="maximum messages"):
        await js.publish(name, b"")


async def test_a_message_over_the_limit_of_the_stream(js: JetStream) -> None:
    name = new_name()
    await js.create_stream(name=name, max_msg_size=10, storage="memory")
    with pytest.raises(MessageTooLargeError):
        await js.publish(name, b"x" * 11)


async def test_a_sealed_stream(js: JetStream, stream: Stream) -> None:
    await stream.seal()
    with pytest.raises(StreamSealedError):
        await js.publish(f"{stream.name}.a", b"")


@pytest.mark.parametrize(
    ("subject", "data", "options", "error"),
    [
        ("a b", b"", {}, InvalidArgumentError),
        ("a.*", b"", {}, InvalidArgumentError),
        ("a", "text", {}, InvalidArgumentError),
        ("a", 5, {"msg_id": "x"}, InvalidArgumentError),
        ("a", b"", {"msgid": "x"}, InvalidOptionError),
        ("a", b"", {"timeout": 0}, InvalidOptionError),
        ("a", b"", {"retry_delay": -1}, InvalidOptionError),
        ("a", b"x" * (1024 * 1024 + 1), {}, MaxPayloadError),
        ("a", b"x" * (1024 * 1024), {"msg_id": "1"}, MaxPayloadError),
        ("a", b"", {"headers": {"A": "x" * 70_000}}, InvalidHeaderError),
    ],
)
async def test_what_is_refused_without_asking_the_server(
    nc: Client, js: JetStream, subject: str, data: Any, options: Any, error: type[Exception]
) -> None:
    sent = nc.statistics.messages_out
    for publish in (js.publish, js.publish_async):
        with pytest.raises(error):
            await publish(subject, data, **options)
    assert nc.statistics.messages_out == sent
    assert js.publish_async_pending == 0
    assert nc.connected


async def test_the_largest_message_is_stored(js: JetStream, stream: Stream) -> None:
    data = b"x" * (1024 * 1024 - 100)
    await js.publish(f"{stream.name}.a", data, msg_id="large")
    assert (await stream.get_message(1)).data == data


async def test_missing_permissions(start_server: StartServer, connect: Connect) -> None:
    permissions = {"publish": {"deny": ["secret.>"]}, "subscribe": ["_INBOX.>", "mine.>"]}
    users: list[dict[str, Any]] = [
        {"user": "ann", "password": "a", "permissions": permissions},
        {"user": "root", "password": "r"},
    ]
    server = start_server(users=users)
    admin = (await connect(server.url, user="root", password="r")).jetstream()
    await admin.create_stream(name="S", subjects=["secret.>", "open.>"], storage="memory")
    nc = await connect(server.url, user="ann", password="a")
    js = nc.jetstream()
    with pytest.raises(PermissionsError, match=r"secret\.a"):
        await js.publish("secret.a", b"")
    future = await js.publish_async("secret.b", b"")
    with pytest.raises(PermissionsError, match=r"secret\.b"):
        await future
    assert (await js.publish("open.a", b"")).sequence == 1
    elsewhere = await connect(server.url, user="ann", password="a", inbox_prefix="theirs")
    for _ in range(2):  # each call tries anew
        with pytest.raises(PermissionsError) as caught:
            await elsewhere.jetstream().publish("open.a", b"")
        assert caught.value.may_have_taken_effect, "only the acknowledgement is not permitted"


# --- the life of a call


async def test_cancelling_a_publish_leaves_nothing_behind(js: JetStream) -> None:
    name = new_name()
    await js.create_stream(name=name, no_ack=True, storage="memory")
    task = asyncio.create_task(js.publish(name, b""))
    await eventually(lambda: js._awaited_acks.pending)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not js._awaited_acks.pending


async def test_a_closed_client(nc: Client, js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.a", b"")
    await nc.close()
    for publish in (js.publish, js.publish_async):
        with pytest.raises(ConnectionClosedError):
            await publish(f"{stream.name}.a", b"")


async def test_closing_fails_what_is_pending(connect: Connect, nats_server: NatsServer) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream()
    name = new_name()
    await js.create_stream(name=name, no_ack=True, storage="memory")
    task = asyncio.create_task(js.publish(name, b""))
    await eventually(lambda: js._awaited_acks.pending)
    await nc.close()
    with pytest.raises(ConnectionClosedError) as caught:
        await task
    assert caught.value.may_have_taken_effect


async def test_contexts_that_are_dropped_leave_no_subscription(nc: Client, stream: Stream) -> None:
    await nc.jetstream().publish(f"{stream.name}.a", b"")
    await asyncio.sleep(0)
    before = len(nc._routes)
    for _ in range(20):
        js = nc.jetstream()
        await js.publish(f"{stream.name}.a", b"")
        await js.publish_async(f"{stream.name}.a", b"")
        del js
    await eventually(lambda: len(nc._routes) == before)
    assert await count(stream) == 41
