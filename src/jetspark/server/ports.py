"""Ports that stay ours while a server is down.

A socket that is bound but does not listen keeps its port: the kernel gives it neither to other
listeners that take any free port nor to outgoing connections (which, trying to reconnect to a
dead port of the same machine, could otherwise end up connected to themselves), yet a server that
asks for exactly this port gets it. So ports are known before a server starts, are the same after
a restart, and nothing races for them.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import weakref

from jetspark.errors import ServerProcessError

__all__ = ["ReservedPort"]


class ReservedPort:
    """One TCP port, held until `close` or until the object is dropped."""

    __slots__ = ("__weakref__", "_release", "number")

    def __init__(self, host: str, port: int = 0) -> None:
        """Reserve `port`, or a free one for 0."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as reservation:
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                reservation.bind((host, port))
            except OSError as error:
                raise ServerProcessError(_explain(host, port, error)) from error
            self.number: int = reservation.getsockname()[1]
            descriptor = reservation.detach()
        self._release = weakref.finalize(self, os.close, descriptor)
        if sys.platform != "linux":
            # Elsewhere a bound socket shuts the server out as well: the number has to do.
            self._release()

    def close(self) -> None:
        """Give the port back."""
        self._release()


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is already in use: stop the program that listens there, "
            "or leave `port` out to take a free one"
        )
    return f"cannot listen on {host} port {port}: {error.strerror or error}"
