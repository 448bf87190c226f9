"""Fuzzes the protocol parser: whatever a server sends is parsed or raises `ProtocolError`.

For every input these must hold:

- no other exception, and no endless loop;
- the parser holds no more bytes than its limits allow;
- the outcome is the same however the bytes are cut into reads;
- the headers of every message can be read.

With atheris installed the inputs are guided by coverage; without it they are random changes of
valid streams, the same ones for the same seed.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import time
from collections.abc import Iterable

from jetspark.errors import ProtocolError
from jetspark.protocol import Event, MessageBatch, Parser, ServerInfo, parse_headers, parse_status

# Small, so that short inputs reach them.
MAX_LINE = 256
MAX_MESSAGE = 512

HANG_SECONDS = 60

VALID = [
    b"PING\r\n",
    b"PONG\r\n",
    b"+OK\r\n",
    b"-ERR 'Stale Connection'\r\n",
    b'INFO {"server_id":"A","version":"2.15.1","headers":true,"max_payload":1048576} \r\n',
    b'INFO {"connect_urls":["10.0.0.1:4222"],"ldm":true,"future":[{"a":null}]}\r\n',
    b"MSG a 1 0\r\n\r\n",
    b"MSG a.b 1 5\r\nhello\r\n",
    b"MSG a.b 2 5\r\nhello\r\n",
    b"MSG a.b 1 _INBOX.x.1 12\r\nMSG a 1 0\r\n\r\n\r\n",
    b"HMSG a 1 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG a 1 r 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
    b"HMSG a 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
    b"MSG a 1 300\r\n" + b"x" * 300 + b"\r\n",
]
FRAGMENTS = (
    b"\r|\n|\r\n| |\t|0|1|9|-|MSG|HMSG|msg|INFO|{|}|[|\"|:|'|NATS/1.0|\x00|\xff|999999999".split(
        b"|"
    )
)


def check(wire: bytes, cuts: Iterable[int]) -> bool:
    """Assert what must hold for these bytes; whether all of them were parsed."""
    whole = outcome([wire])
    places = sorted({cut % (len(wire) + 1) for cut in cuts})
    reads = [wire[i:j] for i, j in zip([0, *places], [*places, len(wire)], strict=True)]
    assert outcome(reads) == whole, "the outcome depends on how the stream is cut"
    assert outcome(wire[i : i + 1] for i in range(len(wire))) == whole, "bytes parse differently"
    return not isinstance(whole, str)


def outcome(reads: Iterable[bytes]) -> list[object] | str:
    """The events with messages one by one, or the error as text."""
    parser = Parser(max_line=MAX_LINE, max_message=MAX_MESSAGE)
    result: list[object] = []
    try:
        for read in reads:
            for event in parser.feed(read):
                result += flat(event)
            assert parser.buffered <= max(MAX_LINE, MAX_MESSAGE + 2), "too much is held"
    except ProtocolError as error:
        assert parser.buffered == 0, "something is held after an error"
        return str(error)
    return [*result, parser.buffered]


def flat(event: Event) -> list[object]:
    if isinstance(event, ServerInfo):
        assert len(event.version_tuple) == 3
    if not isinstance(event, MessageBatch):
        return [event]
    assert event.frames, "an empty batch"
    smallest = sum(len(payload) + len(header or b"") for *_, header, payload in event.frames)
    assert event.size > smallest, "a batch counts less than its bytes"
    for _, _, header, _ in event.frames:
        if header is not None:
            headers = parse_headers(header)
            assert parse_status(header) == (headers.status, headers.description)
    return [(event.sid, *frame) for frame in event.frames]


# -- inputs -----------------------------------------------------------------------------------


def one_input(data: bytes) -> None:
    """The entry for atheris: some bytes say where to cut, the others are the stream."""
    count = data[0] % 8 if data else 0
    check(data[1 + count :], data[1 : 1 + count])


def random_input(rng: random.Random) -> tuple[bytes, list[int]]:
    """A stream, often valid for a good part, and places to cut it."""
    wire = bytearray().join(rng.choices(VALID, k=rng.randrange(1, 8)))
    for _ in range(rng.choice([0, 1, 1, 2, 3, 10])):
        start = rng.randrange(len(wire) + 1)
        end = start + rng.choice([0, 0, 1, 1, 2, 5])
        kind = rng.randrange(4)
        if kind == 0:
            wire[start:end] = rng.choice(FRAGMENTS)
        elif kind == 1:
            wire[start:end] = rng.randbytes(rng.randrange(4))
        elif kind == 2:
            wire[start:end] = rng.choice(VALID)
        elif start < len(wire):
            wire[start] ^= 1 << rng.randrange(8)
    return bytes(wire), [rng.randrange(1 << 16) for _ in range(rng.randrange(8))]


def run_random(seconds: float, seed: int) -> int:
    """Check random inputs for so long; the exit code."""
    rng = random.Random(seed)
    inputs = parsed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if inputs % 1000 == 0:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        wire, cuts = random_input(rng)
        try:
            parsed += check(wire, cuts)
        except Exception:
            print(f"failed on input {inputs} of seed {seed}: check({wire!r}, {cuts})")
            raise
        inputs += 1
    faulthandler.cancel_dump_traceback_later()
    print(f"{inputs} inputs of seed {seed}: {parsed} parsed, {inputs - parsed} refused")
    return 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--seconds", type=int, default=60, help="how long to run")
    arguments.add_argument("--seed", type=int, default=1, help="what the randomness starts from")
    options = arguments.parse_args()
    try:
        import atheris
    except ImportError:
        return run_random(options.seconds, options.seed)
    atheris.instrument_all()
    limits = [f"-max_total_time={options.seconds}", f"-seed={options.seed}"]
    atheris.Setup([sys.argv[0], *limits], one_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
