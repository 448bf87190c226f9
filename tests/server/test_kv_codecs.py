"""Buckets with codecs for values and for keys."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from jetspark import (
    Base64KeyCodec,
    Client,
    JetStream,
    JSONCodec,
    KeyCodec,
    KeyCodecChain,
    KeyValue,
    PathKeyCodec,
)
from jetspark.errors import InvalidKeyError, InvalidOptionError, KeyDeletedError
from tests.support.buckets import js, nc
from tests.support.conformance import conformance
from tests.support.kv import listed, new_bucket
from tests.support.streams import new_name

__all__ = ["js", "nc"]

SECTION = "8. Mirrors, sources, republish"


@dataclasses.dataclass
class Order:
    item: str
    count: int = 1


@conformance("KV", SECTION, "typed values through a codec")
async def test_typed_values(js: JetStream) -> None:
    bucket: KeyValue[Order] = await js.create_key_value(
        bucket=new_name(), storage="memory", history=5, codec=JSONCodec(Order)
    )
    await bucket.put("a", Order("eggs", 12))
    await bucket.update("a", Order("eggs", 6), 1)
    assert (await bucket.get("a")).value == Order("eggs", 6)
    assert (await bucket.get("a", 1)).value.count == 12
    await bucket.create("b", Order("milk"))
    assert {key: entry.value for key, entry in (await bucket.get_many(">")).items()} == {
        "a": Order("eggs", 6),
        "b": Order("milk"),
    }
    await bucket.delete("a")
    with pytest.raises(KeyDeletedError):
        await bucket.get("a")
    values = [entry.value for entry in await bucket.history("a") if not entry.deleted]
    assert values == [Order("eggs", 12), Order("eggs", 6)]
    async with bucket.watch("b") as watcher:
        entry = await watcher.next(5)
        assert entry is not None
        assert entry.value == Order("milk")
    raw = await js.key_value(bucket.name)
    assert json.loads((await raw.get("b")).value) == {"item": "milk", "count": 1}


async def test_a_value_that_cannot_be_encoded(js: JetStream) -> None:
    bucket = await js.create_key_value(bucket=new_name(), storage="memory", codec=JSONCodec())
    with pytest.raises(TypeError) as caught:
        await bucket.put("a", object())
    assert caught.value.__notes__ == [f"for key 'a' of bucket {bucket.name!r}"]
    assert (await bucket.status()).values == 0


async def test_a_value_that_cannot_be_decoded(nc: Client, js: JetStream) -> None:
    raw = await new_bucket(nc)
    await raw.put("a", b"{")
    bucket = await js.key_value(raw.name, codec=JSONCodec())
    entry = await bucket.get("a")
    with pytest.raises(ValueError):
        _ = entry.value
    assert entry.raw_value == b"{"


@conformance("KV", SECTION, "a key codec: any key, and filters that still work")
async def test_base64_keys(js: JetStream) -> None:
    bucket = await js.create_key_value(
        bucket=new_name(), storage="memory", history=2, key_codec=Base64KeyCodec()
    )
    keys = ["users.josé@example", "users.a b", "größe", "users.*"]
    for key in keys:
        await bucket.put(key, key.encode())
        entry = await bucket.get(key)
        assert (entry.key, entry.value) == (key, key.encode())
    assert await listed(bucket.keys()) == keys
    assert await listed(bucket.keys("users.>")) == [keys[0], keys[1], keys[3]]
    assert sorted(await bucket.get_many(["größe", "users.a b"])) == ["größe", "users.a b"]
    async with bucket.watch("users.*") as watcher:
        entries = [await watcher.next(5) for _ in range(4)]
    assert [entry and entry.key for entry in entries] == [keys[0], keys[1], keys[3], None]
    await bucket.delete("users.a b")
    with pytest.raises(KeyDeletedError, match=r"users\.a b"):
        await bucket.get("users.a b")
    await bucket.create("users.a b", b"again")
    assert [entry.key for entry in await bucket.history("users.a b")] == ["users.a b"] * 2
    assert await bucket.purge_deletes(0) == 0
    raw = await js.key_value(bucket.name)
    assert (await raw.get("Z3LDtsOfZQ")).value == "größe".encode()
    with pytest.raises(InvalidKeyError):
        await bucket.put("", b"")


class Vowels:
    """A codec that leaves out the rest."""

    def encode(self, key: str, /) -> str:
        return "".join(letter for letter in key if letter in "aeiou")

    decode = encode_filter = encode


@pytest.mark.parametrize("key", [None, 5, b"a"])
@pytest.mark.parametrize("codec", [Base64KeyCodec(), PathKeyCodec()])
async def test_keys_that_are_no_text(js: JetStream, codec: KeyCodec, key: Any) -> None:
    bucket = await js.create_key_value(bucket=new_name(), storage="memory", key_codec=codec)
    for call in (bucket.put(key, b""), bucket.get(key), listed(bucket.keys(key))):
        with pytest.raises(InvalidKeyError, match="must be a str"):
            await call


async def test_keys_that_a_codec_does_not_take(js: JetStream) -> None:
    name = new_name()
    bucket = await js.create_key_value(bucket=name, storage="memory", key_codec=Base64KeyCodec())
    with pytest.raises(InvalidKeyError, match=r"key_codec does not take 'a\\ud800'"):
        await bucket.put("a\ud800", b"")
    bucket = await js.key_value(name, key_codec=Vowels())
    with pytest.raises(InvalidKeyError, match="key 'xyz' becomes '' with the key_codec"):
        await bucket.put("xyz", b"")


@pytest.mark.parametrize(
    "options", [{"codec": "json"}, {"codec": JSONCodec}, {"key_codec": "b"}, {"key_codec": Vowels}]
)
async def test_what_is_no_codec(js: JetStream, options: Any) -> None:
    with pytest.raises(InvalidOptionError, match=f"{next(iter(options))} must be an object"):
        await js.create_key_value(bucket=new_name(), storage="memory", **options)


async def test_paths_as_keys(js: JetStream) -> None:
    codec = KeyCodecChain(PathKeyCodec(), Base64KeyCodec())
    for key_codec in (PathKeyCodec(), codec):
        bucket = await js.create_key_value(bucket=new_name(), storage="memory", key_codec=key_codec)
        for key in ("/etc/hosts", "/etc/ssh/config", "home"):
            await bucket.put(key, b"")
        assert await listed(bucket.keys()) == ["/etc/hosts", "/etc/ssh/config", "home"]
        assert await listed(bucket.keys("/etc/*")) == ["/etc/hosts"]
        assert await listed(bucket.keys("/etc/>")) == ["/etc/hosts", "/etc/ssh/config"]
