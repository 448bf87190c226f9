"""Where the demo keeps what it makes: three streams, a bucket and a directory.

The names are those of pipeline.yml. What an earlier demo left is told by a mark (metadata of the
streams, a file in the directory), so that nothing of anybody else is ever removed.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jetspark.errors import InvalidArgumentError, StreamNotFoundError
from jetspark.sync import JetStream

__all__ = ["ALERTS", "BUCKET", "DEAD", "ORDERS", "Places", "create", "left_over", "remove"]

ORDERS = "DEMO_ORDERS"
ALERTS = "DEMO_ALERTS"
DEAD = "DEMO_DEAD"
BUCKET = "DEMO_REVENUE"

_STREAMS = {ORDERS: "demo.orders.>", ALERTS: "demo.alerts.>", DEAD: "dead.demo.>"}
_MARK = {"jetspark": "demo"}
_DUPLICATE_WINDOW = 10 * 60  # seconds, for machines that are slow


@dataclass(frozen=True)
class Places:
    """The directory of the demo, and what is in it."""

    root: Path

    @property
    def archive(self) -> Path:
        """The Parquet files."""
        return self.root / "archive"

    @property
    def checkpoints(self) -> Path:
        """What lets the pipeline go on where it stopped."""
        return self.root / "checkpoints"

    @property
    def pipeline(self) -> Path:
        """The pipeline file: the one of this package, with the directory filled in."""
        return self.root / "pipeline.yml"

    @property
    def report(self) -> Path:
        """The report."""
        return self.root / "report.html"

    @property
    def picture(self) -> Path:
        """The books and charts of the report, for pages that show pictures."""
        return self.root / "report.svg"

    @property
    def mark(self) -> Path:
        """Tells that the directory is one of the demo."""
        return self.root / ".jetspark-demo"


def left_over(js: JetStream, places: Places) -> list[str]:
    """What an earlier demo left. An error if something is in the way that is not of a demo."""
    found = [name for name in (*_STREAMS, f"KV_{BUCKET}") if _is_there(js, name)]
    if places.root.exists() and any(places.root.iterdir()):
        if not places.mark.exists():
            raise InvalidArgumentError(
                f"{places.root} is not empty and not of an earlier demo; name another directory "
                "with --dir"
            )
        found.append(str(places.root))
    return found


def _is_there(js: JetStream, stream: str) -> bool:
    try:
        config = js.get_stream(stream).cached_info.config
    except StreamNotFoundError:
        return False
    if config.metadata.get("jetspark") != _MARK["jetspark"]:
        raise InvalidArgumentError(
            f"stream {stream} exists and was not made by a demo; use another server, such as the "
            "embedded one"
        )
    return True


def remove(js: JetStream, places: Places, found: list[str]) -> None:
    """Remove what `left_over` found."""
    for name in found:
        if name == str(places.root):
            shutil.rmtree(places.root)
        else:
            js.delete_stream(name)


def create(js: JetStream, places: Places) -> None:
    """Make everything anew."""
    for name, subject in _STREAMS.items():
        js.create_stream(
            name=name,
            subjects=[subject],
            duplicate_window=_DUPLICATE_WINDOW,
            allow_direct=True,
            metadata=_MARK,
        )
    js.create_key_value(bucket=BUCKET, history=1, metadata=_MARK)
    places.root.mkdir(parents=True, exist_ok=True)
    places.mark.touch()
    text = files(__package__).joinpath("pipeline.yml").read_text(encoding="utf-8")
    places.pipeline.write_text(text.replace("${DEMO_DIR}", str(places.root)), encoding="utf-8")
