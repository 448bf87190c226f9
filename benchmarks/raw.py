"""Bare blocking sockets: the limits, and the processes that make the load for everybody.

The load and the responder are processes of their own, the same for each contender, so that a
client is measured alone and no client is measured against itself.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

from benchmarks.harness import Job

SOCKET_TIMEOUT = 120.0
CHUNK = 128 * 1024
READ_BUFFER = 1024 * 1024

_CONTEXT = get_context("spawn")


def connect(job: Job) -> socket.socket:
    """A connection that has been through the NATS handshake."""
    sock = socket.create_connection((job.host, job.port), timeout=SOCKET_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = b""
    while not received.endswith(b"\r\n"):
        received += sock.recv(READ_BUFFER)
    sock.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n')
    flush(sock)
    return sock


def flush(sock: socket.socket) -> None:
    """Return when the server has taken everything sent before; throws away what it sent."""
    sock.sendall(b"PING\r\n")
    receive_until(sock, b"PONG\r\n")


def receive_until(sock: socket.socket, end: bytes) -> None:
    """Receive until what has come ends so, and throw it away."""
    received = b""
    while not received.endswith(end):
        received = (received + receive(sock))[-256:]


def receive(sock: socket.socket, size: int = READ_BUFFER) -> bytes:
    """Receive what is there, at most `size` bytes."""
    data = sock.recv(size)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data


def receive_into(sock: socket.socket, buffer: bytearray) -> int:
    """Receive what is there and return how many bytes it was."""
    received = sock.recv_into(buffer)
    if not received:
        raise ConnectionError("the server closed the connection")
    return received


def pub_frame(subject: bytes, size: int, reply: bytes = b"") -> bytes:
    target = subject + b" " + reply if reply else subject
    return b"PUB %b %d\r\n%b\r\n" % (target, size, b"x" * size)


def msg_size(subject: bytes, size: int) -> int:
    """How long a message to subscription 1 is on the wire."""
    return len(b"MSG %b 1 %d\r\n" % (subject, size)) + size + 2


def send_frames(sock: socket.socket, frame: bytes, count: int) -> None:
    """Send the frame `count` times, in large writes."""
    per_chunk = max(CHUNK // len(frame), 1)
    chunk = frame * per_chunk
    for _ in range(count // per_chunk):
        sock.sendall(chunk)
    sock.sendall(frame * (count % per_chunk))


def receive_bytes(sock: socket.socket, count: int, buffer: bytearray) -> None:
    """Receive at least `count` bytes and do nothing with them."""
    while count > 0:
        count -= receive_into(sock, buffer)


@contextmanager
def load(job: Job, subject: bytes) -> Iterator[Callable[[int], None]]:
    """A process that publishes as fast as it can; call the result to have it send so many."""
    with _process(_load, job, subject) as pipe:
        yield pipe.send


@contextmanager
def responder(job: Job, subject: bytes) -> Iterator[None]:
    """A process that answers each request on the subject with a payload of the same size."""
    with _process(_respond, job, subject):
        yield


@contextmanager
def _process(
    target: Callable[[Connection, Job, bytes], None], job: Job, subject: bytes
) -> Iterator[Connection]:
    here, there = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=target, args=(there, job, subject), daemon=True)
    process.start()
    there.close()
    try:
        here.recv()  # it is ready
        yield here
    finally:
        process.terminate()
        process.join()
        here.close()


def _load(pipe: Connection, job: Job, subject: bytes) -> None:
    frame = pub_frame(subject, job.size)
    with connect(job) as sock:
        pipe.send("ready")
        while True:
            try:
                count = pipe.recv()
            except EOFError:
                return  # whoever started it has died
            send_frames(sock, frame, count)


def _respond(pipe: Connection, job: Job, subject: bytes) -> None:
    request = re.compile(rb"MSG \S+ 1 (\S+) \d+\r\n.{%d}\r\n" % job.size, re.DOTALL)
    rest_of_reply = pub_frame(b"", job.size)[len(b"PUB ") :]
    with connect(job) as sock:
        sock.sendall(b"SUB %b 1\r\n" % subject)
        flush(sock)
        pipe.send("ready")
        received = b""
        while data := sock.recv(READ_BUFFER):
            received += data
            replies, end = [], 0
            for match in request.finditer(received):
                replies.append(b"PUB %b%b" % (match[1], rest_of_reply))
                end = match.end()
            received = received[end:]
            sock.sendall(b"".join(replies))
