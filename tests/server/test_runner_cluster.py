"""Clusters: they form, place replicas at once, and take a node back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme

from jetspark.errors import InvalidOptionError, ServerProcessError
from jetspark.server import NatsCluster, NatsServer, TLSConfig, run_cluster
from jetspark.server.probe import placement_problem
from tests.support.servers import StartCluster, monitor


def jsz(server: NatsServer) -> dict[str, Any]:
    return monitor(server, "/jsz")


def api_calls(cluster: NatsCluster) -> int:
    """How many requests JetStream served: a probe that got through makes two."""
    return sum(int(jsz(server)["api"]["total"]) for server in cluster)


def place(server: NatsServer, replicas: int, login: dict[str, str] | None = None) -> str | None:
    return placement_problem(
        server.host,
        server.port,
        stream="TEST",
        login=login or {},
        tls=False,
        tls_first=False,
        replicas=replicas,
        timeout=5,
    )


def test_a_cluster_is_ready_for_replicas(nats_cluster: NatsCluster) -> None:
    assert len(nats_cluster) == 3
    assert nats_cluster.urls == [server.url for server in nats_cluster]
    assert nats_cluster.url.split(",") == nats_cluster.urls
    assert len({server.port for server in nats_cluster}) == 3
    before = max(jsz(server)["streams"] for server in nats_cluster)  # those of other tests
    for server in nats_cluster:
        meta = jsz(server)["meta_cluster"]
        assert meta["name"] == nats_cluster.name
        assert meta["cluster_size"] == 3
        assert meta["leader"] in {node.name for node in nats_cluster}
        assert place(server, 3) is None
    # Nodes hear of a deletion one after the other.
    deadline = time.monotonic() + 10
    while any(jsz(server)["streams"] > before for server in nats_cluster):
        assert time.monotonic() < deadline, "a probe left its stream behind"
        time.sleep(0.01)


def test_a_node_dies_and_comes_back(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3)
    urls = cluster.urls
    leader = jsz(cluster[0])["meta_cluster"]["leader"]
    index = [server.name for server in cluster].index(leader)

    cluster.kill(index)
    assert [server.running for server in cluster].count(True) == 2
    cluster.restart(index)

    assert all(server.running for server in cluster)
    assert cluster.urls == urls
    assert place(cluster[index], 3) is None


def test_the_whole_cluster_stops_and_starts(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3)
    urls = cluster.urls
    cluster.stop()
    assert not any(server.running for server in cluster)

    cluster.restart(2)  # one of three: no majority, and none is waited for
    assert [server.running for server in cluster] == [False, False, True]
    cluster.start()

    assert cluster.urls == urls
    assert place(cluster[0], 3) is None


async def test_an_async_cluster_with_users_and_kept_data(tmp_path: Path) -> None:
    async with run_cluster(3, name="trio", user="a", password="b", store_dir=tmp_path) as cluster:
        assert [server.name for server in cluster] == ["trio-0", "trio-1", "trio-2"]
        assert [server.store_dir.parent for server in cluster] == [tmp_path] * 3
        assert place(cluster[0], 3, {"user": "a", "pass": "b"}) is None
        assert "Authorization Violation" in str(place(cluster[0], 3))
        leader = jsz(cluster[0])["meta_cluster"]["leader"]
        follower = 1 if cluster[0].name == leader else 0
        await cluster.akill(follower)
        assert not cluster[follower].running
        await cluster.arestart(follower)
        assert cluster[follower].running
        await cluster.astop()
        assert not any(server.running for server in cluster)
    assert cluster.servers == ()
    assert await asyncio.to_thread((tmp_path / "node-0" / "jetstream").is_dir)


@pytest.mark.parametrize("handshake_first", [False, True])
def test_a_cluster_with_tls(
    start_cluster: StartCluster, tmp_path: Path, handshake_first: bool
) -> None:
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    tls = TLSConfig(
        cert=tmp_path / "cert.pem", key=tmp_path / "key.pem", handshake_first=handshake_first
    )
    cluster = start_cluster(3, tls=tls, token="t")
    assert all(url.startswith("tls://") for url in cluster.urls)
    assert api_calls(cluster) >= 2


def test_a_cluster_that_the_probe_cannot_log_into(start_cluster: StartCluster) -> None:
    accounts = {"A": {"jetstream": "enabled", "users": [{"user": "a", "password": "b"}]}}
    cluster = start_cluster(3, accounts=accounts)
    assert api_calls(cluster) == 0
    assert all(jsz(server)["meta_cluster"]["leader"] for server in cluster)


def test_a_cluster_without_jetstream(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2, jetstream=False)
    assert all(server.running for server in cluster)


def _wait_for_the_end(servers: Sequence[NatsServer]) -> None:
    end = time.monotonic() + 20
    while any(server.running for server in servers) and time.monotonic() < end:
        time.sleep(0.01)


def test_a_node_that_fails_takes_the_cluster_down(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = run_cluster(3, lame_duck_duration=1)
    # However late it is noticed.
    wait_ready = cluster._wait_ready

    def late(servers: Sequence[NatsServer]) -> None:
        _wait_for_the_end(servers)
        wait_ready(servers)

    monkeypatch.setattr(cluster, "_wait_ready", late)
    with pytest.raises(ServerProcessError, match="minimum is 30 seconds"):
        cluster.start()
    assert not any(server.running for server in cluster)
    cluster.close()


def test_wrong_options() -> None:
    with pytest.raises(InvalidOptionError, match="a cluster of 1"):
        run_cluster(1)
    with pytest.raises(InvalidOptionError, match="leave `port` out"):
        run_cluster(3, port=4222)
    with pytest.raises(ServerProcessError, match="was not started"):
        run_cluster(3).kill(0)
