"""How a blocking client comes about."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ParamSpec

from jetspark.connection import ConnectOptions

from ._client import open_client
from ._generated import Client
from ._thread import loop_thread

__all__ = ["connect"]

P = ParamSpec("P")


def _connector(make_options: Callable[P, ConnectOptions]) -> Callable[P, Client]:
    """Make `connect` with the arguments of `ConnectOptions`, which are thus written down once."""

    def connect(*args: P.args, **kwargs: P.kwargs) -> Client:
        thread = loop_thread()
        client = thread.run(open_client(make_options(*args, **kwargs)))
        client.front = Client(client, thread)
        return client.front

    connect.__signature__ = inspect.signature(make_options)  # type: ignore[attr-defined]
    connect.__doc__ = f"""Connect to a NATS server and return the client, which blocks.

    >>> with jetspark.sync.connect("nats://localhost:4222") as nc:  # doctest: +SKIP
    ...     nc.publish("greet", b"hello")

    {make_options.__doc__}
    """
    connect.__qualname__ = "connect"
    return connect


connect = _connector(ConnectOptions)
