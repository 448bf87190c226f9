"""The message that an application gets.

It is made from a frame of the parser at the moment somebody takes it, and decodes subject and
headers only when asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jetspark.errors import InvalidArgumentError
from jetspark.protocol import Headers, HeadersLike, Payload, parse_headers, parse_status

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Message"]


# gc=False: a message never refers back to itself, and the collector need not look at each of them.
class Message(msgspec.Struct, gc=False, eq=False):
    """A message received from a subscription or as the answer to a request."""

    raw_subject: bytes
    raw_reply: bytes | None
    raw_headers: bytes | None
    data: bytes
    client: Client
    _headers: Headers | None = None

    @property
    def subject(self) -> str:
        """The subject that it was published to."""
        return self.raw_subject.decode("utf-8", "surrogateescape")

    @property
    def reply(self) -> str | None:
        """The subject that an answer should go to."""
        return None if self.raw_reply is None else self.raw_reply.decode("utf-8", "surrogateescape")

    @property
    def headers(self) -> Headers:
        """The headers; empty where the message has none."""
        if self._headers is None:
            self._headers = (
                Headers() if self.raw_headers is None else parse_headers(self.raw_headers)
            )
        return self._headers

    @property
    def status(self) -> int | None:
        """The status code, if this is a status of the server and no message of a user."""
        if self.raw_headers is None or self.data:
            return None
        return parse_status(self.raw_headers)[0]

    @property
    def size(self) -> int:
        """The bytes of headers and payload."""
        return len(self.data) + len(self.raw_headers or b"")

    async def respond(self, data: Payload = b"", *, headers: HeadersLike | None = None) -> None:
        """Answer the request that this message is."""
        reply = self.reply
        if reply is None:
            raise InvalidArgumentError(
                f"the message on {self.subject!r} has no reply subject, so it cannot be answered"
            )
        await self.client.publish(reply, data, headers=headers)

    def __repr__(self) -> str:
        reply = f" reply={self.reply!r}" if self.raw_reply else ""
        headers = f" headers={self.headers!r}" if self.raw_headers else ""
        data = self.data if len(self.data) <= 32 else self.data[:32] + b"..."
        return f"<Message subject={self.subject!r}{reply}{headers} data={data!r}>"
