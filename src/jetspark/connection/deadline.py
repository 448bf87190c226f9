"""A time limit that raises our own `TimeoutError`, with words."""

from __future__ import annotations

import asyncio
import builtins
from types import TracebackType

from jetspark.errors import TimeoutError

__all__ = ["deadline"]


class deadline:
    """`async with deadline(2.0, "flush: no answer from the server"): ...`."""

    def __init__(self, seconds: float | None, what: str, **attributes: object) -> None:
        self._seconds = seconds
        self._what = what
        self._attributes = attributes
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(exc_type, exc, traceback)
        except builtins.TimeoutError:
            raise TimeoutError(f"{self._what} in {self._seconds} s", **self._attributes) from None
