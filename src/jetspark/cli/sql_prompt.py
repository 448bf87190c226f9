"""The prompt of `jetspark sql`: statements that end with a semicolon, and a history of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jetspark.cli import console
from jetspark.cli.failures import CommandError, report
from jetspark.cli.target import PROJECT

if TYPE_CHECKING:
    from jetspark.cli.sql import Runner
    from jetspark.pipeline.tables import Tables

__all__ = ["Prompt"]

HISTORY = PROJECT / "history"
_HISTORY_LINES = 1000

_HELP = """\
SELECT ...;      a statement, over as many lines as it takes, to the semicolon
\\d               list the tables: streams, buckets, object stores
\\d NAME          the columns of a table, such as \\d stream.ORDERS
\\?               this help
\\q               leave; so does Ctrl-D. Ctrl-C forgets what was typed, or stops the query"""

_WORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "HAVING", "DISTINCT"),
    *("count(*)", "SHOW TABLES;", "DESCRIBE", "CREATE TEMPORARY VIEW"),
)


class Prompt:
    """Asks for statements and runs them, until the end."""

    def __init__(
        self, runner: Runner, tables: Tables, *, read: Callable[[str], str] = input
    ) -> None:
        self._runner = runner
        self._tables = tables
        self._read = read
        self._names: list[str] | None = None

    def run(self) -> None:
        """Go on until the user has had enough."""
        history = _History(self._complete)
        console.say("SQL over streams, buckets and object stores; \\? is help, \\q leaves")
        typed = ""
        try:
            while True:
                try:
                    line = self._read("   ...> " if typed else "jetspark> ")
                except EOFError:
                    return
                except KeyboardInterrupt:
                    console.say("")
                    typed = ""
                    continue
                if not typed and line.lstrip().startswith("\\"):
                    if not self._command(line.strip()):
                        return
                    continue
                typed = f"{typed}\n{line}" if typed else line
                typed = self._run_complete(typed)
        finally:
            history.save()

    def _run_complete(self, typed: str) -> str:
        """Run what is complete; what is left has no semicolon yet."""
        from jetspark.pipeline.sql_text import complete, split

        if not typed.strip():
            return ""
        if not complete(typed):
            return typed
        for statement in split(typed):
            if not self._run(statement):
                break
        return ""

    def _run(self, statement: str) -> bool:
        """Run a statement; errors are told, and the prompt goes on."""
        from jetspark.errors import JetSparkError

        try:
            self._runner.run(statement)
        except KeyboardInterrupt:
            console.warn("stopped")
        except (CommandError, JetSparkError, OSError) as error:
            report(error, verbose=False)
        else:
            return True
        return False

    def _command(self, line: str) -> bool:
        """A line with a backslash; False is the end."""
        name, _, rest = line.partition(" ")
        rest = rest.strip().rstrip(";")
        if name == "\\q":
            return False
        if name == "\\d":
            self._names = None
            self._run(f"DESCRIBE {rest}" if rest else "SHOW TABLES")
        else:
            if name != "\\?":
                console.error(f"there is no command {name}")
            console.say(_HELP)
        return True

    def _complete(self, text: str, state: int) -> str | None:
        """The words that a text may become, one by one, as readline asks for them."""
        from jetspark.errors import JetSparkError

        if self._names is None:
            try:
                self._names = [str(item.table) for item in self._tables.all()]
            except JetSparkError:
                return None
        words = [word for word in (*self._names, *_WORDS) if word.lower().startswith(text.lower())]
        return words[state] if state < len(words) else None


class _History:
    """What was typed before, if this Python has readline."""

    def __init__(self, complete: Callable[[str, int], str | None]) -> None:
        try:
            import readline
        except ImportError:
            self._readline = None
            return
        self._readline = readline
        readline.set_history_length(_HISTORY_LINES)
        readline.set_completer_delims(" \t\n,()=")
        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")
        try:
            readline.read_history_file(HISTORY)
        except OSError:
            pass  # the first time

    def save(self) -> None:
        """Keep it for the next time."""
        if self._readline is None:
            return
        try:
            Path(HISTORY).parent.mkdir(exist_ok=True)
            self._readline.write_history_file(HISTORY)
        except OSError as error:
            console.warn(f"the history is not kept: {error}")
