"""The configuration that options become, and where the nats-server program is looked for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, Unpack

import pytest

from jetspark.errors import InvalidOptionError, ServerProcessError
from jetspark.server import NatsServer, ServerOptions, TLSConfig, find_server
from jetspark.server.config import (
    Ports,
    build_config,
    check_options,
    merge,
    probe_login,
    render_config,
)

PORTS = Ports(client=4222, monitor=8222)


def config_of(ports: Ports = PORTS, **options: Unpack[ServerOptions]) -> dict[str, Any]:
    return build_config(check_options(options), name="n", ports=ports, store_dir=Path("/store"))


def test_the_default_is_a_local_jetstream_server() -> None:
    assert config_of() == {
        "server_name": "n",
        "host": "127.0.0.1",
        "port": 4222,
        "http": "127.0.0.1:8222",
        "jetstream": {"store_dir": "/store"},
    }


def test_jetstream_options_go_into_its_block() -> None:
    config = config_of(domain="hub", max_memory_store=1, max_file_store=2)

    assert config["jetstream"] == {
        "store_dir": "/store",
        "domain": "hub",
        "max_memory_store": 1,
        "max_file_store": 2,
    }
    assert "jetstream" not in config_of(jetstream=False)


def test_limits_and_durations() -> None:
    config = config_of(
        max_payload=100,
        ping_max=3,
        ping_interval=0.25,
        write_deadline=timedelta(milliseconds=1500),
        lame_duck_duration=30,
    )

    assert config["max_payload"] == 100
    assert config["ping_max"] == 3
    assert config["ping_interval"] == "0.250000s"
    assert config["write_deadline"] == "1.500000s"
    assert config["lame_duck_duration"] == "30.000000s"


def test_users_come_from_three_options() -> None:
    restricted = {"user": "bob", "password": "b", "permissions": {"publish": "a.>"}}
    config = config_of(user="ann", password="a", users=[restricted], nkeys=["UKEY"])

    assert config["authorization"] == {
        "users": [{"user": "ann", "password": "a"}, restricted, {"nkey": "UKEY"}]
    }
    assert config_of(token="t")["authorization"] == {"token": "t"}


def test_tls_blocks_have_absolute_paths() -> None:
    tls = TLSConfig(cert="c.pem", key=Path("k.pem"), ca="/ca.pem", verify=True, timeout=2)
    config = config_of(Ports(client=1, monitor=2, websocket=3), tls=tls, websocket=tls)

    expected = {
        "cert_file": os.path.abspath("c.pem"),
        "key_file": os.path.abspath("k.pem"),
        "ca_file": "/ca.pem",
        "verify": True,
        "timeout": "2.000000s",
    }
    assert config["tls"] == expected
    assert config["websocket"] == {"host": "127.0.0.1", "port": 3, "tls": expected}


def test_a_websocket_without_tls_says_so() -> None:
    config = config_of(Ports(client=1, monitor=2, websocket=3), websocket=True)

    assert config["websocket"] == {"host": "127.0.0.1", "port": 3, "no_tls": True}


def test_raw_config_is_merged_last_and_deeply() -> None:
    config = config_of(
        max_payload=100,
        config={"max_payload": 200, "jetstream": {"sync_interval": "always"}, "debug": True},
    )

    assert config["max_payload"] == 200
    assert config["jetstream"] == {"store_dir": "/store", "sync_interval": "always"}
    assert config["debug"] is True


def test_merge_leaves_its_arguments_alone() -> None:
    base = {"a": {"b": 1}, "c": 2, "d": [1]}
    extra = {"a": {"e": 3}, "c": None, "d": [2]}

    assert merge(base, extra) == {"a": {"b": 1, "e": 3}, "d": [2]}
    assert base == {"a": {"b": 1}, "c": 2, "d": [1]}


def test_rendered_config_is_json_with_plain_characters() -> None:
    text = render_config(config_of(password="pässword", user="u", config={"dir": Path("/x")}))

    assert "pässword" in text
    assert json.loads(text)["dir"] == "/x"


def test_a_config_value_that_has_no_json_form_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="cannot hold a complex"):
        render_config({"x": 1j})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prot": 1}, "unknown server option 'prot'"),
        ({"port": 70000}, "port 70000 is not a port"),
        ({"port": -1}, "port -1 is not a port"),
        ({"user": "ann"}, "need each other"),
        ({"password": "a"}, "need each other"),
        ({"token": "t", "users": [{"user": "a", "password": "b"}]}, "cannot be combined"),
        ({"config": {"http_port": 1}}, "must not set 'http_port'"),
        ({"jetstream": False, "domain": "hub"}, "`domain` has no meaning"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        NatsServer(**options)


def test_none_is_the_same_as_absent() -> None:
    assert check_options({"port": None, "token": None, "user": "a", "password": "b"}) == {
        "user": "a",
        "password": "b",
    }


@pytest.mark.parametrize(
    ("options", "login"),
    [
        ({}, {}),
        ({"token": "t"}, {"auth_token": "t"}),
        ({"user": "a", "password": "b"}, {"user": "a", "pass": "b"}),
        (
            {
                "users": [
                    {"user": "a", "password": "x", "permissions": {"publish": "p"}},
                    {"user": "b", "password": "$2a$11$hash"},
                    {"user": "c", "password": "y"},
                ]
            },
            {"user": "c", "pass": "y"},
        ),
        ({"nkeys": ["UKEY"]}, None),
        ({"accounts": {"A": {"users": [{"user": "a", "password": "b"}]}}}, None),
        ({"config": {"operator": "jwt"}}, None),
        ({"tls": TLSConfig(cert="c", key="k", verify=True)}, None),
        ({"tls": TLSConfig(cert="c", key="k")}, {}),
    ],
)
def test_the_login_of_the_probe(options: Mapping[str, Any], login: dict[str, str] | None) -> None:
    assert probe_login(check_options(options)) == login


def program(directory: Path) -> Path:
    directory.mkdir()
    path = directory / "nats-server"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_find_server_goes_by_path_environment_wheel_and_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, named, on_path = (program(tmp_path / name) for name in ("given", "named", "on_path"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JETSPARK_NATS_SERVER", str(named))

    assert find_server(given) == given
    assert find_server(str(given)) == given
    assert find_server() == named
    monkeypatch.delenv("JETSPARK_NATS_SERVER")
    from_wheel = find_server()
    assert from_wheel not in (given, named, on_path)
    assert from_wheel.name == "nats-server"

    def not_installed(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", not_installed)
    assert find_server() == on_path
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerProcessError, match=r'pip install "jetspark\[server\]"'):
        find_server()


def test_a_wrong_path_is_an_error_and_not_a_reason_to_look_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServerProcessError, match=r"the given path.* is not an executable"):
        find_server(tmp_path / "missing")
    monkeypatch.setenv("JETSPARK_NATS_SERVER", str(tmp_path / "missing"))
    with pytest.raises(ServerProcessError, match="JETSPARK_NATS_SERVER"):
        NatsServer()
