"""What the JetStream benchmarks share: streams and consumers, and how to read from them.

Streams and consumers are made over a bare socket, so that every contender finds the same ones and
no client is needed to measure another. Streams are on file, the server's default.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from benchmarks import raw
from benchmarks.harness import Job

if TYPE_CHECKING:
    from jetspark import JetStream
    from jetspark.jetstream.consumer import PullConsumer

STREAM = "BENCH"
SUBJECT = "bench.js"
INBOX = b"_INBOX." + b"0" * 22
API_INBOX = b"_INBOX." + b"1" * 22
WARM_UP = 1_000
TIMEOUT = 30.0
FIRST_SEQUENCE = 1_000_000_000
"""Where streams begin: their sequences all have the same number of digits, so that a bare socket
can tell by the bytes alone how many acks have come."""
WINDOW = 4_000
"""Messages of a bare socket whose acks have not come. More than 10,000 would fill a queue of the
server, which then refuses messages."""
FILL = 50_000
"""Messages written beforehand to fill a stream with."""
PULL = 5_000
PULLS = 2
"""The requests of a bare socket: so many messages each, and so many requests under way. More of
either made no difference, fewer did."""
ON_ORDER = PULL * PULLS
"""How much our iterators may have on order, which is then the same."""


def api(job: Job, subject: str, **fields: object) -> dict[str, Any]:
    """Make one request of JetStream's API, over a connection of its own."""
    body = json.dumps(fields).encode()
    with raw.connect(job) as sock, sock.makefile("rb") as lines:
        target = b"$JS.API.%b %b" % (subject.encode(), API_INBOX)
        sock.sendall(b"SUB %b 1\r\n" % API_INBOX)
        sock.sendall(b"PUB %b %d\r\n%b\r\n" % (target, len(body), body))
        for line in lines:
            if line.startswith(b"MSG "):
                reply: dict[str, Any] = json.loads(lines.read(int(line.split()[-1])))
                if "error" in reply:
                    raise RuntimeError(f"{subject}: {reply['error']}")
                return reply
    raise ConnectionError(f"the server closed the connection and did not answer {subject}")


def new_stream(job: Job) -> None:
    """Make the stream, empty, in the place of the one that may be there."""
    if api(job, "STREAM.NAMES")["streams"]:
        api(job, f"STREAM.DELETE.{STREAM}")
    api(
        job,
        f"STREAM.CREATE.{STREAM}",
        name=STREAM,
        subjects=[SUBJECT],
        storage="file",
        first_seq=FIRST_SEQUENCE,
        allow_batched=True,
    )


def fill_stream(job: Job) -> None:
    """Make the stream with the messages of the job."""
    new_stream(job)
    with raw.connect(job) as sock:
        publisher = Publisher(sock, job, min(FILL, job.messages))
        for first in range(0, job.messages, FILL):
            publisher.publish(min(FILL, job.messages - first))
    check_stored(job, job.messages)


def check_stored(job: Job, messages: int) -> None:
    stored = api(job, f"STREAM.INFO.{STREAM}")["state"]["messages"]
    if stored != messages:
        raise RuntimeError(f"of {messages} messages published, {stored} are in the stream")


@contextmanager
def consumer(job: Job, count: int, **config: object) -> Iterator[str]:
    """A consumer of the last `count` messages of the filled stream; gives its name.

    So nothing is under way any more when they have been read, and nothing of a warm-up disturbs
    what comes after it.
    """
    name = secrets.token_hex(4)
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": start_sequence(job, count)}
    config = {"durable_name": name, "ack_policy": "none"} | start | config
    api(job, f"CONSUMER.CREATE.{STREAM}.{name}", stream_name=STREAM, config=config)
    try:
        yield name
        check_acknowledged(job)
    finally:
        api(job, f"CONSUMER.DELETE.{STREAM}.{name}")


def check_acknowledged(job: Job) -> None:
    """Raise if a consumer waits for acks, be it one that a client has made for itself.

    The server queues acks: a busy one has them all, and has not looked at the last ones yet.
    """
    for _ in range(100):
        consumers = api(job, f"CONSUMER.LIST.{STREAM}")["consumers"]
        missing = sum(info["num_ack_pending"] for info in consumers)
        if not missing:
            return
        sleep(0.05)
    raise RuntimeError(f"{missing} messages were not acknowledged")


def start_sequence(job: Job, count: int) -> int:
    """Where the last `count` messages of the filled stream begin."""
    return FIRST_SEQUENCE + job.messages - count


async def measure_publish(job: Job, publish: Callable[[int], Awaitable[object]]) -> float:
    """The rate of `publish`, which publishes so many messages and awaits their acks."""
    new_stream(job)
    await publish(WARM_UP)
    start = perf_counter()
    await publish(job.messages)
    elapsed = perf_counter() - start
    check_stored(job, WARM_UP + job.messages)
    return job.messages / elapsed


async def measure_read(
    job: Job, read: Callable[[str, int], Awaitable[int]], **config: object
) -> float:
    """The rate of `read`, which reads so many messages from a consumer and returns the bytes."""

    async def turn(count: int) -> float:
        with consumer(job, count, **config) as name:
            start = perf_counter()
            received = await read(name, count)
            elapsed = perf_counter() - start
        if received != count * job.size:
            raise RuntimeError(f"{count} messages of {job.size} bytes came as {received} bytes")
        return elapsed

    await turn(min(WARM_UP, job.messages))
    return job.messages / await turn(job.messages)


async def pull_consumer(js: JetStream, name: str) -> PullConsumer:
    """Our object for a consumer that `measure_read` has made."""
    return await js.get_consumer(STREAM, name)


class Publisher:
    """A bare socket that publishes and counts the acks by their bytes.

    Every message has a reply subject of its own, as it must have with a client: the server does
    much less for one that it has seen before.
    """

    def __init__(self, sock: socket.socket, job: Job, messages: int) -> None:
        self.sock = sock
        replies = (b"%b.%09d" % (INBOX, number) for number in range(messages))
        # Written beforehand, because a limit does nothing but send.
        self.frames = memoryview(
            b"".join(raw.pub_frame(SUBJECT.encode(), job.size, reply) for reply in replies)
        )
        self.frame = len(self.frames) // messages
        ack = b'{"stream":"%b","seq":%d}' % (STREAM.encode(), FIRST_SEQUENCE)
        self.ack = raw.msg_size(b"%b.%09d" % (INBOX, 0), len(ack))
        self.buffer = bytearray(raw.READ_BUFFER)
        sock.sendall(b"SUB %b.* 1\r\n" % INBOX)
        raw.flush(sock)

    def publish(self, count: int, window: int = WINDOW) -> None:
        """Publish the first `count` messages with at most `window` acks missing."""
        sent = received = 0
        while received < count * self.ack:
            until = min(received // self.ack + window, count)
            self.sock.sendall(self.frames[sent * self.frame : until * self.frame])
            sent = until
            received += raw.receive_into(self.sock, self.buffer)


def read_limit(job: Job, batch: int = PULL, pulls: int = PULLS) -> float:
    """The rate of a bare socket that pulls, so many messages with so many requests under way."""

    def read(count: int) -> float:
        with consumer(job, count) as name:
            requests = pull_requests(name, count, batch)
            sizes = batch_sizes(job, name, count, batch)
            start = perf_counter()
            sock.sendall(b"".join(requests[:pulls]))
            missing = 0
            for number, size in enumerate(sizes, pulls):
                missing += size
                while missing > 0:
                    missing -= raw.receive_into(sock, buffer)
                sock.sendall(b"".join(requests[number : number + 1]))
            return perf_counter() - start

    buffer = bytearray(raw.READ_BUFFER)
    with raw.connect(job) as sock:
        sock.sendall(b"SUB %b 1\r\n" % INBOX)
        read(min(WARM_UP, job.messages))
        raw.flush(sock)  # drops what a PING may have left behind
        return job.messages / read(job.messages)


def pull_requests(name: str, count: int, batch: int) -> list[bytes]:
    """The frames that ask a consumer for `count` messages."""
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}".encode()
    frames = []
    for first in range(0, count, batch):
        fields = {"batch": min(batch, count - first), "expires": int(TIMEOUT * 1e9)}
        body = json.dumps(fields).encode()
        frames.append(b"PUB %b %b %d\r\n%b\r\n" % (subject, INBOX, len(body), body))
    return frames


def batch_sizes(job: Job, name: str, count: int, batch: int) -> list[int]:
    """How many bytes the server sends for each of those requests."""
    fixed = f"$JS.ACK.{STREAM}.{name}.1.{FIRST_SEQUENCE}..{10**18}.".encode()
    length = len(b"MSG %b 1 %b %d\r\n" % (SUBJECT.encode(), fixed, job.size)) + job.size + 2
    # Only the number of the delivery and the count of messages to come have not always as many
    # digits.
    sizes = [length + len(str(number)) + len(str(count - number)) for number in range(1, count + 1)]
    return [sum(sizes[first : first + batch]) for first in range(0, count, batch)]
