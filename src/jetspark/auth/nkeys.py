"""Signing with NKeys.

The encoding is checked here, with messages a person can act on; the Ed25519 arithmetic is that of
the `nkeys` package, which is an extra and imported only when a key is used.

No message contains a part of a seed beyond its two letters of type.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jetspark.errors import InvalidOptionError, MissingExtraError

__all__ = ["public_key", "require_library", "sign", "validate_seed"]

# 2 prefix bytes, 32 of key and 2 of checksum in base32 without padding.
_SEED_LETTERS = 58

# "Seed" (144) and "user" (160) packed into the first ten bits; the other six are zero.
_USER_SEED_PREFIX = b"\x95\x00"

_OTHER_SEEDS = {
    "SA": "an account",
    "SC": "a cluster",
    "SN": "a server",
    "SO": "an operator",
    "SX": "an encryption key",
}


def require_library() -> Any:
    """Import the `nkeys` package, or say which extra brings it."""
    try:
        import nkeys
    except ImportError as error:
        raise MissingExtraError(
            'nkey and creds authentication need the nkeys package: pip install "jetspark[nkeys]"'
        ) from error
    return nkeys


def validate_seed(seed: str, *, source: str = "nkey seed") -> None:
    """Raise `InvalidOptionError`, naming the source, unless this is a well-formed user seed."""
    if seed[:2] in _OTHER_SEEDS:
        raise InvalidOptionError(
            f"{source}: this is the seed of {_OTHER_SEEDS[seed[:2]]} ({seed[:2]}...); "
            "a client signs with the seed of a user (SU...)"
        )
    if not seed.startswith("SU"):
        raise InvalidOptionError(f"{source}: not a seed; the seed of a user begins with SU")
    if len(seed) != _SEED_LETTERS:
        raise InvalidOptionError(
            f"{source}: a seed has {_SEED_LETTERS} letters, this one has {len(seed)}"
        )
    try:
        raw = bytearray(base64.b32decode(seed + "=" * (-_SEED_LETTERS % 8)))
    except ValueError:
        raise InvalidOptionError(
            f"{source}: a seed is made of A-Z and 2-7, this one has other characters"
        ) from None
    checksum = binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little")
    intact = raw[:2] == _USER_SEED_PREFIX and raw[-2:] == checksum
    _wipe(raw)
    if not intact:
        raise InvalidOptionError(
            f"{source}: the checksum of the seed is wrong; it was mistyped or damaged"
        )


def sign(seed: str, nonce: str) -> str:
    """Sign a server's nonce the way CONNECT carries it: URL-safe base64 without padding."""
    with _key_pair(seed) as pair:
        signature: bytes = pair.sign(nonce.encode())
    return base64.urlsafe_b64encode(signature).decode().rstrip("=")


def public_key(seed: str) -> str:
    """Derive the public key (`U...`) that belongs to a user's seed."""
    with _key_pair(seed) as pair:
        key: bytes = pair.public_key
    return key.decode()


@contextmanager
def _key_pair(seed: str) -> Iterator[Any]:
    validate_seed(seed)
    # A copy that can be overwritten; the string itself is beyond reach.
    secret = bytearray(seed, "ascii")
    pair = require_library().from_seed(secret)
    try:
        yield pair
    finally:
        pair.wipe()
        _wipe(secret)


def _wipe(secret: bytearray) -> None:
    secret[:] = bytes(len(secret))
