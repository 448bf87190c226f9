"""Requests to the JetStream API: one place that sends them and reads the answers.

Everything above (streams, consumers, publishing) holds an `ApiClient`, and none of it knows how a
request travels or how an error comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any, TypeVar

from jetspark.connection import Client
from jetspark.errors import (
    ClusterError,
    DisconnectedError,
    InvalidResponseError,
    JetStreamNotEnabledError,
    NoRespondersError,
    ServiceUnavailableError,
)

from .codec import Wire, decode_response, encode
from .subjects import API

__all__ = ["ApiClient"]

W = TypeVar("W", bound=Wire)

RETRY_DELAY = 0.25  # seconds; a leader election takes about as long
_PASSING = (ServiceUnavailableError, ClusterError, DisconnectedError)


class ApiClient:
    """The JetStream API of one account or domain, over one connection."""

    def __init__(self, client: Client, subjects: API, *, timeout: float, strict: bool) -> None:
        self.client = client
        self.subjects = subjects
        self.timeout = timeout  # seconds for each request
        self.strict = strict  # unknown fields in answers are errors

    async def request(
        self,
        subject: str,
        body: Wire | Mapping[str, Any] | None = None,
        *,
        context: str,
        timeout: float | None = None,
        idempotent: bool = False,
    ) -> dict[str, Any]:
        """Send a request and return the JSON object of the answer; errors in it are raised.

        `context` names what is attempted, for error messages ("stream 'ORDERS': info"). A request
        that is `idempotent` is repeated, within its time, while the cluster elects a leader or the
        connection comes back, and once if there is no answer at all.
        """
        payload = b"" if body is None else encode(body)
        timeout = self.timeout if timeout is None else timeout
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        left = timeout
        while True:
            try:
                repeat_after = left / 2 if idempotent else None
                answer = await self.client._requests().request(
                    subject, payload, None, left, repeat_after=repeat_after
                )
                return decode_response(answer.data, context=context)
            except NoRespondersError as error:
                raise JetStreamNotEnabledError(
                    f"{context}: nobody answers on {subject!r}; JetStream is not enabled on the "
                    "server or for the account, or the domain or prefix is wrong",
                    code=503,
                    err_code=10076,
                    description="no responders",
                ) from error
            except _PASSING as error:
                if not (idempotent and error.retryable) or loop.time() + RETRY_DELAY >= deadline:
                    raise
            await asyncio.sleep(RETRY_DELAY)
            left = round(deadline - loop.time(), 3)

    async def fetch(
        self,
        kind: type[W],
        subject: str,
        body: Wire | Mapping[str, Any] | None = None,
        *,
        context: str,
        timeout: float | None = None,
        idempotent: bool = False,
    ) -> W:
        """Like `request`, with the answer as a typed object."""
        response = await self.request(
            subject, body, context=context, timeout=timeout, idempotent=idempotent
        )
        return self.decode(kind, response)

    def decode(self, kind: type[W], response: object) -> W:
        """A typed object from JSON, as strictly as the context asks for."""
        return kind.from_wire(response, strict=self.strict)

    async def succeed(
        self,
        subject: str,
        body: Wire | Mapping[str, Any] | None = None,
        *,
        context: str,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Like `request`, for answers that only say whether it was done."""
        response = await self.request(subject, body, context=context, timeout=timeout)
        if response.get("success") is not True:
            raise InvalidResponseError(f"{context}: the server did not say that it was done")
        return response

    async def pages(
        self,
        subject: str,
        names_in: Callable[[dict[str, Any]], Collection[str]],
        body: Mapping[str, Any] | None = None,
        *,
        context: str,
    ) -> AsyncIterator[tuple[dict[str, Any], list[str]]]:
        """Yield the answers of a list that comes in pages, each with the names not seen before.

        All lists are in the order of their names. Each page begins with the last name of the one
        before, or earlier: where some have gone meanwhile, others have moved to a place that would
        not be looked at again.
        """
        end, last, back = 0, "", 1
        while True:
            offset = max(end - back, 0)
            page = await self.request(
                subject, {**(body or {}), "offset": offset}, context=context, idempotent=True
            )
            names = names_in(page)
            if offset and not any(name <= last for name in names):
                back *= 100
                continue
            yield page, sorted(name for name in names if name > last)
            end, last, back = offset + len(names), max([last, *names]), 1
            if len(names) < 2 or end >= page.get("total", 0):
                return
