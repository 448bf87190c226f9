"""The options of the `jetstream-objects` source and sink, checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from jetspark.errors import BucketNotFoundError, InvalidOptionError, JetSparkError
from jetspark.objects import ObjectInfo, ObjectStore
from jetspark.objects.names import check_bucket

from .columns import check_columns
from .connection import CONNECTION_OPTIONS, Access, run
from .objects_plan import is_hidden, is_wanted
from .options import Kind, Option, Options, boolean, choice, count, names, parse, text

__all__ = [
    "OBJECT_READ_OPTIONS",
    "OBJECT_WRITE_OPTIONS",
    "PARQUET",
    "ObjectReadSettings",
    "ObjectWriteSettings",
    "open_store",
    "wanted_objects",
]

SOURCE = "jetstream-objects"
OBJECTS, PARQUET = "objects", "parquet"

_COLUMNS = {
    "name": {"string"},
    "content": {"binary", "string"},
    "description": {"string"},
    "metadata": {"map<string,string>"},
    "headers": {"map<string,array<string>>", "map<string,string>"},
}


def _prefix() -> Kind[str]:
    def read(value: str) -> str:
        prefix = value.rstrip("/")
        if not prefix:
            raise ValueError("it is empty")
        return prefix

    return Kind("the beginning of names, up to a slash", read)


_COMMON: tuple[Option[Any], ...] = (
    Option("bucket", text(), "The object store.", required=True),
    Option(
        "layout",
        choice(OBJECTS, PARQUET),
        "`objects`: a row is an object. `parquet`: the objects are Parquet files of rows.",
        OBJECTS,
        "`objects`",
    ),
)
OBJECT_READ_OPTIONS: tuple[Option[Any], ...] = (
    *_COMMON,
    Option(
        "names",
        names("a name, in which `*`, `?` and `[...]` stand for others"),
        "Only objects that are called so.",
        default=(),
    ),
    Option("namePrefix", _prefix(), "Only objects whose names begin with it and a slash."),
    Option(
        "includeContent", boolean(), "If false, no data are read: `content` is null.", True, "true"
    ),
    Option(
        "maxObjectSize",
        count(),
        "Bytes; an object that has more cannot be a row, and is an error.",
        1024**3,
        "1 GiB",
    ),
    Option(
        "maxBytesPerPartition", count(), "At most about so many bytes for a task.", 2**27, "128 MiB"
    ),
    Option("rowsPerBatch", count(), "Rows of an Arrow batch (layout `parquet`).", 10_000, "10000"),
    *CONNECTION_OPTIONS,
)
OBJECT_WRITE_OPTIONS: tuple[Option[Any], ...] = (
    *_COMMON,
    Option("namePrefix", _prefix(), "What the names of the Parquet files begin with, and a slash."),
    Option(
        "maxObjectSize",
        count(),
        "Bytes; about there a new Parquet file is begun.",
        2**26,
        "64 MiB",
    ),
    *CONNECTION_OPTIONS,
)


@dataclass(frozen=True)
class ObjectReadSettings:
    """What was asked of the source; travels to the executors."""

    access: Access
    bucket: str
    parquet: bool
    patterns: tuple[str, ...]
    prefix: str | None
    content: bool
    max_object_size: int
    max_partition_bytes: int
    rows: int

    @classmethod
    def read(cls, given: Mapping[str, str]) -> ObjectReadSettings:
        """Check the options."""
        options = parse(OBJECT_READ_OPTIONS, given, SOURCE)
        _check_bucket(options)
        parquet = options["layout"] == PARQUET
        for name in ("includeContent", "maxObjectSize") if parquet else ("rowsPerBatch",):
            _refuse(options, name)
        return cls(
            access=Access.of(options),
            bucket=options["bucket"],
            parquet=parquet,
            patterns=options["names"],
            prefix=options["namePrefix"],
            content=options["includeContent"],
            max_object_size=options["maxObjectSize"],
            max_partition_bytes=options["maxBytesPerPartition"],
            rows=options["rowsPerBatch"],
        )


@dataclass(frozen=True)
class ObjectWriteSettings:
    """What was asked of the sink; travels to the executors."""

    access: Access
    bucket: str
    prefix: str | None  # of Parquet files
    max_object_size: int

    @classmethod
    def read(cls, given: Mapping[str, str], schema: StructType) -> ObjectWriteSettings:
        """Check options and columns, and that there is such a store."""
        options = parse(OBJECT_WRITE_OPTIONS, given, SOURCE)
        _check_bucket(options)
        if options["layout"] == PARQUET:
            if options["namePrefix"] is None:
                raise InvalidOptionError(
                    f"{SOURCE}: option 'namePrefix' is missing; with layout={PARQUET} it takes "
                    "the beginning of names, up to a slash"
                )
        else:
            for name in ("namePrefix", "maxObjectSize"):
                _refuse(options, name)
            check_columns(schema, _COLUMNS, {"name", "content"}, SOURCE)
        settings = cls(
            access=Access.of(options),
            bucket=options["bucket"],
            prefix=options["namePrefix"],
            max_object_size=options["maxObjectSize"],
        )
        run(open_store(settings.access, settings.bucket))
        return settings


async def open_store(access: Access, bucket: str) -> ObjectStore:
    """The store, or an error that says where it was looked for."""
    try:
        return await (await access.jetstream()).object_store(bucket)
    except BucketNotFoundError as error:
        raise BucketNotFoundError(
            f"there is no object store {bucket!r} on {access.servers}; create it, or correct "
            "option 'bucket'",
            code=error.code,
            err_code=error.err_code,
        ) from None


async def wanted_objects(settings: ObjectReadSettings) -> list[ObjectInfo]:
    """The objects to read, links not among them: what they lead to has a name of its own."""
    store = await open_store(settings.access, settings.bucket)
    return [
        info
        async for info in store.list()
        if info.link is None
        and is_wanted(info.name, settings.patterns, settings.prefix)
        and not (settings.parquet and is_hidden(info.name))
    ]


def _check_bucket(options: Options) -> None:
    try:
        check_bucket(options["bucket"])
    except JetSparkError as error:
        raise InvalidOptionError(f"{SOURCE}: option 'bucket': {error}") from None


def _refuse(options: Options, name: str) -> None:
    if options.given(name):
        raise InvalidOptionError(
            f"{SOURCE}: option {name!r} is not for layout={options['layout']}; leave it out"
        )
