"""Fetching from pull consumers: an interrupt gives messages back even when they have just come."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ._base import wrap
from ._thread import LoopThread

__all__ = ["fetched"]


def fetched(source: Any, thread: LoopThread, fetch: Coroutine[Any, Any, Any]) -> Any:
    """Fetch from a pull consumer or subscription: a message, or a list of them."""
    found: list[Any] = []

    async def note() -> None:
        found.append(await fetch)

    try:
        thread.run(note())
        messages = found[0]
        if type(messages) is list:
            return [wrap(message, thread) for message in messages]
        return wrap(messages, thread)
    except BaseException:
        if found:
            thread.call(_give_back, source, found[0])
        raise
    finally:
        fetch.close()  # if the call was refused


def _give_back(source: Any, found: Any) -> None:
    messages = found if isinstance(found, list) else [found]
    consumer = getattr(source, "consumer", source)
    consumer.give_back([(each.raw_subject, each.raw_reply, None, b"") for each in messages])
    check = getattr(consumer, "_fetched", None)  # of an ordered consumer
    if check is not None and messages:
        check.stream_sequence = messages[0].metadata.stream_sequence - 1
