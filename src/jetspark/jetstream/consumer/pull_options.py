"""What a pull asks for: the options, checked, and the body of the request.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from jetspark.errors import InvalidOptionError
from jetspark.jetstream.codec import to_nanoseconds, to_timedelta
from jetspark.jetstream.consumer_config import ConsumerConfig, PriorityPolicy
from jetspark.jetstream.names import check_priority_group

__all__ = ["MAX_MESSAGES", "PriorityOptions", "PullOptions", "StreamOptions"]

MAX_MESSAGES = 1000  # on order by default, at most (ADR-37)
UNLIMITED_BATCH = 1_000_000  # what to ask for when bytes are the limit
# Twice as long stays unnoticed that a leader has gone silently. ADR-37 allows up to 30 seconds.
HEARTBEAT = timedelta(seconds=5)
FETCH_HEARTBEAT_FROM = timedelta(seconds=10)  # shorter fetches need none
SHORTEST_STREAM_EXPIRY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PriorityOptions:
    """How this client takes part in a priority group (2.11)."""

    group: str | None = None
    min_pending: int | None = None  # overflow: serve me only if so many messages wait
    min_ack_pending: int | None = None  # overflow: ... or so many are not acknowledged
    priority: int | None = None  # prioritized (2.12): 0 to 9, the lowest is served first

    def check(self, config: ConsumerConfig) -> None:
        """Refuse what does not fit the consumer, naming the option."""
        if not config.priority_groups:
            for name in ("group", "min_pending", "min_ack_pending", "priority"):
                if getattr(self, name) is not None:
                    raise InvalidOptionError(
                        f"option {name!r} needs a consumer with priority_groups"
                    )
            return
        if self.group is None:
            raise InvalidOptionError(
                "option 'group' is missing: the consumer has the priority groups "
                + ", ".join(config.priority_groups)
            )
        check_priority_group(self.group)
        if self.group not in config.priority_groups:
            raise InvalidOptionError(
                f"option 'group' must be one of {', '.join(config.priority_groups)}, "
                f"not {self.group!r}"
            )
        if config.priority_policy != PriorityPolicy.OVERFLOW and (
            self.min_pending is not None or self.min_ack_pending is not None
        ):
            raise InvalidOptionError(
                "options 'min_pending' and 'min_ack_pending' need priority_policy=overflow"
            )
        if self.priority is not None:
            if config.priority_policy != PriorityPolicy.PRIORITIZED:
                raise InvalidOptionError("option 'priority' needs priority_policy=prioritized")
            if not 0 <= self.priority <= 9:
                raise InvalidOptionError(f"option 'priority' must be 0 to 9, not {self.priority}")

    def fields(self) -> dict[str, Any]:
        """Its part of the request."""
        found = {
            "group": self.group,
            "min_pending": self.min_pending,
            "min_ack_pending": self.min_ack_pending,
            "priority": self.priority,
        }
        return {name: value for name, value in found.items() if value is not None}


def _positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise InvalidOptionError(f"option {name!r} must be at least 1, not {value}")


def _duration(name: str, value: float | timedelta) -> timedelta:
    try:
        duration = to_timedelta(value)
    except (TypeError, ValueError) as error:
        raise InvalidOptionError(f"option {name!r} {error}") from None
    if duration <= timedelta(0):
        raise InvalidOptionError(f"option {name!r} must be greater than 0")
    return duration


def _check_heartbeat(heartbeat: timedelta, expires: timedelta) -> None:
    if heartbeat * 2 > expires:
        raise InvalidOptionError(
            f"option 'heartbeat' ({heartbeat.total_seconds():g} s) must be at most half of the "
            f"timeout ({expires.total_seconds():g} s)"
        )


class PullOptions:
    """One pull request, for `fetch` and `next`."""

    def __init__(
        self,
        *,
        max_messages: int | None,
        max_bytes: int | None,
        timeout: float | timedelta | None,
        heartbeat: float | timedelta | None,
        priority: PriorityOptions,
    ) -> None:
        _positive("max_messages", max_messages)
        _positive("max_bytes", max_bytes)
        if max_messages is None and max_bytes is None:
            raise InvalidOptionError("give max_messages, max_bytes, or both")
        self.max_messages = max_messages or UNLIMITED_BATCH
        self.max_bytes = max_bytes
        self.expires = None if timeout is None else _duration("timeout", timeout)  # None: no wait
        self.heartbeat: timedelta | None = None
        if self.expires is not None:
            if heartbeat is not None:
                self.heartbeat = _duration("heartbeat", heartbeat)
                _check_heartbeat(self.heartbeat, self.expires)
            elif self.expires >= FETCH_HEARTBEAT_FROM:
                self.heartbeat = HEARTBEAT
        elif heartbeat is not None:
            raise InvalidOptionError("option 'heartbeat' needs a timeout")
        self.priority = priority

    def body(self, pin_id: str | None) -> bytes:
        """The request."""
        fields: dict[str, Any] = {"batch": self.max_messages, **self.priority.fields()}
        if self.max_bytes is not None:
            fields["max_bytes"] = self.max_bytes
        if self.expires is None:
            fields["no_wait"] = True
        else:
            fields["expires"] = to_nanoseconds(self.expires)
        if self.heartbeat is not None:
            fields["idle_heartbeat"] = to_nanoseconds(self.heartbeat)
        if pin_id:
            fields["id"] = pin_id
        return msgspec.json.encode(fields)


class StreamOptions:
    """The endless pulling of `messages` and `consume` (ADR-37)."""

    def __init__(
        self,
        *,
        max_messages: int | None,
        max_bytes: int | None,
        expires: float | timedelta,
        heartbeat: float | timedelta | None,
        threshold_messages: int | None,
        threshold_bytes: int | None,
        stop_after: int | None,
        priority: PriorityOptions,
    ) -> None:
        for name, value in (
            ("max_messages", max_messages),
            ("max_bytes", max_bytes),
            ("threshold_messages", threshold_messages),
            ("threshold_bytes", threshold_bytes),
            ("stop_after", stop_after),
        ):
            _positive(name, value)
        if max_messages is not None and max_bytes is not None:
            raise InvalidOptionError("give max_messages or max_bytes, not both")
        if max_bytes is None and threshold_bytes is not None:
            raise InvalidOptionError("option 'threshold_bytes' needs option 'max_bytes'")
        if max_bytes is not None and threshold_messages is not None:
            raise InvalidOptionError("option 'threshold_messages' does not go with 'max_bytes'")
        self.by_default = max_messages is max_bytes is threshold_messages is None
        if max_bytes is None:
            max_messages = max_messages or MAX_MESSAGES
        self.max_messages = max_messages or UNLIMITED_BATCH
        self.max_bytes = max_bytes
        self.threshold_messages = threshold_messages or -(-self.max_messages // 2)
        self.threshold_bytes = threshold_bytes or (-(-max_bytes // 2) if max_bytes else 0)
        if self.threshold_messages > self.max_messages:
            raise InvalidOptionError("option 'threshold_messages' must not exceed 'max_messages'")
        if max_bytes is not None and self.threshold_bytes > max_bytes:
            raise InvalidOptionError("option 'threshold_bytes' must not exceed 'max_bytes'")
        self.expires = _duration("expires", expires)
        if self.expires < SHORTEST_STREAM_EXPIRY:
            raise InvalidOptionError("option 'expires' must be at least 1 second")
        if heartbeat is None:
            self.heartbeat = min(self.expires / 2, HEARTBEAT)
        else:
            self.heartbeat = _duration("heartbeat", heartbeat)
        _check_heartbeat(self.heartbeat, self.expires)
        self.stop_after = stop_after
        self.priority = priority
        self._fields = {
            "expires": to_nanoseconds(self.expires),
            "idle_heartbeat": to_nanoseconds(self.heartbeat),
            **priority.fields(),
        }

    def body(self, batch: int, max_bytes: int, pin_id: str | None) -> bytes:
        """One of the requests."""
        fields = {"batch": batch, **self._fields}
        if max_bytes:
            fields["max_bytes"] = max_bytes
        if pin_id:
            fields["id"] = pin_id
        return msgspec.json.encode(fields)
