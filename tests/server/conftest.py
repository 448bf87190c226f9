"""The fixtures of the tests that use a client."""

from tests.support.certs import certs
from tests.support.clients import connect

__all__ = ["certs", "connect"]
