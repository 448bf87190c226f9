"""The INFO of a server: what is read, what is ignored, what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspark.errors import ProtocolError
from jetspark.protocol import Parser, ServerInfo, parse_info

# As nats-server 2.15 sends it after CONNECT, shortened.
EXAMPLE = b"""{"server_id":"NCIQ","server_name":"one","version":"2.15.1","proto":1,"git_commit":"b",
"go":"go1.27","host":"127.0.0.1","port":4222,"headers":true,"max_payload":1048576,"jetstream":true,
"client_id":5,"client_ip":"127.0.0.1","nonce":"abc","cluster":"C1","cluster_dynamic":true,
"connect_urls":["10.0.0.1:4222","10.0.0.2:4222"],"ldm":true,"connect_info":true,"domain":"hub",
"remote_account":"$G","api_lvl":5,"xkey":"XBM3"} """


def test_the_fields_of_a_server() -> None:
    assert parse_info(EXAMPLE) == ServerInfo(
        server_id="NCIQ",
        server_name="one",
        version="2.15.1",
        proto=1,
        host="127.0.0.1",
        port=4222,
        headers=True,
        max_payload=1048576,
        nonce="abc",
        jetstream=True,
        domain="hub",
        client_id=5,
        client_ip="127.0.0.1",
        cluster="C1",
        connect_urls=["10.0.0.1:4222", "10.0.0.2:4222"],
        ldm=True,
        connect_info=True,
        remote_account="$G",
        api_lvl=5,
    )


def test_whatever_is_missing_has_a_default() -> None:
    info = parse_info(b"{}")
    assert info == ServerInfo()
    assert info.max_payload == 1024 * 1024
    assert (info.tls_required, info.tls_available, info.tls_verify) == (False, False, False)
    assert (info.auth_required, info.headers, info.ldm) == (False, False, False)
    assert (info.nonce, info.connect_urls, info.ws_connect_urls) == (None, None, None)


def test_a_server_without_limit_says_so() -> None:
    assert parse_info(b'{"max_payload":-1}').max_payload == -1


def test_only_what_was_set_is_written() -> None:
    assert json.loads(msgspec.json.encode(ServerInfo("A", ldm=True))) == {
        "server_id": "A",
        "ldm": True,
    }


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.15.1", (2, 15, 1)),
        ("2.12.0-RC.1", (2, 12, 0)),
        ("2.11.0-dev", (2, 11, 0)),
        ("2.10.4+build.7", (2, 10, 4)),
        ("2.10", (2, 10, 0)),
        ("3", (3, 0, 0)),
        ("2.10.x", (2, 10, 0)),
        ("2..1", (2, 0, 0)),
        ("", (0, 0, 0)),
        ("unknown", (0, 0, 0)),
        ("-1.2.3", (0, 0, 0)),
        ("²", (0, 0, 0)),
        ("\u0662.\u0661", (0, 0, 0)),  # digits, but no ASCII
        ("1" * 5000, (111_111_111, 0, 0)),
    ],
)
def test_version(version: str, expected: tuple[int, int, int]) -> None:
    assert ServerInfo(version=version).version_tuple == expected


def test_versions_compare() -> None:
    assert ServerInfo(version="2.9.25").version_tuple < ServerInfo(version="2.10.0").version_tuple


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}x",
        b'{"port":"4222"}',
        b'{"port":null}',
        b'{"port":1e999}',
        b'{"port":' + b"9" * 5000 + b"}",
        b'{"headers":1}',
        b'{"connect_urls":"a"}',
        b'{"server_id":"\xff"}',
        b'{"server_id":"\\ud800"}',
        b'{"future":' + b"[" * 100_000,
        b'{"future":' + b'{"a":' * 100_000,
    ],
)
def test_refuses(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="the server sent an INFO that cannot be read"):
        parse_info(payload)
    with pytest.raises(ProtocolError, match="the server sent an INFO that cannot be read"):
        Parser().feed(b"INFO " + payload + b"\r\n")


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None)
@given(st.dictionaries(st.text().map(lambda name: "x" + name), _json))
def test_unknown_fields_are_ignored(unknown: dict[str, Any]) -> None:
    payload = json.dumps({"server_id": "A", **unknown, "port": 1}).encode()
    assert parse_info(payload) == ServerInfo(server_id="A", port=1)


@settings(deadline=None)
@given(st.binary() | _json.map(lambda value: json.dumps(value).encode()))
def test_anything_is_read_or_refused(payload: bytes) -> None:
    try:
        info = parse_info(payload)
    except ProtocolError:
        return
    assert isinstance(info, ServerInfo)
    assert len(info.version_tuple) == 3
