"""The `bmq` command: its options, its nouns, and how it ends. The commands themselves are in the module of their
noun.
"""

import importlib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from bmq.errors import ConfigurationError
from bmq_cli.options import (
    BootstrapServer,
    NoColorOption,
    OutputClosed,
    OutputOption,
    SharedOptions,
    TimeoutOption,
    debugging,
)
from bmq_cli.terminal.exit_codes import ExitCode

_COMMANDS: Final = {
    "up": "bmq_cli.processes.up",
    "server": "bmq_cli.processes.server",
    "probe": "bmq_cli.probe.commands",
    "apply": "bmq_cli.apply.commands",
    "produce": "bmq_cli.records.produce",
    "consume": "bmq_cli.records.consume",
}
"""Commands by name, and the modules that have them."""
_NOUNS: Final = ("topics", "groups", "cluster", "lanes", "channels", "store", "databus", "debug")
"""Those with commands of their own, in `bmq_cli.NOUN.commands`."""

_NAMED: Final = frozenset(
    {"--data", "--store", "--spool", "--to", "--bootstrap-server", "-b", "--admin", "-a", "--group", "-g"}
)
"""Options that say which store, cluster or group is meant."""


class _Imported(Mapping[str, Any]):
    """The commands by name. Each is imported when it is asked for: all together take longer than most of them run."""

    def __getitem__(self, name: str) -> Any:
        if name in _NOUNS:
            return typer.main.get_group(importlib.import_module(f"bmq_cli.{name}.commands").app)
        return command_of(getattr(importlib.import_module(_COMMANDS[name]), name), name=name)

    def __iter__(self) -> Iterator[str]:
        return iter([*_COMMANDS, *_NOUNS])

    def __len__(self) -> int:
        return len(_COMMANDS) + len(_NOUNS)


class _Commands(TyperGroup):
    """`bmq` itself."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Imported()  # type: ignore[assignment]

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(self.commands)


def command_of(function: Callable[..., None], *, name: str) -> Any:
    """`function` as the command that typer makes of it."""
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name)(function)
    return typer.main.get_command(single)


app = typer.Typer(
    name="bmq",
    cls=_Commands,
    help="A message queue that speaks the Kafka protocol and keeps its data in object storage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bmq {importlib.metadata.version('bmq-cli')}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    *,
    bootstrap_server: BootstrapServer = None,
    output: OutputOption = None,
    timeout: TimeoutOption = None,
    no_color: NoColorOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A message queue that speaks the Kafka protocol and keeps its data in object storage."""
    context.obj = SharedOptions(bootstrap_server=bootstrap_server, output=output, timeout=timeout, no_color=no_color)


def run() -> None:
    """Entry point of the console script: runs the command line and ends the process with its exit code."""
    code = execute(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    sys.exit(code)


def execute(arguments: Sequence[str]) -> int:
    """Runs one command line; prints its errors, a line each, and returns the exit code. Never a traceback unless
    BMQ_DEBUG=1.
    """
    try:
        _check_text(arguments)
        _check_named(arguments)
        result = app(list(arguments), prog_name="bmq", standalone_mode=False)
        return result if isinstance(result, int) else ExitCode.OK
    except OutputClosed:
        _drop_output()
        return ExitCode.OK
    except (typer.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except Exception as exception:  # noqa: BLE001 the last resort: whatever it is, one line and an exit code
        if debugging():
            traceback.print_exc()
        from bmq_cli.reporting import report
        from bmq_cli.terminal.output import Output

        return report(exception, Output(color="--no-color" not in arguments))


def _check_text(arguments: Sequence[str]) -> None:
    """Raises ConfigurationError where the command line or a variable of bmq's is not text: it could not be sent, stored
    or logged.
    """
    named = [(f"argument {number} ({argument!a})", argument) for number, argument in enumerate(arguments, 1)]
    named += [(f"the variable {name!a}", name + value) for name, value in os.environ.items() if name.startswith("BMQ_")]
    for what, text in named:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigurationError(f"{what} is not UTF-8: write names and paths in UTF-8") from None


def _check_named(arguments: Sequence[str]) -> None:
    """Raises ConfigurationError where a place or a group is named by an empty text, an unset variable of a script say:
    the default would be another one.
    """
    options = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    for option, value in pairwise([*options, "--"]):
        if option in {f"{place}=" for place in _NAMED} or (option in _NAMED and value == ""):
            raise ConfigurationError(
                f"{option.removesuffix('=')}: its value is empty: give one, or leave the option out"
            )


def _drop_output() -> None:
    """Points standard output at nothing, so that the interpreter's last flush does not meet the closed pipe again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
