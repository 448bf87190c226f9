"""The descriptions of the objects in a store, read and replaced without losing an update.

A description is the one message of its subject. Whoever replaces it names the one that was there
(`Nats-Expected-Last-Subject-Sequence`), so that of several writers each knows what it replaced,
and no chunks are forgotten. All attempts to store one description have the same message id: so it
shows whether an earlier one, which was not answered, was stored, although others may have replaced
that since, and have removed the chunks which it names.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from jetspark.connection.nuid import next_nuid
from jetspark.errors import (
    BadObjectError,
    BucketNotFoundError,
    DisconnectedError,
    DuplicateInProcessError,
    ExpectedSequenceNotReadyError,
    JetSparkError,
    JetStreamError,
    MessageNotFoundError,
    NoStreamResponseError,
    ObjectNotFoundError,
    StoreFailedError,
    StreamNotFoundError,
    TimeoutError,
    WrongLastSequenceError,
)
from jetspark.jetstream import PublishAck, StoredMessage
from jetspark.jetstream.reading import StreamReader
from jetspark.jetstream.stream import subjects_since

from .info import ObjectInfo, decode_info
from .names import all_metas, is_nuid, meta_subject, stream_name

if TYPE_CHECKING:
    from .management import ObjectStores

__all__ = ["Records", "Replaced", "bucket_not_found", "is_full", "naming", "not_found"]

PATIENCE = 10.0  # seconds to go on while others are faster or a leader is elected
ATTEMPTS = 3  # while no stream takes a description
CHECK_TIMEOUT = 1.0  # seconds for an answer: while there is no leader, none comes
_PAUSE = 0.02  # seconds, at most, before the next try
# After these it is looked at what is there, and tried again.
_TRY_AGAIN = (
    WrongLastSequenceError,
    ExpectedSequenceNotReadyError,
    DisconnectedError,
    DuplicateInProcessError,
    NoStreamResponseError,
    TimeoutError,
)


class Replaced(NamedTuple):
    """A description that was stored, and the one that was there before."""

    info: ObjectInfo
    old: ObjectInfo | None


class Records:
    """The descriptions in one store."""

    def __init__(
        self, context: ObjectStores, bucket: str, *, direct: bool, publish_prefix: str, domain: str
    ) -> None:
        self.bucket = bucket
        self.publish_prefix = publish_prefix
        self._context = context
        self._reader = StreamReader(context.api, stream_name(bucket))
        self._direct = direct
        self._domain = domain
        self._warned = False

    def describe(self, name: str) -> str:
        """How error messages call an object."""
        return f"object {name!r} in store {self.bucket!r}"

    # -- reading --------------------------------------------------------------------------------

    async def find(self, name: str) -> ObjectInfo | None:
        """A description, perhaps a moment old, from any server that has the store.

        That there is none is for the leader to say: a replica may not have it yet.
        """
        if self._direct:
            try:
                message = await self._reader.direct_get_last(meta_subject(self.bucket, name))
            except (MessageNotFoundError, NoStreamResponseError):
                pass
            else:
                info = self.decode(message, self.describe(name))
                if not info.deleted:
                    return info
        return await self.read(name)

    async def read(self, name: str) -> ObjectInfo | None:
        """The description that is there now, from the leader."""
        return await self._read(meta_subject(self.bucket, name), self.describe(name))

    async def _read(self, subject: str, context: str) -> ObjectInfo | None:
        try:
            message = await self._reader.get_last_message(subject)
        except MessageNotFoundError:
            return None
        except StreamNotFoundError as error:
            raise bucket_not_found(self.bucket, error) from error
        return self.decode(message, context)

    async def others(self, last: int, names: Collection[str]) -> list[ObjectInfo]:
        """The descriptions of objects with other names, if anything came after a sequence."""
        try:
            stream = await self._context.get_stream(self._reader.name)
            subjects = await subjects_since(stream, [all_metas(self.bucket)], last)
        except StreamNotFoundError as error:
            raise bucket_not_found(self.bucket, error) from error
        if subjects:
            subjects.difference_update(meta_subject(self.bucket, name) for name in names)
        found = [await self._read(each, f"subject {each!r}") for each in sorted(subjects)]
        return [info for info in found if info is not None and info.name not in names]

    async def check_store(self) -> None:
        """Raise `BucketNotFoundError` if the store is gone; without an answer, it may be there."""
        api = self._context.api
        subject = api.subjects.stream_info(self._reader.name)
        try:
            await api.request(subject, context="is it there", timeout=CHECK_TIMEOUT)
        except StreamNotFoundError as error:
            raise bucket_not_found(self.bucket, error) from error
        except JetSparkError:
            pass

    def decode(self, message: StoredMessage, context: str) -> ObjectInfo:
        """The description in a message."""
        return decode_info(
            message.data,
            message.subject,
            context,
            bucket=self.bucket,
            modified=message.timestamp,
            sequence=message.sequence,
        )

    # -- writing --------------------------------------------------------------------------------

    async def change(
        self,
        name: str,
        make: Callable[[ObjectInfo | None], ObjectInfo],
        current: ObjectInfo | None,
    ) -> Replaced:
        """Store what `make` makes of the present description, `current` as far as is known.

        If that has been replaced meanwhile, `make` is called again with the new one. When it
        returns what it was given, there is nothing to do.
        """
        with naming(self.describe(name)):
            return await self._change(name, make, current)

    async def _change(
        self,
        name: str,
        make: Callable[[ObjectInfo | None], ObjectInfo],
        current: ObjectInfo | None,
    ) -> Replaced:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        doubtful: list[Replaced] = []  # attempts that may have been stored without our knowledge
        msg_id = next_nuid()
        unanswered = 0
        while True:
            try:
                info = make(current)
                if info is current:
                    # Perhaps because of an attempt: then there is something that it replaced.
                    return Replaced(info, doubtful[-1].old if doubtful else current)
                ack = await self._publish(name, info, _sequence(current), msg_id)
            except _TRY_AGAIN as error:
                if error.may_have_taken_effect:
                    doubtful.append(Replaced(info, current))
                # If there is a leader to read from, nobody will listen to the subject later either.
                unanswered += isinstance(error, NoStreamResponseError)
                if loop.time() >= end or unanswered >= ATTEMPTS:
                    _note_doubt(error, bool(doubtful))
                    raise
            except JetSparkError as error:
                _note_doubt(error, bool(doubtful))
                raise
            else:
                if ack.duplicate and doubtful:
                    info, current = _first_copy(doubtful, ack.sequence)
                return Replaced(_stored(info, ack.sequence), current)
            current = await self._read_again(name, end, bool(doubtful))
            if not doubtful:
                msg_id = next_nuid()  # a server may remember that of what it has refused

    async def _read_again(self, name: str, end: float, uncertain: bool) -> ObjectInfo | None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(random.uniform(0, _PAUSE))
            try:
                return await self.read(name)
            except JetSparkError as error:
                passing = error.retryable or isinstance(error, _TRY_AGAIN)
                if not passing or loop.time() >= end:
                    _note_doubt(error, uncertain)
                    raise

    async def _publish(self, name: str, info: ObjectInfo, last: int, msg_id: str) -> PublishAck:
        subject = self.publish_prefix + meta_subject(self.bucket, name)
        ack = await self._context.publish(
            subject,
            info.encode(),
            rollup="sub",
            expected_last_subject_sequence=last,
            msg_id=msg_id,
        )
        self.check_ack(ack)
        return ack

    def check_ack(self, ack: PublishAck) -> bool:
        """Whether this store has answered; if something else has, there is a warning.

        Publishing knows no domains: a store of the same name in another domain that this
        connection reaches gets a copy of everything, and may answer first.
        """
        if ack.stream == self._reader.name and ack.domain == self._domain:
            return True
        other = f"stream {ack.stream!r} of domain {ack.domain!r}"
        self._warn(f"{other} has answered, which has the same subjects")
        return False

    def warn_of_refusal(self) -> None:
        """Warn that something else has refused what this store has taken."""
        self._warn("something else with the same subjects has refused what the store has taken")

    def _warn(self, what: str) -> None:
        if self._warned:
            return
        self._warned = True
        self._context.client._connection.report(
            JetStreamError(
                f"store {self.bucket!r} (domain {self._domain!r}): {what}; let only one "
                "domain have a store of that name, or keep $O.> from crossing"
            )
        )

    def present(self, info: ObjectInfo | None, name: str) -> ObjectInfo:
        """The description of an object that must be there and not deleted."""
        if info is None or info.deleted:
            raise not_found(self.describe(name), deleted=info is not None)
        return info

    def nuid_of(self, info: ObjectInfo) -> str:
        """What names the chunks of an object."""
        if not is_nuid(info.nuid):
            raise BadObjectError(
                f"{self.describe(info.name)}: its description does not say which chunks it has: "
                f"the nuid is {info.nuid!r}; put it again"
            )
        return info.nuid


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Have errors say what it was about, which a subject does not show."""
    try:
        yield
    except JetSparkError as error:
        if what not in str(error):
            advice = "; the store is full: delete something, or give it more max_bytes"
            text = f"{what}: {error}{advice if is_full(error) else ''}"
            error.args = (text, *error.args[1:])
        raise


def is_full(error: JetSparkError) -> bool:
    """Whether something was not stored because the store has reached a limit of its own."""
    return isinstance(error, StoreFailedError) and "maximum" in error.description


def _stored(info: ObjectInfo, sequence: int) -> ObjectInfo:
    return info.replace(sequence=sequence, modified=datetime.now(UTC))


def _sequence(info: ObjectInfo | None) -> int:
    return 0 if info is None else info.sequence


def _first_copy(attempts: list[Replaced], sequence: int) -> Replaced:
    """Which of the attempts was stored with a sequence: it replaced what came last before that."""
    earlier = [each for each in attempts if _sequence(each.old) < sequence]
    return max(earlier or attempts, key=lambda each: _sequence(each.old))


def _note_doubt(error: JetSparkError, uncertain: bool) -> None:
    if uncertain:
        error.may_have_taken_effect = True


def not_found(what: str, *, deleted: bool = False) -> ObjectNotFoundError:
    """The error for an object that is not there."""
    text = f"{what}: it has been deleted" if deleted else f"{what}: there is none of that name"
    return ObjectNotFoundError(text, code=404, description="object not found")


def bucket_not_found(bucket: str, cause: StreamNotFoundError) -> BucketNotFoundError:
    """The error for a store that is not there."""
    return BucketNotFoundError(
        f"object store {bucket!r}: there is none of that name; create it with "
        "create_object_store, or look at the domain of the context",
        code=cause.code,
        err_code=cause.err_code,
        description=cause.description,
    )
