"""`jetspark sql`: streams, buckets and object stores as tables."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jetspark.cli import console
from jetspark.cli.failures import CommandError, Status
from jetspark.cli.options import NatsOptions, OutputOptions, SparkOptions, examples, takes

if TYPE_CHECKING:
    from jetspark.pipeline.query import Answer, Queries
    from jetspark.pipeline.tables import Tables

__all__ = ["Runner", "register"]

_LIMIT = 100
_SHOW_TABLES = re.compile(
    r"\s*SHOW\s+TABLES(?:\s+(?:IN|FROM)\s+(\w+))?(?:\s+LIKE\s+'([^']*)')?\s*", re.IGNORECASE
)
_DESCRIBE = re.compile(r"\s*DESC(?:RIBE)?\s+\S+\s*", re.IGNORECASE)
_CONF = {"spark.sql.python.filterPushdown.enabled": "true", "spark.sql.shuffle.partitions": "8"}

_EXAMPLES = examples(
    """
    jetspark sql                                  # a prompt, on a terminal
    jetspark sql "SHOW TABLES"
    jetspark sql "DESCRIBE stream.ORDERS"
    jetspark sql "SELECT subject, count(*) FROM stream.ORDERS GROUP BY 1"
    jetspark sql "SELECT json.city, sum(json.amount) FROM stream.ORDERS GROUP BY 1"
    jetspark sql "SELECT key, text FROM kv.\\`my-rates\\`" --json
    jetspark sql --file report.sql --output report.parquet
    """
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=_EXAMPLES)(sql)


@takes
def sql(
    nats: NatsOptions,
    spark: SparkOptions,
    output: OutputOptions,
    query: Annotated[
        str | None,
        typer.Argument(help="The statement, or several with ; between; - reads them from stdin."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the statements from a file.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    target_file: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the rows to a file: .parquet, .csv, .json or .jsonl."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=0,
            help=f"Rows at most; 0 is all. A table has {_LIMIT}.",
        ),
    ] = None,
) -> None:
    """Query streams, buckets and object stores with SQL.

    Tables are `stream.NAME`, `kv.NAME` and `objects.NAME`. The payload is `data` (`value` in a
    bucket), `text` if it is UTF-8, and `json.FIELD` if it is JSON.
    """
    shape = Shape(json=output.json, csv=csv, file=target_file, limit=limit, quiet=output.quiet)
    shape.check()
    text = _given(query, file)
    if text is None and shape.for_programs:
        raise CommandError("there is no query; name one, or give --file", Status.USAGE)

    from jetspark.pipeline.sql_text import split

    statements = split(text) if text is not None else []
    if text is not None and not statements:
        raise CommandError("there is no statement in the query", Status.USAGE)

    from jetspark.cli.target import closing_connections, nats_target
    from jetspark.pipeline.tables import Tables

    with (
        nats_target(nats, quiet=output.quiet) as target,
        closing_connections(),
        target.jetstream() as js,
    ):
        tables = Tables(js, target.spark_options)
        with Runner(tables, spark, shape) as runner:
            if text is None:
                from jetspark.cli.sql_prompt import Prompt

                Prompt(runner, tables).run()
                return
            runner.check(statements)
            for number, statement in enumerate(statements, 1):
                runner.run(statement, last=number == len(statements))


def _given(query: str | None, file: Path | None) -> str | None:
    """The text of the statements; None asks for a prompt."""
    if query is not None and file is not None:
        raise CommandError("a query and --file exclude each other", Status.USAGE)
    if file is not None:
        try:
            return file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"--file {file} cannot be read: {error}", Status.USAGE) from error
    if query == "-" or (query is None and not sys.stdin.isatty()):
        return sys.stdin.read()
    return query


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How rows are shown."""

    json: bool = False
    csv: bool = False
    file: Path | None = None
    limit: int | None = None
    quiet: bool = False

    @property
    def for_programs(self) -> bool:
        """Not a table for people."""
        return self.json or self.csv or self.file is not None

    @property
    def most(self) -> int | None:
        """How many rows are shown at most."""
        if self.limit is None:
            return None if self.for_programs else _LIMIT
        return self.limit or None

    def check(self) -> None:
        """Refuse what excludes each other, and files that cannot be written."""
        if self.json + self.csv + (self.file is not None) > 1:
            raise CommandError("--json, --csv and --output exclude each other", Status.USAGE)
        if self.file is not None:
            from jetspark.cli.sql_output import check_path

            check_path(self.file)


class Runner:
    """Runs statements, one after the other; Spark is started for the first that needs it."""

    def __init__(self, tables: Tables, options: SparkOptions, shape: Shape) -> None:
        self._tables = tables
        self._options = options
        self._shape = shape
        self._stack = ExitStack()
        self._queries: Queries | None = None
        self._log: Path | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self, statements: list[str]) -> None:
        """Raise for tables that are not there, before Spark is started."""
        from jetspark.pipeline.sql_text import tables

        for table in sorted({table for statement in statements for table in tables(statement)}):
            self._tables.check(table)

    def run(self, statement: str, *, last: bool = True) -> None:
        """Run a statement and show its rows; only those of the last one go to a file."""
        from jetspark.errors import FailedQueryError, InvalidQueryError
        from jetspark.pipeline.sql_text import tables

        self.check([statement])
        shown, described = _SHOW_TABLES.fullmatch(statement), _DESCRIBE.fullmatch(statement)
        most = self._shape.most
        # One more, to know whether there are more.
        limit = None if most is None else most + (not self._shape.for_programs)
        try:
            if shown is not None:
                answer = self._listing(shown[1], shown[2] or "*")
            elif described is not None and len(tables(statement)) == 1:
                answer = self.queries().describe(*tables(statement))
            else:
                answer = self.queries().run(statement, limit=limit)
            self._show(answer, last=last)
        except InvalidQueryError as error:
            raise CommandError(str(error), Status.USAGE, details=error.place) from error
        except FailedQueryError as error:
            raise CommandError(str(error), log=self._log) from error

    def queries(self) -> Queries:
        """What runs queries, in Spark."""
        if self._queries is None:
            from jetspark.cli.session import log_path, spark_session
            from jetspark.pipeline.query import Queries

            self._log = log_path("sql")
            if not self._shape.quiet:
                console.say(f"starting Spark, its log is {self._log}")
            session = spark_session(self._options, self._log, name="sql", conf=_CONF)
            self._queries = Queries(self._stack.enter_context(session), self._tables)
        return self._queries

    def _listing(self, kind: str | None, pattern: str) -> Answer:
        from fnmatch import fnmatchcase

        import pyarrow as pa

        from jetspark.pipeline.query import Answer
        from jetspark.pipeline.sql_text import KINDS

        if kind is not None and kind.lower() not in KINDS:
            raise CommandError(f"SHOW TABLES IN {kind}: there are {', '.join(KINDS)}", Status.USAGE)
        found = [
            {
                "table": str(item.table),
                "messages": item.messages,
                "bytes": item.bytes,
                "last": item.last,
            }
            for item in self._tables.all()
            if kind is None or item.table.kind == kind.lower()
        ]
        if kind is None and self._queries is not None:
            found += [{"table": view} for view in self._queries.views()]
        found = [row for row in found if fnmatchcase(str(row["table"]), pattern)]
        schema = pa.schema(
            [
                ("table", pa.string()),
                ("messages", pa.int64()),
                ("bytes", pa.int64()),
                ("last", pa.timestamp("us", tz="UTC")),
            ]
        )
        return Answer(schema, iter(pa.Table.from_pylist(found, schema).to_batches()))

    def _show(self, answer: Answer, *, last: bool) -> None:
        from jetspark.cli.sql_output import save, write_csv, write_json

        schema, batches = answer
        shape = self._shape
        if shape.file is not None:
            count = save(schema, batches, shape.file) if last else 0
            if last and not shape.quiet:
                console.say(f"{count:,} rows in {shape.file}")
        elif not schema.names:
            pass  # it was no query
        elif shape.for_programs:
            (write_json if shape.json else write_csv)(schema, batches, sys.stdout)
            sys.stdout.flush()
        else:
            self._show_table(answer)

    def _show_table(self, answer: Answer) -> None:
        import pyarrow as pa

        from jetspark.cli.sql_output import table_lines

        rows = pa.Table.from_batches(answer.batches, answer.schema)
        most, count = self._shape.most, rows.num_rows
        if most is not None:
            rows = rows.slice(0, most)
        out = console.out()
        width = out.width if out.is_terminal else None
        lines = table_lines(answer.schema, iter(rows.to_batches()), width=width)
        for number, line in enumerate(lines):
            out.print(line, markup=False, style="bold" if not number else None)
        if not self._shape.quiet:
            more = most is not None and count > most
            note = f"(the first {most:,} rows; --limit 0 shows all)" if more else ""
            console.say(note or f"({count:,} row{'' if count == 1 else 's'})")
