"""Futures of published messages by themselves, without a server."""

from __future__ import annotations

import asyncio

import pytest

from jetspark import PublishAck, PublishAckFuture
from jetspark.errors import StoreFailedError, TimeoutError
from jetspark.jetstream.ack_future import ERRORS_KEPT, Attempts, UnseenFailures, summary, wake


def pending(subject: str = "a") -> PublishAckFuture:
    return PublishAckFuture(subject, b"1", b"data", None, 0.0, Attempts())


def acknowledge(future: PublishAckFuture) -> PublishAck:
    future._ack = PublishAck("S", 1)
    wake(future)
    return future._ack


def fail(future: PublishAckFuture, error: BaseException) -> None:
    future._error = error
    wake(future)


async def test_a_future_that_is_settled_is_there_at_once() -> None:
    future = pending()
    assert not future.done()
    ack = acknowledge(future)
    assert future.done()
    assert await future is ack
    assert future.result() is ack
    assert future.exception() is None


async def test_several_tasks_wait_for_one_future() -> None:
    future = pending()

    async def wait() -> PublishAck:
        return await future

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    ack = acknowledge(future)
    assert list(await asyncio.gather(tasks[0], tasks[2])) == [ack, ack]
    assert tasks[1].cancelled()


async def test_a_waiter_that_is_cancelled_leaves_the_future_to_others() -> None:
    future = pending()
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.01):
            await future
    assert not future.done()
    assert not future._waiters
    ack = acknowledge(future)
    assert await future is ack


async def test_an_error_is_raised_each_time() -> None:
    future = pending()
    error = TimeoutError("late")
    fail(future, error)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="late"):
            await future
        with pytest.raises(TimeoutError, match="late"):
            future.result()
    assert future.exception() is error
    depth = 0
    step = error.__traceback__
    while step is not None:
        depth, step = depth + 1, step.tb_next
    assert depth <= 3, "the traceback grows with each call"


async def test_a_pending_future_has_no_result() -> None:
    future = pending()
    for call in (future.result, future.exception):
        with pytest.raises(asyncio.InvalidStateError, match="await it"):
            call()


async def test_the_repr_says_what_is_known() -> None:
    future = pending("orders.1")
    assert repr(future) == "<PublishAckFuture subject='orders.1' pending>"
    acknowledge(future)
    assert "sequence=1" in repr(future)
    failed = pending()
    fail(failed, StoreFailedError("full"))
    assert "StoreFailedError('full')" in repr(failed)


def test_failures_are_unseen_until_somebody_looks() -> None:
    unseen = UnseenFailures()
    futures = [pending() for _ in range(3)]
    for number, future in enumerate(futures):
        future._error = TimeoutError(str(number))
        unseen.add(future, future._error)
    assert unseen.count == 3
    with pytest.raises(TimeoutError):
        futures[0].result()
    assert isinstance(futures[1].exception(), TimeoutError)
    futures[1].exception()
    assert unseen.count == 1
    assert unseen.summary() is futures[2].exception()
    assert unseen.count == 0


def test_only_some_errors_are_kept_and_all_are_counted() -> None:
    unseen = UnseenFailures()
    futures = [pending() for _ in range(ERRORS_KEPT + 5)]
    for future in futures:
        future._error = TimeoutError("late")
        unseen.add(future, future._error)
    group = unseen.summary()
    assert isinstance(group, ExceptionGroup)
    assert len(group.exceptions) == ERRORS_KEPT
    assert "21 publishes failed, 16 of the errors are here" in str(group)
    for future in futures[:ERRORS_KEPT]:
        future.exception()
    assert unseen.count == 5
    left = unseen.summary()
    assert isinstance(left, ExceptionGroup)
    assert "5 publishes failed" in str(left)


def test_a_summary_of_one_is_the_error_itself() -> None:
    error = TimeoutError("late")
    assert summary([error], 1) is error
