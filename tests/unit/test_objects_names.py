"""Names of stores and objects, the subjects they become, digests, and descriptions as JSON."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark import (
    ObjectInfo,
    ObjectLink,
    ObjectOptions,
    ObjectStoreConfig,
    Placement,
    StreamConfig,
)
from jetspark.errors import (
    BadBucketError,
    BadObjectError,
    InvalidBucketNameError,
    InvalidNameError,
    InvalidOptionError,
)
from jetspark.objects.config import check_store
from jetspark.objects.info import decode_info
from jetspark.objects.names import (
    check_bucket,
    check_object_name,
    chunk_subject,
    decode_digest,
    encode_digest,
    is_nuid,
    meta_subject,
    store_subjects,
    stream_name,
)
from jetspark.protocol.subjects import check_subject
from tests.support.conformance import conformance

EMPTY = "SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

# -- names --------------------------------------------------------------------------------------


@conformance("OBJ", "Names, subjects, encoding", "a bucket has letters, digits, _ and - only")
@pytest.mark.parametrize("bucket", ["a", "A-Z_09", "x" * 251])
def test_names_that_a_store_can_have(bucket: str) -> None:
    check_bucket(bucket)
    assert stream_name(bucket) == f"OBJ_{bucket}"


@conformance("OBJ", "Names, subjects, encoding", "a bucket has letters, digits, _ and - only")
@pytest.mark.parametrize(
    "bucket", ["", "a.b", "a b", "a*", ">", "ä", "a/b", "a\n", "x" * 252, None, 1, b"a"]
)
def test_names_that_a_store_cannot_have(bucket: Any) -> None:
    with pytest.raises(InvalidBucketNameError):
        check_bucket(bucket)


@conformance("OBJ", "Names, subjects, encoding", "chunks and descriptions have subjects of $O")
def test_subjects() -> None:
    assert store_subjects("b") == ["$O.b.C.>", "$O.b.M.>"]
    assert chunk_subject("b", "N1") == "$O.b.C.N1"
    assert meta_subject("b", "a") == "$O.b.M.YQ=="
    assert meta_subject("b", "ÿ?>") == "$O.b.M.w78_Pg=="


@conformance("OBJ", "Names, subjects, encoding", "an object may have any name that is not empty")
@given(st.text(min_size=1, max_size=200).filter(lambda text: text.isprintable()))
def test_every_text_is_a_name(name: str) -> None:
    check_object_name(name)
    check_subject(meta_subject("b", name))


@pytest.mark.parametrize("name", ["", None, 1, b"a", "\ud800", "x" * 2400])
def test_what_is_no_name_of_an_object(name: Any) -> None:
    with pytest.raises(InvalidNameError):
        check_object_name(name)
    check_object_name("x" * 2300)


@pytest.mark.parametrize("nuid", ["", "*", ">", "a.b", "a b", "a.>", "a\n"])
def test_what_cannot_name_chunks(nuid: str) -> None:
    assert not is_nuid(nuid)
    assert is_nuid("ABCdef0123456789abcdef")


# -- digests ------------------------------------------------------------------------------------


@conformance("OBJ", "Names, subjects, encoding", "a digest is a URL-safe padded SHA-256")
def test_the_digest_of_nothing() -> None:
    assert encode_digest(hashlib.sha256(b"").digest()) == EMPTY


@given(st.binary())
def test_digests_there_and_back(data: bytes) -> None:
    digest = hashlib.sha256(data).digest()
    text = encode_digest(digest)
    assert decode_digest(text) == digest
    assert decode_digest(text.replace("SHA", "sha", 1)) == digest


@pytest.mark.parametrize("text", ["", "SHA-256", "SHA-256=", "SHA-256=abc", "MD5=" + EMPTY[8:]])
def test_what_is_no_digest(text: str) -> None:
    with pytest.raises(BadObjectError, match="not a SHA-256 digest"):
        decode_digest(text)


# -- descriptions -------------------------------------------------------------------------------


def decoded(meta: Any) -> ObjectInfo:
    data = meta if isinstance(meta, bytes) else json.dumps(meta).encode()
    return decode_info(data, "$O.b.M.bw==", "object 'o'", bucket="b", modified=NOW, sequence=7)


@conformance("OBJ", "Meta message", "what is empty is left out, and so is mtime")
def test_what_is_written() -> None:
    info = ObjectInfo(name="o", bucket="b", nuid="N", size=3, chunks=1, digest=EMPTY)
    assert json.loads(info.encode()) == {
        "name": "o",
        "bucket": "b",
        "nuid": "N",
        "size": 3,
        "chunks": 1,
        "digest": EMPTY,
    }
    full = info.replace(
        description="d",
        headers={"A": ["1", "2"]},
        metadata={"k": "v"},
        options=ObjectOptions(max_chunk_size=5),
        deleted=True,
        modified=NOW,
        sequence=9,
    )
    written = json.loads(full.encode())
    assert written["headers"] == {"A": ["1", "2"]}
    assert written["metadata"] == {"k": "v"}
    assert written["options"] == {"max_chunk_size": 5}
    assert written["deleted"] is True
    assert not {"mtime", "modified", "sequence"} & written.keys()


def test_the_links_of_a_description() -> None:
    link = ObjectLink(bucket="other", name="o")
    info = ObjectInfo(name="l", bucket="b", options=ObjectOptions(link=link))
    assert info.link == link
    assert json.loads(info.encode())["options"] == {"link": {"bucket": "other", "name": "o"}}
    whole = decoded({"name": "l", "options": {"link": {"bucket": "other", "name": None}}})
    assert whole.link == ObjectLink(bucket="other")
    assert (ObjectInfo(name="o").link, ObjectInfo(name="o").chunk_size) == (None, 0)


@conformance("OBJ", "Meta message", "mtime is ignored, whatever is written there")
@pytest.mark.parametrize("mtime", ["", "0001-01-01T00:00:00Z", None, "2020-01-01T00:00:00Z", 5])
def test_mtime_means_nothing(mtime: Any) -> None:
    info = decoded({"name": "o", "nuid": "N", "mtime": mtime})
    assert (info.modified, info.sequence) == (NOW, 7)
    assert b"mtime" not in info.encode()


@conformance("OBJ", "Meta message", "nulls, missing and unknown fields are tolerated")
def test_what_others_may_write() -> None:
    info = decoded(
        {
            "name": "o",
            "options": None,
            "headers": None,
            "metadata": None,
            "digest": None,
            "deleted": None,
            "description": None,
            "of_the_future": {"a": 1},
        }
    )
    assert (info.nuid, info.headers, info.metadata, info.options) == ("", {}, {}, None)
    assert info.extra == {"of_the_future": {"a": 1}}
    assert json.loads(info.encode())["of_the_future"] == {"a": 1}
    assert decoded({"name": "o", "options": {"link": None}}).link is None


@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        {},
        {"name": ""},
        {"name": 1},
        {"name": "o", "size": -1},
        {"name": "o", "size": "1"},
        {"name": "o", "chunks": -1},
        {"name": "o", "headers": {"A": "no list"}},
        {"name": "o", "options": {"link": {"name": "no bucket"}}},
    ],
)
def test_descriptions_that_are_damaged(meta: Any) -> None:
    with pytest.raises(BadObjectError, match="object 'o': its description is damaged") as caught:
        decoded(meta)
    assert "purge the subject $O.b.M.bw==" in str(caught.value)


def test_a_description_says_nothing_about_its_store() -> None:
    assert decoded({"name": "o", "bucket": "another"}).bucket == "b"


# -- configurations -----------------------------------------------------------------------------


@conformance("OBJ", "Bucket -> stream config", "the fixed fields and the defaults of the stream")
def test_the_stream_of_a_store() -> None:
    assert ObjectStoreConfig(bucket="b").to_stream().to_wire() == {
        "name": "OBJ_b",
        "subjects": ["$O.b.C.>", "$O.b.M.>"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "storage": "file",
        "num_replicas": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }


@conformance("OBJ", "Bucket -> stream config", "the options of the bucket become those of a stream")
def test_all_options_of_a_store() -> None:
    config = ObjectStoreConfig(
        bucket="b",
        description="d",
        ttl=60,
        max_bytes=0,
        storage="memory",
        replicas=3,
        placement=Placement(cluster="c"),
        compression=True,
        metadata={"k": "v"},
    )
    config.validate()
    wire = config.to_stream().to_wire()
    assert (wire["description"], wire["max_age"], wire["max_bytes"]) == ("d", 60 * 10**9, -1)
    assert (wire["storage"], wire["num_replicas"], wire["compression"]) == ("memory", 3, "s2")
    assert (wire["placement"], wire["metadata"]) == ({"cluster": "c"}, {"k": "v"})
    back = ObjectStoreConfig.from_stream(config.to_stream().replace(metadata={"_nats.ver": "1"}))
    assert back == config.replace(max_bytes=-1, metadata={})


def test_an_update_leaves_alone_what_a_store_does_not_know() -> None:
    present = ObjectStoreConfig(bucket="b").to_stream().replace(sealed=True, max_msg_size=5)
    changed = ObjectStoreConfig(bucket="b", description="d", ttl=5).changed(present)
    assert (changed.sealed, changed.max_msg_size) == (True, 5)
    assert (changed.description, changed.max_age) == ("d", timedelta(seconds=5))


@pytest.mark.parametrize(
    "fields",
    [
        {"bucket": "a.b"},
        {"replicas": 0},
        {"replicas": 6},
        {"max_bytes": -2},
        {"ttl": 0.01},
        {"ttl": -1},
        {"storage": "tape"},
        {"description": "d" * 5000},
        {"compression": "s2"},
        {"chunks": 5},
    ],
)
def test_configurations_that_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        ObjectStoreConfig(**{"bucket": "b", **fields}).validate()


def test_streams_that_are_no_stores() -> None:
    check_store(ObjectStoreConfig(bucket="b").to_stream())
    with pytest.raises(BadBucketError, match="'OBJ_b' is no object store"):
        check_store(StreamConfig(name="OBJ_b", subjects=["$O.b.C.>"]))
