"""What the object benchmarks share: a store, an object, and bare sockets that move its chunks.

An object of `--messages` chunks of `--size` bytes is put or got at once, 64 MiB unless told
otherwise; the rates are in MiB/s. The store, and for `object_get` the object, are made over a bare
socket, so that every contender finds the same ones. The store is on file, the default of all.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import harness, raw
from benchmarks.harness import Job
from benchmarks.js_common import INBOX, TIMEOUT, api

BUCKET = "BENCH"
STREAM = f"OBJ_{BUCKET}"
OBJECT = "object"
WARM_UP_OBJECT = "warm-up"
NUID = "0" * 22
WARM_UP_NUID = "1" * 22
CHUNK = 128 * 1024
CHUNKS = 512
WARM_UP = 32
"""Chunks of a smaller object that a contender puts or gets before it is timed."""
FIRST_SEQUENCE = 1_000_000_000
"""Where the stream begins, so that the acks of a bare socket all have the same length."""
WINDOW = 64
"""Chunks of a bare socket whose acks have not come; more made no difference."""
MIB = 1024 * 1024
PULL_BYTES = 4 * MIB
PULLS = 2
"""The requests of a bare socket: for so many bytes each, and so many under way, as ours has it."""
TIMES = 16
"""How many times as large the second object of the memory figures is."""


def mib(job: Job) -> float:
    """The size of the object."""
    return job.messages * job.size / MIB


def new_store(job: Job) -> None:
    """Make the store, empty, in the place of the one that may be there."""
    if STREAM in (api(job, "STREAM.NAMES")["streams"] or ()):
        api(job, f"STREAM.DELETE.{STREAM}")
    api(
        job,
        f"STREAM.CREATE.{STREAM}",
        name=STREAM,
        subjects=[f"$O.{BUCKET}.C.>", f"$O.{BUCKET}.M.>"],
        storage="file",
        discard="new",
        allow_rollup_hdrs=True,
        allow_direct=True,
        first_seq=FIRST_SEQUENCE,
    )


def fill_store(job: Job) -> None:
    """Make the store with the object of the job, and a small one to warm up with."""
    new_store(job)
    for name, nuid, chunks in objects(job):
        publish_chunks(job, chunks, nuid)
        publish_meta(job, name, nuid, chunks)


def objects(job: Job) -> list[tuple[str, str, int]]:
    """Name, chunk key and number of chunks of what is in a filled store."""
    return [
        (WARM_UP_OBJECT, WARM_UP_NUID, min(WARM_UP, job.messages)),
        (OBJECT, NUID, job.messages),
    ]


def publish_chunks(job: Job, count: int, nuid: str) -> float:
    """Publish so many chunks with a bare socket; returns the seconds until all acks are there."""
    subject = f"$O.{BUCKET}.C.{nuid}".encode()
    # The payload is written once: chunks are large, and the line before one is not.
    rest = b"x" * job.size + b"\r\n"
    frames = [
        b"PUB %b %b.%09d %d\r\n" % (subject, INBOX, n, job.size) + rest for n in range(WINDOW)
    ]
    ack = b'{"stream":"%b","seq":%d}' % (STREAM.encode(), FIRST_SEQUENCE)
    ack_size = raw.msg_size(b"%b.%09d" % (INBOX, 0), len(ack))
    buffer = bytearray(raw.READ_BUFFER)
    with raw.connect(job) as sock:
        sock.sendall(b"SUB %b.* 1\r\n" % INBOX)
        raw.flush(sock)
        start = perf_counter()
        sent = received = 0
        while received < count * ack_size:
            while sent < min(received // ack_size + WINDOW, count):
                sock.sendall(frames[sent % WINDOW])
                sent += 1
            received += raw.receive_into(sock, buffer)
        return perf_counter() - start


def publish_meta(job: Job, name: str, nuid: str, chunks: int) -> None:
    """Describe chunks that are in the stream as an object."""
    digest = hashlib.sha256()
    for _ in range(chunks):
        digest.update(b"x" * job.size)
    meta = {
        "name": name,
        "bucket": BUCKET,
        "nuid": nuid,
        "size": chunks * job.size,
        "chunks": chunks,
        "mtime": "2026-01-01T00:00:00Z",  # natsrpy and nats-py want one
        "digest": "SHA-256=" + base64.urlsafe_b64encode(digest.digest()).decode(),
        "options": {"max_chunk_size": job.size},
    }
    subject = f"$O.{BUCKET}.M.{base64.urlsafe_b64encode(name.encode()).decode()}".encode()
    header = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
    body = header + json.dumps(meta).encode()
    with raw.connect(job) as sock:
        sock.sendall(b"SUB %b 1\r\n" % INBOX)
        sizes = (subject, INBOX, len(header), len(body))
        sock.sendall(b"HPUB %b %b %d %d\r\n" % sizes + body + b"\r\n")
        raw.receive_until(sock, b"}\r\n")


def check_put(job: Job) -> None:
    """Raise unless the last object of that name is complete in the store."""
    enc = base64.urlsafe_b64encode(OBJECT.encode()).decode()
    found = api(job, f"STREAM.MSG.GET.{STREAM}", last_by_subj=f"$O.{BUCKET}.M.{enc}")
    meta = json.loads(base64.b64decode(found["message"]["data"]))
    filters = {"subjects_filter": f"$O.{BUCKET}.C.{meta['nuid']}"}
    stored = api(job, f"STREAM.INFO.{STREAM}", **filters)["state"]["subjects"]
    if meta["size"] != job.messages * job.size or list(stored.values()) != [meta["chunks"]]:
        raise RuntimeError(f"the object was put as {meta} with chunks {stored}")


async def measure_put(job: Job, put: Callable[[str, int], Awaitable[object]]) -> float:
    """The rate of `put`, which puts so many chunks under a name."""
    new_store(job)
    await put(WARM_UP_OBJECT, min(WARM_UP, job.messages))
    start = perf_counter()
    await put(OBJECT, job.messages)
    elapsed = perf_counter() - start
    check_put(job)
    return mib(job) / elapsed


async def measure_get(job: Job, get: Callable[[str], Awaitable[int]]) -> float:
    """The rate of `get`, which reads an object of the filled store and returns its size."""
    elapsed = 0.0
    for name, _, chunks in objects(job):
        start = perf_counter()
        received = await get(name)
        elapsed = perf_counter() - start
        if received != chunks * job.size:
            raise RuntimeError(f"{chunks} chunks of {job.size} bytes came as {received} bytes")
    return mib(job) / elapsed


def drain_chunks(job: Job, nuid: str, count: int) -> float:
    """Pull the chunks of an object with a bare socket; returns the seconds."""
    name = secrets.token_hex(4)
    subject = f"$O.{BUCKET}.C.{nuid}"
    config = {"name": name, "ack_policy": "none", "filter_subject": subject, "mem_storage": True}
    batch = max(PULL_BYTES // job.size, 1)
    requests = pull_requests(name, count, batch)
    sizes = batch_sizes(job, name, subject, count, batch)
    buffer = bytearray(raw.READ_BUFFER)
    with raw.connect(job) as sock:
        sock.sendall(b"SUB %b 1\r\n" % INBOX)
        raw.flush(sock)
        start = perf_counter()
        api(job, f"CONSUMER.CREATE.{STREAM}.{name}", stream_name=STREAM, config=config)
        sock.sendall(b"".join(requests[:PULLS]))
        missing = 0
        for number, size in enumerate(sizes, PULLS):
            missing += size
            while missing > 0:
                missing -= raw.receive_into(sock, buffer)
            sock.sendall(b"".join(requests[number : number + 1]))
        return perf_counter() - start


def pull_requests(name: str, count: int, batch: int) -> list[bytes]:
    """The frames that ask a consumer for `count` chunks."""
    target = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}".encode()
    frames = []
    for first in range(0, count, batch):
        fields = {"batch": min(batch, count - first), "expires": int(TIMEOUT * 1e9)}
        body = json.dumps(fields).encode()
        frames.append(b"PUB %b %b %d\r\n%b\r\n" % (target, INBOX, len(body), body))
    return frames


def batch_sizes(job: Job, name: str, subject: str, count: int, batch: int) -> list[int]:
    """How many bytes the server sends for each of those requests."""
    fixed = f"$JS.ACK.{STREAM}.{name}.1.{FIRST_SEQUENCE}..{10**18}.".encode()
    length = len(b"MSG %b 1 %b %d\r\n" % (subject.encode(), fixed, job.size)) + job.size + 2
    # Only the number of the delivery and the count of chunks to come have not always as many
    # digits.
    sizes = [length + len(str(number)) + len(str(count - number)) for number in range(1, count + 1)]
    return [sum(sizes[first : first + batch]) for first in range(0, count, batch)]


def memory(job: Job, contender: Callable[[Job], Awaitable[Any]]) -> dict[str, int]:
    """The peaks of fresh processes of ours that move the object, and one many times as large."""
    peak = harness.in_fresh_process(peak_memory, job, contender)
    job = replace(job, messages=TIMES * job.messages)
    fill_store(job)
    more = harness.in_fresh_process(peak_memory, job, contender)
    return {"peak_bytes": peak, f"peak_bytes_{TIMES}x": more, "difference_bytes": more - peak}


def peak_memory(job: Job, contender: Callable[[Job], Awaitable[Any]]) -> int:
    """The most memory that this process, which must be a fresh one, has had in the end."""

    async def turn() -> None:
        await asyncio.wait_for(contender(job), harness.TURN_TIMEOUT)

    asyncio.run(turn())
    for line in Path("/proc/self/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == "VmHWM":
            return int(value.split()[0]) * 1024
    raise RuntimeError("the system does not tell the peak of a process's memory")
