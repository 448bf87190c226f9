"""Replays of archives: the same messages in the same order, each once, however often it is run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jetspark
from jetspark.errors import (
    ArchiveError,
    NoMatchingStreamError,
    StreamNotFoundError,
    SubjectOverlapError,
)
from jetspark.pipeline import replay as replay_module
from jetspark.pipeline.replay import Replayed, ReplayOptions, replay
from jetspark.pipeline.replay_note import Notebook
from jetspark.pipeline.replay_read import Selection
from jetspark.server import NatsServer
from jetspark.spark.connection import Access
from tests.support.archives import access_to, archive_here

from .conftest import Streams

Message = tuple[str, bytes, dict[str, list[str]]]


@pytest.fixture
def access(nats: NatsServer) -> Access:
    return access_to(nats.url)


@pytest.fixture
def origin(streams: Streams, access: Access, tmp_path: Path) -> str:
    """A stream with all kinds of messages, which is archived."""
    name = streams.new(allow_direct=True, duplicate_window=0.1)

    async def fill(js: jetspark.JetStream) -> None:
        for number in range(2000):
            options: dict[str, Any] = {}
            if number % 5 == 0:
                options["msg_id"] = f"id-{number}"
            if number % 7 == 0:
                options["headers"] = {"a": ["1", "2"], "b": "ü"}
            if number % 11 == 0:
                options["expected_stream"] = name
            subject = f"{name}.{'eu' if number % 3 else 'us'}.{number % 4}"
            await js.publish_async(subject, b"%d" % number, **options)
        await js.publish_async_complete()

    streams.edit(fill)
    archive_here(access, name, tmp_path, by_token=2)
    return name


def run(access: Access, path: Path, stream: str, **options: Any) -> Replayed:
    *_, last = replay(ReplayOptions(access=access, directory=path, stream=stream, **options))
    return last


def messages(streams: Streams, stream: str) -> list[Message]:
    async def read(js: jetspark.JetStream) -> list[Message]:
        source = (await js.get_stream(stream)).direct_get_batch(seq=1)
        return [(each.subject, each.data, each.headers.to_dict()) async for each in source]

    found: list[Message] = streams.edit(read)
    return found


def copies(streams: Streams, origin: str, prefix: str) -> list[Message]:
    """What a replay of a whole stream makes of its messages."""
    found = []
    for sequence, (subject, data, headers) in enumerate(messages(streams, origin), 1):
        headers.pop("Nats-Expected-Stream", None)
        if "Nats-Msg-Id" in headers:
            headers["Jetspark-Origin"] = [f"{origin}:{sequence}"]
        else:
            headers["Nats-Msg-Id"] = [f"{origin}:{sequence}"]
        found.append((f"{prefix}.{subject}", data, headers))
    return found


def new_target(streams: Streams, **config: Any) -> str:
    """A stream for everything that begins with its name."""
    return streams.new(allow_direct=True, **config)


def test_the_same_messages_in_the_same_order(
    streams: Streams, access: Access, origin: str, tmp_path: Path
) -> None:
    target = new_target(streams)
    done = run(access, tmp_path, target, prefix=target)
    assert (done.total, done.published, done.found, done.through) == (2000, 2000, 0, 2000)
    assert messages(streams, target) == copies(streams, origin, target)


def test_again_after_the_duplicate_window(
    streams: Streams, access: Access, origin: str, tmp_path: Path
) -> None:
    target = new_target(streams, duplicate_window=0.1)
    run(access, tmp_path, target, prefix=target)
    time.sleep(0.5)  # the window is over
    done = run(access, tmp_path, target, prefix=target)
    assert (done.total, done.published, done.found) == (0, 0, 2000)
    streams.publish(origin, 10)
    archive_here(access, origin, tmp_path)
    assert run(access, tmp_path, target, prefix=target).published == 10
    assert messages(streams, target) == copies(streams, origin, target)


def test_what_was_stored_but_not_noted(
    streams: Streams,
    access: Access,
    origin: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process is killed when it has published more than it has noted, and others publish, too."""
    target = new_target(streams, duplicate_window=0.1)
    monkeypatch.setattr(replay_module, "NOTE_EVERY", 1e9)
    monkeypatch.setattr(Notebook, "write", _only_the_first())
    run(access, tmp_path, target, prefix=target)
    monkeypatch.undo()

    async def lose(js: jetspark.JetStream) -> None:
        stream = await js.get_stream(target)
        for sequence in (3, 500, 1999, 2000):
            await stream.delete_message(sequence)

    streams.edit(lose)
    streams.publish(target, 5, subject="other")
    time.sleep(0.5)
    done = run(access, tmp_path, target, prefix=target)
    assert (done.total, done.published, done.found) == (4, 4, 1996)
    found = messages(streams, target)
    expected = copies(streams, origin, target)
    assert [each for each in found if not each[0].endswith("other")][-4:] == [
        expected[number - 1] for number in (3, 500, 1999, 2000)
    ]
    assert len(found) == 2005
    time.sleep(0.5)
    assert run(access, tmp_path, target, prefix=target).published == 0


def _only_the_first() -> Any:
    write, calls = Notebook.write, []

    async def once(self: Any, note: Any) -> None:
        calls.append(note)
        if len(calls) == 1:
            await write(self, note)

    return once


def test_a_selection_and_then_the_rest(
    streams: Streams, access: Access, origin: str, tmp_path: Path
) -> None:
    target = new_target(streams, duplicate_window=0.1)
    expected = copies(streams, origin, target)
    first = Selection((f"{origin}.us.>",))
    assert run(access, tmp_path, target, prefix=target, selection=first).published == 667
    assert messages(streams, target) == [each for each in expected if ".us." in each[0]]
    time.sleep(0.5)
    done = run(access, tmp_path, target, prefix=target)
    assert (done.published, done.found) == (1333, 667)
    found = messages(streams, target)
    assert found[667:] == [each for each in expected if ".eu." in each[0]]
    time.sleep(0.5)
    assert run(access, tmp_path, target, prefix=target, selection=first).published == 0
    assert run(access, tmp_path, target, prefix=target).published == 0


def test_one_selection_and_then_another(
    streams: Streams, access: Access, origin: str, tmp_path: Path
) -> None:
    target = new_target(streams)
    for part, count in (("eu", 1333), ("us", 667)):
        selection = Selection((f"{origin}.{part}.>",))
        done = run(access, tmp_path, target, prefix=target, selection=selection)
        assert (done.total, done.published, done.found) == (count, count, 0)
    assert len(messages(streams, target)) == 2000


def test_a_message_that_somebody_else_has_published(
    streams: Streams, access: Access, tmp_path: Path
) -> None:
    name = streams.new(allow_direct=True)
    streams.publish(name, 1, msg_id="same")
    archive_here(access, name, tmp_path)
    target = new_target(streams)
    streams.publish(target, 1, msg_id="same")
    done = run(access, tmp_path, target, prefix=target)
    assert (done.published, done.renamed) == (1, 0)
    assert len(messages(streams, target)) == 1


def test_ids_that_were_used_twice(streams: Streams, access: Access, tmp_path: Path) -> None:
    """The stream had forgotten an id when it came again; a replay is faster than that."""
    name = streams.new(allow_direct=True, duplicate_window=0.1)
    for number in range(3):
        streams.publish(name, 2, first=2 * number, msg_id="same")
        time.sleep(0.5)
    archive_here(access, name, tmp_path)
    originals = messages(streams, name)
    assert [data for _, data, _ in originals] == [b"0", b"2", b"4"]
    target = new_target(streams)
    done = run(access, tmp_path, target, prefix=target)
    assert (done.published, done.renamed) == (3, 2)
    found = messages(streams, target)
    assert [data for _, data, _ in found] == [b"0", b"2", b"4"]
    assert [headers["Nats-Msg-Id"][0] for *_, headers in found] == [
        "same",
        f"{name}:2",
        f"{name}:3",
    ]
    assert run(access, tmp_path, target, prefix=target).published == 0


def test_the_stream_is_created(
    streams: Streams, access: Access, origin: str, tmp_path: Path
) -> None:
    name = f"{origin}_COPY"
    with pytest.raises(StreamNotFoundError, match="let --create make it"):
        run(access, tmp_path, name)
    with pytest.raises(SubjectOverlapError, match="put something in front with --subject-prefix"):
        run(access, tmp_path, name, create=True)
    run(access, tmp_path, name, create=True, prefix=f"copy.{name}")
    assert messages(streams, name) == copies(streams, origin, f"copy.{name}")


def test_one_created_again_is_another_one(
    streams: Streams, access: Access, origin: str, tmp_path: Path
) -> None:
    name = f"{origin}_COPY"
    for _ in range(2):
        assert run(access, tmp_path, name, create=True, prefix=name).published == 2000

        async def delete(js: jetspark.JetStream) -> None:
            await js.delete_stream(name)

        streams.edit(delete)


def test_what_does_not_fit(streams: Streams, access: Access, origin: str, tmp_path: Path) -> None:
    target = new_target(streams)
    with pytest.raises(NoMatchingStreamError, match="nothing was written: stream"):
        run(access, tmp_path, target)
    assert messages(streams, target) == []
    with pytest.raises(ArchiveError, match="is the one that was archived"):
        run(access, tmp_path, origin)
    with pytest.raises(ArchiveError, match="there is no archive in"):
        run(access, tmp_path / "other", target)


def test_a_dry_run_changes_nothing(
    streams: Streams, access: Access, origin: str, tmp_path: Path
) -> None:
    target = new_target(streams)
    done = run(access, tmp_path, target, prefix=target, dry_run=True)
    assert (done.total, done.published, done.subjects) == (2000, 0, 8)
    assert messages(streams, target) == []


def test_two_at_a_time(streams: Streams, access: Access, origin: str, tmp_path: Path) -> None:
    target = new_target(streams)
    slow = replay(
        ReplayOptions(access=access, directory=tmp_path, stream=target, prefix=target, speed=0.001)
    )
    next(slow)
    run(access, tmp_path, target, prefix=target)
    with pytest.raises(ArchiveError, match="another process replays this archive"):
        for _ in slow:
            pass
    assert len(messages(streams, target)) == 2000


def paced(access: Access, path: Path, stream: str, **options: Any) -> Iterator[Replayed]:
    return replay(
        ReplayOptions(access=access, directory=path, stream=stream, prefix=stream, **options)
    )


def test_at_the_original_speed(streams: Streams, access: Access, tmp_path: Path) -> None:
    name = streams.new(allow_direct=True)
    for number in range(3):
        streams.publish(name, 2, first=2 * number)
        time.sleep(0.4)
    archive_here(access, name, tmp_path)
    for speed, least in ((1.0, 0.4), (4.0, 0.1)):
        target = new_target(streams)
        run(access, tmp_path, target, prefix=target, speed=speed)

        async def span(js: jetspark.JetStream, name: str = target) -> float:
            state = (await js.get_stream(name)).cached_info.state
            assert state.first_ts is not None
            assert state.last_ts is not None
            return (state.last_ts - state.first_ts).total_seconds()

        assert streams.edit(span) >= least
        assert messages(streams, target) == copies(streams, name, target)


def test_it_can_be_stopped(streams: Streams, access: Access, origin: str, tmp_path: Path) -> None:
    target = new_target(streams)
    stop = threading.Event()
    steps = paced(access, tmp_path, target, speed=0.0001, stop=stop)
    next(steps)
    stop.set()
    *_, last = steps
    assert last.published < 2000
    assert run(access, tmp_path, target, prefix=target).found == last.published
    assert messages(streams, target) == copies(streams, origin, target)
