"""Every kind of mistake in a pipeline file is found, with its line and column, all at once."""

from __future__ import annotations

import pickle
import re
import textwrap
from pathlib import Path

import pytest

from jetspark.errors import InvalidPipelineError
from jetspark.pipeline import starter
from jetspark.pipeline.job import load
from jetspark.pipeline.parse import parse
from jetspark.pipeline.problems import Mark, Problem, Problems, pipeline_error
from jetspark.pipeline.spec import INFER, Kind, Mode, Payload, Pipeline

GOOD = """
name: orders
server: ${SERVER:-nats://localhost:4222}
trigger: 5 seconds
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: 4}}
dead_letter: {stream: LOST, create: false}
sources:
  orders:
    stream: ORDERS
    subjects: [orders.eu.>, orders.us.>]
    start: 2026-01-31T12:00:00Z
    schema: id STRING NOT NULL, amount DOUBLE, at TIMESTAMP
    watermark: {column: at, delay: 10 minutes}
    options: {maxOffsetsPerTrigger: 50000, failOnDataLoss: false}
  customers: {bucket: CUSTOMERS, schema: infer, static: true}
  notes: {stream: NOTES, payload: text, start: 17}
  files: {objects: FILES}
  clicks: {format: csv, path: clicks, schema: "x INT"}
transforms:
  big:
    sql: |

      SELECT *
      FROM orders
    watermark: {column: at, delay: 1 hour}
sinks:
  archive: {from: big, format: parquet, path: out, partition_by: id}
  totals: {from: big, bucket: TOTALS, key: "{id}", mode: update, create: true}
  alerts: {from: big, stream: ALERTS, subject: "a.{id}", headers: {X: "{id}"}, msg_id: "{id}"}
  blobs: {from: notes, objects: FILES, name: "{_sequence}", content: text}
  screen: {from: orders, console: true}
"""


def read(text: str, **environment: str) -> tuple[Pipeline | None, Problems]:
    problems = Problems("p.yml")
    return parse(textwrap.dedent(text), problems, environment), problems


def wrong(text: str, **environment: str) -> list[str]:
    """What is wrong, as people see it."""
    _, problems = read(text, **environment)
    return pipeline_error("p.yml", problems.found).lines()


def test_a_good_file() -> None:
    pipeline, problems = read(GOOD)
    assert problems.found == []
    assert pipeline is not None
    assert (pipeline.name, pipeline.server, pipeline.trigger) == (
        "orders",
        "nats://localhost:4222",
        5000,
    )
    assert pipeline.checkpoint == ".jetspark/checkpoints/orders"
    assert pipeline.spark.conf == {"spark.sql.shuffle.partitions": "4"}
    assert (pipeline.dead_letters.stream, pipeline.dead_letters.create) == ("LOST", False)
    assert pipeline.dead_subject("x") == "dead.orders.x"
    orders = pipeline.sources["orders"]
    assert orders.subjects == "orders.eu.>,orders.us.>"
    assert orders.start == "2026-01-31T12:00:00Z"
    assert orders.options == {"maxOffsetsPerTrigger": "50000", "failOnDataLoss": "false"}
    assert orders.view_columns == [
        *("id", "amount", "at"),
        *("_stream", "_subject", "_sequence", "_timestamp", "_headers"),
    ]
    assert orders.watermark is not None
    assert orders.watermark.milliseconds == 600_000
    customers = pipeline.sources["customers"]
    assert (customers.kind, customers.schema, customers.static) == (Kind.BUCKET, INFER, True)
    assert pipeline.sources["notes"].payload is Payload.TEXT
    assert pipeline.sources["files"].static
    assert pipeline.transforms["big"].sql_line == 23
    assert pipeline.sinks["totals"].mode is Mode.UPDATE
    assert pipeline.sinks["archive"].partition_by == ("id",)
    assert pipeline.sinks["alerts"].headers["X"].columns == ["id"]
    assert pipeline.sinks["blobs"].content == "text"


def test_available_now_and_defaults() -> None:
    pipeline, problems = read(
        """
        name: a
        trigger: available-now
        sources: {s: {format: rate}}
        sinks: {c: {from: s, console: true}}
        """
    )
    assert problems.found == []
    assert pipeline is not None
    assert pipeline.trigger is None
    assert (pipeline.dead_letters.stream, pipeline.dead_letters.create) == ("DEAD", True)


SINKS = """
name: a
sources:
  s: {stream: S, schema: "id STRING, at TIMESTAMP"}
sinks:
"""

MISTAKES = {
    "empty": ("", "p.yml:1:1: the file is empty; `jetspark init DIR` writes one to begin with"),
    "no mapping": ("- a", "p.yml:1:1: the pipeline must be a mapping of keys, not a list"),
    "broken": ("name: [a\nsinks: {", "p.yml:2:6: this is no YAML: "),
    "a tab": ("name: a\nsinks:\n\tx: 1", "p.yml:3:1: this is no YAML: "),
    "a control character": ("name: a\nx: \x01", "p.yml:2:1: the file has a character"),
    "an alias of itself": ("name: a\nsources: &a {x: *a}", "this nests too deeply"),
    "twice": ("name: a\nname: b", "p.yml:2:1: 'name' is there twice, first in line 1; leave one"),
    "a key that is a list": ("[a]: b", "p.yml:1:1: a key must be a word, not a list"),
    "unknown": ("nam: a", "p.yml:1:1: the pipeline: there is no key 'nam'; did you mean 'name'?"),
    "no name": ("trigger: 1 s", "p.yml:1:1: the pipeline: 'name' is missing; write name: orders"),
    "a bad name": ("name: a b", "p.yml:1:7: the pipeline: name 'a b' may have letters, digits"),
    "nothing to do": ("name: a", "p.yml:1:1: the pipeline: there are no sources; a pipeline needs"),
    "two servers": ("server: a\ncontext: b", "p.yml:2:10: the pipeline: 'server' and 'context'"),
    "trigger": ("trigger: 5", "p.yml:1:10: the pipeline: 'trigger': '5' is no time span; write"),
    "a variable": ("name: ${NOPE}", "p.yml:1:7: environment variable NOPE is not set; set it, or"),
    "two Sparks": ("spark: {master: a, remote: b}", "p.yml:1:28: spark: 'master' and 'remote'"),
    "dead letters": ("dead_letter: {strm: a}", "dead_letter: there is no key 'strm'; did you mean"),
    "a bad stream": ("dead_letter: {stream: a.b}", "p.yml:1:23: dead_letter: "),
    "not a text": ("name: [a]", "p.yml:1:7: the pipeline: 'name' must be a text, not a list"),
    "sources": ("sources: 5", "p.yml:1:10: sources must be a mapping of keys, not 5"),
    "a source": ("sources: {a: 5}", "p.yml:1:11: source 'a' must be a mapping of keys, not 5"),
    "no kind": ("sources: {a: {static: true}}", "write one of stream, bucket, objects or format"),
    "two kinds": (
        "sources: {a: {stream: A, bucket: B, schema: x INT}}",
        "p.yml:1:34: source 'a': 'stream' and 'bucket' exclude each other; leave one out",
    ),
    "a source name": ("sources: {a-b: {format: rate}}", "p.yml:1:11: source 'a-b': a name has"),
    "a stream name": ("sources: {a: {stream: a b}}", "p.yml:1:23: source 'a': "),
    "a bucket name": ("sources: {a: {bucket: a.b}}", "p.yml:1:23: source 'a': "),
    "no schema": (
        "sources: {a: {stream: A}}",
        "p.yml:1:11: source 'a': 'schema' is missing; write",
    ),
    "ddl": (
        "sources: {a: {stream: A, schema: x STRNG}}",
        "p.yml:1:34: source 'a': 'schema': column 'x': there is no type STRNG; did you mean",
    ),
    "a column of ours": (
        "sources: {a: {stream: A, schema: _stream STRING}}",
        "p.yml:1:34: source 'a': column '_stream' is one that every stream has",
    ),
    "a needless schema": (
        "sources: {a: {stream: A, payload: text, schema: x INT}}",
        "p.yml:1:49: source 'a': payload text has no schema; leave it out",
    ),
    "payload": (
        "sources: {a: {stream: A, payload: xml}}",
        "p.yml:1:35: source 'a': 'payload' must be json, text or binary, not 'xml'",
    ),
    "subjects": (
        "sources: {a: {stream: A, subjects: a..b, schema: x INT}}",
        "p.yml:1:36: source 'a': subject 'a..b' has an empty token",
    ),
    "start": ("sources: {a: {stream: A, start: soon}}", "p.yml:1:33: source 'a': 'start' must be"),
    "static": ("sources: {a: {stream: A, static: 5}}", "'static' must be true or false, not 5"),
    "a key of another kind": (
        "sources: {a: {format: rate, subjects: a}}",
        "p.yml:1:29: source 'a': 'subjects' makes no sense here; leave it out",
    ),
    "options": ("sources: {a: {format: rate, options: [x]}}", "options must be a mapping of keys"),
    "an option": ("sources: {a: {format: x, options: {a: }}}", "options 'a' must have a value"),
    "watermark column": (
        "sources: {a: {stream: A, schema: x INT, watermark: {column: y, delay: 1 s}}}",
        "p.yml:1:61: source 'a': watermark: there is no column 'y'; there are: x, _stream",
    ),
    "watermark delay": (
        "sources: {a: {stream: A, schema: x INT, watermark: {column: x, delay: 1 x}}}",
        "p.yml:1:71: source 'a': watermark: 'delay': '1 x' is no time span",
    ),
    "no sql": ("transforms: {t: {}}", "p.yml:1:14: transform 't': 'sql' is missing; write sql:"),
    "names of views": (
        "sources: {a: {format: rate}}\ntransforms: {A: {sql: SELECT 1}}",
        "p.yml:2:14: transform 'A' has the name of source 'a'; rename one",
    ),
    "no from": (SINKS + "  k: {console: true}", "p.yml:6:3: sink 'k': 'from' is missing; write"),
    "from": (
        SINKS + "  k: {from: t, console: true}",
        "p.yml:6:13: sink 'k': there is no source or transform 't'; there are: s",
    ),
    "names of flows": (SINKS + "  s: {from: s, console: true}", "p.yml:6:3: sink 's' has the name"),
    "no path": (SINKS + "  k: {from: s, format: parquet}", "sink 'k': 'path' is missing; write"),
    "files and mode": (
        SINKS + "  k: {from: s, format: parquet, path: p, mode: update}",
        "p.yml:6:48: sink 'k': files of parquet can only be appended to; mode must be append",
    ),
    "no subject": (SINKS + "  k: {from: s, stream: K}", "sink 'k': 'subject' is missing; write"),
    "a bad subject": (SINKS + "  k: {from: s, stream: K, subject: a b}", "p.yml:6:36: sink 'k': "),
    "no key": (SINKS + "  k: {from: s, bucket: K}", "sink 'k': 'key' is missing; write key:"),
    "the same key": (SINKS + "  k: {from: s, bucket: K, key: x}", "would have the same key"),
    "a column of a template": (
        SINKS + '  k: {from: s, bucket: K, key: "{idd}"}',
        "p.yml:6:32: sink 'k': '{idd}': there is no column 'idd'; did you mean 'id'?",
    ),
    "a column of a header": (
        SINKS + '  k: {from: s, stream: K, subject: a, headers: {X: "{y}"}}',
        "sink 'k': '{y}': there is no column 'y'",
    ),
    "a template": (
        SINKS + '  k: {from: s, stream: K, subject: "a.{id"}',
        "p.yml:6:36: sink 'k': 'subject': 'a.{id' has a single '{'; write {column}, or {{",
    ),
    "content": (SINKS + '  k: {from: s, objects: K, name: "{id}"}', "'content' is missing; write"),
    "a column of content": (
        SINKS + '  k: {from: s, objects: K, name: "{id}", content: blob}',
        "p.yml:6:51: sink 'k': there is no column 'blob'; there are: id, at",
    ),
    "partitions": (
        SINKS + "  k: {from: s, format: parquet, path: p, partition_by: [x]}",
        "sink 'k': partition_by: there is no column 'x'",
    ),
    "mode": (SINKS + "  k: {from: s, console: true, mode: upd}", "append, update or complete"),
    "no console": (
        SINKS + "  k: {from: s, console: false}",
        "p.yml:6:25: sink 'k': 'console' must",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake(case: str) -> None:
    text, expected = MISTAKES[case]
    lines = wrong(text)
    assert any(expected in line for line in lines), "\n".join(lines)


def test_all_mistakes_at_once_in_the_order_of_the_file() -> None:
    lines = wrong("nam: a\ntrigger: x\nsources: {a: {}}\nsinks: {b: {from: c, console: true}}\n")
    assert [line.split(":")[1] for line in lines] == ["1", "1", "2", "3", "4"]


def test_variables_are_filled_in_before_values_are_read() -> None:
    lines = wrong(
        """
        name: a
        sources:
          s: {format: rate, static: "${S}"}
          t:
            format: rate
            static: ${S}
        sinks: {k: {from: t, console: true}}
        """,
        S="true",
    )
    assert lines == ["p.yml:4:29: source 's': 'static' must be true or false, not true"]


def test_the_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipelineError, match="cannot be read: No such file"):
        load(tmp_path / "p.yml")
    (tmp_path / "q.yml").write_bytes(b"name: \xff")
    with pytest.raises(InvalidPipelineError, match="the file is not UTF-8"):
        load(tmp_path / "q.yml")


def test_the_error() -> None:
    first, second = Problem(Mark(2, 1), "second", True), Problem(Mark(1, 5), "first", True)
    error = pipeline_error("p.yml", [first, second])
    assert str(error) == "p.yml:1:5: first\np.yml:2:1: second"
    assert error.passing
    assert not pipeline_error("p.yml", [first, Problem(Mark(3, 1), "x")]).passing
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.file, copy.problems) == (error.file, error.problems)


def test_the_files_of_the_documentation_and_of_init_are_good(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "pipeline.md"
    examples = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    starter.write_files(tmp_path)
    for text in (*examples, (tmp_path / "pipeline.yml").read_text()):
        assert wrong(text) == []
    assert len((tmp_path / "orders.jsonl").read_text().splitlines()) == 500
