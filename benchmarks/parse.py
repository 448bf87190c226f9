"""The parsers alone: the bytes of a connection in memory, in reads, to fields of messages.

Plain messages of one subject, and as variants what a JetStream consumer gets: messages each with
a reply subject of its own, and messages with headers as well.
"""

from __future__ import annotations

from time import perf_counter

from benchmarks.harness import Benchmark, Job

READ = 64 * 1024
SUBJECT = b"bench.parse"


def ours(job: Job) -> float:
    from jetspark.protocol import MessageBatch, Parser

    reads = wire(job)
    parser = Parser()
    messages = received = 0
    start = perf_counter()
    for data in reads:
        for event in parser.feed(data):
            assert isinstance(event, MessageBatch)
            for _subject, _reply, _header, payload in event.frames:
                messages += 1
                received += len(payload)
    elapsed = perf_counter() - start
    return rate(job, messages, received, elapsed)


async def nats_py(job: Job) -> float:
    from nats.protocol.parser import Parser

    class Client:
        """What the parser needs of a client, and no more."""

        messages = received = 0

        async def _process_msg(
            self, sid: int, subject: bytes, reply: bytes, payload: bytes, header: bytes | None
        ) -> None:
            self.messages += 1
            self.received += len(payload)

    reads = wire(job)
    client = Client()
    parser = Parser(client)
    start = perf_counter()
    for data in reads:
        await parser.parse(data)
    elapsed = perf_counter() - start
    return rate(job, client.messages, client.received, elapsed)


def wire(job: Job) -> list[bytes]:
    """The messages as they come from the socket, cut into reads without regard to frames."""
    frames = b"".join(frame(job, number) for number in range(1, job.messages + 1))
    return [frames[start : start + READ] for start in range(0, len(frames), READ)]


def frame(job: Job, number: int) -> bytes:
    payload = b"x" * job.size
    if not job.variant:
        return b"MSG %b 1 %d\r\n%b\r\n" % (SUBJECT, job.size, payload)
    timestamp = 1_700_000_000_000_000_000 + number * 1_234_567
    reply = b"$JS.ACK.ORDERS.worker.1.%d.%d.%d.0" % (number, number, timestamp)
    if job.variant == "with_reply":
        return b"MSG %b 1 %b %d\r\n%b\r\n" % (SUBJECT, reply, job.size, payload)
    header = b"NATS/1.0\r\nNats-Msg-Id: order-%d\r\n\r\n" % number
    sizes = (len(header), len(header) + job.size)
    return b"HMSG %b 1 %b %d %d\r\n%b%b\r\n" % (SUBJECT, reply, *sizes, header, payload)


def rate(job: Job, messages: int, received: int, elapsed: float) -> float:
    if (messages, received) != (job.messages, job.messages * job.size):
        raise RuntimeError(f"parsed {messages} messages with {received} bytes of payload")
    return messages / elapsed


BENCHMARK = Benchmark(
    title="the parser without a connection",
    unit="messages/s",
    messages=200_000,
    size=128,
    contenders={"ours": ours, "nats-py": nats_py},
    variants=("with_reply", "with_headers"),
    needs_server=False,
)
