"""Reading a bucket: single keys, many at once, lists of keys, histories and watches.

The latest value of a key is a direct get, with hardly anything around it. What needs to see all
keys, or all revisions of one, is a watch that ends where the initial data end.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from jetspark.errors import (
    APIError,
    DisconnectedError,
    InvalidArgumentError,
    InvalidKeyError,
    InvalidOptionError,
    JetStreamError,
    KeyDeletedError,
    KeyNotFoundError,
    MessageNotFoundError,
    NoRespondersError,
    NoStreamResponseError,
    NotSupportedError,
    StreamNotFoundError,
    TooManyResultsError,
    status_error,
)
from jetspark.jetstream import StoredMessage, StreamConfig
from jetspark.jetstream.api import ApiClient
from jetspark.jetstream.checks import UINT64, check_range
from jetspark.jetstream.consumer.messages import WarningHandler
from jetspark.jetstream.consumer.ordered_config import OrderedOptions
from jetspark.jetstream.consumer_config import DeliverPolicy
from jetspark.jetstream.features import api_level
from jetspark.jetstream.reading import SUBJECTS_AT_A_TIME, StreamReader
from jetspark.jetstream.stream import subjects_since
from jetspark.jetstream.subjects import API, DEFAULT_PREFIX
from jetspark.protocol import parse_status

from .codecs import KeyCodec, ValueCodec
from .config import KeyValueConfig
from .entry import ADDED, NO_HEADERS, EntryForm, KeyValueEntry
from .failures import adapted, bucket_not_found
from .names import (
    STREAM_PREFIX,
    SUBJECT_PREFIX,
    check_filter,
    check_key,
    is_key,
    merge_filters,
    short,
    stream_of,
)
from .watcher import KeyValueWatcher

if TYPE_CHECKING:
    from .management import KeyValues

__all__ = ["BucketReader", "Key"]

T = TypeVar("T")

_KEYS_KEPT = 4096
_LONG_KEY = 1024  # characters; longer ones might not fit into the line of a request
_PLAIN_REST = 100  # bytes, behind stream and subject: sequence and time take less
_AT_A_TIME = 100  # requests, where many are needed
_REST_OF_REQUEST = 4096  # bytes


class Key(msgspec.Struct, frozen=True, gc=False):
    """A key, checked."""

    stored: str  # as the bucket has it
    get_subject: str  # where to ask for it
    put_subject: str  # where to publish it
    in_answer: bytes  # what the answer to a direct get says
    plain_answer: bytes  # how it begins if nothing but a value is stored


class _Messages(StreamReader):
    """Reads the stream of a bucket without a consumer."""

    def __init__(self, context: KeyValues, bucket: str, direct: bool) -> None:
        super().__init__(context.api, stream_of(bucket))
        self._bucket = bucket
        self.direct = direct  # any server that has the stream may answer, not only the leader

    async def last(self, subject: str) -> StoredMessage:
        """The last message of a subject."""
        return await (self.direct_get_last if self.direct else self.get_last_message)(subject)

    async def at(self, sequence: int) -> StoredMessage:
        """The message with a sequence."""
        return await (self.direct_get if self.direct else self.get_message)(sequence)

    def _nobody(self, context: str) -> NoStreamResponseError:
        return NoStreamResponseError(
            f"bucket {self._bucket!r}: get: nobody answers; the bucket was deleted, or it does not "
            "allow direct gets any more, or none of its servers is up"
        )


class BucketReader(Generic[T]):
    """Reads the keys of a bucket."""

    def __init__(
        self,
        context: KeyValues,
        config: StreamConfig,
        codec: ValueCodec[T] | None,
        key_codec: KeyCodec | None,
    ) -> None:
        self._context = context
        self._client, self._timeout = context.client, context.api.timeout
        self._stream_config = config
        self.config = KeyValueConfig.from_stream(config)
        """Its configuration, as of when it was opened."""
        self.name = bucket = self.config.bucket
        """The name of the bucket."""
        self._codec = codec
        self._key_codec = key_codec
        self._messages = _Messages(context, bucket, config.allow_direct)
        self._origin: StreamReader = self._messages  # where writes go to
        origin, api = bucket, context.api
        if config.mirror is not None:  # which has the subjects of its origin, and takes no writes
            origin = config.mirror.name.removeprefix(STREAM_PREFIX)
            if config.mirror.external is not None and config.mirror.external.api:
                subjects = API(prefix=config.mirror.external.api)
                api = ApiClient(context.client, subjects, timeout=api.timeout, strict=api.strict)
            self._origin = StreamReader(api, config.mirror.name)
        self._prefix = f"{SUBJECT_PREFIX}{origin}."
        prefix = api.subjects.prefix
        self._put_prefix = self._prefix if prefix == DEFAULT_PREFIX else f"{prefix}.{self._prefix}"
        self._form = EntryForm(bucket, self._prefix, codec, key_codec)
        self._get_prefix = f"{context.api.subjects.direct_get(self._messages.name)}.{self._prefix}"
        self._kept: dict[str, Key] = {}  # keys that were used before

    def _key(self, key: str) -> Key:
        """A key with its subjects."""
        try:
            return self._kept[key]
        except (KeyError, TypeError):
            pass
        if self._key_codec is None:
            stored = key
            check_key(stored, self.name)
        else:
            stored = self._encoded_key(key, self._key_codec.encode)
            if not is_key(stored):
                raise InvalidKeyError(
                    f"bucket {self.name!r}: key {short(key)} becomes {short(stored)} with the "
                    "key_codec, which is no valid key"
                )
        in_answer = f"\r\nNats-Subject: {self._prefix}{stored}\r\n".encode()
        found = Key(
            stored,
            self._get_prefix + stored,
            self._put_prefix + stored,
            in_answer,
            NO_HEADERS + ADDED + self._messages.name.encode() + in_answer,
        )
        if len(stored) <= _LONG_KEY:
            if len(self._kept) >= _KEYS_KEPT:
                self._kept.clear()
            self._kept[key] = found
        return found

    def _encoded_key(self, key: str, encode: Callable[[str], str]) -> str:
        if not isinstance(key, str):
            raise InvalidKeyError(
                f"bucket {self.name!r}: a key must be a str, not {type(key).__name__}"
            )
        try:
            return encode(key)
        except InvalidKeyError:
            raise
        except Exception as error:
            raise InvalidKeyError(
                f"bucket {self.name!r}: the key_codec does not take {short(key)}: {error}"
            ) from error

    async def get(self, key: str, revision: int | None = None) -> KeyValueEntry[T]:
        """The latest entry of a key, or one of its earlier revisions.

        Raises `KeyNotFoundError` if there is none, which is a `KeyDeletedError` if the key was
        deleted or has expired.
        """
        try:
            known = self._kept[key]
        except (KeyError, TypeError):
            known = self._key(key)
        stored = known.stored
        if revision is None and self._messages.direct and len(stored) <= _LONG_KEY:
            # The usual case in the shortest way.
            found = None
            try:
                requests = self._client._requests()
                header, data = await requests.ask(known.get_subject, self._timeout)
                plain = known.plain_answer
                if header.startswith(plain) and len(header) - len(plain) <= _PLAIN_REST:
                    return KeyValueEntry(self._form, stored, None, data, header)
                if known.in_answer in header:
                    found = self._form.of_direct(stored, header, data)
                elif parse_status(header)[0]:
                    raise self._status_error(key, header)
            except (DisconnectedError, NoRespondersError):
                pass
            entry = found or await self._read(key, stored, None)  # which tries again while it may
        else:
            entry = await self._read(key, stored, revision)
        if entry._headers is not None and entry.deleted:
            raise self._deleted(entry)
        return entry

    async def _read(self, key: str, stored: str, revision: int | None) -> KeyValueEntry[T]:
        subject = self._prefix + stored
        try:
            if revision is None:
                message = await self._messages.last(subject)
            else:
                check_range("revision", revision, 1, UINT64)
                message = await self._messages.at(revision)
        except MessageNotFoundError as error:
            raise self._not_found(key, revision, error) from error
        except StreamNotFoundError as error:
            raise bucket_not_found(self.name, error) from error
        if message.subject != subject:
            raise self._not_found(key, revision)
        return self._form.of_stored(message)

    def _status_error(self, key: str, header: bytes) -> JetStreamError:
        status, description = parse_status(header)
        context = f"bucket {self.name!r}: get {key!r}"
        error = status_error(status or 0, description, context=context)
        if isinstance(error, MessageNotFoundError):
            return self._not_found(key, None, error)
        return error

    def _not_found(
        self, key: str, revision: int | None, error: APIError | None = None
    ) -> KeyNotFoundError:
        what = "" if revision is None else f" with revision {revision}"
        message = f"bucket {self.name!r} has no key {short(key)}{what}"
        return adapted(KeyNotFoundError, message, error)

    def _deleted(self, entry: KeyValueEntry[T]) -> KeyDeletedError:
        return KeyDeletedError(
            f"bucket {self.name!r}: key {entry.key!r} is gone: {entry.operation.value} in revision "
            f"{entry.revision}",
            code=404,
            revision=entry.revision,
        )

    async def get_many(self, keys: str | Iterable[str]) -> dict[str, KeyValueEntry[T]]:
        """The latest entries of several keys at once, by their keys; `*` and `>` are allowed.

        Keys that do not exist, or were deleted, are left out. It is one round trip for up to 1,024
        keys that have up to a megabyte, all of them from one moment, on a server of version 2.11.
        On an older one, and where wildcards match more, it is one after the other.
        """
        if not isinstance(keys, Iterable):
            raise InvalidArgumentError(
                f"bucket {self.name!r}: get_many takes keys, not {type(keys).__name__}"
            )
        patterns = [self._filter(key) for key in ([keys] if isinstance(keys, str) else keys)]
        patterns = list(dict.fromkeys(patterns))
        entries: dict[str, KeyValueEntry[T]] = {}
        for portion in self._portions(patterns):
            for entry in await self._latest(portion):
                entries[entry.key] = entry
        return {key: entry for key, entry in entries.items() if not entry.deleted}

    def _portions(self, patterns: list[str]) -> Iterator[list[str]]:
        """As many at a time as a server looks up, and as fit into a request."""
        portion: list[str] = []
        size = 0
        for pattern in patterns:
            size += self._size_of(pattern)
            if portion and (len(portion) == SUBJECTS_AT_A_TIME or size > self._room):
                yield portion
                portion, size = [], self._size_of(pattern)
            portion.append(pattern)
        if portion:
            yield portion

    @property
    def _room(self) -> int:
        """How many bytes of patterns may be in a request; the rest of it is not long."""
        most = self._client.max_payload
        return most - _REST_OF_REQUEST if most >= 0 else sys.maxsize

    def _size_of(self, pattern: str) -> int:
        return len(self._prefix) + len(pattern) + len('"",')

    async def _latest(self, patterns: list[str]) -> list[KeyValueEntry[T]]:
        """The latest entries of keys, markers included."""
        if self._messages.direct:
            try:
                return await self._latest_at_once(patterns)
            except (TooManyResultsError, NotSupportedError):
                pass
        keys = [pattern for pattern in patterns if is_key(pattern)]
        entries = await self._there(keys, self._messages.last)
        for pattern in patterns:
            if not is_key(pattern):
                entries += await self._completed([pattern], await self._initial(pattern))
        return entries

    async def _latest_at_once(self, patterns: list[str]) -> list[KeyValueEntry[T]]:
        subjects = [self._prefix + pattern for pattern in patterns]
        messages = [each async for each in self._messages.direct_get_last_many(subjects)]
        entries = [self._form.of_stored(message) for message in messages]
        if messages and len(messages) <= (messages[0].num_pending or 0):
            # They did not fit into one answer, and some were replaced before they were sent.
            return await self._completed(patterns, entries)
        return entries

    async def _completed(
        self, patterns: list[str], entries: list[KeyValueEntry[T]]
    ) -> list[KeyValueEntry[T]]:
        """The entries that were read one after the other, and those that were passed over."""
        seen = {entry._key: not entry.deleted for entry in entries}
        last = max((entry.revision for entry in entries), default=0)
        return entries + await self._passed_over(patterns, seen, last)

    async def _there(
        self, stored: Sequence[str], read: Callable[[str], Awaitable[StoredMessage]]
    ) -> list[KeyValueEntry[T]]:
        """The latest entries of keys, without those that have none."""
        found: list[KeyValueEntry[T] | None] = []
        for start in range(0, len(stored), _AT_A_TIME):
            portion = stored[start : start + _AT_A_TIME]
            gets = [asyncio.ensure_future(self._get_if_there(key, read)) for key in portion]
            try:
                found += await asyncio.gather(*gets)
            finally:
                for get in gets:  # if one has failed
                    get.cancel()
        return [entry for entry in found if entry is not None]

    async def _get_if_there(
        self, stored: str, read: Callable[[str], Awaitable[StoredMessage]]
    ) -> KeyValueEntry[T] | None:
        try:
            return self._form.of_stored(await read(self._prefix + stored))
        except MessageNotFoundError:
            return None
        except StreamNotFoundError as error:
            raise bucket_not_found(self.name, error) from error

    async def _initial(
        self, pattern: str, options: OrderedOptions | None = None
    ) -> list[KeyValueEntry[T]]:
        """The initial data of a watch; of a key that changes meanwhile, the later comes last."""
        found: list[KeyValueEntry[T]] = []
        async with self._watch([pattern], options=options) as watcher:
            async for entry in watcher:
                if entry is None:
                    break
                found.append(entry)
        return found

    async def _passed_over(
        self, patterns: list[str], seen: Mapping[str, bool], last: int
    ) -> list[KeyValueEntry[T]]:
        """The latest entries of keys that were not among those read up to a revision.

        Each of them was replaced before its turn, or is new. `seen` says of the others whether
        they were there: with replicas, one that was not may be, as the consumer lags behind.
        """
        prefix = self._prefix
        try:
            stream = await self._context.get_stream(self._messages.name)
            subjects = await subjects_since(stream, [prefix + each for each in patterns], last)
        except StreamNotFoundError as error:
            raise bucket_not_found(self.name, error) from error
        stored = (subject[len(prefix) :] for subject in sorted(subjects))
        known = seen if stream.config.num_replicas == 1 else {key for key in seen if seen[key]}
        keys = [key for key in stored if key not in known]
        return await self._there(keys, self._messages.get_last_message)

    async def keys(self, *filters: str) -> AsyncIterator[str]:
        """Iterate over the keys, or over those that match one of the filters.

        Each comes once, also if others write it meanwhile; the key that was written longest ago
        comes first. An empty bucket has none.
        """
        patterns = self._filters(filters)
        seen: dict[str, bool] = {}  # as they are stored, and whether they were there
        last: KeyValueEntry[T] | None = None
        async with self._watch(patterns, options={"headers_only": True}) as watcher:
            async for entry in watcher:
                if entry is None:
                    break
                last = entry
                if not seen.get(entry._key):
                    seen[entry._key] = not entry.deleted
                    if not entry.deleted:
                        yield entry.key
        for entry in await self._passed_over(patterns, seen, last.revision if last else 0):
            if not entry.deleted:
                yield entry.key

    async def history(self, key: str) -> list[KeyValueEntry[T]]:
        """The revisions of a key that are kept, the oldest first, markers included.

        Raises `KeyNotFoundError` if there are none.
        """
        options: OrderedOptions = {"deliver_policy": DeliverPolicy.ALL}
        entries = await self._initial(self._key(key).stored, options)
        if not entries:
            raise self._not_found(key, None)
        return entries

    def watch(
        self,
        *filters: str,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        meta_only: bool = False,
        resume_from_revision: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> KeyValueWatcher[T]:
        """Watch all keys, or those that match one of the filters.

        First come the latest entries of the keys, markers of deleted ones included, then None,
        once, then every change. With `include_history` all revisions that are kept come first;
        with `updates_only` nothing but the None; with `resume_from_revision` all from that
        revision on, whatever the other two say. `ignore_deletes` leaves markers out, `meta_only`
        the values.
        """
        options: OrderedOptions = {"headers_only": meta_only}
        if include_history and updates_only and resume_from_revision is None:
            raise InvalidOptionError("include_history and updates_only exclude each other")
        if resume_from_revision is not None:
            check_range("resume_from_revision", resume_from_revision, 1, UINT64)
            options["opt_start_seq"] = resume_from_revision
        elif include_history:
            options["deliver_policy"] = DeliverPolicy.ALL
        elif updates_only:
            options["deliver_policy"] = DeliverPolicy.NEW
        return self._watch(
            self._filters(filters),
            options=options,
            ignore_deletes=ignore_deletes,
            on_warning=on_warning,
        )

    def _watch(
        self,
        patterns: list[str],
        *,
        options: OrderedOptions | None = None,
        ignore_deletes: bool = False,
        on_warning: WarningHandler | None = None,
    ) -> KeyValueWatcher[T]:
        options = {**(options or {})}
        if "opt_start_seq" not in options:
            options.setdefault("deliver_policy", DeliverPolicy.LAST_PER_SUBJECT)
        only: list[str] | None = None
        # A server before 2.11 counts wrong with some of several, and the initial data would seem to
        # end too soon.
        uncounted = len(patterns) > 1 and not api_level(self._stream_config.metadata)
        if uncounted or sum(map(self._size_of, patterns)) > self._room:
            only, patterns = patterns, [">"]
        options["filter_subjects"] = [self._prefix + pattern for pattern in patterns]
        return KeyValueWatcher(
            self._context,
            self._form,
            options,
            only=only,
            ignore_deletes=ignore_deletes,
            on_warning=on_warning,
        )

    def _filter(self, pattern: str) -> str:
        if self._key_codec is not None and pattern != "":
            pattern = self._encoded_key(pattern, self._key_codec.encode_filter)
        return check_filter(pattern, self.name)

    def _filters(self, patterns: Iterable[str]) -> list[str]:
        return merge_filters(map(self._filter, patterns), self.name) or [">"]
