"""`with` and `async with` for what is started and closed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Startable"]


class Startable(ABC):
    """Something that runs between `start` and `close`."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and return when it is ready."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it; it may be started again."""

    @abstractmethod
    def close(self) -> None:
        """Stop it for good, and remove what it left."""

    async def astart(self) -> None:
        """Do `start` without blocking the event loop."""
        await asyncio.to_thread(self.start)

    async def astop(self) -> None:
        """Do `stop` without blocking the event loop."""
        await asyncio.to_thread(self.stop)

    async def aclose(self) -> None:
        """Do `close` without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.astart()
        except BaseException:
            # After a cancellation the start goes on in its thread; the lock makes this wait for it.
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
