"""The texts of `-ERR`, and the exceptions they become."""

from __future__ import annotations

import re

from jetspark.errors import (
    AuthenticationError,
    AuthenticationExpiredError,
    ConnectionError,
    PermissionsError,
    ServerError,
    StaleConnectionError,
    TLSError,
)

__all__ = ["closes_connection", "error_from_text", "refused_sid"]

_PERMISSIONS = re.compile(
    r"permissions violation for (?P<operation>publish|subscription)"
    r"(?: with reply of| to)? \"(?P<subject>[^\"]*)\"(?: using queue \"(?P<queue>[^\"]*)\")?",
    re.IGNORECASE,
)
_SID = re.compile(r"\(sid \"(\d+)\"\)")
_AUTHENTICATION = ("authorization violation", "authentication timeout")
_EXPIRED = (
    "user authentication expired",
    "user authentication revoked",
    "account authentication expired",
)
# After these the server goes on; after everything else it closes the connection.
_HARMLESS = (
    "permissions violation",
    "maximum subscriptions exceeded",
    "invalid subject",
    "invalid publish subject",
)


def closes_connection(text: str) -> bool:
    """Whether the server hangs up after this error."""
    return not text.lower().startswith(_HARMLESS)


def refused_sid(text: str) -> int | None:
    """The subscription that a server names when it takes a permission away."""
    found = _SID.search(text)
    return int(found[1]) if found else None


def error_from_text(text: str, server: str | None = None) -> ConnectionError:
    """The exception for the text of an `-ERR`."""
    folded = text.lower()
    if found := _PERMISSIONS.match(text):
        return PermissionsError(
            f"{text}; ask for the permission on the server or use another subject",
            operation="publish" if found["operation"].lower() == "publish" else "subscribe",
            subject=found["subject"],
            queue=found["queue"],
            server=server,
        )
    if folded.startswith(_EXPIRED):
        return AuthenticationExpiredError(
            f"{text}: the credentials were accepted before and are no longer; renew them",
            server=server,
        )
    if folded.startswith(_AUTHENTICATION):
        return AuthenticationError(
            f"{text}: {server or 'the server'} refused the credentials; check user, password, "
            "token, nkey or creds file",
            server=server,
        )
    if folded.startswith("secure connection - tls required"):
        return TLSError(f"{text}: connect with tls=True or a tls:// URL", server=server)
    if folded.startswith("stale connection"):
        return StaleConnectionError(f"{text}: the server got no answer to its pings", server=server)
    return ServerError(text, server=server)
