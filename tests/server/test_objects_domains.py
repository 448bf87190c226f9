"""Object stores in other domains and accounts: API calls have a prefix, publishing has none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from jetspark import Client, EventKind, JetStream, ObjectStore
from jetspark.errors import NoRespondersError, NoStreamResponseError, WrongLastSequenceError
from jetspark.server import NatsServer
from jetspark.server.config import LOCALHOST
from jetspark.server.ports import ReservedPort
from tests.support.clients import Connect, Events, eventually
from tests.support.conformance import conformance
from tests.support.objects import CHUNK, Gate, assert_tidy, content, meta_subject, read
from tests.support.proxy import Proxy
from tests.support.servers import StartServer

DATA = content(300_000)
Pair = tuple[NatsServer, NatsServer]


@pytest.fixture
def hub_and_leaf(start_server: StartServer) -> Iterator[Pair]:
    """Two servers with a JetStream domain each, connected as leaf node and hub."""
    port = ReservedPort(LOCALHOST)
    listen = {"host": LOCALHOST, "port": port.number}
    hub = start_server(domain="hub", config={"leafnodes": listen})
    remotes = [{"url": f"nats://{LOCALHOST}:{port.number}"}]
    leaf = start_server(domain="leaf", config={"leafnodes": {"remotes": remotes}})
    yield hub, leaf
    port.close()


async def reachable(js: JetStream) -> JetStream:
    """The JetStream of another domain, as soon as the servers are connected."""

    async def answers() -> bool:
        try:
            await js.account_info()
        except Exception:
            return False
        return True

    await eventually(answers)
    return js


@conformance("OBJ", "Domains and accounts", "$JS.<domain>.API.$O... has no responders")
async def test_there_are_no_prefixed_subjects(hub_and_leaf: Pair, connect: Connect) -> None:
    nc = await connect(hub_and_leaf[0].url)
    store = await nc.jetstream(domain="hub").create_object_store(bucket="b", storage="memory")
    with pytest.raises(NoRespondersError):
        await nc.request(f"$JS.hub.API.{meta_subject(store.name, 'o')}", b"{}")


@conformance("OBJ", "Domains and accounts", "an unprefixed $O publish crosses leaf nodes")
async def test_a_store_in_another_domain(hub_and_leaf: Pair, connect: Connect) -> None:
    hub, leaf = hub_and_leaf
    events = Events()
    near = (await connect(hub.url)).jetstream(domain="hub")
    await near.create_object_store(bucket="b", storage="memory")
    nc = await connect(leaf.url, on_event=events)
    js = await reachable(nc.jetstream(domain="hub"))
    store = await js.object_store("b")
    await store.put("o", DATA)
    await store.put("o", DATA[::-1], description="d")
    await store.update_meta("o", name="p")
    assert await read(store, "p") == DATA[::-1]
    assert [info.name async for info in store.list()] == ["p"]
    await store.add_link("l", "p")
    assert await read(await near.object_store("b"), "l") == DATA[::-1]
    await store.delete("l")
    await assert_tidy(js, store, "p")
    assert events.errors == [], "the store itself has answered"


@conformance("OBJ", "Domains and accounts", "stores of one name in two domains: both get a copy")
async def test_the_same_store_in_both_domains(hub_and_leaf: Pair, connect: Connect) -> None:
    hub, leaf = hub_and_leaf
    events = Events()
    there = (await connect(hub.url)).jetstream(domain="hub")
    far = await there.create_object_store(bucket="b", storage="memory")
    nc: Client = await connect(leaf.url, on_event=events)
    await reachable(nc.jetstream(domain="hub"))
    near = await nc.jetstream(domain="leaf").create_object_store(bucket="b", storage="memory")

    # Whichever acknowledges first counts; if that is the other one, there is a warning.
    for number in range(20):
        await near.put(f"o{number}", DATA)
    wanted = {f"o{number}" for number in range(20)}
    for store in (near, far):

        async def has_all(store: ObjectStore = store) -> bool:
            return {info.name async for info in store.list()} == wanted

        await eventually(has_all)
        assert await read(store, "o7") == DATA
    warnings = [str(error) for error in events.errors if "has answered" in str(error)]
    assert len(warnings) <= 1
    assert all("store 'b' (domain 'leaf'): stream 'OBJ_b'" in text for text in warnings)


@conformance(
    "OBJ", "Domains and accounts", "stores of one name in two domains: the first to answer counts"
)
async def test_the_other_domain_answers_first(start_server: StartServer, connect: Connect) -> None:
    """The answers of the hub wait in a proxy until the leaf has answered."""
    port = ReservedPort(LOCALHOST)
    hub = start_server(domain="hub", config={"leafnodes": {"host": LOCALHOST, "port": port.number}})
    async with Proxy(LOCALHOST, port.number) as proxy:
        leaf = start_server(domain="leaf", config={"leafnodes": {"remotes": [{"url": proxy.url}]}})
        there = (await connect(hub.url)).jetstream(domain="hub")
        await there.create_object_store(bucket="b", storage="memory")
        events = Events()
        nc = await connect(leaf.url, on_event=events)
        far = await (await reachable(nc.jetstream(domain="hub"))).object_store("b")
        await nc.jetstream(domain="leaf").create_object_store(bucket="b", storage="memory")

        proxy.stall("down")
        answer = await nc.request(meta_subject("b", "raw"), b"{}")
        assert json.loads(answer.data) == {"stream": "OBJ_b", "domain": "leaf", "seq": 1}
        proxy.unstall()

        async def has_a_copy() -> bool:
            return bool((await (await there.object_store("b")).status()).size)

        await eventually(has_a_copy)
        gate = Gate(DATA, 0)
        putting = asyncio.create_task(far.put("o", gate, chunk_size=CHUNK))
        await gate.reached.wait()
        proxy.stall("down")
        gate.open()
        await events.wait(EventKind.ERROR)
        proxy.unstall()
        await putting
        assert await read(far, "o") == DATA
        assert ["domain 'leaf' has answered" in str(error) for error in events.errors] == [True]


async def test_a_warning_when_another_domain_answers(
    start_server: StartServer, connect: Connect
) -> None:
    events = Events()
    nc = await connect(start_server(domain="hub").url, on_event=events)
    js = nc.jetstream()
    store = await js.create_object_store(bucket="b", storage="memory")
    await store.put("o", b"1")
    assert events.errors == []
    store._records._domain = "elsewhere"  # as if the answer came from another one
    await store.put("o", b"2")
    await store.put("o", b"3")
    assert len(events.errors) == 1
    assert "domain 'hub' has answered" in str(events.errors[0])


async def test_the_other_domain_refuses(hub_and_leaf: Pair, connect: Connect) -> None:
    hub, leaf = hub_and_leaf
    there = (await connect(hub.url)).jetstream(domain="hub")
    far = await there.create_object_store(bucket="b", storage="memory")
    for data in (b"1", b"2"):
        await far.put("o", data)
    nc = await connect(leaf.url)
    await reachable(nc.jetstream(domain="hub"))
    js = nc.jetstream(domain="leaf")
    near = await js.create_object_store(bucket="b", storage="memory")
    # The sequences of the two differ: the other one refuses each, and is sometimes faster.
    for number in range(30):
        data = content(200_000, seed=number)
        await near.put("o", data)
        assert await read(near, "o") == data
        await assert_tidy(js, near, "o")


@conformance("OBJ", "Domains and accounts", "what only the other domain refuses stays whole")
async def test_a_refusal_that_comes_from_elsewhere(
    start_server: StartServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events()
    js = (await connect(start_server().url, on_event=events)).jetstream()
    store = await js.create_object_store(bucket="b", storage="memory")
    await store.put("o", b"1")
    publish = store._records._publish

    async def refused_elsewhere(*args: Any) -> None:
        monkeypatch.undo()
        await publish(*args)
        raise WrongLastSequenceError("wrong last sequence: 7", err_code=10071)

    monkeypatch.setattr(store._records, "_publish", refused_elsewhere)
    info = await store.put("o", DATA)
    assert info == await store.info("o")
    assert await read(store, "o") == DATA
    await assert_tidy(js, store, "o")
    assert len(events.errors) == 1
    assert "has refused what the store has taken" in str(events.errors[0])


# -- accounts -----------------------------------------------------------------------------------

ACCOUNTS: dict[str, Any] = {
    "owner": {
        "jetstream": "enabled",
        "users": [{"user": "owner", "password": "o"}],
        "exports": [{"service": "$JS.API.>", "response_type": "stream"}, {"service": "$O.>"}],
    },
    "user": {
        "users": [{"user": "user", "password": "u"}],
        "imports": [
            {"service": {"account": "owner", "subject": "$JS.API.>"}, "to": "OWNER.API.>"},
            {"service": {"account": "owner", "subject": "$O.>"}, "to": "P.$O.>"},
        ],
    },
}


@conformance("OBJ", "Domains and accounts", "remapped imports: P.$O... works, unprefixed fails")
async def test_a_store_of_another_account(start_server: StartServer, connect: Connect) -> None:
    server = start_server(accounts=ACCOUNTS)
    owner = (await connect(server.url, user="owner", password="o")).jetstream()
    theirs: ObjectStore = await owner.create_object_store(bucket="b", storage="memory")
    nc = await connect(server.url, user="user", password="u")
    js = nc.jetstream(prefix="OWNER.API")
    plain = await js.object_store("b")
    for data in (b"1", b""):
        with pytest.raises(NoStreamResponseError, match="object 'o' in store 'b'"):
            await plain.put("o", data)
    for prefix in ("P", "P."):
        store = await js.object_store("b", publish_prefix=prefix)
        await store.put("o", DATA)
        assert await read(theirs, "o") == DATA
        await store.delete("o")
    await store.put("o", b"2", description="d")
    assert (await store.info("o")).description == "d"
    await assert_tidy(owner, theirs, "o")
