"""How a command that failed says so: a line on standard error, and an exit code."""

import errno

from confluent_kafka import KafkaException
from typer.exceptions import TyperException

from bmq.errors import BmqError
from bmq_cli.kafka.failures import kafka_failure
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, SeveralFailed, code_of, one_line
from bmq_cli.terminal.output import Output


def report(exception: Exception, output: Output) -> int:
    """Prints it; returns the exit code."""
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
