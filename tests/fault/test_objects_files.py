"""Objects to and from files: a target is replaced at once by the whole object, or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from jetspark import Client
from jetspark.errors import (
    DigestMismatchError,
    InvalidArgumentError,
    JetSparkError,
    ObjectNotFoundError,
)
from jetspark.objects import ObjectStore
from jetspark.server import NatsServer
from tests.support.conformance import conformance
from tests.support.leaks import no_leaks
from tests.support.objects import (
    CHUNK,
    CancelledAt,
    assert_consumers_expire,
    assert_no_consumers,
    assert_tidy,
    backing_stream,
    connected,
    content,
    digest_of,
    make_store,
    raw_meta,
    read,
    store_meta,
)

DATA = content(20 * CHUNK + 7, 2)
OLD = b"what was there"


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    async with no_leaks():
        yield


@pytest.fixture
async def nc(nats_server: NatsServer, nothing_left: None) -> AsyncIterator[Client]:
    async with connected(nats_server.url) as client:
        yield client


@pytest.fixture
async def store(nc: Client) -> ObjectStore:
    """A store with an object `o` in it."""
    store = await make_store(nc)
    await store.put("o", DATA, chunk_size=CHUNK)
    return store


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file that is there already."""
    path = tmp_path / "target"
    write_old(path)
    return path


def assert_as_before(target: Path) -> None:
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == [target.name]


def data_of(path: Path) -> bytes:
    return path.read_bytes()


def mode_of(path: Path) -> int:
    return path.stat().st_mode


def write_old(path: Path) -> None:
    path.write_bytes(OLD)


# -- get_file -----------------------------------------------------------------------------------


@conformance("OBJ", "Get", "a file is written under a temporary name, then renamed")
async def test_the_file_is_replaced(store: ObjectStore, target: Path) -> None:
    mode = mode_of(target)
    await store.get_file("o", target)
    assert data_of(target) == DATA
    assert os.listdir(target.parent) == [target.name]
    fresh = target.parent / "fresh"
    await store.get_file("o", fresh)
    assert data_of(fresh) == DATA
    assert mode_of(fresh) == mode, "other permissions than a file that open() makes"


async def test_long_names(store: ObjectStore, tmp_path: Path) -> None:
    for length in (226, 227, 255):
        target = tmp_path / ("n" * length)
        await store.get_file("o", target)
        assert data_of(target) == DATA


async def test_permissions_are_kept(store: ObjectStore, target: Path) -> None:
    for mode in (0o600, 0o751):
        os.chmod(target, mode)
        seen: set[int] = set()

        def look(*_: Any, seen: set[int] = seen) -> None:
            seen.update(mode_of(path) & 0o777 for path in target.parent.iterdir())

        await store.get_file("o", target, on_progress=look)
        assert seen == {mode}, "others could look into the temporary file"
        assert mode_of(target) & 0o777 == mode


async def test_an_object_that_is_missing(store: ObjectStore, target: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        await store.get_file("missing", target)
    assert_as_before(target)


@conformance("OBJ", "Get", "a file with a wrong digest never gets its name")
async def test_a_damaged_object(nc: Client, store: ObjectStore, target: Path) -> None:
    meta = await raw_meta(nc, store.name, "o")
    await store_meta(nc, store.name, "o", {**meta, "digest": digest_of(b"other")})
    with pytest.raises(DigestMismatchError):
        await store.get_file("o", target)
    assert_as_before(target)
    await store_meta(nc, store.name, "o", meta)
    await (await backing_stream(nc, store.name)).delete_message(5)
    with pytest.raises(JetSparkError):
        await store.get_file("o", target)
    assert_as_before(target)
    await assert_no_consumers(nc, store.name)


async def test_directories_that_cannot_be_written(
    nc: Client, store: ObjectStore, target: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        await store.get_file("o", target.parent / "missing" / "file")
    with pytest.raises(NotADirectoryError):
        await store.get_file("o", target / "file")
    with pytest.raises(PermissionError if os.getuid() else OSError):
        # Not even root writes there.
        await store.get_file("o", Path("/proc/self/fdinfo/file"))
    assert_as_before(target)
    await assert_no_consumers(nc, store.name)


async def test_the_target_is_a_directory(nc: Client, store: ObjectStore, tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    with pytest.raises(InvalidArgumentError, match="is a directory"):
        await store.get_file("o", directory)
    assert os.listdir(tmp_path) == ["directory"]
    assert os.listdir(directory) == []
    await assert_no_consumers(nc, store.name)


async def test_a_full_disk(nc: Client, store: ObjectStore, target: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * CHUNK, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            await store.get_file("o", target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_as_before(target)
    await assert_no_consumers(nc, store.name)


async def test_the_temporary_file_is_taken_away(
    nc: Client, store: ObjectStore, target: Path
) -> None:
    """Whoever tidies up the directory meanwhile does not get half a file, nor a crash."""

    def tidy_up(*_: Any) -> None:
        for path in target.parent.iterdir():
            if path != target:
                path.unlink()

    with pytest.raises(FileNotFoundError):
        await store.get_file("o", target, on_progress=tidy_up)
    assert_as_before(target)
    await assert_no_consumers(nc, store.name)


async def test_the_directory_is_taken_away(store: ObjectStore, target: Path) -> None:
    def move(*_: Any) -> None:
        if target.exists():
            target.parent.rename(target.parent.with_name("elsewhere"))

    with pytest.raises(FileNotFoundError):
        await store.get_file("o", target, on_progress=move)
    with pytest.raises(FileNotFoundError):
        mode_of(target)


async def test_several_into_one_file(nc: Client, store: ObjectStore, target: Path) -> None:
    contents = [content(30 * CHUNK + i, i) for i in range(6)]
    for number, data in enumerate(contents):
        await store.put(f"o{number}", data, chunk_size=CHUNK)
    for _ in range(3):
        await asyncio.gather(*(store.get_file(f"o{i}", target) for i in range(6)))
        assert data_of(target) in contents
        assert os.listdir(target.parent) == [target.name]


async def test_a_link_on_disk_is_replaced_or_followed(store: ObjectStore, target: Path) -> None:
    """Either way the name gives the object afterwards."""
    link = target.parent / "link"
    link.symlink_to(target)
    await store.get_file("o", link)
    assert data_of(link) == DATA


@conformance("OBJ", "Get", "get_file can be cancelled at every await")
async def test_get_file_is_cancelled_at_every_await(
    nc: Client, store: ObjectStore, target: Path
) -> None:
    for turn in range(1, 300):
        call = CancelledAt(store.get_file("o", target), turn)
        try:
            await asyncio.create_task(call.run())
        except asyncio.CancelledError:
            pass
        else:
            assert data_of(target) == DATA
        assert data_of(target) in (OLD, DATA), f"await {turn} of {call.waits}"
        assert os.listdir(target.parent) == [target.name], f"await {turn} of {call.waits}"
        write_old(target)
        if call.waits < turn:
            break
    else:
        pytest.fail("it never came to its end")
    assert turn > 3
    await assert_consumers_expire(nc, store.name)


# -- put_file -----------------------------------------------------------------------------------


async def test_put_file_is_cancelled_at_every_await(
    nc: Client, store: ObjectStore, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    data = content(30 * CHUNK, 3)
    source.write_bytes(data)
    for turn in range(1, 300):
        call = CancelledAt(store.put_file("o", source, chunk_size=CHUNK), turn)
        try:
            await asyncio.create_task(call.run())
        except asyncio.CancelledError:
            pass
        found = await read(store, "o")
        assert found in (DATA, data), f"await {turn} of {call.waits}"
        await assert_tidy(nc, store, "o")
        if found == data:
            await store.put("o", DATA, chunk_size=CHUNK)
        if call.waits < turn:
            break
    else:
        pytest.fail("it never came to its end")
    assert turn > 3


async def test_a_file_that_changes_meanwhile(store: ObjectStore, tmp_path: Path) -> None:
    """What was read is what the digest is of: the object can be read again."""
    source = tmp_path / "source"
    source.write_bytes(content(2**22))

    def shrink(*_: Any) -> None:
        os.truncate(source, 2**20)

    info = await store.put_file("o", source, on_progress=shrink)
    assert info.size <= 2**22
    assert await read(store, "o") == content(2**22)[: info.size]
