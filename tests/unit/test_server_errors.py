"""The texts of `-ERR`: which end the connection, and which exception they become."""

from __future__ import annotations

import pytest

from jetspark.connection.server_errors import closes_connection, error_from_text
from jetspark.errors import (
    AuthenticationError,
    AuthenticationExpiredError,
    ConnectionError,
    PermissionsError,
    ServerError,
    StaleConnectionError,
    TLSError,
)

SERVER = "nats://localhost:4222"

# Text, its exception, whether the server hangs up.
TEXTS: list[tuple[str, type[ConnectionError], bool]] = [
    ("Unknown Protocol Operation", ServerError, True),
    ("Authorization Violation", AuthenticationError, True),
    ("Authentication Timeout", AuthenticationError, True),
    ("User Authentication Expired", AuthenticationExpiredError, True),
    ("User Authentication Revoked", AuthenticationExpiredError, True),
    ("Account Authentication Expired", AuthenticationExpiredError, True),
    ('Permissions Violation for Publish to "a.b"', PermissionsError, False),
    ('Permissions Violation for Publish with Reply of "r"', PermissionsError, False),
    ('Permissions Violation for Subscription to "a.>"', PermissionsError, False),
    ("Permissions Violation", ServerError, False),
    ("maximum subscriptions exceeded", ServerError, False),
    ("Invalid Subject", ServerError, False),
    ("Invalid Publish Subject", ServerError, False),
    ("Maximum Payload Violation", ServerError, True),
    ("maximum control line exceeded", ServerError, True),
    ("maximum connections exceeded", ServerError, True),
    ("maximum account active connections exceeded", ServerError, True),
    ("Connection throttling is active. Please try again later.", ServerError, True),
    ("Stale Connection", StaleConnectionError, True),
    ("Secure Connection - TLS Required", TLSError, True),
    ("invalid client protocol", ServerError, True),
    ("no responders requires headers support", ServerError, True),
    ("Failed Account Registration", ServerError, True),
    ("Slow Consumer", ServerError, True),
    ("something that a later server says", ServerError, True),
    ("", ServerError, True),
]


@pytest.mark.parametrize(("text", "kind", "closes"), TEXTS)
def test_texts(text: str, kind: type[ConnectionError], closes: bool) -> None:
    for spelled in (text, text.lower(), text.upper()):
        assert closes_connection(spelled) is closes
        error = error_from_text(spelled, SERVER)
        assert type(error) is kind
        assert str(error).startswith(spelled)
        assert error.server == SERVER


@pytest.mark.parametrize(
    ("text", "operation", "subject", "queue"),
    [
        ('Permissions Violation for Publish to "a.b"', "publish", "a.b", None),
        ('Permissions Violation for Publish with Reply of "r.1"', "publish", "r.1", None),
        ('Permissions Violation for Subscription to "a.>"', "subscribe", "a.>", None),
        ('Permissions Violation for Subscription to "a" using queue "q"', "subscribe", "a", "q"),
        ('permissions violation for subscription to "A.b" (sid "7")', "subscribe", "A.b", None),
        ('Permissions Violation for Subscription to "a", too many tokens', "subscribe", "a", None),
        ('Permissions Violation for Publish to ""', "publish", "", None),
    ],
)
def test_permissions(text: str, operation: str, subject: str, queue: str | None) -> None:
    error = error_from_text(text, SERVER)
    assert isinstance(error, PermissionsError)
    assert (error.operation, error.subject, error.queue) == (operation, subject, queue)
    assert "ask for the permission on the server or use another subject" in str(error)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("Authorization Violation", f"{SERVER} refused the credentials; check user, password"),
        ("User Authentication Expired", "are no longer; renew them"),
        ("Secure Connection - TLS Required", "connect with tls=True or a tls:// URL"),
        ("Stale Connection", "the server got no answer to its pings"),
    ],
)
def test_messages_say_what_to_do(text: str, advice: str) -> None:
    assert advice in str(error_from_text(text, SERVER))


def test_the_server_need_not_be_known() -> None:
    error = error_from_text("Authorization Violation")
    assert error.server is None
    assert "the server refused the credentials" in str(error)


def test_whether_a_retry_may_help() -> None:
    assert not error_from_text("Authorization Violation").retryable
    assert error_from_text("User Authentication Expired").retryable
    assert error_from_text("Stale Connection").retryable
    assert not error_from_text('Permissions Violation for Publish to "a"').retryable
