"""The schema of JSON payloads."""

from __future__ import annotations

import json

import pytest

from jetspark.pipeline.json_schema import infer


@pytest.mark.parametrize(
    ("values", "ddl"),
    [
        ([{"a": 1}, {"a": 2}], "struct<`a`: bigint>"),
        ([{"a": 1}, {"a": 2.5}], "struct<`a`: double>"),
        ([{"a": 1}, {"a": 2**70}], "struct<`a`: decimal(38,0)>"),
        ([{"a": 2**70}, {"a": 0.5}], "struct<`a`: double>"),
        ([{"a": 10**40}], "struct<`a`: string>"),
        ([{"a": True}, {"a": None}], "struct<`a`: boolean>"),
        ([{"a": None}], "struct<`a`: string>"),
        ([{"a": 1}, {"a": "x"}], "struct<`a`: string>"),
        ([{"a": True}, {"a": 1}], "struct<`a`: string>"),
        ([{"a": {"b": 1}}, {"a": {"c": "x"}}], "struct<`a`: struct<`b`: bigint, `c`: string>>"),
        ([{"a": {"b": 1}}, {"a": [1]}], "struct<`a`: string>"),
        ([{"a": []}, {"a": [1, None, 2.5]}], "struct<`a`: array<double>>"),
        ([{"a": []}], "struct<`a`: array<string>>"),
        ([{"a": {}}], "struct<`a`: string>"),
        ([{"a b": 1, "c`d": 2}], "struct<`a b`: bigint, `c``d`: bigint>"),
        ([[{"a": 1}], [{"b": 2}]], "array<struct<`a`: bigint, `b`: bigint>>"),
        ([[1], {"a": 1}], "struct<`a`: bigint>"),
        ([{}], None),
        ([1, "x", None, True], None),
        ([], None),
    ],
)
def test_schemas(values: list[object], ddl: str | None) -> None:
    assert infer([json.dumps(value).encode() for value in values]) == ddl


def test_what_is_no_json_is_passed_over() -> None:
    payloads = [b"", b"\xff\xfe", b"{", b"[" * 100_000, b'{"a": 1}', b"hello"]
    assert infer(payloads) == "struct<`a`: bigint>"
    assert infer(payloads[:3]) is None
