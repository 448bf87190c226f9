"""What `jetspark top` asks a NATS system for: a bounded number of requests, whatever it has."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from jetspark.cli.top_view import Account, Consumer, Moment, Pipeline, Stream
from jetspark.errors import BucketNotFoundError, JetSparkError, NotFoundError, OfflineError

if TYPE_CHECKING:
    from jetspark import Client, ConsumerInfo, JetStream, StreamInfo
    from jetspark.cli.target import Target

__all__ = ["PIPELINES", "Collector", "read_pipeline"]

PIPELINES = "jetspark_pipelines"
"""The bucket in which running pipelines tell how they are."""

_ASKED = 50  # streams whose consumers are asked for
_AT_A_TIME = 8  # requests


class Collector:
    """Asks for what there is."""

    def __init__(self, client: Client, target: Target, pattern: str | None = None) -> None:
        self._client = client
        self._js = client.jetstream(domain=target.domain, prefix=target.prefix)
        self._servers = target.servers
        self._pattern = pattern
        self._sequences: dict[str, int] = {}

    async def look(self, before: Moment | None) -> Moment:
        """What there is now; if nobody answers, what there was, and that it is not new."""
        try:
            return await self.collect()
        except JetSparkError as error:
            last = before if before is not None else self._moment()
            problem = f"{error}" if self._client.connected else "disconnected, trying to reconnect"
            return dataclasses.replace(last, problem=problem, time=datetime.now(UTC))

    async def collect(self) -> Moment:
        """What there is now; raises if the server does not answer."""
        account = await self._js.account_info()
        infos: list[StreamInfo] = []
        problem = ""
        try:
            async for stream in self._js.streams():
                infos.append(stream.cached_info)  # noqa: PERF401 - some may come before an error
        except OfflineError as error:
            problem = str(error)
        infos = [info for info in infos if self._wanted(info.config.name)]
        asked = self._busiest([info for info in infos if info.state.consumer_count])
        consumers = await self._consumers(asked[:_ASKED])
        return self._moment(
            problem=problem,
            account=Account(
                streams=account.streams,
                consumers=account.consumers,
                memory=account.memory,
                storage=account.storage,
                max_memory=account.limits.max_memory,
                max_storage=account.limits.max_storage,
            ),
            streams=[_stream(info) for info in infos],
            consumers=consumers,
            pipelines=await _pipelines(self._js),
            unasked=max(len(asked) - _ASKED, 0),
        )

    def _moment(self, **facts: Any) -> Moment:
        return Moment(
            at=time.monotonic(),
            time=datetime.now(UTC),
            servers=self._servers,
            version=self._client.server_info.version if self._client.connected else "",
            **facts,
        )

    def _wanted(self, name: str) -> bool:
        return self._pattern is None or fnmatchcase(name, self._pattern)

    def _busiest(self, infos: list[StreamInfo]) -> list[StreamInfo]:
        """Those first that have got the most since the last look."""
        before, self._sequences = (
            self._sequences,
            {info.config.name: info.state.last_seq for info in infos},
        )

        def news(info: StreamInfo) -> tuple[int, int]:
            state = info.state
            return before.get(info.config.name, state.last_seq) - state.last_seq, -state.messages

        return sorted(infos, key=news)

    async def _consumers(self, infos: list[StreamInfo]) -> list[Consumer]:
        room = asyncio.Semaphore(_AT_A_TIME)
        found: list[Consumer] = []

        async def ask(stream: str) -> None:
            async with room:
                try:
                    async for one in self._js.consumers(stream):
                        found.append(_consumer(one.cached_info))  # noqa: PERF401 - the same
                except (NotFoundError, OfflineError):
                    pass  # it is gone, or its server is: the rest is worth showing

        try:
            async with asyncio.TaskGroup() as tasks:
                for info in infos:
                    tasks.create_task(ask(info.config.name))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # they have one cause
        return found


def _stream(info: StreamInfo) -> Stream:
    return Stream(
        name=info.config.name,
        messages=info.state.messages,
        bytes=info.state.bytes,
        last_sequence=info.state.last_seq,
        consumers=info.state.consumer_count,
        leader=info.cluster.leader if info.cluster is not None else "",
    )


def _consumer(info: ConsumerInfo) -> Consumer:
    return Consumer(
        stream=info.stream_name,
        name=info.name,
        pending=info.num_pending,
        ack_pending=info.num_ack_pending,
        redelivered=info.num_redelivered,
        delivered=info.delivered.consumer_seq,
        paused=info.paused,
    )


async def _pipelines(js: JetStream) -> list[Pipeline]:
    """What running pipelines tell; those that cannot be read are left out."""
    try:
        bucket = await js.key_value(PIPELINES)
        entries = await bucket.get_many(">")
    except BucketNotFoundError:
        return []
    found = []
    for key, entry in entries.items():
        try:
            found += read_pipeline(key, json.loads(entry.value))
        except (ValueError, TypeError, AttributeError):
            continue
    return found


def read_pipeline(key: str, report: dict[str, Any]) -> list[Pipeline]:
    """The queries that a pipeline reports."""
    updated = report.get("updated")
    if isinstance(updated, int | float):
        when: datetime | None = datetime.fromtimestamp(updated, UTC)
    else:
        when = datetime.fromisoformat(updated) if updated else None
        when = when.replace(tzinfo=UTC) if when is not None and when.tzinfo is None else when
    return [
        Pipeline(
            pipeline=str(report.get("pipeline") or key),
            query=str(query.get("name") or ""),
            host=str(report.get("host") or ""),
            state=str(query.get("state") or ""),
            rows=int(query.get("rows") or 0),
            rate=float(query["rate"]) if query.get("rate") is not None else None,
            lag=int(query["lag"]) if query.get("lag") is not None else None,
            dead=int(query.get("dead") or 0),
            updated=when,
        )
        for query in report.get("queries") or []
    ]
