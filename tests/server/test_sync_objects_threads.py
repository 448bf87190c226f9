"""One blocking object store that several threads use at the same time."""

from __future__ import annotations

import threading

from jetspark.connection.nuid import next_nuid
from jetspark.sync import Client
from tests.support.blocking import in_thread, nc, no_threads_left
from tests.support.objects import CHUNK, content

__all__ = ["nc", "no_threads_left"]

THREADS = 4
ROUNDS = 5


def test_threads_put_and_get_different_objects_at_once(nc: Client) -> None:
    store = nc.jetstream().create_object_store(bucket=f"o_{next_nuid()}", storage="memory")
    together = threading.Barrier(THREADS, timeout=20)

    def data_of(number: int, turn: int) -> bytes:
        return content(100 * CHUNK + number, 100 * turn + number)

    def use(number: int) -> None:
        for turn in range(ROUNDS):
            together.wait()
            data = data_of(number, turn)
            assert store.put(f"o{number}", data, chunk_size=CHUNK).size == len(data)
            assert store.get(f"o{number}").read() == data
            together.wait()
            # All read one of them, each from another place on.
            shared = data_of(turn % THREADS, turn)
            start = number * 10 * CHUNK + number
            assert store.get(f"o{turn % THREADS}", offset=start).read() == shared[start:]

    for thread in [in_thread(use, number) for number in range(THREADS)]:
        thread.result()
    infos = {info.name: info for info in store.list()}
    assert infos.keys() == {f"o{number}" for number in range(THREADS)}
    for number in range(THREADS):
        assert store.get(f"o{number}").read() == data_of(number, ROUNDS - 1)
    stored = store.status().stream_info.state.messages
    assert stored == sum(1 + info.chunks for info in infos.values()), "chunks are left"
