"""An object store: objects of any size under names of any kind, in a stream (ADR-20).

The data of an object are messages of one subject, its chunks; what is known of it is a message of
another subject, its description, which is written last. How these are sent and read is in
`upload`, `reader` and `records`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import stat
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from jetspark.connection.nuid import next_nuid
from jetspark.errors import (
    BadObjectError,
    InvalidOptionError,
    JetSparkError,
    LinkError,
    MaxPayloadError,
)

from .arguments import (
    check_progress,
    check_range,
    own_fields,
    seconds_of,
    target_path,
    to_meta,
)
from .catalog import Catalog
from .config import ObjectStoreStatus
from .finishing import to_the_end
from .info import ObjectInfo, ObjectMeta, ObjectOptions
from .names import check_object_name, encode_digest
from .reader import ObjectReader
from .records import Replaced, naming
from .source import ObjectData, cut, size_of
from .upload import ProgressCallback, Upload

__all__ = ["ObjectStore"]

CHUNK_SIZE = 128 * 1024
IDLE_TIMEOUT = 30.0  # seconds without data until a get is given up
ATTEMPTS = 5  # to get an object that is replaced all the time
MOST_LINKS = 16  # that are followed one after the other
WRITE_SIZE = 1024 * 1024  # bytes that are written to a file at a time
_ROOM = 256  # bytes for the numbers and the digest, and for the headers of the message


class ObjectStore(Catalog):
    """Objects under names, made by `create_object_store` and `object_store` of the context.

    >>> store = await js.create_object_store(bucket="photos")  # doctest: +SKIP
    >>> await store.put("cat.jpg", Path("cat.jpg"), metadata={"by": "me"})  # doctest: +SKIP
    >>> data = await (await store.get("cat.jpg")).read()  # doctest: +SKIP
    """

    # -- putting --------------------------------------------------------------------------------

    async def put(
        self,
        name: str | ObjectMeta,
        data: ObjectData,
        *,
        description: str | None = None,
        headers: Mapping[str, str | Sequence[str]] | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> ObjectInfo:
        """Store an object; one of the same name is replaced when all of the new one is stored.

        The data are bytes, the path of a file (`pathlib.Path`), a file opened for reading bytes,
        or an iterable of bytes, plain or asynchronous; they are stored in chunks of 128 KiB, or of
        `chunk_size`. `on_progress` is called with the number of bytes that are stored, and that
        of all if it is known, which that of an iterable or an open file is not.

        If it fails or is cancelled, the chunks stored so far are removed, and the old object stays.
        Of several puts of one name at a time, the last one to finish wins.
        """
        meta = to_meta(name, description, headers, metadata)
        if meta.link is not None:
            raise LinkError(
                f"{self._records.describe(meta.name)}: data cannot be put under a link; use "
                "add_link for a link, or leave options.link out"
            )
        check_progress(on_progress)
        size = self._chunk_size(chunk_size or meta.chunk_size)
        total = size_of(data)
        options = ObjectOptions(max_chunk_size=size)
        draft = ObjectInfo(**own_fields(meta), options=options, bucket=self.name, nuid=next_nuid())
        self._check_size(draft)
        old = await self._records.read(meta.name)
        upload = Upload(
            self._context,
            self._records,
            draft.nuid,
            on_progress=on_progress,
            total=total,
        )
        try:
            with naming(self._records.describe(meta.name)):
                async with contextlib.aclosing(cut(data, size)) as chunks:
                    digest = await upload.send(chunks)
        except BaseException as error:
            await to_the_end(upload.abandon(error))
            raise
        info = draft.replace(size=upload.size, chunks=upload.chunks, digest=encode_digest(digest))
        return await to_the_end(self._commit(info, old, upload))

    async def _commit(self, info: ObjectInfo, old: ObjectInfo | None, upload: Upload) -> ObjectInfo:
        before = old

        def make(current: ObjectInfo | None) -> ObjectInfo:
            nonlocal before
            # With these chunks, it is an attempt that was stored, be it changed meanwhile.
            if current is not None and current.nuid == info.nuid:
                return current
            before = current
            return info

        try:
            replaced = await self._records.change(info.name, make, old)
        except JetSparkError as error:
            # If it may be stored after all, the chunks must stay.
            if not error.may_have_taken_effect:
                await upload.abandon(error)
            raise
        if replaced.old is replaced.info:  # it was refused, but not by this store, which has it
            self._records.warn_of_refusal()
            replaced = Replaced(replaced.info, before)
        await self._purge_replaced(replaced)
        return replaced.info

    async def put_file(
        self, name: str | ObjectMeta, path: str | os.PathLike[str], **options: Any
    ) -> ObjectInfo:
        """Store a file; the options are those of `put`."""
        return await self.put(name, Path(path), **options)

    def _chunk_size(self, wanted: int) -> int:
        limit = self._context.client.max_payload
        if type(wanted) is not int or wanted < 0:
            raise InvalidOptionError(f"chunk_size must be an int of at least 1, not {wanted!r}")
        if not wanted:
            return CHUNK_SIZE if limit < 0 else min(CHUNK_SIZE, limit)
        if wanted > limit >= 0:
            raise InvalidOptionError(
                f"chunk_size {wanted} is over the server's limit for messages of {limit} bytes "
                "(max_payload); choose a smaller one"
            )
        return wanted

    def _check_size(self, info: ObjectInfo) -> None:
        """Refuse what would not fit into a message after all chunks are sent."""
        limit = self._context.client.max_payload
        size = len(info.encode()) + _ROOM
        if size > limit >= 0:
            raise MaxPayloadError(
                f"{self._records.describe(info.name)}: description, headers and metadata have "
                f"{size} bytes; the server takes {limit} in a message",
                size=size,
                limit=limit,
            )

    # -- getting --------------------------------------------------------------------------------

    async def get(
        self,
        name: str,
        *,
        offset: int = 0,
        length: int | None = None,
        timeout: float | timedelta = IDLE_TIMEOUT,
        on_progress: ProgressCallback | None = None,
    ) -> ObjectReader:
        """The data of an object, or `length` bytes of them from `offset` on; links are followed.

        >>> data = await (await store.get("cat.jpg")).read()  # doctest: +SKIP

        Raises `ObjectNotFoundError` if there is none, and `BadObjectError` if chunks of it are
        missing; see `ObjectReader` for what is checked at the end. A range that reaches over the
        end is cut. `TimeoutError` is raised when no data come for `timeout` seconds.
        """
        check_object_name(name)
        check_range(offset, length)
        timeout = seconds_of(timeout)
        check_progress(on_progress)
        store, info = await self._resolve(name)
        for left in reversed(range(ATTEMPTS)):
            records = store._records
            records.nuid_of(info)
            reader = ObjectReader(
                self._context,
                info,
                offset=offset,
                length=length,
                timeout=timeout,
                on_progress=on_progress,
            )
            try:
                await reader.open()
                break
            except BadObjectError:
                # It may have been replaced a moment ago, and its chunks removed.
                fresh = records.present(await records.read(info.name), info.name)
                if fresh.nuid == info.nuid or not left:
                    raise
            info = fresh
            if fresh.link is not None:
                store, info = await store._resolve(fresh.name)
        return reader

    async def _resolve(self, name: str) -> tuple[ObjectStore, ObjectInfo]:
        """The object that a name leads to, over links, and the store that has it."""
        store: ObjectStore = self
        asked_for = self._records.describe(name)
        seen: list[str] = []
        while True:
            here = f"{store.name}/{name}"
            info = store._records.present(await store._records.find(name), name)
            link = info.link
            if link is None:
                return store, info
            if not link.name:
                raise LinkError(
                    f"{store._records.describe(name)} is a link to the whole store "
                    f"{link.bucket!r}; get objects from that store instead"
                )
            if here in seen or len(seen) >= MOST_LINKS:
                raise LinkError(
                    f"{asked_for}: the links lead nowhere: "
                    f"{' -> '.join([*seen, here])}; delete one of them"
                )
            seen.append(here)
            if link.bucket != store.name:
                with naming(f"{store._records.describe(name)} is a link that cannot be followed"):
                    store = await self._context.object_store(link.bucket)
            name = link.name

    async def get_file(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        timeout: float | timedelta = IDLE_TIMEOUT,
        on_progress: ProgressCallback | None = None,
    ) -> ObjectInfo:
        """Write an object into a file, which appears, or is replaced, when all is there.

        A file that is replaced keeps its permissions.
        """
        target = target_path(path)
        part = target.with_name(f".{next_nuid()}.part")  # the other name may be as long as can be
        async with await self.get(name, timeout=timeout, on_progress=on_progress) as reader:
            try:
                await _write_file(reader, part, _mode_of(target))
                os.replace(part, target)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        return reader.info

    # -- the store itself -----------------------------------------------------------------------

    async def status(self) -> ObjectStoreStatus:
        """Ask the server for the state of the store."""
        info = await self._context._object_store_info(self.name)
        return ObjectStoreStatus.from_stream_info(info)

    async def seal(self) -> None:
        """Forbid every change, for ever: nothing can be put, deleted or renamed any more."""
        info = await self._context._object_store_info(self.name)
        await self._context.update_stream(info.config.replace(sealed=True))


async def _write_file(reader: ObjectReader, path: Path, mode: int | None) -> None:
    with _create(path, mode) as file:
        waiting: list[bytes] = []
        size = 0
        async for chunk in reader:
            waiting.append(chunk)
            size += len(chunk)
            if size >= WRITE_SIZE:
                await to_the_end(asyncio.to_thread(_write, file, waiting))
                waiting, size = [], 0
        await to_the_end(asyncio.to_thread(_write, file, waiting))


def _mode_of(path: Path) -> int | None:
    """The permissions of a file; None if there is none."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _create(path: Path, mode: int | None) -> io.FileIO:
    file = path.open("xb", buffering=0)
    if mode is not None:
        path.chmod(mode)
    return file


def _write(file: io.FileIO, parts: list[bytes]) -> None:
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[file.write(view) :]
