"""Helpers for tests that use streams: names, messages, leaders, and servers of several versions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from jetspark import HeadersLike, JetStream, Stream
from jetspark.connection import Client
from jetspark.connection.nuid import next_nuid
from jetspark.errors import JetSparkError, NoRespondersError, NotSupportedError, TimeoutError
from jetspark.server import NatsCluster, NatsServer
from tests.support.leaks import until
from tests.support.servers import monitor

T = TypeVar("T")


def new_name(prefix: str = "T") -> str:
    """The name of a stream that no other test uses."""
    return f"{prefix}_{next_nuid()}"


async def store(
    client: Client,
    subject: str,
    data: bytes = b"",
    headers: HeadersLike | None = None,
    *,
    timeout: float = 5,
) -> int:
    """Publish a message and return the sequence that the stream gave it."""
    end = time.monotonic() + timeout
    while True:
        try:
            reply = await client.request(subject, data, headers=headers, timeout=timeout)
            break
        except NoRespondersError:  # not all servers of a cluster know a new stream at once
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.05)
    answer = json.loads(reply.data)
    assert "error" not in answer, answer
    sequence: int = answer["seq"]
    return sequence


def version_of(server: NatsServer) -> tuple[int, int]:
    """Major and minor version, where servers differ."""
    major, minor, *_ = server.version.split(".")
    return int(major), int(minor)


async def if_supported(
    server: NatsServer, since: tuple[int, int], call: Coroutine[Any, Any, T], *names: str
) -> T | None:
    """What a call gives, or None where the server is older: there it must be refused by name."""
    if version_of(server) >= since:
        return await call
    with pytest.raises(NotSupportedError) as caught:
        await call
    for text in (*names, server.version):
        assert text in str(caught.value)
    return None


async def has_messages(stream: Stream, count: int) -> bool:
    """Whether there are so many messages in a stream."""
    return (await stream.info()).state.messages == count


async def step_down(js: JetStream, stream: str, consumer: str | None = None) -> None:
    """Have another replica elected as the leader of a stream or consumer."""
    subjects = js.api.subjects
    if consumer is None:
        subject = subjects.stream_leader_stepdown(stream)
    else:
        subject = subjects.consumer_leader_stepdown(stream, consumer)
    context = f"step down of {stream!r}"
    async with asyncio.timeout(20):
        while True:
            with suppress(TimeoutError):  # in the middle of a change nobody may answer
                # Repeated if the cluster has no leader itself at the moment.
                await js.api.request(subject, context=context, timeout=2, idempotent=True)
                return


async def leader_of(js: JetStream, stream: str, cluster: NatsCluster) -> int:
    """Which of the servers leads a stream; waits until it has a leader that runs."""
    async with asyncio.timeout(60):
        while True:
            with suppress(JetSparkError):  # a stream without a leader does not answer
                info = (await js.get_stream(stream)).cached_info.cluster
                for index, server in enumerate(cluster):
                    if info is not None and server.name == info.leader and server.running:
                        return index
            await asyncio.sleep(0.05)


async def caught_up(cluster: NatsCluster, stream: str) -> None:
    """Wait until every server that runs has all of a stream: any of them may answer a read."""

    def same_everywhere() -> bool:
        ends = {_last_sequence(server, stream) for server in cluster if server.running}
        return len(ends) == 1 and None not in ends

    await until(same_everywhere)


def _last_sequence(server: NatsServer, stream: str) -> int | None:
    """Where a stream ends on one server; None if it is not there, or not yet."""
    for account in monitor(server, "/jsz?streams=true").get("account_details", []):
        for detail in account.get("stream_detail", []):
            if detail["name"] == stream:
                return int(detail["state"]["last_seq"])
    return None
