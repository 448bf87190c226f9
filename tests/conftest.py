"""What every test gets: the server fixtures, and a check that no task survives a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import hypothesis
import pytest
import pytest_asyncio

pytest_plugins = ["tests.support.servers"]

# The same commit passes or fails the same way everywhere. To look for what these examples do not
# find: make test ARGS="tests/unit --hypothesis-profile=default".
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None)
hypothesis.settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups when it has its turn
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let several processes share the tests by file, and one of them begin with all of Spark's."""
    for item in items:
        folder = item.path.parent.name
        item.add_marker(pytest.mark.xdist_group(folder if folder == "spark" else item.path.name))
    items.sort(key=lambda item: item.path.parent.name != "spark")


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
