"""Errors of the server, told in the words of buckets."""

from __future__ import annotations

from typing import TypeVar

from jetspark.errors import APIError, BucketNotFoundError, StreamReplacedError

__all__ = ["adapted", "bucket_not_found"]

E = TypeVar("E", bound=APIError)


def adapted(kind: type[E], message: str, error: APIError | None) -> E:
    """An error of another class for what the server answered; without an answer, a 404."""
    if error is None:
        return kind(message, code=404)
    return kind(
        message,
        code=error.code,
        err_code=error.err_code,
        description=error.description,
        context=error.context,
    )


def bucket_not_found(bucket: str, error: APIError) -> BucketNotFoundError:
    """The error for a stream that is not there, or not the one that was."""
    if isinstance(error, StreamReplacedError):
        message = f"bucket {bucket!r} was deleted and created again; watch it anew"
        return adapted(BucketNotFoundError, message, error)
    return adapted(BucketNotFoundError, f"there is no bucket {bucket!r}", error)
