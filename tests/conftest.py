"""What every test gets: the server fixtures, and a check that no task survives a test."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import hypothesis
import pytest
import pytest_asyncio
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["tests.support.servers"]

# The same commit passes or fails the same way everywhere. To look for what these examples do not
# find: make test ARGS="tests/unit --hypothesis-profile=default".
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None)
hypothesis.settings.load_profile("suite")

# Coverage is measured in the processes that share the tests, and not in the programs under test: it
# would bring them modules and delays.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in [name for name in os.environ if name.startswith("COVERAGE")]:
        del os.environ[_name]

# A shell lets what it runs in the background ignore Ctrl-C, and so would the programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Lets several processes share the tests by file, and one of them do all of Spark's."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith("tests/spark/") else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """How `make test` divides the tests."""
    return _Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with those that take longest: Spark's, and servers that fail."""
    order = ["spark", "fault"]
    items.sort(key=lambda item: (*order, item.path.parent.name).index(item.path.parent.name))


@pytest.fixture(autouse=True)
def no_leaked_tasks(request: pytest.FixtureRequest) -> None:
    """Fail an async test that leaves tasks behind.

    Being autouse it is set up first, so its async half ends last, after the fixtures that close
    clients. Tests without a loop are spared one.
    """
    if pytest_asyncio.is_async_test(request.node):
        request.getfixturevalue("_task_check")


@pytest_asyncio.fixture
async def _task_check() -> AsyncIterator[None]:
    yield
    leaked = asyncio.all_tasks() - {asyncio.current_task()}
    assert not leaked, f"tasks outlive the test: {sorted(map(repr, leaked))}"
