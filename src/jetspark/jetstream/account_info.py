"""What a server tells about an account: what it uses and what it may use.

The first server version stands beside a field where it is not 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from jetspark.jetstream.codec import Wire

__all__ = ["APIStats", "AccountInfo", "AccountLimits", "AccountTier"]


class AccountLimits(Wire, frozen=True, kw_only=True):
    """What an account may use; -1 is unlimited."""

    max_memory: int = 0
    max_storage: int = 0
    max_streams: int = 0
    max_consumers: int = 0
    max_ack_pending: int = 0  # 2.8
    memory_max_stream_bytes: int = 0  # 2.8
    storage_max_stream_bytes: int = 0  # 2.8
    max_bytes_required: bool = False  # 2.7; every stream needs max_bytes


class AccountTier(Wire, frozen=True, kw_only=True):
    """Usage and limits of an account, or of its streams with some number of replicas."""

    memory: int = 0  # bytes
    storage: int = 0  # bytes
    reserved_memory: int = 0  # bytes, 2.10.8
    reserved_storage: int = 0  # bytes, 2.10.8
    streams: int = 0
    consumers: int = 0
    limits: AccountLimits = AccountLimits()


class APIStats(Wire, frozen=True, kw_only=True):
    """The API of the server that answered."""

    level: int = 0  # 2.11; which features it has
    total: int = 0
    errors: int = 0
    inflight: int = 0  # 2.7


class AccountInfo(AccountTier, frozen=True, kw_only=True):
    """Usage and limits of an account; with tiers, the totals and no limits."""

    domain: str = ""
    api: APIStats = APIStats()
    tiers: Mapping[str, AccountTier] = {}  # 2.8; by "R1", "R3", ...

    _envelope: ClassVar[frozenset[str]] = frozenset({"type"})
