"""Publishing that goes on while servers are away: for rows that must be stored in the end."""

from __future__ import annotations

from jetspark.context import JetStream

from .connection import Access, persist

__all__ = ["completed", "publisher"]


async def publisher(access: Access, timeout: float, max_pending: int = 4000) -> JetStream:
    """A context whose `publish_async` tries for so long that a message is stored."""
    js = await persist(timeout, access.jetstream, max_pending)
    # Once for all messages: to say it with each would take as long as the rest.
    acks = js._acks
    acks.attempts = acks.attempts.within(timeout)._replace(retries=-1)
    return js


async def completed(js: JetStream, timeout: float) -> None:
    """Wait until all messages are stored; raises the first failure."""
    try:
        await js.publish_async_complete(timeout=timeout)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None  # the others say the same, or follow from it
