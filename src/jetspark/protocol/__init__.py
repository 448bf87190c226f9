"""The NATS client protocol without I/O: bytes in, events out; calls in, bytes out.

Nothing here knows of sockets, tasks or clocks, so all of it is tested exhaustively on plain bytes.
"""

from .encoder import (
    EARLY_PIECES,
    EARLY_SHARE,
    FULL_PIECES,
    SMALL,
    Encoder,
    Payload,
    connect_frame,
)
from .headers import Headers, HeadersLike, encode_headers, parse_headers, parse_status
from .info import ServerInfo, parse_info
from .parser import ErrorReply, Event, MessageBatch, Op, Parser
from .run import Frame, Run
from .subjects import (
    check_queue,
    check_subject,
    check_subscribe_subject,
    encode_subject,
    subject_is_subset,
    subject_matches,
    subjects_collide,
)

__all__ = [
    "EARLY_PIECES",
    "EARLY_SHARE",
    "FULL_PIECES",
    "SMALL",
    "Encoder",
    "ErrorReply",
    "Event",
    "Frame",
    "Headers",
    "HeadersLike",
    "MessageBatch",
    "Op",
    "Parser",
    "Payload",
    "Run",
    "ServerInfo",
    "check_queue",
    "check_subject",
    "check_subscribe_subject",
    "connect_frame",
    "encode_headers",
    "encode_subject",
    "parse_headers",
    "parse_info",
    "parse_status",
    "subject_is_subset",
    "subject_matches",
    "subjects_collide",
]
