"""Consumers: the ways in which messages of a stream reach an application."""

from __future__ import annotations

from jetspark.jetstream.api import ApiClient
from jetspark.jetstream.consumer_info import ConsumerInfo

from .base import Consumer
from .ordered import OrderedConsumer
from .ordered_config import OrderedOptions
from .ordered_push import OrderedPushConsumer
from .pull import PullConsumer
from .push import PushConsumer

__all__ = [
    "Consumer",
    "OrderedConsumer",
    "OrderedOptions",
    "OrderedPushConsumer",
    "PullConsumer",
    "PushConsumer",
    "consumer_from_info",
]


def consumer_from_info(api: ApiClient, info: ConsumerInfo) -> PullConsumer | PushConsumer:
    """The right kind of consumer for what the server says about it."""
    kind = PushConsumer if info.config.deliver_subject else PullConsumer
    return kind(api, info)
