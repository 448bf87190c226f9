"""The options of a connection: defaults, checks, and how a context completes them."""

from __future__ import annotations

import inspect
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

import jetspark
from jetspark import Backoff, ConnectOptions
from jetspark.errors import InvalidArgumentError, InvalidOptionError, InvalidSubjectError


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NATS_URL", raising=False)
    options = ConnectOptions()
    assert [str(url) for url in options.urls()] == ["nats://localhost:4222"]
    assert not options.demands_tls
    assert not options.authenticator().has_credentials
    assert options.with_context() is options
    assert isinstance(options.reconnect_delay, Backoff)
    assert (options.pending_messages, options.pending_bytes) == (512 * 1024, 64 * 1024 * 1024)


def test_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", "nats://from.env")
    assert [url.host for url in ConnectOptions().urls()] == ["from.env"]
    assert [url.host for url in ConnectOptions("a,b").urls()] == ["a", "b"]
    assert [url.host for url in ConnectOptions(["a", "b"]).urls()] == ["a", "b"]
    assert [url.host for url in ConnectOptions(iter(["a"])).urls()] == ["a"]
    with pytest.raises(InvalidOptionError, match="'servers' is empty"):
        ConnectOptions([]).urls()


def test_only_the_servers_may_be_positional() -> None:
    with pytest.raises(TypeError):
        ConnectOptions("a", "b")  # type: ignore[call-arg]


def test_connect_has_the_same_arguments() -> None:
    signature = inspect.signature(jetspark.connect)
    assert signature.parameters == inspect.signature(ConnectOptions).parameters
    assert signature.return_annotation is jetspark.Client
    assert "NATS" in (jetspark.connect.__doc__ or "")


@pytest.mark.parametrize(
    "name",
    [
        "connect_timeout",
        "ping_interval",
        "drain_timeout",
        "max_outstanding_pings",
        "read_high_water",
        "max_control_line",
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_must_be_positive(name: str, value: Any) -> None:
    with pytest.raises(InvalidOptionError, match=f"'{name}' must be greater than 0"):
        ConnectOptions(**{name: value})


@pytest.mark.parametrize("name", ["reconnect_buffer_size", "pending_messages", "pending_bytes"])
def test_must_not_be_negative(name: str) -> None:
    ConnectOptions(**{name: 0})  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match=f"'{name}' must not be negative"):
        ConnectOptions(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-0.001, 0.02, float("inf"), float("nan")])
def test_polling_ends(value: float) -> None:
    ConnectOptions(busy_poll=0)
    ConnectOptions(busy_poll=0.01)
    with pytest.raises(InvalidOptionError, match=r"'busy_poll' must be from 0 to 0\.01 seconds"):
        ConnectOptions(busy_poll=value)


def test_reconnect_attempts() -> None:
    ConnectOptions(max_reconnect_attempts=None)
    ConnectOptions(max_reconnect_attempts=1)
    with pytest.raises(InvalidOptionError, match="at least 1; None means forever"):
        ConnectOptions(max_reconnect_attempts=0)


def test_reconnect_delay() -> None:
    ConnectOptions(reconnect_delay=lambda attempts: 1.0)
    wrong: Any = 2.0
    with pytest.raises(InvalidOptionError, match="'reconnect_delay' must be a Backoff"):
        ConnectOptions(reconnect_delay=wrong)


def test_event_callback_must_be_plain() -> None:
    async def on_event(event: jetspark.ConnectionEvent) -> None: ...

    with pytest.raises(InvalidOptionError, match=r"'on_event' must be a plain.*events\(\)"):
        ConnectOptions(on_event=on_event)


@pytest.mark.parametrize("prefix", ["", "a b", "a.", ".a", "a..b", "a.*", ">", 5])
def test_inbox_prefix(prefix: Any) -> None:
    ConnectOptions(inbox_prefix="_INBOX.me")
    with pytest.raises(InvalidSubjectError, match="option 'inbox_prefix'"):
        ConnectOptions(inbox_prefix=prefix)


@pytest.mark.parametrize(
    "headers",
    [{"A": "b\r\nEvil: yes"}, {"A": "b\n"}, {"A B": "c"}, {"A\r\n": "c"}, {"": "c"}, {"A": "\x00"}],
    ids=repr,
)
def test_websocket_headers(headers: dict[str, str]) -> None:
    ConnectOptions(ws_headers={"X-Key": "some text, with \t blanks"})
    with pytest.raises(InvalidOptionError, match=r"'ws_headers'.*is not an HTTP header") as caught:
        ConnectOptions(ws_headers=headers)
    assert "Evil" not in str(caught.value)  # values may be secrets


def test_tls_options_that_do_not_go_together() -> None:
    context = ssl.create_default_context()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tls_key": "key.pem"}, "'tls_key' needs option 'tls_cert'"),
        ({"tls": context, "tls_ca": "ca.pem"}, "'tls_ca' and 'tls_cert' belong into it"),
        ({"tls": context, "tls_cert": "cert.pem"}, "belong into it"),
        ({"tls": False, "tls_ca": "ca.pem"}, "'tls' is False"),
        ({"tls": False, "tls_cert": "cert.pem"}, "'tls' is False"),
        ({"tls": False, "tls_first": True}, "'tls' is False"),
    ]
    for options, message in cases:
        with pytest.raises(InvalidOptionError, match=message):
            ConnectOptions(**options)
    with pytest.raises(InvalidOptionError, match="a server URL asks for TLS"):
        ConnectOptions("tls://a", tls=False).urls()
    with pytest.raises(InvalidOptionError, match="use wss://"):
        ConnectOptions("ws://a", tls_ca="ca.pem").urls()


@pytest.mark.parametrize(
    "options", [{"tls": True}, {"tls_first": True}, {"tls_ca": "a"}, {"tls_cert": "a"}], ids=str
)
def test_what_demands_tls(options: dict[str, Any]) -> None:
    assert ConnectOptions(**options).demands_tls


def test_tls_context() -> None:
    own = ssl.create_default_context()
    assert ConnectOptions(tls=own).ssl_context() is own
    made = ConnectOptions(tls=True).ssl_context()
    assert made.check_hostname
    assert made.verify_mode is ssl.CERT_REQUIRED


def test_credentials_are_checked_as_a_whole() -> None:
    with pytest.raises(InvalidOptionError, match="'user' and 'token' exclude each other"):
        ConnectOptions(user="a", token="b").authenticator()
    with pytest.raises(InvalidOptionError, match="'password' needs option 'user'"):
        ConnectOptions(password="a").authenticator()


def test_no_secret_in_the_repr() -> None:
    options = ConnectOptions(
        "nats://ann:S3CRET@a",
        password="S3CRET",
        token="S3CRET",
        nkey_seed="S3CRET",
        jwt="S3CRET",
        creds="S3CRET",
        ws_headers={"Authorization": "S3CRET"},
    )
    assert "S3CRET" not in repr(options)


def test_options_cannot_be_changed() -> None:
    options = ConnectOptions()
    with pytest.raises(AttributeError):
        options.name = "other"  # type: ignore[misc]


# -- contexts ------------------------------------------------------------------------------------


def write(path: Path, **content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_context_completes(tmp_path: Path) -> None:
    context = write(
        tmp_path / "c.json",
        url="nats://a,nats://b",
        user="ann",
        password="secret",
        ca="/ca.pem",
        tls_first=True,
        inbox_prefix="_IN",
    )
    options = ConnectOptions(context=context, name="me").with_context()
    assert [url.host for url in options.urls()] == ["a", "b"]
    assert (options.user, options.password, options.name) == ("ann", "secret", "me")
    assert options.tls_ca == Path("/ca.pem")
    assert options.tls_first
    assert options.inbox_prefix == "_IN"
    assert options.context is None


def test_own_options_win_over_the_context(tmp_path: Path) -> None:
    context = write(
        tmp_path / "c.json", url="nats://a", user="ann", password="secret", inbox_prefix="_IN"
    )
    options = ConnectOptions("nats://b", context=context, inbox_prefix="_MINE").with_context()
    assert [url.host for url in options.urls()] == ["b"]
    assert (options.inbox_prefix, options.user) == ("_MINE", "ann")


@pytest.mark.parametrize(
    "own",
    [{"token": "t"}, {"user": "bob"}, {"creds": "f.creds"}, {"nkey_seed": "f.nk"}, {"jwt": "j"}],
    ids=str,
)
def test_own_credentials_replace_those_of_the_context(tmp_path: Path, own: dict[str, Any]) -> None:
    context = write(tmp_path / "c.json", url="nats://a", user="ann", password="secret")
    options = ConnectOptions(context=context, **own).with_context()
    options.authenticator()
    assert options.password is None
    assert {name: getattr(options, name) for name in own} == own


def test_context_is_checked_with_the_options(tmp_path: Path) -> None:
    context = write(tmp_path / "c.json", url="nats://a", ca="/ca.pem")
    with pytest.raises(InvalidArgumentError, match="'tls' is False"):
        ConnectOptions(context=context, tls=False).with_context()
