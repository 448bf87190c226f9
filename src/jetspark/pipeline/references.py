"""Checks what the parts of a pipeline say about each other: names, views and their columns."""

from __future__ import annotations

from collections.abc import Iterable

from .problems import Mark, Problems, did_you_mean
from .spec import Pipeline, Sink

__all__ = ["check_columns", "check_references"]


def check_references(pipeline: Pipeline, problems: Problems) -> None:
    """Names that are used twice, and views that do not exist."""
    _check_names(pipeline, problems)
    views = [*pipeline.sources, *pipeline.transforms]
    for sink in pipeline.sinks.values():
        if sink.origin and sink.origin not in views:
            advice = did_you_mean(sink.origin, views)
            problems.add(
                sink.origin_mark,
                f"sink {sink.name!r}: there is no source or transform {sink.origin!r}; {advice}",
            )
        elif sink.origin in pipeline.sources:
            columns = pipeline.sources[sink.origin].view_columns
            if columns is not None:
                check_columns(sink, columns, problems)
    for source in pipeline.sources.values():
        if source.watermark is not None and source.view_columns is not None:
            what = f"source {source.name!r}: watermark"
            _exists(
                source.watermark.column, source.view_columns, source.watermark.mark, what, problems
            )


def check_columns(sink: Sink, columns: list[str], problems: Problems) -> None:
    """Refuse a sink that names columns that its view does not have."""
    what = f"sink {sink.name!r}"
    for template in (sink.template, sink.message_id, *sink.headers.values()):
        if template is not None:
            for name in template.columns:
                _exists(name, columns, sink.template_mark, f"{what}: {template.text!r}", problems)
    if sink.content is not None:
        _exists(sink.content, columns, sink.content_mark, what, problems)
    for name in sink.partition_by:
        _exists(name, columns, sink.mark, f"{what}: partition_by", problems)


def _exists(name: str, columns: Iterable[str], mark: Mark, what: str, problems: Problems) -> None:
    if name.lower() not in {column.lower() for column in columns}:
        advice = did_you_mean(name, columns)
        problems.add(mark, f"{what}: there is no column {name!r}; {advice}")


def _check_names(pipeline: Pipeline, problems: Problems) -> None:
    """Views differ from each other, and sinks from sources: checkpoints are named after them."""
    views: dict[str, str] = {}
    for what, group in (("source", pipeline.sources), ("transform", pipeline.transforms)):
        for name, item in group.items():
            other = views.setdefault(name.lower(), f"{what} {name!r}")
            if other != f"{what} {name!r}":
                problems.add(item.mark, f"{what} {name!r} has the name of {other}; rename one")
    flows = {name.lower(): name for name in pipeline.sources}
    for name, sink in pipeline.sinks.items():
        if name.lower() in flows:
            other = flows[name.lower()]
            kind = "source" if other in pipeline.sources else "sink"
            problems.add(sink.mark, f"sink {name!r} has the name of {kind} {other!r}; rename one")
        flows.setdefault(name.lower(), name)
