"""Every exception that jetspark raises, in one tree.

::

    JetSparkError
    ├── InvalidArgumentError (ValueError)   refused locally, nothing was sent
    │   ├── InvalidSubjectError
    │   ├── InvalidHeaderError
    │   ├── InvalidURLError
    │   ├── InvalidOptionError
    │   │   └── InvalidNameError            a stream, consumer, bucket or key
    │   │       ├── InvalidStreamNameError
    │   │       ├── InvalidConsumerNameError
    │   │       ├── InvalidBucketNameError
    │   │       └── InvalidKeyError
    │   ├── MaxPayloadError
    │   ├── InvalidPipelineError            what is wrong with the file: `problems`
    │   └── InvalidQueryError               SQL that Spark does not accept
    ├── FailedQueryError
    ├── PipelineFailedError
    ├── PipelineBusyError
    ├── ArchiveError
    │   └── SparkJobError
    ├── MissingExtraError (ImportError)     a feature needs `pip install jetspark[...]`
    ├── ProtocolError                       the other side broke the NATS protocol
    ├── ServerProcessError                  a nats-server started by jetspark.server failed
    ├── ConnectionError (ConnectionError)
    │   ├── ConnectError                    no server could be reached
    │   │   └── NoServersError              every server was tried
    │   ├── AuthenticationError             the credentials were refused
    │   │   └── AuthenticationExpiredError  they were good once
    │   ├── TLSError                        TLS was demanded, missing, or not trusted
    │   ├── DisconnectedError               the connection was lost under a call
    │   ├── StaleConnectionError            the server stopped answering pings
    │   ├── ReconnectBufferFullError        too much published while disconnected
    │   ├── ConnectionClosedError           the client is closed
    │   ├── ConnectionDrainingError         the client is about to close
    │   └── ServerError                     the server said -ERR
    │       └── PermissionsError            ... Permissions Violation
    ├── SubscriptionError
    │   ├── SubscriptionClosedError
    │   └── SlowConsumerError               messages were dropped, see `dropped`
    ├── NoRespondersError                   nobody listens on the requested subject
    ├── TimeoutError (TimeoutError)
    └── JetStreamError
        ├── APIError                        the server refused: `code`, `err_code`, `description`
        │   ├── BadRequestError             400
        │   │   └── InvalidJSONError
        │   ├── NotFoundError               404
        │   │   ├── StreamNotFoundError
        │   │   │   └── StreamReplacedError
        │   │   │   └── BucketNotFoundError
        │   │   ├── MessageNotFoundError
        │   │   │   ├── KeyNotFoundError
        │   │   │   │   └── KeyDeletedError
        │   │   │   └── ObjectNotFoundError
        │   │   └── ConsumerNotFoundError
        │   │       └── ConsumerDoesNotExistError
        │   ├── APITimeoutError (TimeoutError)  408
        │   ├── ConflictError               409
        │   │   └── DuplicateInProcessError
        │   ├── PreconditionFailedError     412
        │   │   ├── RequiredAPILevelError
        │   │   └── MinLastSequenceError
        │   ├── TooManyRequestsError        429
        │   ├── InternalServerError         500
        │   ├── ServiceUnavailableError     503
        │   │   └── ExpectedSequenceNotReadyError
        │   ├── JetStreamNotEnabledError
        │   │   └── JetStreamNotEnabledForAccountError
        │   ├── NotSupportedError
        │   ├── ClusterError
        │   ├── PlacementError
        │   ├── AccountLimitError
        │   ├── LimitReachedError
        │   ├── InsufficientResourcesError
        │   ├── OfflineError
        │   ├── StreamNameInUseError
        │   │   └── BucketExistsError
        │   ├── InvalidStreamConfigError
        │   ├── StreamCreateError
        │   ├── StreamUpdateError
        │   ├── StreamDeleteError
        │   ├── SubjectOverlapError
        │   ├── StreamSealedError
        │   ├── PurgeError
        │   ├── TooManySubjectsError
        │   ├── MessageDeleteError
        │   ├── MessageTooLargeError
        │   ├── StoreFailedError            the stream is full
        │   ├── ExpectedStreamMismatchError
        │   ├── WrongLastMessageIdError
        │   ├── WrongLastSequenceError      someone else was faster
        │   │   ├── KeyExistsError
        │   │   └── RevisionMismatchError
        │   ├── RollupError
        │   ├── InvalidMessageTTLError
        │   ├── MessageTTLDisabledError
        │   ├── CounterError
        │   ├── AtomicPublishError
        │   ├── BatchPublishError
        │   ├── ScheduleError
        │   ├── ConsumerNameInUseError
        │   │   └── ConsumerExistsError
        │   ├── ConsumerAlreadyActiveError
        │   ├── ConsumerCreateError
        │   ├── ConsumerResetError
        │   └── InvalidConsumerConfigError
        │       └── FilterError
        ├── InvalidResponseError            the reply is not of the JetStream API
        │   └── InvalidAckError
        ├── NoStreamResponseError (NoRespondersError)
        ├── PublishStalledError
        ├── PublisherClosedError
        ├── NotJetStreamMessageError
        ├── MessageAlreadyAckedError
        ├── NotPullConsumerError
        ├── NotPushConsumerError
        ├── NoMatchingStreamError
        ├── ConsumerMismatchError
        ├── ConsumerInUseError
        ├── IteratorClosedError (SubscriptionClosedError)
        ├── MissingHeartbeatError
        ├── OrderedConsumerResetError
        ├── StatusError                     a status line ended a request: `status`
        │   ├── NoMessagesError
        │   ├── RequestExpiredError (TimeoutError)
        │   ├── BadPullRequestError
        │   ├── BatchCompletedError
        │   ├── MaxBytesExceededError
        │   ├── RequestLimitError
        │   ├── MaxWaitingExceededError
        │   ├── ConsumerDeletedError
        │   ├── ConsumerIsPushError (NotPullConsumerError)
        │   ├── LeadershipChangedError
        │   ├── ServerShutdownError
        │   ├── PinIdMismatchError
        │   └── TooManyResultsError
        ├── CheckpointError                 of a Spark query
        ├── DataLossError
        ├── StalledReadError
        ├── BadBucketError
        ├── ObjectExistsError
        ├── BadObjectError
        │   └── DigestMismatchError
        └── LinkError

The names `ConnectionError` and `TimeoutError` extend the builtins of the same name, so that
`except TimeoutError` catches ours, whichever of the two is in scope.

The classes are defined in `_errors_core` (the client itself), `_errors_api` (what the JetStream API
answers), `_errors_jetstream` (the rest of JetStream, buckets and objects) and `_errors_pipeline`
(the pipeline tool); this module is where to import them from.

All of them pickle (Spark sends them between processes): an instance is its message plus keyword
attributes, nothing else.
"""

from jetspark import _errors_api, _errors_core, _errors_jetstream, _errors_pipeline
from jetspark._errors_api import *  # noqa: F403 - each module lists its names in __all__
from jetspark._errors_core import *  # noqa: F403
from jetspark._errors_jetstream import *  # noqa: F403
from jetspark._errors_pipeline import *  # noqa: F403

__all__ = [
    *_errors_core.__all__,
    *_errors_api.__all__,
    *_errors_jetstream.__all__,
    *_errors_pipeline.__all__,
]

# The public name is the one that tracebacks show and that pickles refer to.
for _name in __all__:
    globals()[_name].__module__ = __name__
