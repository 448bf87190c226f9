"""Contexts of the `nats` command line tool (ADR-21): named sets of connection options.

They are JSON files in `$XDG_CONFIG_HOME/nats/context` (by default `~/.config/nats/context`); the
file `nats/context.txt` names the selected one. This module reads them and writes nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jetspark.errors import InvalidOptionError

from .urls import DEFAULT_URL

__all__ = ["NatsContext", "load_context"]

# Each of them would change where or how to connect, so that ignoring it would be wrong.
_UNSUPPORTED = (
    "nsc",
    "socks_proxy",
    "windows_cert_store",
    "windows_cert_match",
    "windows_cert_match_by",
    "windows_ca_certs_match",
)

_CREDENTIALS = ("user", "token", "creds", "nkey", "user_jwt")

# The tool can look up secrets and files by such a URI in place of the value.
_REFERENCES = ("data:", "env://", "file://", "nsc://", "op://")


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsContext:
    """What a context says, its paths expanded; no secret appears in the repr."""

    name: str
    url: str = field(default=DEFAULT_URL, repr=False)
    """One URL, or several with commas between them."""
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    creds: Path | None = None
    nkey: Path | None = None
    """A file with the seed."""
    user_jwt: str | None = field(default=None, repr=False)
    user_seed: str | None = field(default=None, repr=False)
    """The seed that belongs to `user_jwt`."""
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    tls_first: bool = False
    inbox_prefix: str | None = None
    jetstream_domain: str | None = None
    jetstream_api_prefix: str | None = None

    def to_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `connect` that the context sets.

        The domain and API prefix are not among them: they belong to a JetStream context.
        """
        options = {
            "servers": self.url,
            "user": self.user,
            "password": self.password,
            "token": self.token,
            "creds": self.creds,
            "nkey_seed": self.nkey or self.user_seed,
            "jwt": self.user_jwt,
            "tls_cert": self.cert,
            "tls_key": self.key,
            "tls_ca": self.ca,
            "tls_first": self.tls_first or None,
            "inbox_prefix": self.inbox_prefix,
        }
        return {name: value for name, value in options.items() if value is not None}


def load_context(name: str | os.PathLike[str] | None = None) -> NatsContext:
    """Load a context by its name or by the path of its file; without either, the selected one.

    A text with a slash in it or `.json` at its end is a path.
    """
    if not name:
        return _load_named(_selected())
    text = os.fspath(name)
    if isinstance(name, str) and not text.endswith(".json") and not set(text) & set("/\\"):
        return _load_named(text)
    path = Path(os.path.expanduser(text))
    try:
        return _from_json(path.stem, path.read_bytes())
    except OSError as error:
        raise InvalidOptionError(
            f"context file {text!r} cannot be read: {error.strerror}"
        ) from None


def _load_named(name: str) -> NatsContext:
    try:
        return _from_json(name, (_directory() / "context" / f"{name}.json").read_bytes())
    except FileNotFoundError:
        raise InvalidOptionError(f"there is no context {name!r}; {_available()}") from None
    except OSError as error:
        raise InvalidOptionError(f"context {name!r} cannot be read: {error.strerror}") from None


def _directory() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "nats"


def selected_context() -> str | None:
    """The name of the context that `nats context select` chose, if there is one."""
    try:
        return (_directory() / "context.txt").read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _selected() -> str:
    name = selected_context()
    if name is None:
        raise InvalidOptionError(
            f"no context is selected; name one or run 'nats context select'; {_available()}"
        )
    return name


def _available() -> str:
    names = sorted(path.stem for path in (_directory() / "context").glob("*.json"))
    return f"available: {', '.join(names)}" if names else "none is defined"


def _from_json(name: str, data: bytes) -> NatsContext:
    try:
        content = json.loads(data)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        # The decoder's own error is not chained: it keeps the text, and with it the secrets.
        raise InvalidOptionError(f"context {name!r}: the file is not a JSON object")
    values = _Values(name, content)
    values.check_supported()
    return NatsContext(
        name=name,
        url=values.text("url") or DEFAULT_URL,
        token=values.secret("token"),
        user=values.text("user"),
        password=values.secret("password"),
        creds=values.path("creds"),
        nkey=values.path("nkey"),
        user_jwt=values.secret("user_jwt"),
        user_seed=values.secret("user_seed"),
        cert=values.path("cert"),
        key=values.path("key"),
        ca=values.path("ca"),
        tls_first=values.flag("tls_first"),
        inbox_prefix=values.text("inbox_prefix"),
        jetstream_domain=values.text("jetstream_domain"),
        jetstream_api_prefix=values.text("jetstream_api_prefix"),
    )


class _Values:
    """Typed access to the keys of a context, with errors that name both.

    The tool writes every key, so that an empty value means that there is none.
    """

    def __init__(self, name: str, content: dict[str, Any]) -> None:
        self._name = name
        self._content = content

    def check_supported(self) -> None:
        for key in _UNSUPPORTED:
            if self._content.get(key):
                raise self._error(key, "is not supported")
        ways = [key for key in _CREDENTIALS if self._content.get(key)]
        if len(ways) > 1:
            raise self._error(ways[0], f"and key {ways[1]!r} exclude each other; keep one of them")
        if self._content.get("user_seed") and "user_jwt" not in ways:
            raise self._error("user_seed", "needs key 'user_jwt'")

    def text(self, key: str) -> str | None:
        value = self._content.get(key) or None
        if value is not None and not isinstance(value, str):
            raise self._error(key, "must be a string")
        return value

    def flag(self, key: str) -> bool:
        value = self._content.get(key) or False
        if not isinstance(value, bool):
            raise self._error(key, "must be true or false")
        return value

    def secret(self, key: str) -> str | None:
        value = self.text(key)
        self._refuse_reference(key, value)
        return value

    def path(self, key: str) -> Path | None:
        value = self.text(key)
        if value is not None and value.lower().startswith("file://"):
            value = value[len("file://") :]
        self._refuse_reference(key, value)
        return Path(os.path.expanduser(os.path.expandvars(value))) if value else None

    def _refuse_reference(self, key: str, value: str | None) -> None:
        if value is not None and value.lower().startswith(_REFERENCES):
            scheme = value.partition(":")[0]
            raise self._error(key, f"is a reference of the kind {scheme!r}, which is not supported")

    def _error(self, key: str, problem: str) -> InvalidOptionError:
        return InvalidOptionError(f"context {self._name!r}: key {key!r} {problem}")
