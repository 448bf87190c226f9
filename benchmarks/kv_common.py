"""What the key-value benchmarks share: a bucket, its keys, and how to use it.

The bucket is made and filled over a bare socket, so that every contender finds the same one: on
file, with a history of one, and with direct gets, which each client then uses.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any

from benchmarks import raw
from benchmarks.harness import Job
from benchmarks.js_common import FIRST_SEQUENCE, INBOX, WINDOW, api

BUCKET = "BENCH"
STREAM = f"KV_{BUCKET}"
KEYS = 1_000
"""How many keys are read and written in turn."""
WARM_UP = 500
TIMEOUT = 30.0
FILL = 50_000
"""Entries written beforehand to fill a bucket with."""

_REPLY = re.compile(rb"H?MSG \S+ 1 (?:\d+ )?(\d+)\r\n")


def key(number: int) -> str:
    """All keys have the same length."""
    return f"key.{number:09d}"


def new_bucket(job: Job) -> None:
    """Make the bucket, empty, in the place of the one that may be there."""
    if api(job, "STREAM.NAMES")["streams"]:
        api(job, f"STREAM.DELETE.{STREAM}")
    api(
        job,
        f"STREAM.CREATE.{STREAM}",
        name=STREAM,
        subjects=[f"$KV.{BUCKET}.>"],
        storage="file",
        max_msgs_per_subject=1,
        first_seq=FIRST_SEQUENCE,
        discard="new",
        allow_rollup_hdrs=True,
        allow_direct=True,
        deny_delete=True,
    )


def fill_bucket(job: Job, keys: int) -> None:
    """Make the bucket with a value for each of so many keys."""
    new_bucket(job)
    with raw.connect(job) as sock:
        for first in range(0, keys, FILL):
            numbers = range(first, min(first + FILL, keys))
            putter(sock, job, numbers, WINDOW).run(len(numbers), WINDOW)
    state = api(job, f"STREAM.INFO.{STREAM}")["state"]
    if state["num_subjects"] != keys:
        raise RuntimeError(f"of {keys} keys, {state['num_subjects']} are in the bucket")


def in_flight(job: Job) -> int:
    return min(job.in_flight, job.messages) if job.variant == "concurrent" else 1


def count(job: Job) -> int:
    """How many calls are measured: more where they are fast, or a moment would decide."""
    return job.messages * (5 if job.variant == "concurrent" else 1)


async def measure(job: Job, work: Callable[[Sequence[str]], Coroutine[Any, Any, None]]) -> float:
    """The rate of what `work` does with one key after the other, in as many tasks as wanted."""

    async def work_together(calls: int) -> float:
        turns = [
            [names[number % KEYS] for number in range(first, calls, workers)]
            for first in range(workers)
        ]
        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for keys in turns:
                group.create_task(work(keys))
        return calls / (perf_counter() - start)

    names = [key(number) for number in range(KEYS)]
    workers = in_flight(job)
    await work_together(WARM_UP)
    return await work_together(count(job))


def measure_limit(job: Job, exchange: Exchange) -> float:
    """The rate of a bare socket with as many requests at a time as wanted."""
    window, calls = in_flight(job), count(job)
    exchange.run(min(max(WARM_UP, window), calls), window)
    start = perf_counter()
    exchange.run(calls, window)
    return calls / (perf_counter() - start)


class Exchange:
    """A bare socket that sends requests and counts the replies by their bytes.

    All are written beforehand, because a limit does nothing but send. As with our client, a reply
    subject is used again when its answer has come: the server does less for one that it has seen.
    """

    def __init__(self, sock: socket.socket, frames: list[bytes], replies: Sequence[int]) -> None:
        self.sock = sock
        self.frames = memoryview(b"".join(frames))
        self.frame = len(frames[0])
        self.replies = replies  # how long they are, in turn
        self.buffer = bytearray(raw.READ_BUFFER)

    def run(self, calls: int, window: int) -> None:
        """Make the first `calls` requests with at most `window` replies missing."""
        replies, turn = self.replies, len(self.replies)
        sent = done = received = 0
        end = replies[0]
        while done < calls:
            until = min(done + window, calls)
            self.sock.sendall(self.frames[sent * self.frame : until * self.frame])
            sent = until
            received += raw.receive_into(self.sock, self.buffer)
            while received >= end:
                done += 1
                end += replies[done % turn]


def getter(sock: socket.socket, job: Job, window: int) -> Exchange:
    """Direct gets, which ask for one key after the other, at most so many at a time."""
    _subscribe(sock)
    frames = []
    for number in range(count(job)):
        subject = f"$JS.API.DIRECT.GET.{STREAM}.$KV.{BUCKET}.{key(number % KEYS)}".encode()
        frames.append(raw.pub_frame(subject, 0, _reply_to(number % window)))
    # The time stamps in the replies are not all of the same length.
    return Exchange(sock, frames, [_ask(sock, frame) for frame in frames[:KEYS]])


def putter(sock: socket.socket, job: Job, numbers: Sequence[int], window: int) -> Exchange:
    """Puts of those keys, in turn, at most so many at a time."""
    _subscribe(sock)
    frames = []
    for turn, number in enumerate(numbers):
        subject = f"$KV.{BUCKET}.{key(number)}".encode()
        frames.append(raw.pub_frame(subject, job.size, _reply_to(turn % window)))
    ack = b'{"stream":"%b","seq":%d}' % (STREAM.encode(), FIRST_SEQUENCE)
    return Exchange(sock, frames, [raw.msg_size(_reply_to(0), len(ack))])


def _subscribe(sock: socket.socket) -> None:
    sock.sendall(b"UNSUB 1\r\nSUB %b.* 1\r\n" % INBOX)
    raw.flush(sock)


def _reply_to(number: int) -> bytes:
    return b"%b.%09d" % (INBOX, number)


def _ask(sock: socket.socket, frame: bytes) -> int:
    """Make a request and return how long the reply is."""
    sock.sendall(frame)
    received = b""
    while not (match := _REPLY.match(received)):
        received += raw.receive(sock)
    length = match.end() + int(match[1]) + 2
    while len(received) < length:
        received += raw.receive(sock)
    return length
