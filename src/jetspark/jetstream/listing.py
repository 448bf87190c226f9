"""Lists of streams and consumers: their names, or their infos, of which some may be silent.

A server of a cluster waits some seconds for those that answer it and then says which ones did not:
they have no leader at the moment, or their servers are down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from jetspark.errors import NotFoundError, OfflineError, TimeoutError

from .api import ApiClient
from .codec import Wire

__all__ = ["list_infos", "list_names"]

W = TypeVar("W", bound=Wire)

_PATIENCE = 1.0  # seconds; who has a leader again by now answers at once


async def list_names(
    api: ApiClient,
    endpoint: str,
    key: str,
    body: Mapping[str, Any] | None = None,
    *,
    context: str,
) -> AsyncIterator[str]:
    """Yield the names under `key` in the pages of an answer."""
    async for _, names in api.pages(
        endpoint, lambda page: page.get(key) or [], body, context=context
    ):
        for name in names:
            yield name


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
    silent: list[str] = []
    async for page, names in api.pages(
        endpoint, lambda page: _infos(page, key), body, context=context
    ):
        known = _infos(page, key)
        missing = [name for name in names if known[name] is None]
        found = await asyncio.gather(
            *(_info(api, kind, info_endpoint(name), context) for name in missing)
        )
        infos = dict(zip(missing, found, strict=True))
        for name in names:
            info = infos[name] if name in infos else api.decode(kind, known[name])
            if info is None:
                silent.append(name)
            elif not isinstance(info, NotFoundError):
                yield info
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


def _infos(page: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The infos of a page by name, None for those that are to be asked for."""
    infos: dict[str, Any] = {
        item.get("name") or item["config"]["name"]: item for item in page.get(key) or []
    }
    # One that is known to be offline is there without its state, and named here, too.
    missing = {*(page.get("missing") or []), *(page.get("offline") or {})}
    return infos | dict.fromkeys(missing)
