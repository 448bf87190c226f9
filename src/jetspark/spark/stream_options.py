"""The options of the `jetstream` source, checked together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jetspark.errors import InvalidOptionError, JetSparkError
from jetspark.jetstream.names import check_consumer_name, check_stream_name
from jetspark.protocol import check_subscribe_subject, subjects_collide

from .connection import CONNECTION_OPTIONS, Access
from .options import (
    Option,
    Options,
    boolean,
    count,
    duration,
    names,
    offsets,
    parse,
    text,
    timestamp,
)
from .range_reader import ReadPlan

__all__ = [
    "BATCH_OPTIONS",
    "QUEUE_OPTIONS",
    "READ_OPTIONS",
    "STREAM_READ_OPTIONS",
    "ReadSettings",
    "check_options",
]

SOURCE = "jetstream"
Offset = str | int

READ_OPTIONS: tuple[Option[Any], ...] = (
    Option("stream", names("the name of a stream"), "What to read; or `streamPattern`."),
    Option(
        "streamPattern",
        text(),
        "A regular expression: all streams whose whole name matches it. New ones join a running "
        "query.",
    ),
    Option(
        "subjects",
        names("a subject, which may have wildcards"),
        "Only these; the server sorts out the others.",
        default=(),
    ),
    Option(
        "startingOffsets",
        offsets("earliest", least=1),
        "Where to begin: with `earliest`, after `latest`, or with a sequence. In a streaming query "
        "it counts only when that begins without a checkpoint.",
        shown_default="`earliest` (batch), `latest` (streaming)",
    ),
    Option("startingTimestamp", timestamp(), "Begin with the first message at or after it."),
    Option("includeHeaders", boolean(), "Whether there is a column `headers`.", True, "true"),
    Option(
        "includeData", boolean(), "If false, payloads are not read: `data` is null.", True, "true"
    ),
    Option(
        "failOnDataLoss",
        boolean(),
        "Whether to fail when messages were removed before they were read; else it is a warning.",
        True,
        "true",
    ),
    Option(
        "minPartitions", count(), "At least so many tasks.", shown_default="as many as make sense"
    ),
    Option("maxRecordsPerPartition", count(), "At most so many sequences for a task."),
    Option("rowsPerBatch", count(), "Rows of an Arrow batch.", 10_000, "10000"),
    Option(
        "stallTimeout",
        duration(),
        "How long a task waits for messages that must be there.",
        60.0,
        "60s",
    ),
    *CONNECTION_OPTIONS,
)
BATCH_OPTIONS: tuple[Option[Any], ...] = (
    Option(
        "endingOffsets",
        offsets("latest", least=0),
        "Where to end: with `latest`, or with a sequence, which is included.",
        default="latest",
        shown_default="`latest`",
    ),
    Option("endingTimestamp", timestamp(), "End before the first message at or after it."),
)
QUEUE_OPTIONS: tuple[Option[Any], ...] = (
    Option(
        "consumer",
        text(),
        "For work-queue and interest streams: a durable pull consumer for this query alone, which "
        "acknowledges what the query has committed. It is created if it is not there, for "
        "`subjects`.",
    ),
)
STREAM_READ_OPTIONS: tuple[Option[Any], ...] = (
    Option("maxOffsetsPerTrigger", count(), "At most so many sequences in a batch."),
    Option("maxBytesPerTrigger", count(), "At most about so many bytes in a batch."),
    Option("minOffsetsPerTrigger", count(), "Wait for so many sequences before a batch."),
    Option("maxTriggerDelay", duration(), "But no longer than this.", 15 * 60.0, "15m"),
)


@dataclass(frozen=True)
class ReadSettings:
    """What was asked of the source; travels to the executors."""

    access: Access
    streams: tuple[str, ...]
    pattern: str | None
    starting: Offset | Mapping[str, Offset]
    starting_time: datetime | None
    ending: Offset | Mapping[str, Offset]
    ending_time: datetime | None
    plan: ReadPlan
    headers: bool
    min_partitions: int | None
    max_records: int | None
    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay: float = 15 * 60.0
    consumer: str | None = None

    @classmethod
    def batch(cls, given: Mapping[str, str]) -> ReadSettings:
        """For one read of what is there."""
        return cls._read(given, streaming=False)

    @classmethod
    def streaming(cls, given: Mapping[str, str]) -> ReadSettings:
        """For a query that goes on."""
        return cls._read(given, streaming=True)

    @classmethod
    def _read(cls, given: Mapping[str, str], *, streaming: bool) -> ReadSettings:
        own, other = BATCH_OPTIONS, (*STREAM_READ_OPTIONS, *QUEUE_OPTIONS)
        if streaming:
            own, other = other, own
        lower = {name.lower() for name in given}
        for option in other:
            if option.name.lower() in lower:
                kind = "streaming" if streaming else "batch"
                raise InvalidOptionError(
                    f"{SOURCE}: option {option.name!r} is not for {kind} reads; leave it out"
                )
        options = parse((*READ_OPTIONS, *own), given, SOURCE)
        _check_together(options)
        settings: dict[str, Any] = {}
        if streaming:
            settings = {
                "max_offsets": options["maxOffsetsPerTrigger"],
                "max_bytes": options["maxBytesPerTrigger"],
                "min_offsets": options["minOffsetsPerTrigger"],
                "max_delay": options["maxTriggerDelay"],
                "consumer": options["consumer"],
            }
        starting = options["startingOffsets"]
        return cls(
            access=Access.of(options),
            streams=options["stream"] or (),
            pattern=options["streamPattern"],
            starting=starting or ("latest" if streaming else "earliest"),
            starting_time=options["startingTimestamp"],
            ending="latest" if streaming else options["endingOffsets"],
            ending_time=None if streaming else options["endingTimestamp"],
            plan=ReadPlan(
                subjects=options["subjects"],
                headers_only=not options["includeData"],
                rows=options["rowsPerBatch"],
                fail_on_data_loss=options["failOnDataLoss"],
                stall_timeout=options["stallTimeout"],
            ),
            headers=options["includeHeaders"],
            min_partitions=options["minPartitions"],
            max_records=options["maxRecordsPerPartition"],
            **settings,
        )


def check_options(given: Mapping[str, str]) -> Options:
    """Read the options as far as that is possible without knowing what they are for."""
    options = parse(
        (*READ_OPTIONS, *BATCH_OPTIONS, *STREAM_READ_OPTIONS, *QUEUE_OPTIONS), given, SOURCE
    )
    _check_together(options)
    return options


def _check_together(options: Options) -> None:
    """Refuse what makes no sense together, or names what cannot be."""
    if (options["stream"] is None) == (options["streamPattern"] is None):
        raise InvalidOptionError(
            f"{SOURCE}: set either option 'stream' (the names of streams) or 'streamPattern' "
            "(a regular expression)"
        )
    for first, second in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
    ):
        if first in options and options.given(first) and options.given(second):
            raise InvalidOptionError(
                f"{SOURCE}: options {first!r} and {second!r} exclude each other"
            )
    if options.get("consumer") is not None:
        for other in ("streamPattern", "startingOffsets", "startingTimestamp"):
            if options.given(other):
                raise InvalidOptionError(
                    f"{SOURCE}: options 'consumer' and {other!r} exclude each other: the consumer "
                    "knows where to begin in its stream"
                )
    try:
        if options.get("consumer") is not None:
            option, value = "consumer", options["consumer"]
            check_consumer_name(value)
        for name in options["stream"] or ():
            option, value = "stream", name
            check_stream_name(name)
        for subject in options["subjects"]:
            option, value = "subjects", subject
            check_subscribe_subject(subject)
        if options["streamPattern"] is not None:
            option, value = "streamPattern", options["streamPattern"]
            re.compile(value)
    except (JetSparkError, re.error) as error:
        raise InvalidOptionError(f"{SOURCE}: option {option!r}: {value!r}: {error}") from None
    subjects = options["subjects"]
    for number, subject in enumerate(subjects):
        for other in subjects[number + 1 :]:
            if subjects_collide(subject, other):
                raise InvalidOptionError(
                    f"{SOURCE}: option 'subjects': {subject!r} and {other!r} overlap; leave one out"
                )
    for side in ("startingOffsets", "endingOffsets"):
        offset = options.get(side)
        if isinstance(offset, dict) and options["stream"] is not None:
            missing = sorted(set(options["stream"]) - set(offset))
            surplus = sorted(set(offset) - set(options["stream"]))
            if missing or surplus:
                raise InvalidOptionError(
                    f"{SOURCE}: option {side!r} must name the streams of option 'stream'"
                    + (f"; missing: {', '.join(missing)}" if missing else "")
                    + (f"; unknown: {', '.join(surplus)}" if surplus else "")
                )
