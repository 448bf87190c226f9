"""The INFO message of a server."""

from __future__ import annotations

import re

import msgspec

from jetspark.errors import ProtocolError

__all__ = ["ServerInfo", "parse_info"]


class ServerInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server says about itself; unknown fields are ignored."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    host: str = ""
    port: int = 0
    headers: bool = False
    max_payload: int = 1024 * 1024  # bytes, headers and payload together; negative: no limit
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    nonce: str | None = None
    jetstream: bool = False
    domain: str | None = None
    client_id: int = 0
    client_ip: str = ""
    cluster: str | None = None
    connect_urls: list[str] | None = None
    ws_connect_urls: list[str] | None = None
    ldm: bool = False
    connect_info: bool = False  # 2.12: this INFO answers CONNECT
    remote_account: str | None = None
    api_lvl: int = 0  # 2.12: the JetStream API level of this server

    @property
    def version_tuple(self) -> tuple[int, int, int]:
        """The version as numbers, without suffixes such as `-RC.1`; zeros where unreadable."""
        found = _VERSION.match(self.version)
        major, minor, patch = found.groups(default="0") if found else ("0", "0", "0")
        return int(major), int(minor), int(patch)


_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")
_decoder = msgspec.json.Decoder(ServerInfo)


def parse_info(payload: bytes) -> ServerInfo:
    """Decode the JSON of an INFO line."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the server sent an INFO that cannot be read: {error}") from error
