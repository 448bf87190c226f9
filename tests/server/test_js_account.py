"""What the server says about an account: its usage, its limits and tiers, and what they forbid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nkeys
import pytest

from jetspark import AccountInfo, AccountTier, Client, JetStream
from jetspark.errors import (
    AccountLimitError,
    APIError,
    InsufficientResourcesError,
    JetStreamNotEnabledError,
    JetStreamNotEnabledForAccountError,
    LimitReachedError,
    NoRespondersError,
)
from tests.support.clients import Connect
from tests.support.conformance import conformance
from tests.support.jwt import Key, Operator
from tests.support.servers import StartServer
from tests.support.streams import new_name, store, version_of

KB, MB = 1024, 1024 * 1024


async def context_with_limits(
    start_server: StartServer, connect: Connect, **limits: Any
) -> tuple[Client, JetStream]:
    """A context in an account with these limits."""
    users = [{"user": "ann", "password": "p"}]
    server = start_server(accounts={"A": {"users": users, "jetstream": limits}})
    nc = await connect(server.url, user="ann", password="p")
    return nc, nc.jetstream(strict=True)


@conformance("RUST", "Account", "usage and limits of the account; the subject is INFO")
@conformance("ADR-37", "JetStreamContext", "info of the account")
async def test_usage(start_server: StartServer, connect: Connect) -> None:
    server = start_server(domain="hub")
    nc = await connect(server.url)
    js = nc.jetstream(strict=True)
    before = await js.account_info()
    assert isinstance(before, AccountInfo)
    assert (before.streams, before.consumers, before.memory, before.storage) == (0, 0, 0, 0)
    assert before.domain == "hub"
    assert before.limits.max_streams == before.limits.max_storage == -1
    stream = await js.create_stream(name=new_name(), storage="memory", max_bytes=MB)
    await js.create_stream(name=new_name())
    await stream.create_consumer()
    await store(nc, stream.name, b"x" * KB)
    info = await js.account_info()
    assert (info.streams, info.consumers) == (2, 1)
    assert info.memory > KB
    assert info.reserved_memory == MB
    assert info.api.total > before.api.total
    assert (info.api.level > 0) is (version_of(server) >= (2, 11))
    with pytest.raises(APIError):
        await js.get_stream("MISSING")
    assert (await js.account_info()).api.errors > info.api.errors


async def test_limits(start_server: StartServer, connect: Connect) -> None:
    _, js = await context_with_limits(
        start_server,
        connect,
        max_memory=MB,
        max_store=2 * MB,
        max_streams=2,
        max_consumers=1,
        max_ack_pending=77,
        memory_max_stream_bytes=100 * KB,
        store_max_stream_bytes=200 * KB,
        max_bytes_required=True,
    )
    limits = (await js.account_info()).limits
    assert (limits.max_memory, limits.max_storage) == (MB, 2 * MB)
    assert (limits.max_streams, limits.max_consumers) == (2, 1)
    assert limits.max_ack_pending == 77
    assert limits.memory_max_stream_bytes == 100 * KB
    assert limits.storage_max_stream_bytes == 200 * KB
    assert limits.max_bytes_required
    with pytest.raises(AccountLimitError, match="max bytes"):
        await js.create_stream(name="S")
    with pytest.raises(AccountLimitError):
        await js.create_stream(name="S", max_bytes=300 * KB)
    stream = await js.create_stream(name="S", max_bytes=200 * KB)
    await js.create_stream(name="M", max_bytes=100 * KB, storage="memory")
    with pytest.raises(LimitReachedError, match="stream 'T'"):
        await js.create_stream(name="T", max_bytes=KB)
    consumer = await stream.create_consumer(durable_name="C")
    assert consumer.config.max_ack_pending == 77
    with pytest.raises(LimitReachedError, match="consumer 'D' of stream 'S'"):
        await stream.create_consumer(durable_name="D")


async def test_more_than_the_account_has(start_server: StartServer, connect: Connect) -> None:
    _, js = await context_with_limits(start_server, connect, max_memory=MB, max_store=MB)
    await js.create_stream(name="S", max_bytes=MB)
    for storage in ("file", "memory"):
        with pytest.raises((AccountLimitError, InsufficientResourcesError)):
            await js.create_stream(name="T", max_bytes=MB + 1, storage=storage)


async def test_more_than_the_server_has(start_server: StartServer, connect: Connect) -> None:
    server = start_server(max_file_store=MB, max_memory_store=MB)
    js = (await connect(server.url)).jetstream(strict=True)
    for storage in ("file", "memory"):
        with pytest.raises(InsufficientResourcesError) as caught:
            await js.create_stream(name="T", max_bytes=2 * MB, storage=storage)
        assert caught.value.retryable


async def test_tiers(start_server: StartServer, connect: Connect, tmp_path: Path) -> None:
    operator, system = Operator(), Key.make(nkeys.PREFIX_BYTE_ACCOUNT)
    config = operator.server_config()
    unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    r1 = {"disk_storage": 10 * MB, "mem_storage": MB, "streams": 3, "consumer": 4}
    for key, extra in (
        (system, {}),
        (operator.account, {"tiered_limits": {"R1": r1, "R3": {**r1, "streams": 1}}}),
    ):
        nats = {"limits": {**unlimited, "wildcards": True, **extra}, "type": "account"}
        claims = {"sub": key.public, "name": key.public, "nats": {**nats, "version": 2}}
        config["resolver_preload"][key.public] = operator.key.sign(claims)
    server = start_server(config={**config, "system_account": system.public})
    creds = operator.user().write_creds(tmp_path / "user.creds")
    js = (await connect(server.url, creds=creds)).jetstream(strict=True)
    await js.create_stream(name="S", max_bytes=MB)
    info = await js.account_info()
    assert set(info.tiers) >= {"R1"}
    tier = info.tiers["R1"]
    assert isinstance(tier, AccountTier)
    assert (tier.limits.max_storage, tier.limits.max_memory) == (10 * MB, MB)
    assert (tier.limits.max_streams, tier.limits.max_consumers) == (3, 4)
    assert (tier.streams, tier.reserved_storage) == (1, MB)
    assert info.streams == 1


# --- JetStream that is not there


async def calls(js: JetStream) -> list[Any]:
    """One call of each kind, not yet made."""
    return [
        js.account_info(),
        js.get_stream("S"),
        js.create_stream(name="S"),
        js.get_or_create_stream(name="S"),
        js.delete_stream("S"),
        anext(aiter(js.stream_names())),
        anext(aiter(js.streams())),
        js.stream_name_by_subject("s"),
        js.create_consumer("S"),
        js.get_consumer("S", "C"),
        js.pause_consumer("S", "C", 5),
        js.reset_consumer("S", "C"),
    ]


async def test_a_server_without_jetstream(start_server: StartServer, connect: Connect) -> None:
    js = (await connect(start_server(jetstream=False).url)).jetstream(strict=True)
    for call in await calls(js):
        with pytest.raises(JetStreamNotEnabledError, match="JetStream is not enabled") as caught:
            await call
        assert caught.value.code == 503
        assert isinstance(caught.value.__cause__, NoRespondersError)


async def test_an_account_without_jetstream(start_server: StartServer, connect: Connect) -> None:
    accounts = {
        "WITH": {"users": [{"user": "ann", "password": "p"}], "jetstream": "enabled"},
        "WITHOUT": {"users": [{"user": "bob", "password": "p"}]},
    }
    server = start_server(accounts=accounts)
    js = (await connect(server.url, user="bob", password="p")).jetstream(strict=True)
    for call in await calls(js):
        with pytest.raises(JetStreamNotEnabledForAccountError) as caught:
            await call
        assert (caught.value.code, caught.value.err_code) == (503, 10039)


async def test_a_domain_that_does_not_exist(start_server: StartServer, connect: Connect) -> None:
    nc = await connect(start_server(domain="hub").url)
    for js in (nc.jetstream(domain="other"), nc.jetstream(prefix="some.prefix")):
        with pytest.raises(JetStreamNotEnabledError, match="domain or prefix is wrong"):
            await js.account_info()
