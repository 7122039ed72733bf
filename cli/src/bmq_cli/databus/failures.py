"""Errors of a sidecar's parts as those of commands."""

from collections.abc import Iterator
from contextlib import contextmanager

from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_databus.backlog.channels import NoSpool
from bmq_databus.backlog.replaying import ClusterGone
from bmq_databus.errors import DatabusError


@contextmanager
def told_as_failures() -> Iterator[None]:
    """An error of a sidecar's as one of a command's."""
    try:
        yield
    except NoSpool as error:
        raise CommandFailed("databus", str(error), code=ExitCode.NOT_FOUND) from error
    except ClusterGone as error:
        raise CommandFailed("databus", str(error), code=ExitCode.NO_CONNECTION) from error
    except DatabusError as error:
        raise CommandFailed("databus", str(error)) from error
