"""Which server has which field: a server that is too old must not drop one without a word.

Servers before 2.12 ignore fields that they do not know, newer ones refuse the request with a text
that names one of them. Both become a `NotSupportedError` here, which names all of them. Fields
that every server since 2.9 has are not listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from jetspark.errors import InvalidJSONError, InvalidOptionError, NotSupportedError

from .api import ApiClient
from .codec import Config, Wire

__all__ = ["API_LEVELS", "api_level", "configure", "not_supported", "send_config"]

C = TypeVar("C", bound=Config)
W = TypeVar("W", bound=Wire)
_Version: TypeAlias = tuple[int, int]

API_LEVELS: Mapping[int, str] = {1: "2.11", 4: "2.14"}
"""The server versions that brought a level of the API."""

_SOURCE_FIELDS: Mapping[str, _Version] = {"subject_transforms": (2, 10), "consumer": (2, 14)}
_FIELDS: Mapping[str, _Version] = {
    # Of a stream and of a consumer; none means two things.
    "allow_atomic": (2, 12),
    "allow_batched": (2, 14),
    "allow_msg_counter": (2, 12),
    "allow_msg_schedules": (2, 12),
    "allow_msg_ttl": (2, 11),
    "compression": (2, 10),
    "consumer_limits": (2, 10),
    "filter_subjects": (2, 10),
    "first_seq": (2, 10),
    "metadata": (2, 10),
    "pause_until": (2, 11),
    "persist_mode": (2, 12),
    "priority_groups": (2, 11),
    "priority_policy": (2, 11),
    "priority_timeout": (2, 11),
    "subject_delete_marker_ttl": (2, 11),
    "subject_transform": (2, 10),
}
_VALUES: Mapping[tuple[str, str], _Version] = {
    ("ack_policy", "flow_control"): (2, 14),
    ("priority_policy", "prioritized"): (2, 12),
}


def configure(kind: type[C], config: C | None, fields: Mapping[str, Any]) -> C:
    """The configuration that was given as an object, by its fields, or as both."""
    if config is None:
        return kind(**fields)
    if not isinstance(config, kind):
        raise InvalidOptionError(
            f"give a {kind.__name__} or its fields by name, not {type(config).__name__}"
        )
    return config.replace(**fields) if fields else config


async def send_config(
    api: ApiClient, kind: type[W], subject: str, body: Mapping[str, Any], *, context: str
) -> W:
    """Create or update something, and hold the answer against the configuration in `body`.

    It may be sent twice: what exists as it is asked for is no error to a server.
    """
    config: dict[str, Any] = body.get("config", body)
    try:
        response = await api.request(subject, body, context=context, idempotent=True)
    except InvalidJSONError as error:
        version = _parse(api.client.server_info.version)
        if missing := {name: v for name, v in _used(config) if v > version}:
            raise _refusal(api, context, "does not know", missing, None) from error
        raise
    answer = response.get("config") or {}
    answered_by = (answer.get("metadata") or {}).get("_nats.ver")
    version = _parse(answered_by or "")
    if missing := {name: v for name, v in _used(config, answer) if v > version}:
        raise _refusal(api, context, "ignored", missing, answered_by)
    return api.decode(kind, response)


def _used(
    sent: Mapping[str, Any], answer: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, _Version]]:
    """The newer fields that were sent; with an answer, only those that are missing from it."""
    for name, value in sent.items():
        if name in _FIELDS and (answer is None or name not in answer):
            yield name, _FIELDS[name]
        if isinstance(value, str) and (name, value) in _VALUES and answer is None:
            yield f"{name}={value!r}", _VALUES[name, value]
    for path, source, answered in _sources(sent, answer):
        for name in source.keys() & _SOURCE_FIELDS.keys():
            if answered is None or name not in answered:
                yield f"{path}.{name}", _SOURCE_FIELDS[name]


def _sources(
    sent: Mapping[str, Any], answer: Mapping[str, Any] | None
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any] | None]]:
    if mirror := sent.get("mirror"):
        yield "mirror", mirror, None if answer is None else answer.get("mirror") or {}
    answers = None if answer is None else answer.get("sources") or []
    for index, source in enumerate(sent.get("sources") or []):
        if answers is None:
            yield f"sources[{index}]", source, None
        elif index < len(answers):
            yield f"sources[{index}]", source, answers[index]


def _parse(version: str) -> _Version:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _refusal(
    api: ApiClient, context: str, verb: str, missing: Mapping[str, _Version], version: str | None
) -> NotSupportedError:
    names = " and ".join(f"{name} (of 2.{minor})" for name, (_, minor) in sorted(missing.items()))
    return not_supported(
        api, context, f"the server {verb} {names}", version, may_have_taken_effect=verb == "ignored"
    )


def not_supported(
    api: ApiClient, context: str, what: str, version: str | None = None, **attributes: Any
) -> NotSupportedError:
    """The error for something that the server is too old for."""
    version = version or api.client.server_info.version
    return NotSupportedError(
        f"{context}: {what}; its version is {version}: upgrade it, or do without",
        description=what,
        context=context,
        **attributes,
    )


def api_level(metadata: Mapping[str, str]) -> int:
    """The API level of the server that answered with a configuration with these metadata."""
    level = metadata.get("_nats.level", "")
    return int(level) if level.isdigit() else 0
