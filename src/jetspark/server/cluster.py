"""Several nats-servers that form one JetStream cluster: `NatsCluster`."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

from jetspark.errors import InvalidOptionError, ServerProcessError
from jetspark.server.config import LOCALHOST, ServerOptions, check_options, merge, probe_login
from jetspark.server.ports import ReservedPort
from jetspark.server.probe import counted_members, placement_problem
from jetspark.server.runner import NatsServer
from jetspark.server.startable import Startable

__all__ = ["NatsCluster", "run_cluster"]

_MAX_REPLICAS = 5
_POLL_INTERVAL = 0.05
_PROBE_TIMEOUT = 0.5
_MEMBER_PATIENCE = 2.0


class NatsCluster(Startable):
    """A cluster of nats-servers on this machine.

    ```python
    with NatsCluster(3) as cluster:
        print(cluster.urls)
        cluster.kill(1)
        cluster.restart(1)
    ```

    It is ready when its leader counts every node and a stream with a replica on each node can be
    created. The options are those of a single server and hold for every node; `name` names the
    cluster, and a `store_dir` gets one subdirectory for each node.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        binary: str | Path | None = None,
        start_timeout: float = 30.0,
        stop_timeout: float = 10.0,
        **options: Unpack[ServerOptions],
    ) -> None:
        if size < 2:
            raise InvalidOptionError(f"a cluster of {size} is none: use run_server, or a size of 2")
        self._options = check_options(options)
        if self._options.get("port"):
            raise InvalidOptionError("a cluster takes free ports: leave `port` out")
        self._size = size
        self._binary = binary
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._name = self._options.get("name") or f"jetspark-{secrets.token_hex(4)}"
        self._lock = threading.RLock()  # async twins run in threads of the loop's choice
        self._route_ports: list[ReservedPort] = []
        self.servers: tuple[NatsServer, ...] = ()
        """The nodes; empty before the first start and after `close`."""

    def start(self) -> None:
        """Start every node that does not run, and wait until the cluster is ready."""
        with self._lock:
            if not self.servers:
                self._create_servers()
            try:
                for server in self.servers:
                    # Not ready before a majority is there, so none is waited for alone.
                    server.start(wait=False)
                self._wait_ready(self.servers)  # those, too, that have ended by now
            except ServerProcessError:
                for server in self.servers:
                    server.kill()
                raise

    def stop(self) -> None:
        """Stop every node; ports and data stay for the next `start`."""
        with self._lock:
            for server in self.servers:
                server.stop()

    def close(self) -> None:
        """Stop every node, give up the ports and remove what is temporary."""
        with self._lock:
            for server in self.servers:
                server.close()
            self.servers = ()
            for port in self._route_ports:
                port.close()
            self._route_ports.clear()

    def kill(self, index: int) -> None:
        """End one node like a crash does."""
        self[index].kill()

    def restart(self, index: int) -> None:
        """Stop one node, if it runs, start it again, and wait until it is part of the cluster.

        While fewer than a majority of the nodes run there is no cluster to be part of; then this
        waits only until the node takes connections.
        """
        with self._lock:
            server = self[index]
            server.stop()
            server.start(wait=False)
            self._wait_ready([each for each in self.servers if each.running or each is server])

    async def akill(self, index: int) -> None:
        """Do `kill` without blocking the event loop."""
        await asyncio.to_thread(self.kill, index)

    async def arestart(self, index: int) -> None:
        """Do `restart` without blocking the event loop."""
        await asyncio.to_thread(self.restart, index)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    @property
    def urls(self) -> list[str]:
        """The client URL of every node."""
        return [server.url for server in self.servers]

    @property
    def url(self) -> str:
        """The client URLs of all nodes in one string, with commas."""
        return ",".join(self.urls)

    def __getitem__(self, index: int) -> NatsServer:
        if not self.servers:
            raise ServerProcessError(f"cluster {self._name} was not started: call `start` first")
        return self.servers[index]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[NatsServer]:
        return iter(self.servers)

    def __repr__(self) -> str:
        running = sum(server.running for server in self.servers)
        return f"<NatsCluster {self._name}: {running} of {self._size} nodes run>"

    def _create_servers(self) -> None:
        # Clustered JetStream does not start without routes, and takes their number for the size
        # of the cluster: every node has to be told all of them from the beginning.
        self._route_ports = [ReservedPort(LOCALHOST) for _ in range(self._size)]
        routes = [f"nats://{LOCALHOST}:{port.number}" for port in self._route_ports]
        servers = []
        for index, port in enumerate(self._route_ports):
            block = {"name": self._name, "host": LOCALHOST, "port": port.number, "routes": routes}
            options: dict[str, Any] = {
                **self._options,
                "name": f"{self._name}-{index}",
                "config": merge({"cluster": block}, self._options.get("config") or {}),
            }
            if store_dir := self._options.get("store_dir"):
                options["store_dir"] = Path(store_dir) / f"node-{index}"
            servers.append(
                NatsServer(
                    binary=self._binary,
                    start_timeout=self._start_timeout,
                    stop_timeout=self._stop_timeout,
                    **check_options(options),
                )
            )
        self.servers = tuple(servers)

    def _wait_ready(self, servers: Sequence[NatsServer]) -> None:
        deadline = time.monotonic() + self._start_timeout
        majority = len(servers) > self._size // 2
        for server in servers:
            server.wait_ready(max(0.0, deadline - time.monotonic()), assets=majority)
        if len(servers) == self._size and self._options.get("jetstream", True):
            self._wait_members(deadline)
            self._wait_placement(deadline)

    def _wait_members(self, deadline: float) -> None:
        """Wait until the leader counts every node."""
        patience = time.monotonic() + _MEMBER_PATIENCE
        while True:
            counted: set[str] = set()
            for server in self.servers:
                counted |= counted_members(server.monitor_port, _PROBE_TIMEOUT)
            missing = [server for server in self.servers if server.name not in counted]
            if not missing:
                return
            now = time.monotonic()
            if now > deadline:
                raise self._not_ready(f"its leader counts only {sorted(counted)}")
            if counted and now > patience:
                # With 2.10 it happens that what a node answers never reaches the leader, who then
                # never counts it. New connections between the two mend it.
                for server in missing:
                    server.restart()
                patience = time.monotonic() + _MEMBER_PATIENCE
            time.sleep(_POLL_INTERVAL)

    def _wait_placement(self, deadline: float) -> None:
        """Wait until a stream with a replica on each node can be created."""
        login = probe_login(self._options)
        if login is None:
            return
        tls = self._options.get("tls")
        # One name for all attempts: creating a stream again as it is does no harm, whereas an
        # attempt whose answer got lost would leave a stream behind.
        name = f"JETSPARK_PROBE_{secrets.token_hex(6)}"
        while True:
            problem = placement_problem(
                self[0].host,
                self[0].port,
                stream=name,
                login=login,
                tls=tls is not None,
                tls_first=tls is not None and tls.handshake_first is True,
                replicas=min(self._size, _MAX_REPLICAS),
                timeout=_PROBE_TIMEOUT,
            )
            if problem is None:
                return
            if time.monotonic() > deadline:
                raise self._not_ready(problem)
            time.sleep(_POLL_INTERVAL)

    def _not_ready(self, problem: str) -> ServerProcessError:
        return ServerProcessError(
            f"cluster {self._name} is not ready after {self._start_timeout:g} s: {problem}"
        )


def run_cluster(
    size: int = 3,
    *,
    binary: str | Path | None = None,
    start_timeout: float = 30.0,
    stop_timeout: float = 10.0,
    **options: Unpack[ServerOptions],
) -> NatsCluster:
    """Return a NatsCluster for a `with` or `async with` block, which starts and closes it.

    ```python
    with run_cluster(3) as cluster:
        print(cluster.url)
    ```
    """
    return NatsCluster(
        size, binary=binary, start_timeout=start_timeout, stop_timeout=stop_timeout, **options
    )
