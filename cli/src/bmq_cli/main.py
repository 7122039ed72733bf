"""The `bmq` command: its options, its nouns, and how it ends. The commands themselves are in the module of their
noun.
"""

import errno
import importlib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final

import typer
from confluent_kafka import KafkaException
from typer.core import TyperGroup
from typer.exceptions import TyperException

from bmq.errors import BmqError, ConfigurationError
from bmq_cli.cluster import commands as cluster
from bmq_cli.debug import commands as debug
from bmq_cli.groups import commands as groups
from bmq_cli.kafka.connection import debugging
from bmq_cli.records import consume, produce
from bmq_cli.session import BootstrapServer, NoColorOption, OutputClosed, OutputOption, SharedOptions, TimeoutOption
from bmq_cli.store import commands as store
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, SeveralFailed, code_of, kafka_failure, one_line
from bmq_cli.terminal.output import Output, OutputFormat
from bmq_cli.topics import commands as topics

_LATER: Final = {
    "up": "bmq_cli.processes.up",
    "server": "bmq_cli.processes.server",
    "probe": "bmq_cli.probe.commands",
    "apply": "bmq_cli.apply.commands",
}
"""Commands by name, and the modules that have them."""
_NOUNS_LATER: Final = {
    "lanes": ("bmq_cli.lanes.commands", "cluster"),
    "channels": ("bmq_cli.channels.commands", "lanes"),
    "databus": ("bmq_cli.databus.commands", "store"),
}
"""The same of nouns with several commands, and behind which they are listed."""

_NAMED: Final = frozenset(
    {"--data", "--store", "--spool", "--to", "--bootstrap-server", "-b", "--admin", "-a", "--group", "-g"}
)
"""Options that say which store, cluster or group is meant."""


class _Commands(TyperGroup):
    """The commands; those that serve, and those that need the resources' models, take a while to import and are
    imported when they are asked for.
    """

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        names = super().list_commands(ctx)
        for name, (_, before) in _NOUNS_LATER.items():
            names.insert(names.index(before) + 1, name)
        return [*_LATER, *names]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        if cmd_name in _NOUNS_LATER:
            return typer.main.get_command(importlib.import_module(_NOUNS_LATER[cmd_name][0]).app)
        module = _LATER.get(cmd_name)
        if module is None:
            return super().get_command(ctx, cmd_name)
        return command_of(getattr(importlib.import_module(module), cmd_name), name=cmd_name)


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


app.add_typer(topics.app)
app.add_typer(groups.app)
app.add_typer(cluster.app)
app.add_typer(store.app)
app.add_typer(debug.app)
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)


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
        return _report(exception, Output(form=OutputFormat.TABLE, color="--no-color" not in arguments))


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


def _report(exception: Exception, output: Output) -> int:
    match exception:
        case SeveralFailed():
            for failure in exception.failures:
                output.error(str(failure))
            return exception.code
        case CommandFailed():
            output.error(str(exception))
            return exception.code
        case TyperException():
            if message := exception.format_message():
                output.error(f"usage: {_sentence(one_line(message))} Try `{_command_path(exception)} --help`")
            return ExitCode.USAGE
        case KafkaException():
            failure = kafka_failure("Kafka", exception)
            output.error(str(failure))
            return failure.code
        case BmqError():
            output.error(one_line(str(exception)))
            return code_of(exception)
        case OSError(errno=errno.ENOSPC, filename=None):
            output.error(
                "the command's output: no space is left where it is written to. free some, or write it elsewhere"
            )
            return ExitCode.FAILED
        case OSError():
            output.error(one_line(str(exception)))
            return ExitCode.FAILED
        case _:
            output.error(f"unexpected {type(exception).__name__}: {one_line(str(exception))}. BMQ_DEBUG=1 shows where")
            return ExitCode.FAILED


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _command_path(exception: TyperException) -> str:
    context = getattr(exception, "ctx", None)
    return str(context.command_path) if context is not None else "bmq"


def _drop_output() -> None:
    """Points standard output at nothing, so that the interpreter's last flush does not meet the closed pipe again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
