"""The subjects of the API, and the names in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jetspark import errors
from jetspark.jetstream.names import (
    check_consumer_name,
    check_domain,
    check_priority_group,
    check_stream_name,
)
from jetspark.jetstream.subjects import API

TABLE: list[tuple[Callable[[API], str], str]] = [
    (lambda api: api.account_info(), "INFO"),
    (lambda api: api.stream_create("S"), "STREAM.CREATE.S"),
    (lambda api: api.stream_update("S"), "STREAM.UPDATE.S"),
    (lambda api: api.stream_info("S"), "STREAM.INFO.S"),
    (lambda api: api.stream_names(), "STREAM.NAMES"),
    (lambda api: api.stream_list(), "STREAM.LIST"),
    (lambda api: api.stream_delete("S"), "STREAM.DELETE.S"),
    (lambda api: api.stream_purge("S"), "STREAM.PURGE.S"),
    (lambda api: api.stream_message_get("S"), "STREAM.MSG.GET.S"),
    (lambda api: api.stream_message_delete("S"), "STREAM.MSG.DELETE.S"),
    (lambda api: api.direct_get("S"), "DIRECT.GET.S"),
    (lambda api: api.direct_get_last("S", "a.*.>"), "DIRECT.GET.S.a.*.>"),
    (lambda api: api.stream_snapshot("S"), "STREAM.SNAPSHOT.S"),
    (lambda api: api.stream_restore("S"), "STREAM.RESTORE.S"),
    (lambda api: api.stream_peer_remove("S"), "STREAM.PEER.REMOVE.S"),
    (lambda api: api.stream_peer_evacuate("S"), "STREAM.PEER.EVACUATE.S"),
    (lambda api: api.stream_cancel_move("S"), "STREAM.CANCEL_MOVE.S"),
    (lambda api: api.stream_leader_stepdown("S"), "STREAM.LEADER.STEPDOWN.S"),
    (lambda api: api.consumer_create("S"), "CONSUMER.CREATE.S"),
    (lambda api: api.consumer_create("S", "C"), "CONSUMER.CREATE.S.C"),
    (lambda api: api.consumer_create("S", "C", "a.>"), "CONSUMER.CREATE.S.C.a.>"),
    (lambda api: api.consumer_durable_create("S", "C"), "CONSUMER.DURABLE.CREATE.S.C"),
    (lambda api: api.consumer_info("S", "C"), "CONSUMER.INFO.S.C"),
    (lambda api: api.consumer_delete("S", "C"), "CONSUMER.DELETE.S.C"),
    (lambda api: api.consumer_names("S"), "CONSUMER.NAMES.S"),
    (lambda api: api.consumer_list("S"), "CONSUMER.LIST.S"),
    (lambda api: api.consumer_next("S", "C"), "CONSUMER.MSG.NEXT.S.C"),
    (lambda api: api.consumer_pause("S", "C"), "CONSUMER.PAUSE.S.C"),
    (lambda api: api.consumer_unpin("S", "C"), "CONSUMER.UNPIN.S.C"),
    (lambda api: api.consumer_reset("S", "C"), "CONSUMER.RESET.S.C"),
    (lambda api: api.consumer_leader_stepdown("S", "C"), "CONSUMER.LEADER.STEPDOWN.S.C"),
    (lambda api: api.meta_leader_stepdown(), "META.LEADER.STEPDOWN"),
    (lambda api: api.meta_rescue(), "META.RESCUE"),
    (lambda api: api.server_remove(), "SERVER.REMOVE"),
    (lambda api: api.server_evacuate(), "SERVER.EVACUATE"),
    (lambda api: api.account_purge("A"), "ACCOUNT.PURGE.A"),
]


@pytest.mark.parametrize(("call", "suffix"), TABLE, ids=[suffix for _, suffix in TABLE])
def test_every_endpoint_under_every_prefix(call: Callable[[API], str], suffix: str) -> None:
    assert call(API()) == f"$JS.API.{suffix}"
    assert call(API(domain="hub")) == f"$JS.hub.API.{suffix}"
    assert call(API(prefix="from.other")) == f"from.other.{suffix}"


def test_every_endpoint_is_tested() -> None:
    methods = {name for name in vars(API) if not name.startswith("_")}
    tested = {call.__code__.co_names[0] for call, _ in TABLE}
    assert tested == methods


def test_one_dot_at_the_end_of_a_prefix_is_stripped() -> None:
    assert API(prefix="from.other.").prefix == "from.other"
    with pytest.raises(errors.InvalidOptionError, match="prefix"):
        API(prefix="from.other..")


@pytest.mark.parametrize("prefix", ["", ".", "a b", "a.*", "a.>", "a..b"])
def test_bad_prefixes(prefix: str) -> None:
    with pytest.raises(errors.InvalidOptionError, match="prefix"):
        API(prefix=prefix)


def test_a_domain_is_a_prefix() -> None:
    with pytest.raises(errors.InvalidOptionError, match="prefix and domain"):
        API(prefix="a", domain="b")
    for domain in ("", "a.b", "a b", "*", ">"):
        with pytest.raises(errors.InvalidOptionError, match="domain"):
            API(domain=domain)


def test_names_are_checked_on_the_way() -> None:
    api = API()
    with pytest.raises(errors.InvalidStreamNameError, match=r"'a\.b'"):
        api.stream_info("a.b")
    with pytest.raises(errors.InvalidConsumerNameError, match=r"'a\.b'"):
        api.consumer_info("S", "a.b")
    with pytest.raises(errors.InvalidStreamNameError):
        api.consumer_info("*", "C")
    with pytest.raises(errors.InvalidSubjectError):
        api.direct_get_last("S", "a b")
    with pytest.raises(errors.InvalidSubjectError):
        api.consumer_create("S", "C", "a..b")
    with pytest.raises(errors.InvalidOptionError, match="name of the consumer"):
        api.consumer_create("S", filter_subject="a")


@pytest.mark.parametrize("name", ["ORDERS", "a", "a-b_c", "ключ", "$x", "x" * 255])
def test_good_names(name: str) -> None:
    check_stream_name(name)
    check_consumer_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a\tb",
        "a\n",
        "a.b",
        "a*",
        "a>",
        "a/b",
        "a\\b",
        "a\x00",
        "x" * 256,
        "é" * 128,
        5,
        None,
        b"a",
    ],
)
def test_bad_names(name: object) -> None:
    with pytest.raises(errors.InvalidStreamNameError, match="stream name"):
        check_stream_name(name)
    with pytest.raises(errors.InvalidConsumerNameError, match="consumer name"):
        check_consumer_name(name)


@pytest.mark.parametrize("name", ["a", "A-Z_0/9=", "x" * 16])
def test_good_priority_groups(name: str) -> None:
    check_priority_group(name)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 17, "a\n", None])
def test_bad_priority_groups(name: object) -> None:
    with pytest.raises(errors.InvalidNameError, match="priority group"):
        check_priority_group(name)


def test_domains() -> None:
    check_domain("hub-1")
    for domain in ("", "a.b", "a b", None):
        with pytest.raises(errors.InvalidOptionError, match="domain"):
            check_domain(domain)
