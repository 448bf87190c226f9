"""The calls of the context that manage streams, and what it says about the account."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

from jetspark.errors import NoMatchingStreamError, StreamNameInUseError, StreamNotFoundError

from .account_info import AccountInfo
from .checks import check_filter
from .consumer_management import ConsumerManager
from .features import configure, send_config
from .listing import list_infos, list_names
from .stream import Stream, purge
from .stream_config import StreamConfig
from .stream_info import StreamInfo

__all__ = ["StreamManager"]


class StreamManager(ConsumerManager):
    """Creates, finds and deletes streams.

    A configuration is given as a `StreamConfig`, as its fields by name, or as both: the fields
    then change those of the object.
    """

    async def create_stream(self, config: StreamConfig | None = None, **fields: Any) -> Stream:
        """Create a stream; one that exists with the same configuration is returned.

        Raises `StreamNameInUseError` if it exists with another one.

        >>> await js.create_stream(name="ORDERS", subjects=["orders.>"])  # doctest: +SKIP
        """
        return await self._send_stream(configure(StreamConfig, config, fields), "create")

    async def update_stream(self, config: StreamConfig | None = None, **fields: Any) -> Stream:
        """Change a stream: the configuration replaces the present one as a whole.

        To change some fields only, use `Stream.update`. Raises `StreamNotFoundError` if there is
        none of that name.
        """
        return await self._send_stream(configure(StreamConfig, config, fields), "update")

    async def create_or_update_stream(
        self, config: StreamConfig | None = None, **fields: Any
    ) -> Stream:
        """Create a stream, or replace the configuration of the one of that name."""
        config = configure(StreamConfig, config, fields)
        try:
            return await self._send_stream(config, "update")
        except StreamNotFoundError:
            pass
        try:
            return await self._send_stream(config, "create")
        except StreamNameInUseError:  # someone else was faster
            return await self._send_stream(config, "update")

    async def get_stream(self, name: str) -> Stream:
        """The stream of that name; raises `StreamNotFoundError` if there is none."""
        info = await self.api.fetch(
            StreamInfo,
            self.api.subjects.stream_info(name),
            context=f"stream {name!r}: info",
            idempotent=True,
        )
        return Stream(self, info)

    async def get_or_create_stream(
        self, config: StreamConfig | None = None, **fields: Any
    ) -> Stream:
        """The stream of that name as it is, or a new one with this configuration."""
        config = configure(StreamConfig, config, fields)
        config.validate()
        try:
            return await self.get_stream(config.name)
        except StreamNotFoundError:
            pass
        try:
            return await self._send_stream(config, "create")
        except StreamNameInUseError:  # someone else was faster
            return await self.get_stream(config.name)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream with its messages and consumers."""
        await self.api.succeed(
            self.api.subjects.stream_delete(name), context=f"stream {name!r}: delete"
        )

    async def purge_stream(
        self,
        name: str,
        *,
        subject: str | None = None,
        sequence: int | None = None,
        keep: int | None = None,
    ) -> int:
        """Remove messages from a stream and return how many; see `Stream.purge`."""
        return await purge(self.api, name, subject, sequence, keep)

    async def streams(self, *, subject: str | None = None) -> AsyncIterator[Stream]:
        """Iterate over the streams in the order of their names, or over those with a subject.

        Raises `OfflineError` at the end if some do not answer, for example because their servers
        are down; `stream_names` has them all the same.
        """
        subjects = self.api.subjects
        infos = list_infos(
            self.api,
            StreamInfo,
            subjects.stream_list(),
            "streams",
            subjects.stream_info,
            _filter(subject),
            context="list streams",
        )
        async for info in infos:
            yield Stream(self, info)

    async def stream_names(self, *, subject: str | None = None) -> AsyncIterator[str]:
        """Iterate over the names of the streams in order, or of those with a subject."""
        names = list_names(
            self.api,
            self.api.subjects.stream_names(),
            "streams",
            _filter(subject),
            context="stream names",
        )
        async for name in names:
            yield name

    async def stream_name_by_subject(self, subject: str) -> str:
        """The name of the one stream that has a subject.

        Raises `NoMatchingStreamError` if there is none, or if a wildcard matches several.
        """
        names = [name async for name in self.stream_names(subject=subject)]
        if len(names) != 1:
            found = f"the streams {', '.join(names)} have" if names else "no stream has"
            raise NoMatchingStreamError(f"{found} the subject {subject!r}")
        return names[0]

    async def account_info(self) -> AccountInfo:
        """What the account uses and may use."""
        return await self.api.fetch(
            AccountInfo,
            self.api.subjects.account_info(),
            context="account info",
            idempotent=True,
        )

    async def _send_stream(
        self, config: StreamConfig, action: Literal["create", "update"]
    ) -> Stream:
        config.validate()
        subjects = self.api.subjects
        create = action == "create"
        subject = (subjects.stream_create if create else subjects.stream_update)(config.name)
        context = f"stream {config.name!r}: {action}"
        info = await send_config(self.api, StreamInfo, subject, config.to_wire(), context=context)
        return Stream(self, info)


def _filter(subject: str | None) -> dict[str, str] | None:
    if subject is None:
        return None
    check_filter("subject", subject)
    return {"subject": subject}
