"""What commands print: tables for people, JSON and YAML for programs, and one-line messages. Knows no Kafka and no
options.

Results go to standard output; messages, progress and errors go to standard error.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, TextIO

import yaml  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bmq.naming.printable import printable
from bmq_cli.terminal.output_format import OutputFormat

_LINES: Final = "\n\t"
_UNBOUNDED_WIDTH: Final = 10_000
"""Columns for what is not a terminal: a line of a table is then never broken or cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its title, and whether its cells are numbers."""

    title: str
    number: bool = False


Cell = str | int | float | bool | None
Document = Any
"""What json and yaml print: dicts, lists, strings, numbers, booleans and None."""


class Output:
    """One command's way out. In `table` the tables are printed, else the document is; never both."""

    def __init__(
        self,
        *,
        form: OutputFormat = OutputFormat.TABLE,
        color: bool = True,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.form = form
        self._stdout = sys.stdout if stdout is None else stdout
        self._stderr = sys.stderr if stderr is None else stderr
        self._console = _console(self._stdout, color=color)
        self._messages = _console(self._stderr, color=color)

    @property
    def for_people(self) -> bool:
        """Whether tables and sentences are wanted rather than a document."""
        return self.form is OutputFormat.TABLE

    @property
    def messages(self) -> Console:
        """Standard error, for progress bars and questions."""
        return self._messages

    def document(self, document: Document) -> None:
        """Prints `document` as JSON or YAML; nothing in `table`."""
        match self.form:
            case OutputFormat.TABLE:
                return
            case OutputFormat.JSON:
                self._stdout.write(printable(json.dumps(document, ensure_ascii=False, indent=2), keep="\n") + "\n")
            case OutputFormat.YAML:
                self._stdout.write(to_yaml(document))
        self._stdout.flush()

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, title: str = "") -> None:
        """Prints a table, in `table` only. None is shown as `-`."""
        if not self.for_people:
            return
        if title:
            self._line(Text(title, style="bold"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
        for column in columns:
            table.add_column(
                column.title,
                justify="right" if column.number else "left",
                no_wrap=not self._console.is_terminal,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(Text(printable(shown(cell))) for cell in row))
        if self._console.is_terminal:
            self._console.print(table)
            return
        with self._console.capture() as capture:
            self._console.print(table)
        self._stdout.writelines(line.rstrip() + "\n" for line in capture.get().splitlines())

    def text(self, line: str = "") -> None:
        """A line for people, in `table` only."""
        if self.for_people:
            self._line(Text(printable(line, keep=_LINES)))

    def waiting(self, text: str) -> AbstractContextManager[object]:
        """Shows `text` on standard error while something takes long; only on a terminal."""
        return self._messages.status(Text(text)) if self._messages.is_terminal else nullcontext()

    def note(self, line: str) -> None:
        """A message on standard error."""
        self._messages.print(Text(printable(line, keep=_LINES)), soft_wrap=True)

    def error(self, line: str) -> None:
        """`error: …` on standard error."""
        self._messages.print(Text.assemble(("error:", "bold red"), " ", printable(line, keep=_LINES)), soft_wrap=True)

    def flush(self) -> None:
        """Lets readers see what has been printed, where more is to come."""
        self._stdout.flush()

    def _line(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


def fields(pairs: Sequence[tuple[str, Cell]]) -> str:
    """`name value` pairs as one line: `state Stable  protocol range`."""
    return "  ".join(f"{name} {shown(value)}" for name, value in pairs)


def counted(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown(cell: Cell) -> str:
    """A cell's text."""
    match cell:
        case None:
            return "-"
        case bool():
            return "yes" if cell else "no"
        case float():
            return f"{cell:.3f}".rstrip("0").rstrip(".")
        case _:
            return str(cell)


def to_yaml(document: Document) -> str:
    """A YAML document, keys in the order given."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return "".join(
        [one if one.isprintable() or one == "\n" else _escaped_in_yaml(one) for one in text.removesuffix("...\n")]
    )


def _escaped_in_yaml(character: str) -> str:
    """Text with such a character is quoted (`_Dumper`), so that an escape is read as the character."""
    return f"\\U{ord(character):08x}" if ord(character) > 0xFFFF else f"\\u{ord(character):04x}"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes text with characters that cannot be seen: written plainly, some of them (U+0085) do not come back."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.Node:
    plain = all(character.isprintable() or character == "\n" for character in text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_text)


class _Console(Console):
    """Leaves a reader that has gone to the command, which ends quietly, instead of ending the process with exit
    code 1.
    """

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 called where it was caught


def _console(stream: TextIO, *, color: bool) -> Console:
    terminal = stream.isatty()
    return _Console(
        file=stream,
        no_color=not color or None,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if terminal else _UNBOUNDED_WIDTH,
        force_terminal=terminal,
        force_jupyter=False,
    )
