"""Sees the requests that a client sends to the JetStream API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jetspark import Subscription
from jetspark.errors import TimeoutError

__all__ = ["Spy"]


class Spy:
    """Sees the pull requests that reach the server."""

    def __init__(self, requests: Subscription) -> None:
        self._requests = requests

    async def next(self) -> tuple[dict[str, Any], str]:
        """The body of the next request, and where the answer goes."""
        request = await self._requests.next(5)
        assert request.reply is not None
        return json.loads(request.data), request.reply

    async def nothing(self) -> None:
        """Assert that no request comes."""
        with pytest.raises(TimeoutError):
            await self._requests.next(0.05)
