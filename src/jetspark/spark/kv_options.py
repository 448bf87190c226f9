"""The options of the `jetstream-kv` source, checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jetspark.errors import BucketNotFoundError, InvalidOptionError, JetSparkError
from jetspark.kv import KeyValue
from jetspark.kv.names import check_bucket, check_filter, merge_filters, stream_of

from .connection import CONNECTION_OPTIONS, Access, run
from .options import Kind, Option, Options, boolean, count, duration, names, parse, text
from .stream_options import STREAM_READ_OPTIONS, ReadSettings

__all__ = [
    "KV_BATCH_OPTIONS",
    "KV_READ_OPTIONS",
    "KV_STREAM_READ_OPTIONS",
    "KvReadSettings",
    "changes_settings",
    "check_kv_options",
    "open_bucket",
]

SOURCE = "jetstream-kv"


def _starting() -> Kind[str | int]:
    def read(value: str) -> str | int:
        if value.lower() in ("earliest", "latest"):
            return value.lower()
        return revision.read(value)

    revision = count()
    return Kind("'earliest' or 'latest', or a revision of at least 1", read)


KV_READ_OPTIONS: tuple[Option[Any], ...] = (
    Option("bucket", text(), "What to read.", required=True),
    Option(
        "keys",
        names("a key, in which whole tokens may be `*` and the last one `>`"),
        "Only these; the server sorts out the others.",
        default=(),
    ),
    Option("rowsPerBatch", count(), "Rows of an Arrow batch.", 10_000, "10000"),
    Option(
        "stallTimeout",
        duration(),
        "How long a task waits for entries that must be there.",
        60.0,
        "60s",
    ),
    *CONNECTION_OPTIONS,
)
KV_BATCH_OPTIONS: tuple[Option[Any], ...] = (
    Option(
        "asOfRevision",
        count(),
        "Read the bucket as it was then: of each key the last entry up to this revision. The "
        "bucket needs enough `history` for that.",
    ),
    Option(
        "includeDeletes",
        boolean(),
        "Whether keys that were deleted are rows, too (`operation` DEL or PURGE).",
        False,
        "false",
    ),
    Option(
        "failOnDataLoss",
        boolean(),
        "Whether to fail when `asOfRevision` cannot be answered for a key, because its entries up "
        "to there may have been replaced; else it is a warning.",
        True,
        "true",
    ),
)
KV_STREAM_READ_OPTIONS: tuple[Option[Any], ...] = (
    Option(
        "startingOffsets",
        _starting(),
        "Where to begin, if there is no checkpoint: with all that the bucket has, after it, or "
        "with a revision.",
        "latest",
        "`latest`",
    ),
    Option(
        "minPartitions", count(), "At least so many tasks.", shown_default="as many as make sense"
    ),
    Option("maxRecordsPerPartition", count(), "At most so many revisions for a task."),
    *STREAM_READ_OPTIONS,
)


@dataclass(frozen=True)
class KvReadSettings:
    """What was asked of the source; travels to the executors."""

    access: Access
    bucket: str
    filters: tuple[str, ...]
    as_of: int | None
    deletes: bool
    rows: int
    fail_on_data_loss: bool
    stall_timeout: float

    @classmethod
    def batch(cls, given: Mapping[str, str]) -> KvReadSettings:
        """For one read of what is there."""
        _refuse(KV_STREAM_READ_OPTIONS, given, "batch")
        options = parse((*KV_READ_OPTIONS, *KV_BATCH_OPTIONS), given, SOURCE)
        return cls(
            access=Access.of(options),
            bucket=options["bucket"],
            filters=_checked_filters(options),
            as_of=options["asOfRevision"],
            deletes=options["includeDeletes"],
            rows=options["rowsPerBatch"],
            fail_on_data_loss=options["failOnDataLoss"],
            stall_timeout=options["stallTimeout"],
        )

    def subjects(self, prefix: str) -> tuple[str, ...]:
        """Those of the keys; none are all."""
        return tuple(prefix + pattern for pattern in self.filters)


def changes_settings(given: Mapping[str, str]) -> tuple[ReadSettings, str]:
    """How the changes of a bucket are read as a stream, and what its subjects have before a key."""
    _refuse(KV_BATCH_OPTIONS, given, "streaming")
    options = parse((*KV_READ_OPTIONS, *KV_STREAM_READ_OPTIONS), given, SOURCE)
    filters, bucket, access = _checked_filters(options), options["bucket"], Access.of(options)

    async def find_prefix() -> str:
        return (await open_bucket(access, bucket))._prefix

    prefix = run(find_prefix())
    passed = {
        name: value for name, value in given.items() if name.lower() not in ("bucket", "keys")
    }
    passed["stream"] = stream_of(bucket)
    if filters:
        passed["subjects"] = ",".join(prefix + pattern for pattern in filters)
    return ReadSettings.streaming(passed), prefix


async def open_bucket(access: Access, bucket: str) -> KeyValue[bytes]:
    """The bucket, or an error that says where it was looked for."""
    try:
        return await (await access.jetstream()).key_value(bucket)
    except BucketNotFoundError as error:
        raise BucketNotFoundError(
            f"there is no bucket {bucket!r} on {access.servers}; create it, or correct option "
            "'bucket'",
            code=error.code,
            err_code=error.err_code,
        ) from None


def check_kv_options(given: Mapping[str, str]) -> None:
    """Read the options as far as that is possible without knowing what they are for."""
    table = (*KV_READ_OPTIONS, *KV_BATCH_OPTIONS, *KV_STREAM_READ_OPTIONS)
    _checked_filters(parse(table, given, SOURCE))


def _refuse(other: tuple[Option[Any], ...], given: Mapping[str, str], kind: str) -> None:
    lower = {name.lower() for name in given}
    for option in other:
        if option.name.lower() in lower:
            raise InvalidOptionError(
                f"{SOURCE}: option {option.name!r} is not for {kind} reads; leave it out"
            )


def _checked_filters(options: Options) -> tuple[str, ...]:
    """The filters for keys, none of which contains another."""
    option, bucket = "bucket", options["bucket"]
    try:
        check_bucket(bucket)
        option = "keys"
        patterns = [check_filter(pattern, bucket) for pattern in options["keys"]]
        return tuple(merge_filters(patterns, bucket))
    except JetSparkError as error:
        raise InvalidOptionError(f"{SOURCE}: option {option!r}: {error}") from None
