"""The connection to a NATS system: options, sockets, reconnects, messages, requests.

A `Client` is the way in; everything else here is what it gives out or takes.
"""

from .backoff import Backoff
from .client import Client, connector
from .connection import ConnectionState, Statistics
from .events import ConnectionEvent, EventKind
from .message import Message
from .options import ConnectOptions
from .subscription import MessageCallback, Subscription

__all__ = [
    "Backoff",
    "Client",
    "ConnectOptions",
    "ConnectionEvent",
    "ConnectionState",
    "EventKind",
    "Message",
    "MessageCallback",
    "Statistics",
    "Subscription",
    "connector",
]
