"""Authentication: every way to show who one is, what is refused, and credentials that change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nkeys
import pytest

import jetspark
from jetspark import Client, EventKind
from jetspark.auth import Creds
from jetspark.errors import (
    AuthenticationError,
    AuthenticationExpiredError,
    InvalidOptionError,
    NoServersError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually, monitor, unique
from tests.support.jwt import Key, Operator, user_key
from tests.support.servers import StartServer


async def works(nc: Client) -> bool:
    await nc.flush()
    return nc.connected


async def refused(servers: Any, **options: Any) -> AuthenticationError:
    """The error of a connect that must be refused at once, whatever the patience."""
    with pytest.raises(AuthenticationError) as caught:
        async with asyncio.timeout(5):
            await jetspark.connect(
                servers, connect_timeout=60, retry_initial_connect=True, **options
            )
    return caught.value


# -- user and password, token --------------------------------------------------------------------


async def test_user_and_password(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, user="ann", password="p@ss:/w%rd")
    location = f"127.0.0.1:{server.port}"
    assert await works(await connect(server.url, user="ann", password="p@ss:/w%rd"))
    in_url = await connect(f"nats://ann:p%40ss%3A%2Fw%25rd@{location}")
    assert await works(in_url)
    assert in_url.server == server.url
    assert await works(
        await connect(f"nats://bob:wrong@{location}", user="ann", password="p@ss:/w%rd")
    )  # options win over the URL


async def test_wrong_password(start_server: StartServer) -> None:
    server = start_server(jetstream=False, user="ann", password="secret")
    location = f"127.0.0.1:{server.port}"
    cases: list[tuple[str, dict[str, Any]]] = [
        (server.url, {"user": "ann", "password": "wrong"}),
        (server.url, {"user": "nobody", "password": "secret"}),
        (server.url, {"token": "secret"}),
        (server.url, {}),
        (f"nats://ann:wrong@{location}", {}),
        (f"nats://secret@{location}", {}),
    ]
    for url, options in cases:
        error = await refused(url, **options)
        assert not error.retryable
        assert error.server == server.url
        assert "refused the credentials" in str(error)
        assert "secret" not in str(error)
    assert (await monitor(server, "/varz"))["total_connections"] == len(cases)  # no second try


async def test_token(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, token="s3cret")
    assert await works(await connect(server.url, token="s3cret"))
    assert await works(await connect(f"nats://s3cret@127.0.0.1:{server.port}"))
    assert "refused the credentials" in str(await refused(server.url, token="wrong"))


async def test_url_credentials_belong_to_their_server(
    start_server: StartServer, connect: Connect
) -> None:
    servers = [start_server(jetstream=False, token=token) for token in ("one", "two")]
    urls = [
        f"nats://{token}@127.0.0.1:{server.port}"
        for token, server in zip(("one", "two"), servers, strict=True)
    ]
    nc = await connect(urls, randomize_servers=False)
    assert nc.server == servers[0].url
    await nc.force_reconnect()
    assert await works(nc)
    assert nc.server == servers[1].url


async def test_one_server_refuses_and_another_accepts(
    start_server: StartServer, nats_server: NatsServer, connect: Connect
) -> None:
    strict = start_server(jetstream=False, token="secret")
    nc = await connect([strict.url, nats_server.url], randomize_servers=False)
    assert nc.server == nats_server.url


async def test_credentials_that_nobody_asked_for(nats_server: NatsServer, connect: Connect) -> None:
    assert await works(await connect(nats_server.url, user="ann", password="x"))


# -- callables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_rotation(start_server: StartServer, connect: Connect, kind: str) -> None:
    server = start_server(jetstream=False, user="ann", password="first")
    password = "first"
    calls = 0

    def plain() -> str:
        nonlocal calls
        calls += 1
        return password

    async def coroutine() -> str:
        await asyncio.sleep(0)
        return plain()

    events = Events()
    provider = plain if kind == "sync" else coroutine
    nc = await connect(
        server.url,
        user=lambda: "ann",
        password=provider,
        reconnect_delay=lambda attempts: 0.01,
        on_event=events,
    )
    assert calls == 1
    password = "second"
    await server.areload(password="second")  # the server sends us away
    assert (await events.wait(EventKind.CONNECTED, 2)).reconnect
    assert await works(nc)
    assert calls >= 2


async def test_rotation_of_a_token(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, token="first")
    tokens = iter(["first", "second"])
    nc = await connect(server.url, token=lambda: next(tokens))
    await server.areload(token="second")
    await eventually(lambda: nc.statistics.reconnects == 1)
    assert await works(nc)


async def test_password_changed_and_we_do_not_know(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(jetstream=False, user="ann", password="first")
    events = Events()
    nc = await connect(
        server.url,
        user="ann",
        password="first",
        reconnect_delay=lambda attempts: 0.01,
        max_reconnect_attempts=None,
        on_event=events,
    )
    await server.areload(password="second")
    closed = await events.wait(EventKind.CLOSED)  # it does not try forever
    assert isinstance(closed.error, NoServersError)
    assert isinstance(closed.error.__cause__, AuthenticationError)
    assert nc.closed
    assert events.kinds.count(EventKind.RECONNECTING) <= 3


async def test_callable_that_fails(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, token="secret")

    def broken() -> str:
        raise LookupError("vault, key=secret")

    with pytest.raises(
        AuthenticationError, match=r"option 'token'.*failed with LookupError"
    ) as info:
        await connect(server.url, token=broken)
    assert "vault" not in str(info.value)
    assert isinstance(info.value.__cause__, LookupError)
    with pytest.raises(AuthenticationError, match="returned int, not str"):
        await connect(server.url, token=lambda: 5)


async def test_callable_that_recovers(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, token="secret")
    calls = 0

    async def flaky() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise OSError("the vault is away")
        return "secret"

    nc = await connect(
        server.url,
        token=flaky,
        retry_initial_connect=True,
        reconnect_delay=lambda attempts: 0.001,
    )
    assert await works(nc)
    assert calls == 3


async def test_callable_that_hangs(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, token="secret")

    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(jetspark.errors.TimeoutError, match="authenticating"):
        await connect(server.url, token=hang, connect_timeout=0.5)


# -- nkeys ---------------------------------------------------------------------------------------


async def test_nkey(start_server: StartServer, connect: Connect, tmp_path: Path) -> None:
    key, stranger = user_key(), user_key()
    server = start_server(jetstream=False, nkeys=[key.public])
    file = tmp_path / "user.nk"
    file.write_text(f"{key.seed}\n")

    async def fetch() -> str:
        return key.seed

    seeds: list[Any] = [key.seed, file, str(file), lambda: key.seed, lambda: file, fetch]
    for seed in seeds:
        nc = await connect(server.url, nkey_seed=seed)
        await nc.force_reconnect()  # another nonce
        assert await works(nc)
    error = await refused(server.url, nkey_seed=stranger.seed)
    assert stranger.seed not in str(error)


async def test_nkey_on_a_server_without(nats_server: NatsServer) -> None:
    error = await refused(nats_server.url, nkey_seed=user_key().seed)
    assert "server has no nkey support" in str(error)


async def test_damaged_seeds(nats_server: NatsServer, tmp_path: Path) -> None:
    seed = user_key().seed
    damaged = seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]
    account = Key.make(nkeys.PREFIX_BYTE_ACCOUNT).seed
    file = tmp_path / "empty.nk"
    file.write_text("nothing here\n")
    cases: list[tuple[Any, str]] = [
        (damaged, "checksum"),
        (account, "seed of an account"),
        (file, "no nkey seed"),
        (tmp_path / "missing.nk", "cannot be read: No such file"),
    ]
    server_options: dict[str, Any] = {"nkeys": [user_key().public], "jetstream": False}
    with jetspark.server.run_server(**server_options) as server:
        for value, message in cases:
            with pytest.raises(InvalidOptionError, match=message) as caught:
                await jetspark.connect(server.url, nkey_seed=value)
            assert damaged not in str(caught.value)


# -- JWT -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator()


@pytest.fixture
def jwt_server(operator: Operator, start_server: StartServer) -> NatsServer:
    return start_server(jetstream=False, config=operator.server_config())


async def test_creds(
    jwt_server: NatsServer, operator: Operator, connect: Connect, tmp_path: Path
) -> None:
    user = operator.user()
    file = user.write_creds(tmp_path / "user.creds")
    forms: list[Any] = [
        file,
        str(file),
        user.creds,
        Creds(user.jwt, user.key.seed),
        lambda: file,
        lambda: Creds(user.jwt, user.key.seed),
    ]
    for creds in forms:
        nc = await connect(jwt_server.url, creds=creds)
        await nc.force_reconnect()
        assert await works(nc)
        assert nc.server_info.auth_required
    assert await works(await connect(jwt_server.url, jwt=user.jwt, nkey_seed=user.key.seed))


async def test_creds_in_a_context(
    jwt_server: NatsServer, operator: Operator, connect: Connect, tmp_path: Path
) -> None:
    file = operator.user().write_creds(tmp_path / "user.creds")
    context = tmp_path / "prod.json"
    context.write_text(f'{{"url": "{jwt_server.url}", "creds": "{file}"}}')
    assert await works(await connect(context=context))
    other = operator.user()  # own credentials replace those of the context
    assert await works(await connect(context=context, creds=other.creds))


async def test_creds_file_is_read_again(
    jwt_server: NatsServer, operator: Operator, connect: Connect, tmp_path: Path
) -> None:
    first, second = operator.user("first"), operator.user("second")
    file = first.write_creds(tmp_path / "user.creds")
    nc = await connect(jwt_server.url, creds=file)
    second.write_creds(file)
    await nc.force_reconnect()
    assert await works(nc)
    connections = (await monitor(jwt_server, "/connz?auth=true"))["connections"]
    assert [each["authorized_user"] for each in connections] == [second.key.public]


async def test_jwt_with_the_wrong_seed(jwt_server: NatsServer, operator: Operator) -> None:
    user = operator.user()
    error = await refused(jwt_server.url, jwt=user.jwt, nkey_seed=user_key().seed)
    assert not isinstance(error, AuthenticationExpiredError)


async def test_jwt_of_another_operator(jwt_server: NatsServer) -> None:
    error = await refused(jwt_server.url, creds=Operator().user().creds)
    assert not isinstance(error, AuthenticationExpiredError)
    assert "refused the credentials" in str(error)


async def test_expired_jwt(
    jwt_server: NatsServer, operator: Operator, connect: Connect, tmp_path: Path
) -> None:
    expired = operator.user(expires_in=-3600)
    file = expired.write_creds(tmp_path / "old.creds")
    for options in ({"creds": file}, {"jwt": expired.jwt, "nkey_seed": expired.key.seed}):
        with pytest.raises(
            AuthenticationExpiredError, match=r"JWT expired at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        ) as caught:
            await connect(jwt_server.url, **options)
        assert caught.value.server == jwt_server.url
        assert expired.jwt not in str(caught.value)


async def test_jwt_that_cannot_be_read(jwt_server: NatsServer) -> None:
    for jwt in ("nonsense", "a.b.c", "a.e30.c", "a.W10.c", "a.eyJleHAiOiJub3cifQ.c"):
        error = await refused(jwt_server.url, jwt=jwt, nkey_seed=user_key().seed)
        assert not isinstance(error, AuthenticationExpiredError)


async def test_jwt_that_expires_while_connected(
    jwt_server: NatsServer, operator: Operator, connect: Connect, tmp_path: Path
) -> None:
    file = operator.user(expires_in=1.2).write_creds(tmp_path / "user.creds")
    events = Events()
    nc = await connect(
        jwt_server.url,
        creds=file,
        reconnect_delay=lambda attempts: 0.02,
        max_reconnect_attempts=None,
        on_event=events,
    )
    lost = await events.wait(EventKind.DISCONNECTED)
    assert isinstance(lost.error, AuthenticationExpiredError)
    # More than twice: what has expired may be renewed, so that it is worth another try.
    await eventually(lambda: sum("JWT expired at" in str(e) for e in events.errors) >= 3)
    connects = nc.statistics.connects
    operator.user().write_creds(file)
    await eventually(lambda: nc.statistics.connects > connects)
    assert await works(nc)


async def test_creds_that_cannot_be_used(
    jwt_server: NatsServer, operator: Operator, tmp_path: Path
) -> None:
    user = operator.user()

    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    cases: list[tuple[Any, str]] = [
        (tmp_path / "missing.creds", r"missing\.creds' cannot be read: No such file"),
        (write("empty.creds", ""), r"empty\.creds'.*no user JWT"),
        (write("no-seed.creds", user.creds.partition("****")[0]), "no nkey seed"),
        (write("cut.creds", user.creds.partition("------END USER")[0]), "the file was cut"),
        (write("typo.creds", user.creds.replace(user.key.seed, user.key.seed[:-1])), "58 letters"),
    ]
    for creds, message in cases:
        for patience in (False, True):  # no later attempt would go better
            with pytest.raises(InvalidOptionError, match=message) as caught:
                await jetspark.connect(jwt_server.url, creds=creds, retry_initial_connect=patience)
            assert user.key.seed not in str(caught.value)


async def test_options_that_exclude_each_other() -> None:
    with pytest.raises(InvalidOptionError, match="'user' and 'token' exclude each other"):
        await jetspark.connect("nats://127.0.0.1:1", user="a", token="b")


# -- accounts ------------------------------------------------------------------------------------


async def test_no_auth_user(start_server: StartServer, connect: Connect) -> None:
    server = start_server(
        jetstream=False,
        accounts={"A": {"users": [{"user": "guest", "password": "guest"}]}},
        config={"no_auth_user": "guest"},
    )
    assert await works(await connect(server.url))


async def test_accounts_are_apart(start_server: StartServer, connect: Connect) -> None:
    users = {name: [{"user": name, "password": name}] for name in ("a", "b")}
    server = start_server(
        jetstream=False, accounts={name: {"users": each} for name, each in users.items()}
    )
    a, b = [await connect(server.url, user=name, password=name) for name in ("a", "b")]
    subject = unique()
    sub = await b.subscribe(subject)
    await b.flush()
    await a.publish(subject, b"not for b")
    await a.flush()
    await b.publish(subject, b"for b")
    assert (await sub.next(timeout=5)).data == b"for b"


async def test_auth_timeout(start_server: StartServer, connect: Connect) -> None:
    server = start_server(
        jetstream=False, config={"authorization": {"token": "secret", "timeout": 0.2}}
    )

    async def slow() -> str:
        await asyncio.sleep(0.5)
        return "secret"

    with pytest.raises(AuthenticationError, match="Authentication Timeout"):
        await connect(server.url, token=slow)
