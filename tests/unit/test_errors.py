"""The tree of exceptions as a whole, and those of the client itself."""

from __future__ import annotations

import builtins
import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from jetspark import errors
from jetspark.errors import JetSparkError


def walk(root: type[JetSparkError]) -> Iterator[type[JetSparkError]]:
    """A class and all below it; one with two parents comes twice."""
    yield root
    for child in root.__subclasses__():
        yield from walk(child)


# Tests of other modules may make classes of their own; those of the package count.
TREE = sorted(
    {kind for kind in walk(JetSparkError) if kind.__module__.startswith("jetspark")},
    key=lambda kind: kind.__name__,
)


@pytest.fixture(params=TREE, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[JetSparkError]:
    found: type[JetSparkError] = request.param
    return found


# -- every class ------------------------------------------------------------------------------


def test_the_tree_was_found() -> None:
    assert len(TREE) > 25
    assert errors.PermissionsError in TREE


def test_every_class_is_public(kind: type[JetSparkError]) -> None:
    assert kind.__name__ in errors.__all__
    assert getattr(errors, kind.__name__) is kind
    assert kind.__module__ == "jetspark.errors"
    assert kind.__qualname__ == kind.__name__
    assert kind.__name__.endswith("Error")


def test_every_class_says_what_it_means(kind: type[JetSparkError]) -> None:
    assert "__doc__" in vars(kind)
    assert inspect.getdoc(kind)


def test_nothing_else_is_exported() -> None:
    names = [name for name in errors.__all__ if isinstance(getattr(errors, name), type)]
    assert sorted(names) == [kind.__name__ for kind in TREE]
    assert len(errors.__all__) == len(set(errors.__all__))


def test_text(kind: type[JetSparkError]) -> None:
    assert str(kind("the thing failed; do this")) == "the thing failed; do this"
    assert str(kind()) == ""
    assert kind("x").args == ("x",)


def test_attributes(kind: type[JetSparkError]) -> None:
    error: Any = kind("x", subject="a.b", anything=5)
    assert (error.subject, error.anything) == ("a.b", 5)
    assert isinstance(error.retryable, bool)
    assert isinstance(error.may_have_taken_effect, bool)
    # An attribute of one error says nothing about the others.
    assert not hasattr(kind("y"), "anything")


def test_a_single_error_can_be_more_retryable_than_its_class(kind: type[JetSparkError]) -> None:
    error = kind("x", retryable=not kind.retryable)
    assert error.retryable is not kind.retryable
    assert kind("y").retryable is kind.retryable


def test_pickles(kind: type[JetSparkError]) -> None:
    for attributes in ({}, {"subject": "a", "codes": [1, 2], "retryable": True}):
        error = kind("the message", **attributes)
        error.add_note("a note")
        copies = [
            pickle.loads(pickle.dumps(error, protocol))
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
        ]
        for again in [*copies, copy.copy(error)]:
            assert type(again) is kind
            assert str(again) == "the message"
            assert again.args == error.args
            assert vars(again) == vars(error) == attributes | {"__notes__": ["a note"]}


def test_can_be_raised_and_caught(kind: type[JetSparkError]) -> None:
    for base in kind.__mro__:
        if issubclass(base, Exception):
            with pytest.raises(base, match="the message"):
                raise kind("the message", server="nats://a:4222")


# -- the tree ---------------------------------------------------------------------------------

_NODE = re.compile(r"(?P<branches>[│├└─ ]*)(?P<name>\w+Error)(?: \((?P<others>[\w, ]+)\))?")


def drawn_tree() -> dict[str, list[str]]:
    """The bases of every class as the docstring of the module draws them."""
    text = inspect.getdoc(errors) or ""
    drawing = text.partition("::\n\n")[2].partition("\n\n")[0]
    bases: dict[str, list[str]] = {}
    path: list[str] = []
    for line in drawing.splitlines():
        node = _NODE.match(line.removeprefix("    "))
        assert node, line
        depth, name = len(node["branches"]) // 4, node["name"]
        assert name not in bases, f"{name} is drawn twice"
        path = [*path[:depth], name]
        assert len(path) == depth + 1, line
        others = node["others"].split(", ") if node["others"] else []
        bases[name] = path[-2:-1] + others
    return bases


def test_the_tree_is_as_drawn() -> None:
    drawn = drawn_tree()
    actual = {kind.__name__: [base.__name__ for base in kind.__bases__] for kind in TREE}
    actual["JetSparkError"].remove("Exception")
    assert drawn == actual


# -- the errors of the client -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.InvalidArgumentError, ValueError),
        (errors.InvalidSubjectError, ValueError),
        (errors.MaxPayloadError, ValueError),
        (errors.MissingExtraError, ImportError),
        (errors.ConnectionError, builtins.ConnectionError),
        (errors.ConnectError, OSError),
        (errors.DisconnectedError, builtins.ConnectionError),
        (errors.TimeoutError, builtins.TimeoutError),
    ],
)
def test_builtins_catch_ours(kind: type[JetSparkError], base: type[Exception]) -> None:
    assert issubclass(kind, base)
    with pytest.raises(base, match="x"):
        raise kind("x", server="nats://a:4222")


def test_a_message_that_looks_like_an_errno_is_left_alone() -> None:
    # OSError turns two arguments into errno and text; ours have one.
    error = errors.ConnectionError("2", server="nats://a:4222")
    assert str(error) == "2"
    assert type(error) is errors.ConnectionError
    assert error.errno is None


@pytest.mark.parametrize(
    ("kind", "retryable", "may_have_taken_effect"),
    [
        (errors.InvalidArgumentError, False, False),
        (errors.MaxPayloadError, False, False),
        (errors.ProtocolError, False, False),
        (errors.ConnectError, True, False),
        (errors.NoServersError, True, False),
        (errors.AuthenticationError, False, False),
        (errors.AuthenticationExpiredError, True, False),
        (errors.DisconnectedError, True, True),
        (errors.StaleConnectionError, True, False),
        (errors.ReconnectBufferFullError, True, False),
        (errors.ConnectionClosedError, False, False),
        (errors.PermissionsError, False, False),
        (errors.NoRespondersError, True, False),
        (errors.TimeoutError, True, True),
    ],
)
def test_what_a_retry_may_do(
    kind: type[JetSparkError], retryable: bool, may_have_taken_effect: bool
) -> None:
    error = kind("x")
    assert (error.retryable, error.may_have_taken_effect) == (retryable, may_have_taken_effect)


def test_defaults_of_attributes() -> None:
    too_large = errors.MaxPayloadError("x")
    assert (too_large.size, too_large.limit) == (0, 0)
    refused = errors.PermissionsError("x")
    assert (refused.operation, refused.subject, refused.queue) == ("", "", None)
    assert refused.server is None
    assert errors.SlowConsumerError("x").dropped == 0
    assert errors.SubscriptionClosedError("x").subject == ""
    assert errors.NoRespondersError("x").subject == ""
