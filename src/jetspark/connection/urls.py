"""Server URLs: parsing, identity, and a text form that never shows a secret."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from jetspark.errors import InvalidOptionError, InvalidURLError

__all__ = ["DEFAULT_URL", "ServerURL", "is_ip", "parse_url", "parse_urls"]

DEFAULT_URL = "nats://localhost:4222"

_DEFAULT_PORTS = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}

# What no host name contains; most of it is a sign of a URL put together wrongly.
_NOT_IN_HOSTS = re.compile(r"""[\x00-\x20\x7f"#%,/:<>?@\[\\\]^`{|}]""")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(?:%[\w.~-]+)?", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PORT = re.compile(r"[0-9]{1,5}")
_PORT_AND_PATH = re.compile(r"[0-9]+(?:/.*)?")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, repr=False)
class ServerURL:
    """One server of the pool, with the credentials that its URL carries."""

    scheme: str
    """One of `nats`, `tls`, `ws`, `wss`."""
    host: str
    """A lower-case host name or an IP address, IPv6 without brackets."""
    port: int
    user: str | None = None
    password: str | None = None
    token: str | None = None
    path: str = ""
    """Path and query of the HTTP request of a WebSocket; empty for the other schemes."""

    def __str__(self) -> str:
        path, question, _ = self.path.partition("?")
        return f"{self.scheme}://{self.netloc}{path}{question and '?***'}"

    def __repr__(self) -> str:
        return f"ServerURL({str(self)!r})"

    @property
    def netloc(self) -> str:
        """`host:port`, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def key(self) -> str:
        """What makes it the same server as another: neither scheme nor credentials do."""
        return self.netloc + self.path

    @property
    def is_websocket(self) -> bool:
        """Whether the NATS protocol is carried in WebSocket frames."""
        return self.scheme in ("ws", "wss")

    @property
    def wants_tls(self) -> bool:
        """Whether the URL alone demands TLS."""
        return self.scheme in ("tls", "wss")


def parse_urls(value: str | Iterable[str] | None) -> list[ServerURL]:
    """Parse the `servers` option: a URL, several with commas between them, or an iterable.

    `None` stands for the environment variable `NATS_URL`, and without it for the local server.
    """
    if value is None:
        return _from_environment()
    if isinstance(value, str):
        # A blank text goes on as "", for the error that it deserves.
        texts = [text.strip() for text in value.split(",") if text.strip()] or [""]
    else:
        texts = list(value)
    if not texts:
        raise InvalidOptionError("option 'servers' is empty; give at least one URL")
    urls = [parse_url(text) for text in texts]
    for url in urls:
        if url.is_websocket != urls[0].is_websocket:
            raise InvalidOptionError(
                f"option 'servers' mixes WebSocket and other URLs ({urls[0]} and {url}); "
                "one client speaks either of them"
            )
    return urls


def parse_url(text: str, *, default_scheme: str = "nats") -> ServerURL:
    """Parse `[scheme://][user:password@|token@]host[:port][/path]`.

    User, password and token are percent-decoded. Only WebSocket URLs have a path.
    """
    try:
        return _parse(text, default_scheme)
    except _Refusal as refusal:
        reason = str(refusal)
    raise InvalidURLError(f"server URL {_redacted(text)!r}: {reason}")


def _from_environment() -> list[ServerURL]:
    try:
        return parse_urls(os.environ.get("NATS_URL") or DEFAULT_URL)
    except InvalidURLError as error:
        raise InvalidURLError(f"environment variable NATS_URL: {error}") from None


def is_ip(host: str) -> bool:
    """Tell an IP address from a host name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _Refusal(Exception):
    """Why a text is not a URL, in words that quote none of it."""


def _parse(text: str, default_scheme: str) -> ServerURL:
    if not text.strip():
        raise _Refusal("it is empty")
    if any(char.isspace() or not char.isprintable() for char in text):
        raise _Refusal("it contains a space or a character that cannot be seen")
    before, separator, rest = text.partition("://")
    scheme = before.lower() if separator else default_scheme
    if scheme not in _DEFAULT_PORTS:
        raise _Refusal(f"the scheme is not one of {', '.join(_DEFAULT_PORTS)}")
    authority, path = _split_path(rest if separator else text, scheme)
    userinfo, at, location = authority.rpartition("@")
    host, port = _split_location(location)
    user = password = token = None
    if at:
        name, colon, secret = userinfo.partition(":")
        if not name:
            raise _Refusal("the user or token before '@' is empty")
        if colon:
            user, password = _decoded(name), _decoded(secret)
        else:
            token = _decoded(name)
    return ServerURL(scheme, host, port or _DEFAULT_PORTS[scheme], user, password, token, path)


def _split_path(rest: str, scheme: str) -> tuple[str, str]:
    end = next((i for i, char in enumerate(rest) if char in "/?#"), len(rest))
    authority, path = rest[:end], rest[end:]
    if path in ("", "/"):
        return authority, ""
    if scheme not in ("ws", "wss"):
        raise _Refusal(
            "only ws and wss URLs have a path; "
            "in a password or token write %2F for '/', %3F for '?' and %23 for '#'"
        )
    if "#" in path:
        raise _Refusal("it has a fragment ('#...'), which no server ever sees")
    return authority, path if path.startswith("/") else "/" + path


def _split_location(location: str) -> tuple[str, int | None]:
    if location.startswith("["):
        inside, bracket, after = location[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise _Refusal("the brackets of the IPv6 address are not right")
        host, port = _ipv6(inside), after[1:] if after else None
    else:
        if location.count(":") > 1:
            raise _Refusal("it has too many colons; an IPv6 address goes into brackets: [::1]:4222")
        name, colon, after = location.partition(":")
        host, port = _host_name(name), after if colon else None
    if port is None:
        return host, None
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise _Refusal("the port is not a number from 1 to 65535")
    return host, int(port)


def _ipv6(text: str) -> str:
    # The zone of a link-local address is written after an escaped percent sign (RFC 6874).
    text = text.replace("%25", "%", 1)
    if not _IPV6.fullmatch(text) or not is_ip(text) or ":" not in text:
        raise _Refusal("what is in brackets is not an IPv6 address")
    return str(ipaddress.IPv6Address(text))


def _host_name(name: str) -> str:
    if not name:
        raise _Refusal("it has no host")
    try:
        # Resolving a name that IDNA refuses raises UnicodeError, which nobody expects then.
        valid = len(name) <= 253 and bool(name.encode("idna"))
    except UnicodeError:
        valid = False
    if not valid or _NOT_IN_HOSTS.search(name):
        raise _Refusal("the host name is not valid")
    return name.lower()


def _decoded(text: str) -> str:
    try:
        if _BAD_ESCAPE.search(text):
            raise ValueError
        return unquote(text, errors="strict")
    except ValueError:
        raise _Refusal(
            "user, password or token are not percent-encoded correctly; write %25 for '%'"
        ) from None


def _redacted(text: str) -> str:
    """Mask whatever may be a secret, also in texts that are not URLs."""
    start = _SCHEME.match(text)
    scheme, rest = (start[0], text[start.end() :]) if start else ("", text)
    _, at, rest = rest.rpartition("@")
    rest, question, _ = rest.partition("?")
    # In 'nats://user:password', the host forgotten, the password stands where the port should.
    bracketed = rest.rfind("]") + 1 if rest.startswith("[") else 0
    host, colon, port = rest[bracketed:].partition(":")
    if not _PORT_AND_PATH.fullmatch(port):
        port = "***"
    rest = f"{rest[:bracketed]}{host}{colon}{colon and port}"
    return f"{scheme}{at and '***@'}{rest}{question and '?***'}"
