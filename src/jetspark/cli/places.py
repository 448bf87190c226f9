"""Places in a stream, as options of commands: a sequence, or a moment."""

from __future__ import annotations

from datetime import UTC, datetime

from jetspark.cli.failures import CommandError, Status

__all__ = ["moment", "place", "subjects"]


def moment(option: str, text: str | None) -> datetime | None:
    """A moment, in UTC unless it says otherwise."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{option} {text!r} is no time; write one like 2026-01-31T12:00:00Z or 2026-01-31",
            Status.USAGE,
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def place(option: str, text: str | None) -> int | datetime | None:
    """A sequence or a moment."""
    if text is None or not text.isdecimal():
        return moment(option, text)
    if int(text) < 1:
        raise CommandError(f"{option} {text}: sequences begin with 1", Status.USAGE)
    return int(text)


def subjects(text: str | None) -> tuple[str, ...]:
    """Subjects with commas between them, which may have wildcards."""
    from jetspark.protocol import check_subscribe_subject, subjects_collide

    found = tuple(each.strip() for each in text.split(",")) if text is not None else ()
    for number, subject in enumerate(found):
        check_subscribe_subject(subject, "--subjects:")
        for other in found[number + 1 :]:
            if subjects_collide(subject, other):
                raise CommandError(
                    f"--subjects: {subject!r} and {other!r} overlap; leave one out", Status.USAGE
                )
    return found
