"""Errors of the client itself: arguments, connections, subscriptions, requests.

Import these from `jetspark.errors`.
"""

from __future__ import annotations

import builtins
from typing import Any

__all__ = [
    "AuthenticationError",
    "AuthenticationExpiredError",
    "ConnectError",
    "ConnectionClosedError",
    "ConnectionDrainingError",
    "ConnectionError",
    "DisconnectedError",
    "InvalidArgumentError",
    "InvalidHeaderError",
    "InvalidOptionError",
    "InvalidSubjectError",
    "InvalidURLError",
    "JetSparkError",
    "MaxPayloadError",
    "MissingExtraError",
    "NoRespondersError",
    "NoServersError",
    "PermissionsError",
    "ProtocolError",
    "ReconnectBufferFullError",
    "ServerError",
    "ServerProcessError",
    "SlowConsumerError",
    "StaleConnectionError",
    "SubscriptionClosedError",
    "SubscriptionError",
    "TLSError",
    "TimeoutError",
]


class JetSparkError(Exception):
    """The base of all errors of jetspark.

    `retryable` says whether the same call may succeed later without a change, and
    `may_have_taken_effect` whether the operation may have happened although the call failed.
    """

    retryable: bool = False
    may_have_taken_effect: bool = False

    def __init__(self, message: str = "", **attributes: Any) -> None:
        super().__init__(message)
        # Attributes live in __dict__, which is what the default pickling restores.
        self.__dict__.update(attributes)


class InvalidArgumentError(JetSparkError, ValueError):
    """An argument was refused before anything was sent."""


class InvalidSubjectError(InvalidArgumentError):
    """A subject or queue name that the protocol cannot carry."""


class InvalidHeaderError(InvalidArgumentError):
    """A header name or value that the protocol cannot carry."""


class InvalidURLError(InvalidArgumentError):
    """A server URL that cannot be understood."""


class InvalidOptionError(InvalidArgumentError):
    """An option whose value is wrong, or that conflicts with another one."""


class MaxPayloadError(InvalidArgumentError):
    """Headers and payload together are larger than the server accepts."""

    size: int = 0
    limit: int = 0


class MissingExtraError(JetSparkError, ImportError):
    """A feature needs an optional dependency that is not installed."""


class ProtocolError(JetSparkError):
    """The bytes received are not the NATS protocol."""


class ServerProcessError(JetSparkError):
    """A nats-server process could not be found, started or stopped."""


class ConnectionError(JetSparkError, builtins.ConnectionError):
    """Anything that went wrong with a connection to a server."""

    server: str | None = None


class ConnectError(ConnectionError):
    """A server could not be reached, or did not answer like a NATS server."""

    retryable = True


class NoServersError(ConnectError):
    """No server of the pool could be connected to; the last error is the `__cause__`."""


class AuthenticationError(ConnectionError):
    """The server refused the credentials."""


class AuthenticationExpiredError(AuthenticationError):
    """Credentials that the server once accepted have expired or were revoked."""

    retryable = True


class TLSError(ConnectionError):
    """The TLS handshake failed, or one side demands TLS and the other has none."""


class DisconnectedError(ConnectionError):
    """The connection was lost while a call waited for the server."""

    retryable = True
    may_have_taken_effect = True


class StaleConnectionError(ConnectionError):
    """The server stopped answering pings."""

    retryable = True


class ReconnectBufferFullError(ConnectionError):
    """The buffer for messages published while disconnected is full; this one was not taken."""

    retryable = True


class ConnectionClosedError(ConnectionError):
    """The client has been closed."""


class ConnectionDrainingError(ConnectionError):
    """The client is draining and takes no new subscriptions or messages."""


class ServerError(ConnectionError):
    """The server reported an error with `-ERR`."""


class PermissionsError(ServerError):
    """The user lacks the permission to publish or subscribe."""

    operation: str = ""
    subject: str = ""
    queue: str | None = None


class SubscriptionError(JetSparkError):
    """Anything that went wrong with a subscription."""

    subject: str = ""


class SubscriptionClosedError(SubscriptionError):
    """The subscription has ended."""


class SlowConsumerError(SubscriptionError):
    """Messages were dropped because the application does not keep up."""

    dropped: int = 0


class NoRespondersError(JetSparkError):
    """A request was sent to a subject that nobody listens to."""

    retryable = True
    subject: str = ""


class TimeoutError(JetSparkError, builtins.TimeoutError):
    """A call did not finish in its time."""

    retryable = True
    may_have_taken_effect = True
