"""The command line: `python -m benchmarks NAME [--messages N] [--size B] [--json]`."""

from __future__ import annotations

import argparse
import json

from benchmarks import harness
from benchmarks.harness import MIN_ROUNDS


def main() -> None:
    benchmarks = harness.discover()
    args = parse_arguments(benchmarks)
    if args.list:
        for name, benchmark in benchmarks.items():
            print(f"{name:<18} {benchmark.title}")
        return
    benchmark = benchmarks[args.name]
    report = harness.run(
        args.name,
        benchmark,
        messages=args.messages or benchmark.messages,
        size=benchmark.size if args.size is None else args.size,
        in_flight=args.in_flight,
        rounds=args.rounds or benchmark.rounds,
        server_cores=args.server_cores,
        only=args.only,
    )
    print(harness.table(report))
    if args.json:
        print(json.dumps(harness.summary(report)))


def parse_arguments(benchmarks: dict[str, harness.Benchmark]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=benchmarks, metavar="NAME", help="see --list")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and leave")
    parser.add_argument("--messages", type=int, help="messages a round")
    parser.add_argument("--size", type=int, help="bytes of payload")
    parser.add_argument("--rounds", type=int, help="at least 3")
    parser.add_argument("--in-flight", type=int, default=100, help="concurrent requests")
    parser.add_argument("--server-cores", type=int, help="for the nats-server; default: all")
    parser.add_argument("--only", action="append", help="this contender (may be repeated)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    args = parser.parse_args()
    if args.name is None and not args.list:
        parser.error(f"give a NAME, one of: {', '.join(benchmarks)}")
    if args.rounds is not None and args.rounds < MIN_ROUNDS:
        parser.error(f"--rounds must be at least {MIN_ROUNDS}: fewer have no honest median")
    for option, least in (("messages", 1), ("size", 0), ("in_flight", 1), ("server_cores", 1)):
        value = getattr(args, option)
        if value is not None and value < least:
            parser.error(f"--{option.replace('_', '-')} must be at least {least}")
    known = benchmarks[args.name].contenders if args.name else {}
    for contender in args.only or ():
        if contender not in known:
            parser.error(f"--only {contender}: {args.name} has {', '.join(known)}")
    return args


if __name__ == "__main__":
    main()
