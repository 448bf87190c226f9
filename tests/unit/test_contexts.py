"""Contexts of the nats command line tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jetspark.auth import Authenticator
from jetspark.connection.contexts import NatsContext, load_context
from jetspark.connection.urls import parse_urls
from jetspark.errors import InvalidOptionError

# All keys, the way the tool writes a context in which nothing is set.
EMPTY: dict[str, Any] = {
    "name": "empty",
    "description": "",
    "url": "",
    "socks_proxy": "",
    "token": "",
    "user": "",
    "password": "",
    "creds": "",
    "nkey": "",
    "cert": "",
    "key": "",
    "ca": "",
    "nsc": "",
    "jetstream_domain": "",
    "jetstream_api_prefix": "",
    "jetstream_event_prefix": "",
    "inbox_prefix": "",
    "user_jwt": "",
    "user_seed": "",
    "color_scheme": "",
    "tls_first": False,
    "windows_cert_store": "",
    "windows_cert_match_by": "",
    "windows_cert_match": "",
    "windows_ca_certs_match": None,
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the tool, empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    directory = tmp_path / "xdg" / "nats"
    (directory / "context").mkdir(parents=True)
    return directory


def write(config: Path, name: str, **values: Any) -> Path:
    path = config / "context" / f"{name}.json"
    path.write_text(json.dumps(EMPTY | values))
    return path


def options(config: Path, **values: Any) -> dict[str, Any]:
    write(config, "x", **values)
    return load_context("x").to_options()


class TestFinding:
    def test_by_name(self, config: Path) -> None:
        write(config, "ngs.js", url="tls://connect.ngs.global")
        context = load_context("ngs.js")
        assert (context.name, context.url) == ("ngs.js", "tls://connect.ngs.global")

    @pytest.mark.parametrize("name", [None, ""])
    def test_the_selected_one(self, config: Path, name: str | None) -> None:
        write(config, "a", url="nats://a")
        write(config, "b", url="nats://b")
        (config / "context.txt").write_text("b\n")
        assert load_context(name).url == "nats://b"

    def test_default_directory(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = config.parent.parent / "home"
        write_to = home / ".config" / "nats"
        (write_to / "context").mkdir(parents=True)
        write(write_to, "a", url="nats://a")
        monkeypatch.setenv("XDG_CONFIG_HOME", "")
        assert load_context("a").url == "nats://a"
        monkeypatch.delenv("XDG_CONFIG_HOME")
        assert load_context("a").url == "nats://a"

    def test_by_path(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = config.parent / "mine.json"
        path.write_text(json.dumps({"url": "nats://mine"}))
        plain = config.parent / "plain"
        plain.write_text(json.dumps({"url": "nats://plain"}))
        monkeypatch.chdir(config.parent)
        monkeypatch.setenv("HOME", str(config.parent))
        for given in (path, str(path), "mine.json", "./mine.json", "~/mine.json"):
            assert load_context(given) == NatsContext(name="mine", url="nats://mine")
        for given in (Path("plain"), "./plain"):
            assert load_context(given).url == "nats://plain"

    def test_an_unknown_name_lists_the_known(self, config: Path) -> None:
        with pytest.raises(InvalidOptionError, match="no context 'x'; none is defined"):
            load_context("x")
        write(config, "b")
        write(config, "a")
        (config / "context" / "notes.txt").write_text("")
        with pytest.raises(InvalidOptionError, match=r"no context 'x'; available: a, b$"):
            load_context("x")
        (config / "context.txt").write_text("gone")
        with pytest.raises(InvalidOptionError, match=r"no context 'gone'; available: a, b$"):
            load_context(None)

    def test_nothing_selected(self, config: Path) -> None:
        write(config, "a")
        with pytest.raises(InvalidOptionError, match=r"no context is selected.*available: a$"):
            load_context(None)
        (config / "context.txt").write_text(" \n")
        with pytest.raises(InvalidOptionError, match=r"no context is selected"):
            load_context(None)

    def test_no_directory_at_all(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(config / "missing"))
        for name in (None, "x"):
            with pytest.raises(InvalidOptionError, match="none is defined"):
                load_context(name)

    def test_a_missing_file(self, config: Path) -> None:
        with pytest.raises(InvalidOptionError, match=r"file '/no/x\.json' cannot be read: No such"):
            load_context("/no/x.json")

    def test_a_directory_in_place_of_a_file(self, config: Path) -> None:
        (config / "context" / "x.json").mkdir()
        with pytest.raises(InvalidOptionError, match="context 'x' cannot be read: Is a directory"):
            load_context("x")

    @pytest.mark.parametrize("content", [b"", b'{"token": "hunter2', b"[]", b"null", b"\xff"])
    def test_not_a_json_object(self, config: Path, content: bytes) -> None:
        (config / "context" / "x.json").write_bytes(content)
        with pytest.raises(InvalidOptionError, match="context 'x': the file is not a JSON object"):
            load_context("x")


class TestOptions:
    def test_nothing_set(self, config: Path) -> None:
        write(config, "x")
        assert load_context("x") == NatsContext(name="x")
        assert load_context("x").to_options() == {"servers": "nats://localhost:4222"}
        (config / "context" / "x.json").write_text("{}")
        assert load_context("x") == NatsContext(name="x")

    def test_servers(self, config: Path) -> None:
        servers = options(config, url="nats://a,nats://b:1")["servers"]
        assert [url.netloc for url in parse_urls(servers)] == ["a:4222", "b:1"]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"user": "bob", "password": "pw"}, {"user": "bob", "password": "pw"}),
            ({"token": "t"}, {"token": "t"}),
            ({"creds": "/a/u.creds"}, {"creds": Path("/a/u.creds")}),
            ({"creds": "file:///a/u.creds"}, {"creds": Path("/a/u.creds")}),
            ({"nkey": "/a/u.nk"}, {"nkey_seed": Path("/a/u.nk")}),
            ({"user_jwt": "eyJ", "user_seed": "SU"}, {"jwt": "eyJ", "nkey_seed": "SU"}),
            ({"user_jwt": "eyJ"}, {"jwt": "eyJ"}),
            (
                {"cert": "c.pem", "key": "k.pem", "ca": "ca.pem"},
                {"tls_cert": Path("c.pem"), "tls_key": Path("k.pem"), "tls_ca": Path("ca.pem")},
            ),
            ({"tls_first": True}, {"tls_first": True}),
            ({"inbox_prefix": "_INBOX_bob"}, {"inbox_prefix": "_INBOX_bob"}),
            ({"jetstream_domain": "hub", "jetstream_api_prefix": "JS.acc"}, {}),
            ({"description": "d", "color_scheme": "red", "jetstream_event_prefix": "e"}, {}),
            ({"a_key_of_the_future": True}, {}),
            ({"user": None, "tls_first": None}, {}),
        ],
    )
    def test_keys(self, config: Path, values: dict[str, Any], expected: dict[str, Any]) -> None:
        assert options(config, url="nats://a", **values) == {"servers": "nats://a"} | expected

    def test_jetstream(self, config: Path) -> None:
        write(config, "x", jetstream_domain="hub", jetstream_api_prefix="JS.acc")
        context = load_context("x")
        assert (context.jetstream_domain, context.jetstream_api_prefix) == ("hub", "JS.acc")

    def test_credentials_suit_the_authenticator(self, config: Path) -> None:
        for values in ({"user": "bob", "password": "pw"}, {"token": "t"}, {"creds": "u.creds"}):
            given = options(config, **values)
            del given["servers"]
            assert Authenticator(**given).has_credentials

    @pytest.mark.parametrize("key", ["creds", "nkey", "cert", "key", "ca"])
    def test_paths_are_expanded(
        self, config: Path, key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", "/home/bob")
        monkeypatch.setenv("KEYS", "~/keys")
        for text in ("~/keys/x", "$HOME/keys/x", "${HOME}/keys/x", "$KEYS/x", "file://~/keys/x"):
            write(config, "x", **{key: text})
            assert getattr(load_context("x"), key) == Path("/home/bob/keys/x")

    def test_secrets_are_not_expanded(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/bob")
        assert options(config, user="bob", password="~$HOME")["password"] == "~$HOME"

    def test_the_repr_shows_no_secret(self, config: Path) -> None:
        for values in (
            {"user": "bob", "password": "hunter2"},
            {"token": "hunter2"},
            {"user_jwt": "hunter2", "user_seed": "hunter2"},
            {"url": "nats://bob:hunter2@host"},
        ):
            write(config, "x", **values)
            assert "hunter2" not in repr(load_context("x"))


class TestRefusals:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("nsc", "nsc://operator/account/user"),
            ("socks_proxy", "socks5://localhost"),
            ("windows_cert_store", "user"),
            ("windows_cert_match", "subject"),
            ("windows_cert_match_by", "x"),
            ("windows_ca_certs_match", ["x"]),
        ],
    )
    def test_unsupported_keys(self, config: Path, key: str, value: object) -> None:
        with pytest.raises(InvalidOptionError, match=f"^context 'x': key '{key}' is not supported"):
            options(config, **{key: value})

    @pytest.mark.parametrize("key", ["token", "password", "user_jwt", "user_seed", "creds", "ca"])
    @pytest.mark.parametrize("scheme", ["data:;base64,", "env://", "ENV://", "op://", "nsc://"])
    def test_references(self, config: Path, key: str, scheme: str) -> None:
        others = {"user_seed": {"user_jwt": "eyJ"}, "password": {"user": "bob"}}.get(key, {})
        with pytest.raises(InvalidOptionError, match=f"'x': key '{key}' is a reference") as caught:
            options(config, **{key: f"{scheme}hunter2"}, **others)
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        ("first", "second"),
        [("user", "token"), ("user", "creds"), ("creds", "nkey"), ("nkey", "user_jwt")],
    )
    def test_more_than_one_way(self, config: Path, first: str, second: str) -> None:
        with pytest.raises(
            InvalidOptionError, match=f"^context 'x': key '{first}' and key '{second}' exclude"
        ):
            options(config, **{second: "hunter2", first: "hunter2"})

    def test_seed_without_jwt(self, config: Path) -> None:
        with pytest.raises(InvalidOptionError, match="key 'user_seed' needs key 'user_jwt'"):
            options(config, user_seed="hunter2")

    @pytest.mark.parametrize("key", ["url", "user", "token", "creds", "inbox_prefix"])
    @pytest.mark.parametrize("value", [1, True, ["x"], {"x": 1}])
    def test_wrong_types(self, config: Path, key: str, value: object) -> None:
        with pytest.raises(InvalidOptionError, match=f"context 'x': key '{key}' must be a string"):
            options(config, **{key: value})

    def test_tls_first_is_a_flag(self, config: Path) -> None:
        with pytest.raises(InvalidOptionError, match="key 'tls_first' must be true or false"):
            options(config, tls_first="yes")
