"""A bucket: its keys, read and written.

Reading is in the base class. Writing a value is a publish, with hardly anything around it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from jetspark.errors import (
    ExpectedSequenceNotReadyError,
    InvalidAckError,
    InvalidKeyError,
    InvalidOptionError,
    InvalidSubjectError,
    JetSparkError,
    KeyExistsError,
    MessageNotFoundError,
    MessageTTLDisabledError,
    NoStreamResponseError,
    PermissionsError,
    RevisionMismatchError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from jetspark.jetstream import PublishAck, StoredMessage, StreamConfig
from jetspark.jetstream.api import RETRY_DELAY
from jetspark.jetstream.awaited_acks import StrayAnswer
from jetspark.jetstream.checks import UINT64, check_range
from jetspark.jetstream.codec import to_timedelta
from jetspark.jetstream.publish_ack import decode_publish_ack
from jetspark.jetstream.publish_headers import TTL, PublishOptions

from .codecs import KeyCodec, ValueCodec
from .entry import KeyValueEntry
from .failures import adapted, bucket_not_found
from .reading import BucketReader, Key
from .status import KeyValueStatus

if TYPE_CHECKING:
    from .management import KeyValues

__all__ = ["KeyValue"]

T = TypeVar("T")

OLD_MARKER = timedelta(minutes=30)
_DELETE = {"KV-Operation": "DEL"}
_PURGE = {"KV-Operation": "PURGE"}


class KeyValue(BucketReader[T]):
    """A bucket of keys with values, made by the calls of the context.

    >>> bucket = await js.create_key_value(bucket="settings", history=5)  # doctest: +SKIP
    >>> revision = await bucket.put("color", b"blue")  # doctest: +SKIP
    >>> (await bucket.get("color")).value  # doctest: +SKIP
    b'blue'

    Reads may come from any server that has the bucket, and one that lags behind does not know the
    latest writes yet; `create` and `update` always do.
    """

    def __init__(
        self,
        context: KeyValues,
        config: StreamConfig,
        codec: ValueCodec[T] | None,
        key_codec: KeyCodec | None,
    ) -> None:
        super().__init__(context, config, codec, key_codec)
        self._acks = context._awaited_acks
        self._stores = self._origin.name  # the stream that does

    def __repr__(self) -> str:
        return f"<KeyValue {self.name!r}>"

    async def put(self, key: str, value: T) -> int:
        """Set a key, whatever it is now, and return the new revision."""
        try:
            known = self._kept[key]
        except (KeyError, TypeError):
            known = self._key(key)
        data: bytes = value  # type: ignore[assignment]  # T is bytes if there is no codec
        if self._codec is not None:
            data = self._encoded(key, value)
        try:
            revision = await self._acks.store(known.put_subject, data, self._stores)
        except (NoStreamResponseError, InvalidSubjectError) as error:
            raise self._put_error(known, error) from error
        except StrayAnswer as stray:
            ack = decode_publish_ack(stray.answer, known.put_subject)
            raise self._stray_ack(known, ack) from None
        return await self._publish(known, data, {}) if revision is None else revision

    async def create(self, key: str, value: T, *, ttl: TTL | None = None) -> int:
        """Set a key that does not exist, or is deleted or expired, and return its revision.

        Raises `KeyExistsError` if it exists. After `ttl` seconds, whole ones, it expires; the
        bucket needs `limit_marker_ttl` for that (2.11).
        """
        known, data = self._key(key), self._encoded(key, value)
        options: PublishOptions = {"expected_last_subject_sequence": 0}
        if ttl is not None:
            await self._require_ttl(key)
            options["ttl"] = ttl
        try:
            return await self._publish(known, data, options)
        except WrongLastSequenceError as error:
            marker = await self._marker(key, known.stored, error)
        try:
            return await self._publish(
                known, data, {**options, "expected_last_subject_sequence": marker}
            )
        except WrongLastSequenceError as error:
            raise self._exists(key, error) from error

    async def _marker(self, key: str, stored: str, error: WrongLastSequenceError) -> int:
        """The revision of the marker in the place of a deleted key; 0 if that is gone, too."""
        try:
            message = await self._latest_message(self._prefix + stored, error.last_sequence or 0)
        except MessageNotFoundError:
            return 0
        entry = self._form.of_stored(message)
        if not entry.deleted:
            raise self._exists(key, error) from error
        return entry.revision

    async def _latest_message(self, subject: str, sequence: int) -> StoredMessage:
        """The last message of a subject, which had at least this sequence.

        From the leader: another server, or a mirror, might not have heard of it yet. Whoever may
        not ask that one waits for the others.
        """
        try:
            return await self._origin.get_last_message(subject)
        except PermissionsError:
            if not self._messages.direct:
                raise
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout
        while True:
            message = await self._messages.last(subject)
            if message.sequence >= sequence or loop.time() + RETRY_DELAY >= end:
                return message
            await asyncio.sleep(RETRY_DELAY)

    def _exists(self, key: str, error: WrongLastSequenceError) -> KeyExistsError:
        message = f"bucket {self.name!r}: key {key!r} exists; use put or update to change it"
        return adapted(KeyExistsError, message, error)

    async def update(self, key: str, value: T, revision: int) -> int:
        """Set a key if its latest revision is this one, and return the new revision.

        Raises `RevisionMismatchError` if someone else was faster.
        """
        check_range("revision", revision, 0, UINT64)  # None would be a put
        data = self._encoded(key, value)
        return await self._compare_and_set(key, data, {}, revision)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key: a marker takes its place, and its history is kept.

        With a `revision`, only if that is the latest one; else `RevisionMismatchError`.
        """
        await self._compare_and_set(key, b"", {"headers": _DELETE}, revision)

    async def purge(self, key: str, *, ttl: TTL | None = None, revision: int | None = None) -> None:
        """Delete a key with its history; only a marker is left.

        The marker itself goes after `ttl` seconds, for which the bucket needs `limit_marker_ttl`
        (2.11). With a `revision`, only if that is the latest one; else `RevisionMismatchError`.
        """
        options: PublishOptions = {"headers": _PURGE, "rollup": "sub"}
        if ttl is not None:
            await self._require_ttl(key)
            options["ttl"] = ttl
        await self._compare_and_set(key, b"", options, revision)

    async def _compare_and_set(
        self, key: str, data: bytes, options: PublishOptions, revision: int | None
    ) -> int:
        known = self._key(key)
        if revision is not None:
            check_range("revision", revision, 0, UINT64)
            options["expected_last_subject_sequence"] = revision
        try:
            return await self._publish(known, data, options)
        except WrongLastSequenceError as error:
            last = error.last_sequence
            now = "another one" if last is None else str(last) if last else "none"
            raise adapted(
                RevisionMismatchError,
                f"bucket {self.name!r}: the latest revision of key {key!r} is {now}, not "
                f"{revision}; get it again, and decide anew",
                error,
            ) from error

    async def purge_deletes(self, older_than: float | timedelta = OLD_MARKER) -> int:
        """Remove the markers of deleted keys and what is left of their history.

        Markers that are younger than `older_than` are kept, so that others may still see them;
        with 0 none is. Returns how many messages were removed.
        """
        try:
            age = to_timedelta(older_than)
        except (TypeError, ValueError) as error:
            raise InvalidOptionError(f"older_than {error}") from None
        limit = datetime.now(UTC) - age
        markers: dict[str, KeyValueEntry[T]] = {}
        async with self._watch([">"], options={"headers_only": True}) as watcher:
            async for entry in watcher:
                if entry is None:
                    break
                if entry.deleted:
                    markers[entry._key] = entry
                else:
                    markers.pop(entry._key, None)
        removed = 0
        for stored, marker in markers.items():
            if "*" in stored or ">" in stored:
                continue  # no client should write that, and the server would purge other keys
            old = age <= timedelta(0) or marker.created <= limit
            removed += await self._context.purge_stream(
                self._messages.name,
                subject=self._prefix + stored,
                # Not all that there is: the key may have been set again meanwhile.
                sequence=marker.revision + 1 if old else marker.revision,
            )
        return removed

    def _encoded(self, key: str, value: T) -> bytes:
        if self._codec is None:
            return value  # type: ignore[return-value]  # T is bytes; publishing checks that
        try:
            return self._codec.encode(value)
        except Exception as error:
            error.add_note(f"for key {key!r} of bucket {self.name!r}")
            raise

    async def _publish(self, key: Key, data: bytes, options: PublishOptions) -> int:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._context.api.timeout
        while True:
            try:
                ack = await self._context.publish(key.put_subject, data, **options)
                if ack.stream != self._stores:
                    raise self._stray_ack(key, ack)
                return ack.sequence
            except ExpectedSequenceNotReadyError:  # another write to the key is under way
                if loop.time() + RETRY_DELAY >= end:
                    raise
            except (NoStreamResponseError, InvalidSubjectError) as error:
                raise self._put_error(key, error) from error
            await asyncio.sleep(RETRY_DELAY)

    def _put_error(
        self, key: Key, error: NoStreamResponseError | InvalidSubjectError
    ) -> JetSparkError:
        if isinstance(error, InvalidSubjectError):
            return InvalidKeyError(
                f"bucket {self.name!r}: a key of {len(key.stored)} characters is too long: {error}"
            )
        return NoStreamResponseError(
            f"bucket {self.name!r}: key {key.stored!r}: nobody stores it; the bucket was deleted, "
            "or its leader is being elected",
            may_have_taken_effect=error.may_have_taken_effect,
        )

    def _stray_ack(self, key: Key, ack: PublishAck) -> InvalidAckError:
        return InvalidAckError(
            f"bucket {self.name!r}: key {key.stored!r}: stream {ack.stream!r} says that it has "
            f"stored it, where {self._stores!r} should; who else takes {key.put_subject!r}?"
        )

    async def _require_ttl(self, key: str) -> None:
        """Refuse a TTL where the server would, or would even ignore it."""
        if self._origin is not self._messages:
            return  # a mirror does not know
        if not self._stream_config.allow_msg_ttl:
            self._stream_config = (await self.status()).stream_info.config
        if not self._stream_config.allow_msg_ttl:
            raise MessageTTLDisabledError(
                f"bucket {self.name!r}: key {key!r} cannot have a TTL: update the bucket with "
                "limit_marker_ttl first (server 2.11)"
            )

    # -- the bucket itself ----------------------------------------------------------------------

    async def status(self) -> KeyValueStatus:
        """Ask the server for configuration and state of the bucket."""
        try:
            stream = await self._context.get_stream(self._messages.name)
        except StreamNotFoundError as error:
            raise bucket_not_found(self.name, error) from error
        return KeyValueStatus.from_stream_info(stream.cached_info)
