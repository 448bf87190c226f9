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
        options = make_options(*args, **kwargs)
        opened: list[Client] = []

        async def open_it() -> None:
            client = await open_client(options)
            client.front = Client(client, thread)
            opened.append(client.front)

        try:
            thread.run(open_it())
            return opened[0]
        except BaseException:
            for client in opened:  # when the interrupt came
                client.close()
            raise

    signature = inspect.signature(make_options).replace(return_annotation=Client)
    connect.__signature__ = signature  # type: ignore[attr-defined]
    connect.__doc__ = f"""Connect to a NATS server and return the client, which blocks.

    >>> with jetspark.sync.connect("nats://localhost:4222") as nc:  # doctest: +SKIP
    ...     nc.publish("greet", b"hello")

    {make_options.__doc__}
    """
    connect.__qualname__ = "connect"
    return connect


connect = _connector(ConnectOptions)
