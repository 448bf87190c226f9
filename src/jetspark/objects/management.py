"""The calls of the context that make, find and delete object stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

from jetspark.errors import (
    BucketExistsError,
    BucketNotFoundError,
    StreamNameInUseError,
    StreamNotFoundError,
)
from jetspark.jetstream import Publisher, StreamInfo
from jetspark.jetstream.checks import check_literal
from jetspark.jetstream.features import configure
from jetspark.jetstream.management import StreamManager

from .config import ObjectStoreConfig, ObjectStoreStatus
from .names import STREAM_PREFIX, check_bucket, stream_name
from .records import bucket_not_found
from .store import ObjectStore

__all__ = ["ObjectStores"]

_ALL_STORES = "$O.*.C.>"


class ObjectStores(StreamManager, Publisher):
    """Creates, finds and deletes object stores.

    A configuration is given as an `ObjectStoreConfig`, as its fields by name, or as both: the
    fields then change those of the object.
    """

    async def create_object_store(
        self, config: ObjectStoreConfig | None = None, **fields: Any
    ) -> ObjectStore:
        """Create an object store; one that exists with the same configuration is returned.

        >>> store = await js.create_object_store(bucket="photos")  # doctest: +SKIP

        Raises `BucketExistsError` if it exists with another one.
        """
        config = configure(ObjectStoreConfig, config, fields)
        return ObjectStore(self, await self._send_object_store(config, "create"))

    async def update_object_store(
        self, config: ObjectStoreConfig | None = None, **fields: Any
    ) -> ObjectStore:
        """Change an object store: the configuration replaces the present one as a whole.

        To change some fields only, start from `status().config`. Raises `BucketNotFoundError` if
        there is none of that name.
        """
        config = configure(ObjectStoreConfig, config, fields)
        return ObjectStore(self, await self._send_object_store(config, "update"))

    async def create_or_update_object_store(
        self, config: ObjectStoreConfig | None = None, **fields: Any
    ) -> ObjectStore:
        """Create an object store, or replace the configuration of the one of that name."""
        config = configure(ObjectStoreConfig, config, fields)
        try:
            info = await self._send_object_store(config, "update")
        except BucketNotFoundError:
            try:
                info = await self._send_object_store(config, "create")
            except BucketExistsError:  # someone else was faster
                info = await self._send_object_store(config, "update")
        return ObjectStore(self, info)

    async def object_store(self, bucket: str, *, publish_prefix: str = "") -> ObjectStore:
        """The object store of that name; raises `BucketNotFoundError` if there is none.

        If the store is imported from another account, whose subjects are mapped to ones with a
        prefix, that is the `publish_prefix`: what is put goes to `<prefix>.$O.<bucket>...`.
        """
        if publish_prefix:
            check_literal("publish_prefix", publish_prefix.removesuffix("."))
        return ObjectStore(self, await self._object_store_info(bucket), publish_prefix)

    async def delete_object_store(self, bucket: str) -> None:
        """Delete an object store with all objects in it."""
        check_bucket(bucket)
        try:
            await self.delete_stream(stream_name(bucket))
        except StreamNotFoundError as error:
            raise bucket_not_found(bucket, error) from error

    async def object_stores(self) -> AsyncIterator[ObjectStoreStatus]:
        """Iterate over the states of the object stores, in the order of their names."""
        async for stream in self.streams(subject=_ALL_STORES):
            if stream.name.startswith(STREAM_PREFIX):
                yield ObjectStoreStatus.from_stream_info(stream.cached_info)

    async def object_store_names(self) -> AsyncIterator[str]:
        """Iterate over the names of the object stores, in order."""
        async for name in self.stream_names(subject=_ALL_STORES):
            if name.startswith(STREAM_PREFIX):
                yield name.removeprefix(STREAM_PREFIX)

    async def _object_store_info(self, bucket: str) -> StreamInfo:
        check_bucket(bucket)
        try:
            return (await self.get_stream(stream_name(bucket))).cached_info
        except StreamNotFoundError as error:
            raise bucket_not_found(bucket, error) from error

    async def _send_object_store(
        self, config: ObjectStoreConfig, action: Literal["create", "update"]
    ) -> StreamInfo:
        config.validate()
        try:
            if action == "create":
                await self.create_stream(config.to_stream())
            else:
                present = await self._object_store_info(config.bucket)
                await self.update_stream(config.changed(present.config))
        except StreamNameInUseError as error:
            raise BucketExistsError(
                f"object store {config.bucket!r} exists with another configuration; use "
                "object_store to open it as it is, or create_or_update_object_store to change it",
                code=error.code,
                err_code=error.err_code,
                description=error.description,
            ) from error
        # The answer to a create does not tell the domain.
        return await self._object_store_info(config.bucket)
