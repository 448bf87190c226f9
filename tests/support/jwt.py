"""Operator, account and user JWTs, as `nsc` would make them, for servers that trust an operator."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nkeys


@dataclass(frozen=True)
class Key:
    """An nkey pair."""

    seed: str
    public: str

    @classmethod
    def make(cls, kind: int) -> Key:
        seed: bytes = nkeys.encode_seed(os.urandom(32), kind)
        public: bytes = nkeys.from_seed(bytearray(seed)).public_key
        return cls(seed.decode(), public.decode())

    def sign(self, claims: Mapping[str, Any]) -> str:
        """The JWT with these claims, issued by this key."""
        body = {"iat": int(time.time()), "iss": self.public, **claims}
        digest = hashlib.sha256(json.dumps(body).encode()).digest()
        body["jti"] = base64.b32encode(digest).decode().rstrip("=")
        text = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(body)}"
        signature: bytes = nkeys.from_seed(bytearray(self.seed.encode())).sign(text.encode())
        return f"{text}.{_base64(signature)}"


def user_key() -> Key:
    """The key of a user."""
    return Key.make(nkeys.PREFIX_BYTE_USER)


@dataclass(frozen=True)
class User:
    """A user's key and JWT."""

    key: Key
    jwt: str

    @property
    def creds(self) -> str:
        """The content of a creds file."""
        return (
            "-----BEGIN NATS USER JWT-----\n"
            f"{self.jwt}\n"
            "------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n"
            "-----BEGIN USER NKEY SEED-----\n"
            f"{self.key.seed}\n"
            "------END USER NKEY SEED------\n"
        )

    def write_creds(self, path: Path) -> Path:
        """Write a creds file."""
        path.write_text(self.creds)
        return path


@dataclass(frozen=True)
class Operator:
    """An operator with one account."""

    key: Key = field(default_factory=lambda: Key.make(nkeys.PREFIX_BYTE_OPERATOR))
    account: Key = field(default_factory=lambda: Key.make(nkeys.PREFIX_BYTE_ACCOUNT))

    def server_config(self) -> dict[str, Any]:
        """The `config` of a server that trusts the operator and knows the account."""
        operator = {"sub": self.key.public, "name": "operator", "nats": _nats("operator")}
        limits = dict.fromkeys(
            ("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1
        )
        account = {
            "sub": self.account.public,
            "name": "account",
            "nats": _nats("account", limits={**limits, "wildcards": True}),
        }
        return {
            "operator": self.key.sign(operator),
            "resolver": "MEMORY",
            "resolver_preload": {self.account.public: self.key.sign(account)},
        }

    def user(
        self, name: str = "user", *, key: Key | None = None, expires_in: float | None = None
    ) -> User:
        """A user of the account, whose JWT may expire or have expired already."""
        key = key or user_key()
        claims: dict[str, Any] = {
            "sub": key.public,
            "name": name,
            "nats": _nats("user", pub={}, sub={}, subs=-1, data=-1, payload=-1),
        }
        if expires_in is not None:
            claims["exp"] = int(time.time() + expires_in)
        return User(key, self.account.sign(claims))


def _nats(kind: str, **claims: Any) -> dict[str, Any]:
    return {**claims, "type": kind, "version": 2}


def _part(value: Mapping[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
