"""The subjects of the JetStream API, all of them, in one table.

An account reaches its own JetStream under `$JS.API`, that of a domain under `$JS.<domain>.API`,
and that of another account under whatever prefix it was imported with. Publishing to a stream
needs no prefix: it goes to the subjects of the stream.
"""

from __future__ import annotations

from jetspark.errors import InvalidOptionError, InvalidSubjectError
from jetspark.jetstream.names import check_consumer_name, check_domain, check_stream_name
from jetspark.protocol.subjects import check_subject, check_subscribe_subject

__all__ = ["API", "DEFAULT_PREFIX", "domain_prefix"]

DEFAULT_PREFIX = "$JS.API"


def domain_prefix(domain: str) -> str:
    """The API prefix of a JetStream domain."""
    check_domain(domain)
    return f"$JS.{domain}.API"


class API:
    """Makes the subject of each request; names are checked on the way.

    The server version is that of the first server with the endpoint, where it is not 2.2.
    """

    prefix: str

    def __init__(self, *, prefix: str | None = None, domain: str | None = None) -> None:
        if prefix is not None and domain is not None:
            raise InvalidOptionError(
                "prefix and domain exclude each other: a domain is the prefix $JS.<domain>.API"
            )
        if domain is not None:
            prefix = domain_prefix(domain)
        elif prefix is None:
            prefix = DEFAULT_PREFIX
        prefix = prefix.removesuffix(".")
        try:
            check_subject(prefix, "prefix")
        except InvalidSubjectError as error:
            raise InvalidOptionError(str(error)) from None
        self.prefix = prefix

    def __repr__(self) -> str:
        return f"API(prefix={self.prefix!r})"

    def _stream(self, endpoint: str, stream: str) -> str:
        check_stream_name(stream)
        return f"{self.prefix}.{endpoint}.{stream}"

    def _consumer(self, endpoint: str, stream: str, consumer: str) -> str:
        check_consumer_name(consumer)
        return f"{self._stream(endpoint, stream)}.{consumer}"

    # The account.

    def account_info(self) -> str:
        """Limits and usage of the account."""
        return f"{self.prefix}.INFO"

    # Streams.

    def stream_create(self, stream: str) -> str:
        """Create a stream."""
        return self._stream("STREAM.CREATE", stream)

    def stream_update(self, stream: str) -> str:
        """Change the configuration of a stream."""
        return self._stream("STREAM.UPDATE", stream)

    def stream_info(self, stream: str) -> str:
        """Configuration and state of a stream."""
        return self._stream("STREAM.INFO", stream)

    def stream_names(self) -> str:
        """The names of the streams, in pages."""
        return f"{self.prefix}.STREAM.NAMES"

    def stream_list(self) -> str:
        """The infos of the streams, in pages."""
        return f"{self.prefix}.STREAM.LIST"

    def stream_delete(self, stream: str) -> str:
        """Delete a stream with all that is in it."""
        return self._stream("STREAM.DELETE", stream)

    def stream_purge(self, stream: str) -> str:
        """Remove messages from a stream."""
        return self._stream("STREAM.PURGE", stream)

    def stream_message_get(self, stream: str) -> str:
        """Read a message from the leader."""
        return self._stream("STREAM.MSG.GET", stream)

    def stream_message_delete(self, stream: str) -> str:
        """Delete a message."""
        return self._stream("STREAM.MSG.DELETE", stream)

    def direct_get(self, stream: str) -> str:
        """Read messages from any replica (2.9)."""
        return self._stream("DIRECT.GET", stream)

    def direct_get_last(self, stream: str, subject: str) -> str:
        """Read the last message of a subject from any replica, with no body (2.9)."""
        check_subscribe_subject(subject)
        return f"{self._stream('DIRECT.GET', stream)}.{subject}"

    def stream_snapshot(self, stream: str) -> str:
        """Back a stream up."""
        return self._stream("STREAM.SNAPSHOT", stream)

    def stream_restore(self, stream: str) -> str:
        """Restore a stream from a backup."""
        return self._stream("STREAM.RESTORE", stream)

    def stream_peer_remove(self, stream: str) -> str:
        """Take a server out of the replicas of a stream."""
        return self._stream("STREAM.PEER.REMOVE", stream)

    def stream_peer_evacuate(self, stream: str) -> str:
        """Move a stream away from a server (2.15)."""
        return self._stream("STREAM.PEER.EVACUATE", stream)

    def stream_cancel_move(self, stream: str) -> str:
        """Cancel the move of a stream (2.15)."""
        return self._stream("STREAM.CANCEL_MOVE", stream)

    def stream_leader_stepdown(self, stream: str) -> str:
        """Have another replica elected as the leader of a stream."""
        return self._stream("STREAM.LEADER.STEPDOWN", stream)

    # Consumers.

    def consumer_create(
        self, stream: str, consumer: str | None = None, filter_subject: str | None = None
    ) -> str:
        """Create or update a consumer.

        With a name from 2.9 on. A filter in the subject lets permissions see it; it must equal
        that of the configuration.
        """
        if consumer is None:
            if filter_subject is not None:
                raise InvalidOptionError("filter_subject needs the name of the consumer")
            return self._stream("CONSUMER.CREATE", stream)
        subject = self._consumer("CONSUMER.CREATE", stream, consumer)
        if filter_subject is None:
            return subject
        check_subscribe_subject(filter_subject, "filter_subject")
        return f"{subject}.{filter_subject}"

    def consumer_durable_create(self, stream: str, consumer: str) -> str:
        """Create or update a durable consumer, on servers before 2.9."""
        return self._consumer("CONSUMER.DURABLE.CREATE", stream, consumer)

    def consumer_info(self, stream: str, consumer: str) -> str:
        """Configuration and state of a consumer."""
        return self._consumer("CONSUMER.INFO", stream, consumer)

    def consumer_delete(self, stream: str, consumer: str) -> str:
        """Delete a consumer."""
        return self._consumer("CONSUMER.DELETE", stream, consumer)

    def consumer_names(self, stream: str) -> str:
        """The names of the consumers of a stream, in pages."""
        return self._stream("CONSUMER.NAMES", stream)

    def consumer_list(self, stream: str) -> str:
        """The infos of the consumers of a stream, in pages."""
        return self._stream("CONSUMER.LIST", stream)

    def consumer_next(self, stream: str, consumer: str) -> str:
        """Ask a pull consumer for messages."""
        return self._consumer("CONSUMER.MSG.NEXT", stream, consumer)

    def consumer_pause(self, stream: str, consumer: str) -> str:
        """Pause a consumer, or let it go on (2.11)."""
        return self._consumer("CONSUMER.PAUSE", stream, consumer)

    def consumer_unpin(self, stream: str, consumer: str) -> str:
        """Unpin the pinned client of a priority group (2.11)."""
        return self._consumer("CONSUMER.UNPIN", stream, consumer)

    def consumer_reset(self, stream: str, consumer: str) -> str:
        """Move a consumer to another sequence (2.14)."""
        return self._consumer("CONSUMER.RESET", stream, consumer)

    def consumer_leader_stepdown(self, stream: str, consumer: str) -> str:
        """Have another replica elected as the leader of a consumer."""
        return self._consumer("CONSUMER.LEADER.STEPDOWN", stream, consumer)

    # Only for the system account.

    def meta_leader_stepdown(self) -> str:
        """Have another server elected as the leader of the cluster."""
        return f"{self.prefix}.META.LEADER.STEPDOWN"

    def meta_rescue(self) -> str:
        """Rescue a cluster that has lost its majority (2.15)."""
        return f"{self.prefix}.META.RESCUE"

    def server_remove(self) -> str:
        """Take a server out of the cluster."""
        return f"{self.prefix}.SERVER.REMOVE"

    def server_evacuate(self) -> str:
        """Move everything away from a server (2.15)."""
        return f"{self.prefix}.SERVER.EVACUATE"

    def account_purge(self, account: str) -> str:
        """Delete everything of an account."""
        check_stream_name(account, "account")
        return f"{self.prefix}.ACCOUNT.PURGE.{account}"
