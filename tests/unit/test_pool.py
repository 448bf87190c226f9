"""The server pool: order, failures, discovery."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jetspark.connection.pool import Server, ServerPool
from jetspark.connection.urls import parse_url, parse_urls
from jetspark.errors import AuthenticationError, AuthenticationExpiredError, ConnectError


def make_pool(
    *urls: str,
    randomize: bool = False,
    ignore_discovered: bool = False,
    max_attempts: int | None = None,
    seed: int = 0,
) -> ServerPool:
    return ServerPool(
        [parse_url(url) for url in urls],
        randomize=randomize,
        ignore_discovered=ignore_discovered,
        max_attempts=max_attempts,
        rng=Random(seed),
    )


def take(pool: ServerPool) -> Server:
    server = pool.next()
    assert server is not None
    return server


def hosts(servers: Iterable[Server]) -> list[str]:
    return [server.url.host for server in servers]


class TestOrder:
    def test_round_robin(self) -> None:
        pool = make_pool("a", "b", "c")
        assert pool.current is None
        assert hosts(take(pool) for _ in range(7)) == ["a", "b", "c", "a", "b", "c", "a"]

    def test_current_is_the_latest(self) -> None:
        pool = make_pool("a", "b")
        server = pool.next()
        assert pool.current is server
        assert hosts(pool.servers) == ["a", "b"]
        assert pool.next() is not server

    def test_a_single_server_is_returned_again(self) -> None:
        pool = make_pool("a")
        assert pool.next() is pool.next()

    def test_empty(self) -> None:
        pool = make_pool()
        assert len(pool) == 0
        assert pool.next() is None
        assert pool.current is None

    def test_the_same_server_twice_is_one(self) -> None:
        pool = make_pool("nats://bob:x@a", "tls://a:4222", "b")
        assert [str(server.url) for server in pool.servers] == ["nats://a:4222", "nats://b:4222"]
        assert pool.servers[0].url.user == "bob"

    def test_randomized_by_the_given_generator(self) -> None:
        names = [f"h{n}" for n in range(20)]
        shuffled = hosts(make_pool(*names, randomize=True, seed=1).servers)
        assert shuffled != names
        assert sorted(shuffled) == sorted(names)
        assert shuffled == hosts(make_pool(*names, randomize=True, seed=1).servers)
        assert shuffled != hosts(make_pool(*names, randomize=True, seed=2).servers)

    def test_defer(self) -> None:
        pool = make_pool("a", "b", "c")
        a = take(pool)
        pool.defer(a)
        assert pool.current is a
        assert hosts(pool.servers) == ["b", "c", "a"]
        assert hosts(take(pool) for _ in range(3)) == ["b", "c", "a"]

    def test_defer_another_one(self) -> None:
        pool = make_pool("a", "b", "c")
        take(pool)
        pool.defer(pool.servers[1])
        assert hosts(take(pool) for _ in range(3)) == ["c", "b", "a"]

    def test_deferring_a_stranger_does_nothing(self) -> None:
        pool = make_pool("a")
        pool.defer(Server(parse_url("x")))
        assert hosts(pool.servers) == ["a"]


class TestFailures:
    def test_attempts_count_until_a_success(self) -> None:
        pool = make_pool("a", "b")
        a, b = take(pool), take(pool)
        error = ConnectError("refused")
        assert not pool.mark_failed(a, error)
        assert not pool.mark_failed(a, error)
        assert not pool.mark_failed(b, error)
        assert (a.attempts, b.attempts) == (2, 1)
        assert a.last_error is error

        # The pool was tried in vain until now; from now on nobody needs to wait for the others.
        pool.mark_connected(b)
        assert (a.attempts, b.attempts) == (0, 0)
        assert a.last_error is error
        assert b.last_error is None
        assert pool.current is b

    def test_dropped_after_the_maximum(self) -> None:
        pool = make_pool("a", "b", max_attempts=2)
        a = take(pool)
        assert not pool.mark_failed(a, ConnectError("refused"))
        assert pool.mark_failed(a, ConnectError("refused"))
        assert hosts(pool.servers) == ["b"]
        assert pool.current is None
        b = take(pool)
        assert not pool.mark_failed(b, ConnectError("refused"))
        assert pool.mark_failed(b, ConnectError("refused"))
        assert pool.next() is None

    def test_never_dropped_without_a_maximum(self) -> None:
        pool = make_pool("a")
        for _ in range(1000):
            assert not pool.mark_failed(take(pool), ConnectError("refused"))
        assert take(pool).attempts == 1000

    def test_dropping_one_does_not_skip_another(self) -> None:
        pool = make_pool("a", "b", "c", max_attempts=1)
        assert pool.mark_failed(take(pool), ConnectError("refused"))
        assert hosts(take(pool) for _ in range(3)) == ["b", "c", "b"]

    def test_the_same_refusal_twice_drops(self) -> None:
        pool = make_pool("a", "b")
        a = take(pool)
        assert not pool.mark_failed(a, AuthenticationError("Authorization Violation"))
        assert pool.mark_failed(a, AuthenticationError("Authorization Violation"))
        assert hosts(pool.servers) == ["b"]

    @pytest.mark.parametrize(
        "between",
        [
            ConnectError("Authorization Violation"),
            AuthenticationError("Authentication Timeout"),
        ],
    )
    def test_refusals_that_are_not_the_same_in_a_row(self, between: Exception) -> None:
        pool = make_pool("a")
        a = take(pool)
        violation = AuthenticationError("Authorization Violation")
        dropped = [pool.mark_failed(a, error) for error in (violation, between, violation)]
        assert dropped == [False] * 3

    def test_a_success_between_refusals(self) -> None:
        pool = make_pool("a")
        a = take(pool)
        assert not pool.mark_failed(a, AuthenticationError("no"))
        pool.mark_connected(a)
        assert not pool.mark_failed(a, AuthenticationError("no"))

    def test_a_success_elsewhere_does_not_excuse_a_refusal(self) -> None:
        pool = make_pool("a", "b")
        a = take(pool)
        assert not pool.mark_failed(a, AuthenticationError("no"))
        pool.mark_connected(take(pool))
        assert pool.mark_failed(take(pool), AuthenticationError("no"))
        assert hosts(pool.servers) == ["b"]

    @pytest.mark.parametrize(
        "error",
        [
            AuthenticationExpiredError("User Authentication Expired"),
            AuthenticationError("option 'token': the callable failed", retryable=True),
        ],
    )
    def test_what_may_pass_by_itself_does_not_drop(self, error: AuthenticationError) -> None:
        pool = make_pool("a")
        for _ in range(5):
            assert not pool.mark_failed(take(pool), error)

    def test_a_server_outside_the_pool_cannot_be_dropped(self) -> None:
        pool = make_pool("a", max_attempts=1)
        stranger = Server(parse_url("x"))
        assert not pool.mark_failed(stranger, ConnectError("refused"))
        pool.mark_connected(stranger)
        assert stranger.attempts == 0
        assert pool.current is None
        assert hosts(pool.servers) == ["a"]


class TestDiscovery:
    def test_new_ones_are_added_and_returned(self) -> None:
        pool = make_pool("a")
        take(pool)
        new = pool.merge_discovered(["b:4222", "a:4222", "[::1]:5"], scheme="nats", tls_host=None)
        assert [str(url) for url in new] == ["nats://b:4222", "nats://[::1]:5"]
        assert [(s.url.host, s.discovered) for s in pool.servers] == [
            ("a", False),
            ("b", True),
            ("::1", True),
        ]
        assert pool.merge_discovered(["b:4222", "[::1]:5"], scheme="nats", tls_host=None) == []

    def test_those_not_announced_any_more_leave(self) -> None:
        pool = make_pool("a", "z")
        take(pool)
        pool.merge_discovered(["b:1", "c:1"], scheme="nats", tls_host=None)
        pool.merge_discovered(["c:1", "d:1"], scheme="nats", tls_host=None)
        assert hosts(pool.servers) == ["a", "z", "c", "d"]

    def test_the_connected_one_stays_until_it_is_left(self) -> None:
        pool = make_pool("a")
        take(pool)
        pool.merge_discovered(["b:1"], scheme="nats", tls_host=None)
        b = take(pool)
        pool.mark_connected(b)
        pool.merge_discovered(["c:1"], scheme="nats", tls_host=None)
        assert hosts(pool.servers) == ["b", "a", "c"]
        take(pool)
        pool.merge_discovered(["c:1"], scheme="nats", tls_host=None)
        assert hosts(pool.servers) == ["a", "c"]

    def test_an_empty_announcement_says_nothing(self) -> None:
        pool = make_pool("a")
        pool.merge_discovered(["b:1"], scheme="nats", tls_host=None)
        assert pool.merge_discovered([], scheme="nats", tls_host=None) == []
        assert pool.merge_discovered(["not a url"], scheme="nats", tls_host=None) == []
        assert hosts(pool.servers) == ["a", "b"]

    def test_what_cannot_be_parsed_is_skipped(self) -> None:
        pool = make_pool("a")
        new = pool.merge_discovered(["b:x", "c:1", "", "c:1"], scheme="nats", tls_host=None)
        assert [url.host for url in new] == ["c"]

    def test_ignored(self) -> None:
        pool = make_pool("a", ignore_discovered=True)
        assert pool.merge_discovered(["b:1"], scheme="nats", tls_host=None) == []
        assert hosts(pool.servers) == ["a"]

    @pytest.mark.parametrize("scheme", ["nats", "tls", "ws", "wss"])
    def test_scheme(self, scheme: str) -> None:
        pool = make_pool(f"{scheme}://a")
        (url,) = pool.merge_discovered(["b:1"], scheme=scheme, tls_host=None)
        assert url.scheme == scheme

    @pytest.mark.parametrize(
        ("announced", "tls_host", "tls_name"),
        [
            ("10.0.0.1:1", "demo.nats.io", "demo.nats.io"),
            ("[::1]:1", "demo.nats.io", "demo.nats.io"),
            ("b:1", "demo.nats.io", None),
            ("10.0.0.1:1", "10.0.0.2", None),
            ("10.0.0.1:1", None, None),
        ],
    )
    def test_addresses_are_verified_by_name(
        self, announced: str, tls_host: str | None, tls_name: str | None
    ) -> None:
        pool = make_pool("tls://demo.nats.io")
        pool.merge_discovered([announced], scheme="tls", tls_host=tls_host)
        assert pool.servers[1].tls_name == tls_name
        assert pool.servers[0].tls_name is None

    @pytest.mark.parametrize("userinfo", ["bob:hunter2", "s3cr3t"])
    def test_credentials_of_the_url_are_good_for_the_cluster(self, userinfo: str) -> None:
        pool = make_pool(f"nats://{userinfo}@a", "c")
        a = take(pool)
        (b,) = pool.merge_discovered(["b:1"], scheme="nats", tls_host=None)
        assert (b.user, b.password, b.token) == (a.url.user, a.url.password, a.url.token)
        assert pool.servers[1].url.user is None

    def test_new_ones_go_to_random_places_behind_the_current(self) -> None:
        orders = set()
        for seed in range(30):
            pool = make_pool("a", "b", randomize=True, seed=seed)
            current = take(pool)
            pool.merge_discovered(["c:1", "d:1"], scheme="nats", tls_host=None)
            assert pool.servers[0] is current
            orders.add(tuple(hosts(pool.servers)))
        assert len(orders) > 6

    def test_a_dropped_server_may_be_announced_again(self) -> None:
        pool = make_pool("a", "b", max_attempts=1)
        pool.mark_failed(take(pool), ConnectError("refused"))
        pool.merge_discovered(["a:4222"], scheme="nats", tls_host=None)
        assert [(s.url.host, s.discovered, s.attempts) for s in pool.servers] == [
            ("b", False, 0),
            ("a", True, 0),
        ]


class TestReplace:
    def test_only_the_new_ones_are_left(self) -> None:
        pool = make_pool("a", "b")
        take(pool)
        pool.merge_discovered(["c:1"], scheme="nats", tls_host=None)
        pool.replace(parse_urls("x,y"))
        assert hosts(pool.servers) == ["x", "y"]
        assert pool.current is None
        assert hosts(take(pool) for _ in range(3)) == ["x", "y", "x"]

    def test_one_that_stays_keeps_its_record(self) -> None:
        pool = make_pool("nats://old:pw@a", "b")
        a = take(pool)
        pool.mark_failed(a, ConnectError("refused"))
        pool.replace(parse_urls("x,nats://new:pw@a"))
        assert pool.current is a
        assert (a.attempts, a.url.user) == (1, "new")
        assert hosts(take(pool) for _ in range(2)) == ["x", "a"]

    def test_a_discovered_one_becomes_configured(self) -> None:
        pool = make_pool("demo.nats.io")
        pool.merge_discovered(["10.0.0.1:4222"], scheme="nats", tls_host="demo.nats.io")
        pool.replace(parse_urls("10.0.0.1"))
        (server,) = pool.servers
        assert (server.discovered, server.tls_name) == (False, None)

    def test_shuffles(self) -> None:
        names = [f"h{n}" for n in range(20)]
        pool = make_pool(randomize=True)
        pool.replace([parse_url(name) for name in names])
        assert hosts(pool.servers) != names


def test_the_repr_of_a_server_shows_no_secret() -> None:
    assert "hunter2" not in repr(Server(parse_url("nats://bob:hunter2@a")))


@given(st.integers(1, 6), st.integers(0, 5))
def test_one_round_tries_every_server_once(size: int, seed: int) -> None:
    pool = make_pool(*(f"h{n}" for n in range(size)), randomize=True, seed=seed)
    for attempts in range(3):
        for _ in range(size):
            server = take(pool)
            assert server.attempts == attempts
            pool.mark_failed(server, ConnectError("refused"))


HOSTS = st.sampled_from([f"h{n}:1" for n in range(6)])


class PoolMachine(RuleBasedStateMachine):
    """Any sequence of calls leaves a pool without duplicates, whose current is a member."""

    @initialize(urls=st.lists(HOSTS, max_size=3), randomize=st.booleans())
    def create(self, urls: list[str], randomize: bool) -> None:
        self.pool = make_pool(*urls, randomize=randomize, max_attempts=3)
        self.configured = set(urls)

    @rule()
    def next(self) -> None:
        server = self.pool.next()
        assert (server is None) == (len(self.pool) == 0)
        if server is not None:
            assert self.pool.servers[0] is server

    @rule()
    def connect(self) -> None:
        if (server := self.pool.current) is not None:
            self.pool.mark_connected(server)
            assert all(each.attempts == 0 for each in self.pool.servers)

    @rule()
    def fail(self) -> None:
        if (server := self.pool.current) is not None:
            dropped = self.pool.mark_failed(server, ConnectError("refused"))
            assert dropped == (server.attempts == 3) == (server not in self.pool.servers)
            if dropped:
                self.configured.discard(server.url.key)

    @rule()
    def defer(self) -> None:
        if (server := self.pool.current) is not None:
            self.pool.defer(server)
            assert self.pool.servers[-1] is server

    @rule(urls=st.lists(HOSTS, min_size=1))
    def discover(self, urls: list[str]) -> None:
        before = {server.url.key for server in self.pool.servers}
        new = self.pool.merge_discovered(urls, scheme="nats", tls_host=None)
        assert {url.key for url in new} == set(urls) - before
        current = set() if self.pool.current is None else {self.pool.current.url.key}
        after = {server.url.key for server in self.pool.servers}
        assert after == self.configured | set(urls) | current

    @rule(urls=st.lists(HOSTS, max_size=3))
    def replace(self, urls: list[str]) -> None:
        self.pool.replace([parse_url(url) for url in urls])
        self.configured = set(urls)
        assert {server.url.key for server in self.pool.servers} == self.configured

    @invariant()
    def consistent(self) -> None:
        keys = [server.url.key for server in self.pool.servers]
        assert len(keys) == len(set(keys)) == len(self.pool)
        assert self.pool.current is None or self.pool.current in self.pool.servers
        assert all(
            server.url.key in self.configured
            for server in self.pool.servers
            if not server.discovered
        )


TestPoolMachine = PoolMachine.TestCase
