"""Keep files in an object store, without asyncio."""

import tempfile
from pathlib import Path

import jetspark.sync
from jetspark.errors import ObjectNotFoundError
from jetspark.server import run_server


def main(folder: Path) -> None:
    with run_server() as server, jetspark.sync.connect(server.url) as nc:
        js = nc.jetstream()
        store = js.create_object_store(bucket="files", max_bytes=100 * 2**20)

        # Files, bytes, and whatever yields bytes.
        report = write_report(folder)
        info = store.put_file("reports/2026.csv", report, metadata={"by": "ann"})
        print(info.name, "has", info.size, "bytes in", info.chunks, "chunks")
        store.put("notes.txt", b"remember the milk", description="a note")
        store.put("squares", (b"%d\n" % (number * number) for number in range(1000)))
        for info in store.list():
            print(f"{info.size:>8} {info.name}")

        # A part of a file, a whole one, and one that is read as it comes.
        part = store.get("reports/2026.csv", offset=50_000 * 11, length=11)
        print("row 50000:", part.read().decode().strip())
        print("the note:", store.get("notes.txt").read().decode())
        with store.get("squares") as chunks:
            print("squares:", sum(chunk.count(b"\n") for chunk in chunks))

        # Another name, a second name, and back into a file.
        store.update_meta("reports/2026.csv", name="archive/2026.csv")
        store.add_link("latest", "archive/2026.csv")
        copy = folder / "copy.csv"
        store.get_file("latest", copy)
        print("the copy is the same:", copy.read_bytes() == report.read_bytes())

        store.delete("notes.txt")
        try:
            store.get("notes.txt")
        except ObjectNotFoundError as error:
            print(error)
        print("left:", sorted(info.name for info in store.list()))


def write_report(folder: Path) -> Path:
    path = folder / "report.csv"
    path.write_bytes(b"".join(b"%07d,ok\n" % number for number in range(100_000)))
    return path


with tempfile.TemporaryDirectory() as directory:
    main(Path(directory))
