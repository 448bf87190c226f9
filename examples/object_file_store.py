"""Keep files in an object store: put, list, read a part, rename, link, get back and delete them."""

import asyncio
import tempfile
from pathlib import Path

import jetspark
from jetspark.errors import ObjectNotFoundError
from jetspark.server import run_server


async def main(folder: Path) -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        await keep_files(nc, folder)


async def keep_files(nc: jetspark.Client, folder: Path) -> None:
    js = nc.jetstream()
    store = await js.create_object_store(bucket="files", max_bytes=100 * 2**20)

    # Files, bytes, and whatever yields bytes.
    info = await store.put_file("reports/2026.csv", write_report(folder), metadata={"by": "ann"})
    print(info.name, "has", info.size, "bytes in", info.chunks, "chunks")
    await store.put("notes.txt", b"remember the milk", description="a note")
    await store.put("squares", (b"%d\n" % (number * number) for number in range(1000)))
    async for info in store.list():
        print(f"{info.size:>8} {info.name}")

    # A part of a file, a whole one, and one that is read as it comes.
    part = await store.get("reports/2026.csv", offset=50_000 * 11, length=11)
    print("row 50000:", (await part.read()).decode().strip())
    print("the note:", (await (await store.get("notes.txt")).read()).decode())
    lines = 0
    async with await store.get("squares") as chunks:
        async for chunk in chunks:
            lines += chunk.count(b"\n")
    print("squares:", lines)

    # Another name, a second name, and back into a file.
    await store.update_meta("reports/2026.csv", name="archive/2026.csv")
    await store.add_link("latest", "archive/2026.csv")
    info = await store.get_file("latest", folder / "copy.csv")
    print("the latest is", info.name)

    await store.delete("notes.txt")
    try:
        await store.get("notes.txt")
    except ObjectNotFoundError as error:
        print(error)
    print("left:", sorted([info.name async for info in store.list()]))


def write_report(folder: Path) -> Path:
    path = folder / "report.csv"
    path.write_bytes(b"".join(b"%07d,ok\n" % number for number in range(100_000)))
    return path


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(main(Path(directory)))
