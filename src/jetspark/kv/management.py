"""The calls of the context that manage buckets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, TypeVar, overload

from jetspark.errors import (
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    InvalidOptionError,
    StreamNameInUseError,
    StreamNotFoundError,
)
from jetspark.jetstream import DiscardPolicy, Publisher, Stream, StreamConfig, StreamSource
from jetspark.jetstream.features import configure, not_supported
from jetspark.jetstream.management import StreamManager

from .bucket import KeyValue
from .codecs import KeyCodec, ValueCodec, check_codecs
from .config import KeyValueConfig
from .failures import adapted, bucket_not_found
from .names import STREAM_PREFIX, SUBJECT_PREFIX, stream_of
from .status import KeyValueStatus

__all__ = ["KeyValues"]

T = TypeVar("T")

_ALL_BUCKETS = f"{SUBJECT_PREFIX}*.>"


class KeyValues(StreamManager, Publisher):
    """Creates, finds and deletes buckets of keys and values.

    A configuration is given as a `KeyValueConfig`, as its fields by name, or as both: the fields
    then change those of the object. Values are bytes, unless a `codec` says otherwise (`JSONCodec`
    or any object with `encode` and `decode`); a `key_codec` says how keys are stored.
    """

    @overload
    async def create_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[bytes]: ...

    @overload
    async def create_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[T],
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[T]: ...

    async def create_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[Any] | None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[Any]:
        """Create a bucket; one that exists with the same configuration is returned.

        Raises `BucketExistsError` if it exists with another one.

        >>> await js.create_key_value(bucket="settings", history=5)  # doctest: +SKIP
        """
        check_codecs(codec, key_codec)
        config = configure(KeyValueConfig, config, fields)
        return KeyValue(self, await self._send_bucket(config, "create"), codec, key_codec)

    @overload
    async def update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[bytes]: ...

    @overload
    async def update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[T],
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[T]: ...

    async def update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[Any] | None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[Any]:
        """Change a bucket: the configuration replaces the present one as a whole.

        To change some fields only, start from `status().config`. Raises `BucketNotFoundError` if
        there is none of that name.
        """
        check_codecs(codec, key_codec)
        config = configure(KeyValueConfig, config, fields)
        return KeyValue(self, await self._send_bucket(config, "update"), codec, key_codec)

    @overload
    async def create_or_update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[bytes]: ...

    @overload
    async def create_or_update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[T],
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[T]: ...

    async def create_or_update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[Any] | None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[Any]:
        """Create a bucket, or replace the configuration of the one of that name."""
        check_codecs(codec, key_codec)
        config = configure(KeyValueConfig, config, fields)
        try:
            stream = await self._send_bucket(config, "update")
        except BucketNotFoundError:
            try:
                stream = await self._send_bucket(config, "create")
            except BucketExistsError:  # someone else was faster
                stream = await self._send_bucket(config, "update")
        return KeyValue(self, stream, codec, key_codec)

    @overload
    async def key_value(
        self, bucket: str, *, codec: None = None, key_codec: KeyCodec | None = None
    ) -> KeyValue[bytes]: ...

    @overload
    async def key_value(
        self, bucket: str, *, codec: ValueCodec[T], key_codec: KeyCodec | None = None
    ) -> KeyValue[T]: ...

    async def key_value(
        self,
        bucket: str,
        *,
        codec: ValueCodec[Any] | None = None,
        key_codec: KeyCodec | None = None,
    ) -> KeyValue[Any]:
        """The bucket of that name.

        Raises `BucketNotFoundError` if there is none, and `BadBucketError` if the stream that has
        its name is no bucket.
        """
        check_codecs(codec, key_codec)
        try:
            stream = await self.get_stream(stream_of(bucket))
        except StreamNotFoundError as error:
            raise bucket_not_found(bucket, error) from error
        return KeyValue(self, _bucket_config(stream), codec, key_codec)

    async def delete_key_value(self, bucket: str) -> None:
        """Delete a bucket with all that is in it."""
        try:
            await self.delete_stream(stream_of(bucket))
        except StreamNotFoundError as error:
            raise bucket_not_found(bucket, error) from error

    async def key_values(self) -> AsyncIterator[KeyValueStatus]:
        """Iterate over the buckets in the order of their names; mirrors are not among them."""
        async for stream in self.streams(subject=_ALL_BUCKETS):
            if stream.name.startswith(STREAM_PREFIX):
                yield KeyValueStatus.from_stream_info(stream.cached_info)

    async def key_value_names(self) -> AsyncIterator[str]:
        """Iterate over the names of the buckets in order; mirrors are not among them."""
        async for name in self.stream_names(subject=_ALL_BUCKETS):
            if name.startswith(STREAM_PREFIX):
                yield name.removeprefix(STREAM_PREFIX)

    async def _send_bucket(
        self, config: KeyValueConfig, action: Literal["create", "update"]
    ) -> StreamConfig:
        config.validate()
        if config.limit_marker_ttl:
            await self._require_markers(config.bucket)
        if action == "create":
            for source in (config.mirror, *config.sources):
                if source is not None and not source.subject_transforms:
                    await self._require_origin(config.bucket, source)
        try:
            if action == "create":
                stream = await self.create_stream(config.to_stream())
            else:
                present = await self.get_stream(stream_of(config.bucket))
                stream = await self.update_stream(config.changed(_bucket_config(present)))
        except StreamNotFoundError as error:
            raise bucket_not_found(config.bucket, error) from error
        except StreamNameInUseError as error:
            return await self._as_it_is(config, error)
        return stream.config

    async def _as_it_is(self, config: KeyValueConfig, error: StreamNameInUseError) -> StreamConfig:
        """The bucket that exists, if it is the one that is wanted.

        Its stream may differ in what a bucket does not decide about, or in what older clients left
        out, which is then mended.
        """
        present = _bucket_config(await self.get_stream(stream_of(config.bucket)))
        if not config.describes(present):
            raise adapted(
                BucketExistsError,
                f"bucket {config.bucket!r} exists with another configuration; use key_value to "
                "open it as it is, or create_or_update_key_value to change it",
                error,
            ) from error
        mended = present.replace(discard=DiscardPolicy.NEW, allow_direct=True)
        return present if mended == present else (await self.update_stream(mended)).config

    async def _require_origin(self, bucket: str, source: StreamSource) -> None:
        """Refuse a mirror as the origin: its keys have the subjects of another bucket."""
        if source.external is not None or source.domain:
            return
        name = source.name.removeprefix(STREAM_PREFIX)
        try:
            origin = (await self.get_stream(STREAM_PREFIX + name)).config.mirror
        except StreamNotFoundError:  # it may come later
            return
        if origin is not None:
            raise InvalidOptionError(
                f"bucket {bucket!r}: bucket {name!r} is a mirror; take its origin "
                f"{origin.name.removeprefix(STREAM_PREFIX)!r} instead"
            )

    async def _require_markers(self, bucket: str) -> None:
        """Refuse what an old server would ignore; it is that of the bucket which counts."""
        if (await self.account_info()).api.level < 1:
            what = "limit_marker_ttl needs a server of version 2.11"
            raise not_supported(self.api, f"bucket {bucket!r}", what)


def _bucket_config(stream: Stream) -> StreamConfig:
    """The configuration of the stream of a bucket; raises `BadBucketError` if it is none."""
    config = stream.config
    if config.max_msgs_per_subject < 1:
        raise BadBucketError(
            f"bucket {config.name.removeprefix(STREAM_PREFIX)!r}: the stream {config.name!r} is no "
            "bucket: it does not limit max_msgs_per_subject"
        )
    return config
