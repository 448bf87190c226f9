"""What is in an object store, without the data: descriptions, links and changes of names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from jetspark.connection.nuid import next_nuid
from jetspark.errors import (
    ConflictError,
    InvalidArgumentError,
    InvalidOptionError,
    JetSparkError,
    LinkError,
    ObjectExistsError,
    StoreFailedError,
)
from jetspark.jetstream import DeliverPolicy, StreamInfo
from jetspark.jetstream.consumer.messages import WarningHandler
from jetspark.jetstream.stream import purge

from .arguments import own_fields, to_meta
from .chunks import count_chunks, purge_chunks
from .config import check_store
from .finishing import to_the_end
from .info import ObjectInfo, ObjectLink, ObjectMeta, ObjectOptions
from .names import (
    STREAM_PREFIX,
    check_bucket,
    check_object_name,
    is_nuid,
    meta_subject,
    stream_name,
)
from .records import Records, Replaced, is_full, not_found
from .watcher import ObjectWatcher

if TYPE_CHECKING:
    from .management import ObjectStores
    from .store import ObjectStore

__all__ = ["Catalog"]

REMOVAL_PATIENCE = 2.0  # seconds for someone who has replaced an object to remove its chunks
REMOVAL_PAUSE = 0.05


class Catalog:
    """The names in a store and what is known of them."""

    def __init__(self, context: ObjectStores, info: StreamInfo, publish_prefix: str = "") -> None:
        check_store(info.config)
        self._context = context
        self.name = info.config.name.removeprefix(STREAM_PREFIX)
        """The name of the store."""
        self._records = Records(
            context,
            self.name,
            direct=info.config.allow_direct,
            publish_prefix=publish_prefix and publish_prefix.removesuffix(".") + ".",
            domain=info.domain,
        )

    def __repr__(self) -> str:
        return f"<ObjectStore {self.name!r}>"

    # -- looking --------------------------------------------------------------------------------

    async def info(self, name: str, *, show_deleted: bool = False) -> ObjectInfo:
        """What is known of an object, or of a link; also of a deleted one if that is asked for.

        Raises `ObjectNotFoundError` if there is none.
        """
        check_object_name(name)
        info = await self._records.find(name)
        if info is not None and show_deleted:
            return info
        return self._records.present(info, name)

    async def list(self, *, show_deleted: bool = False) -> AsyncIterator[ObjectInfo]:
        """Iterate over the objects and links in the store, in the order of their last change.

        Each comes once, also if others write it meanwhile, or give it another name. With
        `show_deleted`, those that have been deleted are among them, and one that is being renamed
        may come with both names.
        """
        names: set[str] = set()  # of what was listed
        nuids: set[str] = set()

        def is_wanted(info: ObjectInfo) -> bool:
            if info.name in names:
                return False
            if not show_deleted:
                if info.deleted or info.nuid in nuids:
                    return False
                if info.link is None and is_nuid(info.nuid):
                    nuids.add(info.nuid)
            names.add(info.name)
            return True

        last = 0
        async with self.watch() as watcher:
            async for info in watcher:
                if info is None:
                    break
                last = info.sequence
                if is_wanted(info):
                    yield info
        # The consumer may lag behind the leader, or an object be replaced before its turn.
        for info in await self._records.others(last, names):
            if is_wanted(info):
                yield info

    def watch(
        self,
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        on_warning: WarningHandler | None = None,
    ) -> ObjectWatcher:
        """Watch the objects of the store.

        First come the objects that are there, deleted ones included, then None, once, then every
        change. With `updates_only` nothing but the None comes first. `ignore_deletes` leaves out
        what is deleted. A store keeps no history of a name: `include_history` changes nothing,
        except in a store that was written in another way.
        """
        if include_history and updates_only:
            raise InvalidOptionError("include_history and updates_only exclude each other")
        policy = DeliverPolicy.LAST_PER_SUBJECT
        if include_history:
            policy = DeliverPolicy.ALL
        elif updates_only:
            policy = DeliverPolicy.NEW
        return ObjectWatcher(
            self._context, self.name, policy, ignore_deletes=ignore_deletes, on_warning=on_warning
        )

    # -- changing -------------------------------------------------------------------------------

    async def delete(self, name: str) -> None:
        """Delete an object, or a link; one that is deleted already stays so.

        Raises `ObjectNotFoundError` if there never was one.
        """
        check_object_name(name)
        records = self._records

        def mark(current: ObjectInfo | None) -> ObjectInfo:
            if current is None:
                raise not_found(records.describe(name))
            if current.deleted:
                return current
            records.nuid_of(current)
            return current.replace(deleted=True, size=0, chunks=0, digest="")

        async def work() -> None:
            current = await records.read(name)
            try:
                replaced = await records.change(name, mark, current)
            except StoreFailedError as error:
                if not is_full(error):
                    raise
                await self._delete_first(name, mark, error)
            else:
                if replaced.old is not replaced.info:
                    await self._purge_replaced(replaced)

        await to_the_end(work())

    async def _delete_first(
        self, name: str, mark: Callable[[ObjectInfo | None], ObjectInfo], error: StoreFailedError
    ) -> None:
        """Delete an object although there is no room for the mark, which comes afterwards."""
        current = await self._records.read(name)
        marked = mark(current)
        if current is None or marked is current:
            return
        if not await self._purge_meta(current):
            raise error
        await self._purge_replaced(Replaced(marked, current))
        with contextlib.suppress(StoreFailedError):  # others may have taken the room
            await self._records.change(name, lambda there: there or marked, None)

    async def _purge_replaced(self, replaced: Replaced) -> None:
        """Remove the chunks of what was replaced; if that fails, only space is lost."""
        old = replaced.old
        if old is None or old.deleted or old.link is not None or not is_nuid(old.nuid):
            return
        try:
            await purge_chunks(self._context.api, self.name, old.nuid)
        except JetSparkError as error:
            self._context.client._connection.report(error)

    async def update_meta(
        self,
        current_name: str,
        /,
        meta: ObjectMeta | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        headers: Mapping[str, str | Sequence[str]] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Change the name, description, headers or metadata of an object or link.

        They are given one by one, or all together as a `meta`. The data stay where they are. A
        new name that could not be given to the end can be given again.

        Raises `ObjectExistsError` if there is an object of the new name, and `ObjectNotFoundError`
        if there is none of the old one.
        """
        check_object_name(current_name)
        if meta is not None and not isinstance(meta, ObjectMeta):
            raise InvalidArgumentError(f"meta must be an ObjectMeta, not {type(meta).__name__}")
        if name is not None:
            check_object_name(name)

        def change(current: ObjectInfo | None) -> ObjectInfo:
            info = self._records.present(current, current_name)
            changed = to_meta(meta or info, description, headers, metadata)
            return info.replace(**{**own_fields(changed), "name": name or changed.name})

        current = await self._records.read(current_name)
        wanted = change(current)
        check_object_name(wanted.name)
        if wanted.name == current_name:
            return (await to_the_end(self._records.change(current_name, change, current))).info
        assert current is not None
        return await to_the_end(self._rename(current, wanted))

    async def _rename(self, old: ObjectInfo, new: ObjectInfo) -> ObjectInfo:
        records = self._records

        def check(current: ObjectInfo | None) -> ObjectInfo:
            # If it is there already, such a rename is under way, or has broken off. It is stored
            # again all the same, so that the other one can see that it is not alone.
            if current is None:
                return new
            if _same_object(current, old):
                # Deleted under its new name, it has no data any more.
                return current if current.deleted and old.chunks else new
            if current.deleted:
                return new
            raise ObjectExistsError(
                f"{records.describe(new.name)} exists, so {old.name!r} cannot get its name; "
                "delete it first, or choose another name"
            )

        # The new name first: what fails in between leaves the object with two names, not none.
        replaced: Replaced | None = None
        try:
            replaced = await records.change(new.name, check, await records.read(new.name))
            if replaced.info.deleted:
                if await self._loses_chunks(old):
                    await self._purge_meta(old)
            elif await self._purge_meta(old) or await self._has_moved(old, replaced):
                return replaced.info
        except JetSparkError as error:
            if replaced is not None or error.may_have_taken_effect:
                error.add_note(
                    f"The object may have both names now, {old.name!r} and {new.name!r}. Give it "
                    "the new name again to finish that: to delete or replace one of them removes "
                    "the data."
                )
            raise
        raise ConflictError(
            f"{records.describe(old.name)} was changed while it got another name; look at it, and "
            "try again",
            code=409,
            retryable=True,
        )

    async def _has_moved(self, old: ObjectInfo, replaced: Replaced) -> bool:
        """Whether an object has got its new name, although it was not we who took the old one away.

        If not, the new name is removed, unless it may be the only one of the object.
        """
        records, new = self._records, replaced.info
        current = await records.read(old.name)
        if current is None:
            # Whoever took it away has given it the same new name, or another one.
            alone = replaced.old is None or not _same_object(replaced.old, old)
            if alone and await self._purge_meta(new):
                return False
            current = await records.read(new.name)
            return current is not None and not current.deleted and _same_object(current, old)
        if not _same_object(current, old):
            # It has been replaced, or there is a new object after another rename like this.
            if not await self._loses_chunks(old):
                return True
        elif not current.deleted:
            await self._purge_meta(new)
            return False
        # The data are gone, so no name must stay, be it changed meanwhile.
        while (left := await records.read(new.name)) is not None and _same_object(left, old):
            if left.deleted:
                break
            await self._purge_meta(left)
        return False

    async def _loses_chunks(self, info: ObjectInfo) -> bool:
        """Whether chunks are gone, or go in a moment, as those of a replaced object do."""
        if not info.chunks or not is_nuid(info.nuid):
            return False
        loop = asyncio.get_running_loop()
        end = loop.time() + REMOVAL_PATIENCE
        while await count_chunks(self._context.api, self.name, info.nuid) >= info.chunks:
            if loop.time() >= end:
                return False
            await asyncio.sleep(REMOVAL_PAUSE)
        return True

    async def _purge_meta(self, info: ObjectInfo) -> int:
        """Remove a description, unless there is a later one; returns how many were removed."""
        subject = meta_subject(self.name, info.name)
        api = self._context.api
        return await purge(api, stream_name(self.name), subject, info.sequence + 1, None)

    # -- links ----------------------------------------------------------------------------------

    async def add_link(self, name: str, target: ObjectInfo | str) -> ObjectInfo:
        """Make a name for another object, which may be in another store of the context.

        The target is an info, or the name of an object in this store. The link does not follow it
        when it is renamed or deleted. Raises `LinkError` if the target is deleted or a link, and
        `ObjectExistsError` if an object has the name; a link of that name is replaced.
        """
        check_object_name(name)
        if isinstance(target, str):
            check_object_name(target)
            target = self._records.present(await self._records.read(target), target)
        if not isinstance(target, ObjectInfo) or not target.name or not target.bucket:
            raise LinkError(
                f"{self._records.describe(name)}: a link needs an object to lead to: give the info "
                f"of one, not {target!r}"
            )
        what = f"{self._records.describe(name)}: it cannot be a link to {target.name!r}"
        if target.deleted:
            raise LinkError(f"{what}, which is deleted")
        if target.link is not None:
            raise LinkError(f"{what}, which is a link itself; link to what that leads to")
        return await self._add_link(name, ObjectLink(bucket=target.bucket, name=target.name))

    async def add_bucket_link(self, name: str, bucket: str | ObjectStore) -> ObjectInfo:
        """Make a link to a whole store, which programs that find it can open.

        Raises `ObjectExistsError` if an object has the name; a link of that name is replaced.
        """
        check_object_name(name)
        bucket = bucket.name if isinstance(bucket, Catalog) else bucket
        check_bucket(bucket)
        return await self._add_link(name, ObjectLink(bucket=bucket))

    async def _add_link(self, name: str, link: ObjectLink) -> ObjectInfo:
        records = self._records
        info = ObjectInfo(
            name=name, bucket=self.name, nuid=next_nuid(), options=ObjectOptions(link=link)
        )

        def check(current: ObjectInfo | None) -> ObjectInfo:
            if current is not None and not current.deleted and current.link is None:
                raise ObjectExistsError(
                    f"{records.describe(name)} exists and is no link; delete it first, or choose "
                    "another name"
                )
            return info

        current = await records.read(name)
        return (await to_the_end(records.change(name, check, current))).info


def _same_object(one: ObjectInfo, other: ObjectInfo) -> bool:
    """Whether two descriptions are of the same chunks, or of the same link."""
    return one.nuid == other.nuid and is_nuid(one.nuid)
