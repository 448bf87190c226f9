"""Lists of streams and consumers with their infos, from a cluster in which some may be silent.

A server waits some seconds for those that answer it and then says which ones did not: they have no
leader at the moment, or their servers are down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from jetspark.errors import NotFoundError, OfflineError, TimeoutError

from .api import ApiClient
from .codec import Wire

__all__ = ["list_infos"]

W = TypeVar("W", bound=Wire)

_PATIENCE = 1.0  # seconds; who has a leader again by now answers at once


async def list_infos(
    api: ApiClient,
    kind: type[W],
    endpoint: str,
    key: str,
    info_endpoint: Callable[[str], str],
    body: Mapping[str, Any] | None = None,
    *,
    context: str,
) -> AsyncIterator[W]:
    """Yield the infos under `key` in the pages of an answer.

    Those that the answer names as missing are asked for by themselves. Raises `OfflineError` at
    the end if some stay silent.
    """
    offset = 0
    silent: list[str] = []
    while True:
        request = {**(body or {}), "offset": offset}
        response = await api.request(endpoint, request, context=context, idempotent=True)
        page = {_name(item): item for item in response.get(key) or []}
        # One that is known to be offline is there without its state, and named here, too.
        missing = {*(response.get("missing") or []), *(response.get("offline") or {})}
        found = await asyncio.gather(
            *(_info(api, kind, info_endpoint(name), context) for name in sorted(missing))
        )
        infos = dict(zip(sorted(missing), found, strict=True))
        for name in sorted(page.keys() | missing):
            info = infos[name] if name in missing else api.decode(kind, page[name])
            if info is None:
                silent.append(name)
            elif not isinstance(info, NotFoundError):
                yield info
        offset += len(page.keys() | missing)
        if not (page or missing) or offset >= response.get("total", 0):
            break
    if silent:
        raise OfflineError(
            f"{context}: {', '.join(silent)} did not answer; the servers may be down, or no "
            "leader is elected",
            retryable=True,
            context=context,
        )


async def _info(
    api: ApiClient, kind: type[W], endpoint: str, context: str
) -> W | NotFoundError | None:
    """One info; None if nobody answers, the error if it is deleted meanwhile."""
    try:
        return await api.fetch(kind, endpoint, context=context, timeout=_PATIENCE)
    except (TimeoutError, OfflineError):
        return None
    except NotFoundError as error:
        return error


def _name(item: Mapping[str, Any]) -> str:
    name: str = item.get("name") or item["config"]["name"]
    return name
