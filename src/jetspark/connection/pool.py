"""The servers a client may connect to, and the order in which it tries them.

Pure bookkeeping: connecting, waiting and giving up are the business of the caller, which computes
its waits from `Server.attempts`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from jetspark.errors import AuthenticationError, InvalidURLError

from .urls import ServerURL, is_ip, parse_url

__all__ = ["Server", "ServerPool"]


@dataclass(slots=True, eq=False)
class Server:
    """One entry of the pool."""

    url: ServerURL
    discovered: bool = False
    """Whether another server announced it, rather than the configuration."""
    attempts: int = 0
    """Failures since the pool last had a connection; 0 means try without waiting."""
    short_lives: int = 0
    """Connections in a row that it dropped almost at once; they make the wait longer, too."""
    last_error: BaseException | None = None
    """Why the latest attempt on this server failed."""
    tls_name: str | None = None
    """The name its certificate must have, when that is not the host of the URL."""


class ServerPool:
    """A rotation of servers: configured ones, and those that a cluster announces."""

    def __init__(
        self,
        urls: Iterable[ServerURL],
        *,
        randomize: bool,
        ignore_discovered: bool,
        max_attempts: int | None,
        rng: Random,
    ) -> None:
        self._randomize = randomize
        self._ignore_discovered = ignore_discovered
        # Failures in a row after which a server is dropped; None keeps it forever.
        self._max_attempts = max_attempts
        self._rng = rng
        self._servers: list[Server] = []
        # The server of the latest `next()`: being tried, connected, or just lost.
        self._current: Server | None = None
        self.replace(urls)

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def servers(self) -> tuple[Server, ...]:
        """All servers; those to be tried sooner come first."""
        return tuple(self._servers)

    @property
    def current(self) -> Server | None:
        """The server that `next` returned last, unless it has left the pool since."""
        return self._current

    def next(self) -> Server | None:
        """Move the current server to the back and return the new front; None if there is none."""
        if self._current is not None:
            self.defer(self._current)
        self._current = self._servers[0] if self._servers else None
        return self._current

    def defer(self, server: Server) -> None:
        """Put a server last in the order, as one in lame duck mode should be."""
        if server in self._servers:
            self._servers.remove(server)
            self._servers.append(server)

    def mark_connected(self, server: Server) -> None:
        """Note a success: every server may be tried at once again when this one is lost."""
        server.last_error = None
        if server in self._servers:
            self._current = server
        for each in (server, *self._servers):
            each.attempts = 0

    def mark_failed(self, server: Server, error: BaseException) -> bool:
        """Note a failed attempt; return whether the server was dropped from the pool for it.

        It is dropped after the maximum of attempts, and when it refuses the credentials twice in
        a row for the same reason. Refusals that may pass by themselves (`retryable`) do not count.
        """
        refused_again = _refused_again(error, server.last_error)
        server.attempts += 1
        server.last_error = error
        exhausted = self._max_attempts is not None and server.attempts >= self._max_attempts
        if (exhausted or refused_again) and server in self._servers:
            self._remove(server)
            return True
        return False

    def merge_discovered(
        self, connect_urls: Iterable[str], *, scheme: str, tls_host: str | None
    ) -> list[ServerURL]:
        """Take over the servers that INFO announces (`host:port` each) and return the new ones.

        Discovered servers that are announced no longer leave the pool, except the current one.
        An empty announcement says nothing, because a server outside a cluster makes none.
        `tls_host` is the name that certificates of bare IP addresses must have.
        """
        announced = {} if self._ignore_discovered else self._announced(connect_urls, scheme)
        if not announced:
            return []
        for server in self.servers:
            gone = server.discovered and server.url.key not in announced
            if gone and server is not self._current:
                self._remove(server)
        known = {server.url.key for server in self._servers}
        new = [url for key, url in announced.items() if key not in known]
        name = tls_host if tls_host is not None and not is_ip(tls_host) else None
        for url in new:
            self._insert(Server(url, discovered=True, tls_name=name if is_ip(url.host) else None))
        return new

    def replace(self, urls: Iterable[ServerURL]) -> None:
        """Make these the configured servers and forget all others.

        A server that stays keeps its record. The current one may thereby leave the pool; that
        concerns the next attempt, not the connection.
        """
        kept = {server.url.key: server for server in self._servers}
        servers: dict[str, Server] = {}
        for url in urls:
            if url.key not in servers:
                server = servers[url.key] = kept.get(url.key) or Server(url)
                server.url, server.discovered, server.tls_name = url, False, None
        self._servers = list(servers.values())
        if self._randomize:
            self._rng.shuffle(self._servers)
        if self._current not in self._servers:
            self._current = None

    def _announced(self, connect_urls: Iterable[str], scheme: str) -> dict[str, ServerURL]:
        """Parse an announcement by key; what cannot be parsed cannot be connected to either."""
        announced: dict[str, ServerURL] = {}
        for text in connect_urls:
            try:
                url = parse_url(text, default_scheme=scheme)
            except InvalidURLError:
                continue
            if self._current is not None:
                # Servers of one cluster share their users, and announcements carry none.
                known = self._current.url
                url = dataclasses.replace(
                    url, user=known.user, password=known.password, token=known.token
                )
            announced.setdefault(url.key, url)
        return announced

    def _insert(self, server: Server) -> None:
        if self._randomize:
            first = 1 if self._servers and self._servers[0] is self._current else 0
            self._servers.insert(self._rng.randint(first, len(self._servers)), server)
        else:
            self._servers.append(server)

    def _remove(self, server: Server) -> None:
        self._servers.remove(server)
        if server is self._current:
            self._current = None


def _refused_again(error: BaseException, previous: BaseException | None) -> bool:
    return (
        isinstance(error, AuthenticationError)
        and not error.retryable
        and type(error) is type(previous)
        and str(error) == str(previous)
    )
