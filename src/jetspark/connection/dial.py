"""From a host name to a connected socket.

asyncio does this, too, but its race between addresses is not in every event loop, and in the
Pythons that we support it leaves sockets open when it is cancelled in the wrong moment.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from .urls import is_ip

__all__ = ["dial"]

HEAD_START = 0.25  # seconds that an address has before the next one is tried as well (RFC 8305)


async def dial(host: str, port: int) -> socket.socket:
    """Connect to the first address of a host that answers."""
    loop = asyncio.get_running_loop()
    if is_ip(host):  # nothing to wait for, so no thread is needed
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    else:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if len(found) == 1:
        return await _connect(*found[0])
    attempts: list[asyncio.Task[socket.socket]] = []
    try:
        while True:
            if len(attempts) < len(found):
                info = found[len(attempts)]
                attempts.append(loop.create_task(_connect(*info), name="jetspark dial"))
            pending = [attempt for attempt in attempts if not attempt.done()]
            if pending:
                last = len(attempts) == len(found)
                await asyncio.wait(
                    pending,
                    timeout=None if last else HEAD_START,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            for attempt in attempts:
                if attempt.done() and attempt.exception() is None:
                    attempts.remove(attempt)
                    return attempt.result()
            if len(attempts) == len(found) and all(attempt.done() for attempt in attempts):
                return attempts[-1].result()  # which raises
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_drop)


async def _connect(family: int, kind: int, protocol: int, _: str, address: Any) -> socket.socket:
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _drop(attempt: asyncio.Task[socket.socket]) -> None:
    """Close what is not needed; also tell asyncio that an error has been seen."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
