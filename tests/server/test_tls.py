"""TLS: by upgrade and first, mutual, and what is said when it fails."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import ssl
from typing import Any

import pytest

import jetspark
from jetspark import Client
from jetspark.errors import ConnectError, InvalidOptionError, TimeoutError, TLSError
from jetspark.server import NatsServer
from tests.support.certs import Certs
from tests.support.clients import Connect, eventually, monitor, unique
from tests.support.servers import StartCluster, StartServer


async def works(nc: Client) -> bool:
    """Whether messages get through, large ones too."""
    sub = await nc.subscribe(unique())
    for size in (0, 10, 500_000):
        await nc.publish(sub.subject, bytes(size))
        if len((await sub.next(timeout=5)).data) != size:
            return False
    return True


async def tls_error(servers: Any, **options: Any) -> str:
    """The text of the TLSError of a connect, which comes before the time for it is over."""
    with pytest.raises(TLSError) as caught:
        await jetspark.connect(servers, **options)
    assert not caught.value.retryable
    assert caught.value.server is not None
    await asyncio.sleep(0)
    gc.collect()  # a socket left open would warn now
    return str(caught.value)


@pytest.fixture
def tls_server(start_server: StartServer, certs: Certs) -> NatsServer:
    return start_server(jetstream=False, tls=certs.tls())


@pytest.fixture
def mutual_server(start_server: StartServer, certs: Certs) -> NatsServer:
    return start_server(jetstream=False, tls=certs.tls(verify=True))


@pytest.fixture
def tls_first_server(start_server: StartServer, certs: Certs) -> NatsServer:
    return start_server(jetstream=False, tls=certs.tls(handshake_first=True))


# -- what works ----------------------------------------------------------------------------------


async def test_upgrade(tls_server: NatsServer, certs: Certs, connect: Connect) -> None:
    location = f"127.0.0.1:{tls_server.port}"
    forms: list[tuple[str, dict[str, Any]]] = [
        (f"nats://{location}", {"tls_ca": certs.ca}),
        (f"tls://{location}", {"tls_ca": str(certs.ca)}),
        (location, {"tls": certs.context()}),
        (f"nats://localhost:{tls_server.port}", {"tls": True, "tls_ca": certs.ca}),
    ]
    for url, options in forms:
        nc = await connect(url, **options)
        assert await works(nc)
        connections = (await monitor(tls_server, "/connz"))["connections"]
        mine = [each for each in connections if each["cid"] == nc.server_info.client_id]
        assert mine[0]["tls_version"] == "1.3"
        await nc.close()


async def test_reconnect(tls_server: NatsServer, certs: Certs, connect: Connect) -> None:
    nc = await connect(tls_server.url, tls_ca=certs.ca)
    for _ in range(3):
        await nc.force_reconnect()
        assert await works(nc)
    assert nc.statistics.reconnects == 3


async def test_tls_first(tls_first_server: NatsServer, certs: Certs, connect: Connect) -> None:
    nc = await connect(tls_first_server.url, tls_ca=certs.ca, tls_first=True)
    assert await works(nc)
    await nc.force_reconnect()
    assert await works(nc)


async def test_tls_first_by_choice(
    start_server: StartServer, certs: Certs, connect: Connect
) -> None:
    server = start_server(jetstream=False, tls=certs.tls(handshake_first="auto"))
    assert await works(await connect(server.url, tls_ca=certs.ca))
    assert await works(await connect(server.url, tls_ca=certs.ca, tls_first=True))


@pytest.mark.parametrize("handshake_first", [False, True])
async def test_mutual(
    start_server: StartServer, certs: Certs, connect: Connect, handshake_first: bool
) -> None:
    server = start_server(
        jetstream=False, tls=certs.tls(verify=True, handshake_first=handshake_first)
    )
    context = certs.context()
    context.load_cert_chain(certs.client_cert, certs.client_key)
    files = {"tls_ca": certs.ca, "tls_cert": certs.client_cert, "tls_key": certs.client_key}
    for options in (files, {"tls": context}):
        nc = await connect(server.url, tls_first=handshake_first, **options)
        assert await works(nc)
        assert nc.server_info.tls_verify


async def test_certificate_and_key_in_one_file(
    mutual_server: NatsServer, certs: Certs, connect: Connect, tmp_path: Any
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certs.client_cert.read_bytes() + certs.client_key.read_bytes())
    assert await works(await connect(mutual_server.url, tls_ca=certs.ca, tls_cert=both))


async def test_server_that_offers_tls_and_does_not_require_it(
    start_server: StartServer, certs: Certs, connect: Connect
) -> None:
    server = start_server(jetstream=False, tls=certs.tls(), config={"allow_non_tls": True})
    plain_url = f"nats://127.0.0.1:{server.port}"
    plain = await connect(plain_url)
    assert await works(plain)
    encrypted = await connect(plain_url, tls_ca=certs.ca)
    assert await works(encrypted)
    forbidden = await connect(plain_url, tls=False)
    by_id = {
        each["cid"]: each.get("tls_version")
        for each in (await monitor(server, "/connz"))["connections"]
    }
    assert by_id[plain.server_info.client_id] is None
    assert by_id[forbidden.server_info.client_id] is None
    assert by_id[encrypted.server_info.client_id] == "1.3"


async def test_old_protocol_version(tls_server: NatsServer, certs: Certs, connect: Connect) -> None:
    context = certs.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert await works(await connect(tls_server.url, tls=context))


async def test_host_name_given(start_server: StartServer, certs: Certs, connect: Connect) -> None:
    server = start_server(jetstream=False, tls=certs.elsewhere_tls())
    nc = await connect(server.url, tls_ca=certs.ca, tls_hostname="elsewhere.test")
    assert await works(nc)


async def test_discovered_servers_have_the_name_of_the_first(
    start_cluster: StartCluster, certs: Certs, connect: Connect
) -> None:
    """A cluster announces bare addresses, for which the certificates need not be made."""
    cluster = start_cluster(2, jetstream=False, tls=certs.tls())
    first, second = cluster.servers
    nc = await connect(
        f"tls://localhost:{first.port}",
        tls_ca=certs.ca,
        randomize_servers=False,
    )
    await eventually(lambda: f"tls://127.0.0.1:{second.port}" in nc.servers)
    names = {server.tls_name for server in nc._connection.pool.servers if server.discovered}
    assert names == {"localhost"}
    while nc.server != f"tls://127.0.0.1:{second.port}":
        await nc.force_reconnect()
        await nc.flush()
    assert await works(nc)


async def test_close_leaves_nothing(tls_server: NatsServer, certs: Certs) -> None:
    nc = await jetspark.connect(tls_server.url, tls_ca=certs.ca)
    link = nc._connection._link
    await nc.close()
    assert link is not None
    assert link.closed
    del nc, link
    gc.collect()


# -- what does not -------------------------------------------------------------------------------


async def test_unknown_authority(tls_server: NatsServer, certs: Certs) -> None:
    for options in ({}, {"tls_ca": certs.other_ca}, {"tls": True}):
        text = await tls_error(tls_server.url, **options)
        assert "unable to get local issuer certificate" in text
        assert "set tls_ca" in text
        assert tls_server.url in text


async def test_unknown_authority_tls_first(tls_first_server: NatsServer, certs: Certs) -> None:
    text = await tls_error(tls_first_server.url, tls_ca=certs.other_ca, tls_first=True)
    assert "unable to get local issuer certificate" in text
    assert "set tls_ca" in text


async def test_wrong_host_name(start_server: StartServer, certs: Certs) -> None:
    server = start_server(jetstream=False, tls=certs.elsewhere_tls())
    for url in (server.url, f"tls://localhost:{server.port}"):
        text = await tls_error(url, tls_ca=certs.ca)
        assert "mismatch" in text
        assert "not valid for" in text
        assert "tls_hostname" in text
    text = await tls_error(server.url, tls_ca=certs.ca, tls_hostname="another.test")
    assert "another.test" in text


async def test_plain_client_on_a_tls_first_port(start_server: StartServer, certs: Certs) -> None:
    """Both wait for the other to begin, until one of them has enough."""
    tls = dataclasses.replace(certs.tls(handshake_first=True), timeout=0.3)
    server = start_server(jetstream=False, tls=tls)
    with pytest.raises(TimeoutError, match="set tls_first=True"):
        await jetspark.connect(server.url, tls_ca=certs.ca, connect_timeout=0.1)
    with pytest.raises(ConnectError, match="set tls_first=True"):
        await jetspark.connect(server.url, tls_ca=certs.ca, connect_timeout=60)


async def test_tls_client_on_a_plain_port(nats_server: NatsServer, certs: Certs) -> None:
    plain = f"127.0.0.1:{nats_server.port}"
    forms: list[tuple[str, dict[str, Any]]] = [
        (f"tls://{plain}", {}),
        (plain, {"tls": True}),
        (plain, {"tls_ca": certs.ca}),
        (plain, {"tls": certs.context()}),
    ]
    for url, options in forms:
        text = await tls_error(url, **options)
        assert "TLS is demanded" in text
        assert "does not offer it" in text


async def test_tls_first_on_a_plain_port(nats_server: NatsServer, certs: Certs) -> None:
    text = await tls_error(nats_server.url, tls_ca=certs.ca, tls_first=True)
    assert "does not begin with TLS" in text
    assert "leave tls_first" in text


async def test_tls_first_on_an_upgrade_port(tls_server: NatsServer, certs: Certs) -> None:
    text = await tls_error(tls_server.url, tls_ca=certs.ca, tls_first=True)
    assert "does not begin with TLS" in text


async def test_tls_first_on_a_port_where_nobody_listens(certs: Certs) -> None:
    with pytest.raises(ConnectError, match="cannot connect to") as caught:
        await jetspark.connect("nats://127.0.0.1:1", tls_ca=certs.ca, tls_first=True)
    assert not isinstance(caught.value, TLSError)


async def test_tls_forbidden(tls_server: NatsServer) -> None:
    text = await tls_error(f"nats://127.0.0.1:{tls_server.port}", tls=False)
    assert "requires TLS, but tls=False forbids it" in text


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("handshake_first", [False, True])
async def test_client_certificate_missing(
    start_server: StartServer, certs: Certs, version: ssl.TLSVersion, handshake_first: bool
) -> None:
    server = start_server(
        jetstream=False, tls=certs.tls(verify=True, handshake_first=handshake_first)
    )
    context = certs.context()
    context.maximum_version = version
    for options in ({"tls": context}, {"tls_ca": certs.ca}):
        text = await tls_error(server.url, tls_first=handshake_first, **options)
        assert "client certificate" in text
        assert "tls_cert" in text


async def test_client_certificate_of_a_stranger(mutual_server: NatsServer, certs: Certs) -> None:
    text = await tls_error(
        mutual_server.url,
        tls_ca=certs.ca,
        tls_cert=certs.stranger_cert,
        tls_key=certs.stranger_key,
    )
    assert mutual_server.url in text


async def test_files_that_cannot_be_loaded(
    tls_server: NatsServer, certs: Certs, tmp_path: Any
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tls_ca": tmp_path / "missing.pem"}, r"'tls_ca'.*missing\.pem"),
        ({"tls_ca": empty}, r"'tls_ca'.*empty\.pem"),
        ({"tls_ca": certs.ca, "tls_cert": empty}, r"'tls_cert'.*empty\.pem.*its key"),
        (
            {"tls_ca": certs.ca, "tls_cert": certs.client_cert, "tls_key": certs.server_key},
            "'tls_cert' and 'tls_key'.*client",
        ),
    ]
    for options, message in cases:
        with pytest.raises(InvalidOptionError, match=message):
            await jetspark.connect(tls_server.url, **options)
    gc.collect()


async def test_server_without_tls_among_others(
    nats_server: NatsServer, tls_server: NatsServer, certs: Certs, connect: Connect
) -> None:
    servers = [nats_server.url, tls_server.url]
    nc = await connect(servers, tls_ca=certs.ca, randomize_servers=False)
    assert nc.server == tls_server.url
