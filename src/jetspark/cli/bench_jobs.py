"""What `jetspark bench` measures, on a stream of its own that is removed whatever happens."""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import jetspark
from jetspark.cli import console
from jetspark.connection.nuid import next_nuid
from jetspark.errors import JetSparkError, MissingExtraError

if TYPE_CHECKING:
    from jetspark.cli.target import Target

__all__ = ["Line", "Measured", "Plan", "measure"]

_CHUNK = 1_000
_ROUND_TRIPS = 2_000
_PATIENCE = 30.0  # seconds for an answer


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do."""

    messages: int
    size: int
    replicas: int = 1
    memory: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a test came to; the times of single answers are seconds."""

    name: str
    messages: int
    seconds: float
    median: float | None = None
    high: float | None = None
    """99 of 100 took no longer."""

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / max(self.seconds, 1e-9)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The result."""

    plan: Plan
    servers: str
    version: str
    lines: list[Line] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "servers": self.servers,
            "version": self.version,
            **asdict(self.plan),
            "results": [
                {
                    **asdict(line),
                    "rate": line.rate,
                    "bytes_rate": line.rate * self.plan.size,
                }
                for line in self.lines
            ],
        }


async def measure(target: Target, plan: Plan, *, quiet: bool = False) -> Measured:
    """Run all tests."""
    with _stopped_by_term():
        async with await jetspark.connect(**target.connect_options) as client:
            js = client.jetstream(domain=target.domain, prefix=target.prefix)
            version = client.server_info.version
            result = Measured(plan=plan, servers=target.servers, version=version)
            async with _stream(js, plan) as stream:
                result.lines.append(await _publish(js, stream, plan, quiet))
                result.lines.append(await _consume(stream, plan, quiet))
                try:
                    result.lines.append(await _arrow(stream, plan, quiet))
                except MissingExtraError as error:
                    console.warn(f"fetch arrow is left out: {error}")
            result.lines.append(await _requests(client, plan, quiet))
            return result


@contextmanager
def _stopped_by_term() -> Iterator[None]:
    """End by SIGTERM as by Ctrl-C: the stream is removed."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@asynccontextmanager
async def _stream(js: jetspark.JetStream, plan: Plan) -> AsyncIterator[jetspark.Stream]:
    """A stream that nobody else has, as long as the context lasts."""
    name = f"JETSPARK_BENCH_{next_nuid()}"
    try:
        yield await js.create_stream(
            name=name,
            description="made by jetspark bench, which removes it",
            subjects=[f"{name}.>"],
            storage=jetspark.StorageType.MEMORY if plan.memory else jetspark.StorageType.FILE,
            num_replicas=plan.replicas,
        )
    finally:
        try:
            await js.publish_async_complete(timeout=_PATIENCE)
        except (JetSparkError, BaseExceptionGroup):
            pass  # it is about to be removed
        try:
            await js.delete_stream(name)
        except jetspark.errors.StreamNotFoundError:
            pass  # it was not created
        except JetSparkError as error:
            console.warn(f"stream {name} is still there: {error}; delete it")


async def _publish(
    js: jetspark.JetStream, stream: jetspark.Stream, plan: Plan, quiet: bool
) -> Line:
    subject, payload = f"{stream.name}.x", bytes(plan.size)
    with console.meter("publish", quiet=quiet) as meter:
        start = time.perf_counter()
        for done in range(plan.messages):
            await js.publish_async(subject, payload)
            if done % _CHUNK == 0:
                meter.show(done, plan.messages)
        try:
            await js.publish_async_complete(timeout=_PATIENCE)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        seconds = time.perf_counter() - start
    return Line(name="publish", messages=plan.messages, seconds=seconds)


async def _consumer(stream: jetspark.Stream) -> jetspark.PullConsumer:
    consumer = await stream.create_consumer(
        ack_policy=jetspark.AckPolicy.NONE, mem_storage=True, inactive_threshold=60
    )
    assert isinstance(consumer, jetspark.PullConsumer)
    return consumer


async def _consume(stream: jetspark.Stream, plan: Plan, quiet: bool) -> Line:
    consumer = await _consumer(stream)
    done = 0
    with console.meter("consume", quiet=quiet) as meter:
        start = time.perf_counter()
        async with consumer.messages(max_messages=10_000, stop_after=plan.messages) as messages:
            async for _ in messages:
                done += 1
                if done % _CHUNK == 0:
                    meter.show(done, plan.messages)
        seconds = time.perf_counter() - start
    return Line(name="consume", messages=done, seconds=seconds)


async def _arrow(stream: jetspark.Stream, plan: Plan, quiet: bool) -> Line:
    import jetspark.jetstream.consumer.arrow  # noqa: F401 - it takes longer than a short test

    consumer = await _consumer(stream)
    done = 0
    with console.meter("fetch arrow", quiet=quiet) as meter:
        start = time.perf_counter()
        async with consumer.arrow_batches(stop_after=plan.messages) as batches:
            async for batch in batches:
                done += batch.num_rows
                meter.show(done, plan.messages)
        seconds = time.perf_counter() - start
    return Line(name="fetch arrow", messages=done, seconds=seconds)


async def _requests(client: jetspark.Client, plan: Plan, quiet: bool) -> Line:
    """One request after the other; the same client answers them."""
    subject, payload = f"jetspark.bench.{next_nuid()}", bytes(plan.size)

    async def answer(message: jetspark.Message) -> None:
        await message.respond(message.data)

    count = min(plan.messages, _ROUND_TRIPS)
    took: list[float] = []
    subscription = await client.subscribe(subject, callback=answer)
    try:
        with console.meter("request", unit="round trips", quiet=quiet) as meter:
            start = time.perf_counter()
            for done in range(count):
                sent = time.perf_counter()
                await client.request(subject, payload, timeout=_PATIENCE)
                took.append(time.perf_counter() - sent)
                if done % 100 == 0:
                    meter.show(done, count)
            seconds = time.perf_counter() - start
    finally:
        await subscription.unsubscribe()
    took.sort()
    return Line(
        name="request and reply",
        messages=count,
        seconds=seconds,
        median=statistics.median(took),
        high=took[int((count - 1) * 0.99)],
    )
