"""What every command that talks to a cluster takes: the shared options, before or after the command's name, and the
session they make.
"""

import functools
import inspect
import os
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import typer

from bmq_cli.kafka.connection import Connection, check_addresses, check_lane, default_address
from bmq_cli.options import (
    DEFAULT_TIMEOUT_S,
    LANE_VARIABLE,
    BootstrapServer,
    LaneOption,
    NoColorOption,
    OutputClosed,
    OutputOption,
    SharedOptions,
    TimeoutOption,
)
from bmq_cli.terminal.output import Output

P = ParamSpec("P")
S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One command's cluster and output."""

    connection: Connection
    output: Output


def with_session(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Gives `command` the shared options and, as its first argument, the session that they make."""
    options = {
        "bootstrap_server": BootstrapServer,
        "lane": LaneOption,
        "output": OutputOption,
        "timeout": TimeoutOption,
        "no_color": NoColorOption,
    }

    def make(outer: SharedOptions, values: dict[str, Any]) -> Session:
        return make_session(SharedOptions(**values).over(outer))

    return with_options(command, options, make)


def with_options(
    command: Callable[Concatenate[S, P], None],
    options: Mapping[str, Any],
    make: Callable[[SharedOptions, dict[str, Any]], S],
) -> Callable[..., None]:
    """Gives `command` more options, each with its annotation, and as its first argument what `make` makes of their
    values.

    `make` gets the shared options that stood before the command's name, too.
    """
    inner: Callable[..., None] = command
    hints = typing.get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]
    keyword = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("context", keyword, annotation=typer.Context)
    added = [
        inspect.Parameter(name, keyword, default=None, annotation=annotation) for name, annotation in options.items()
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        outer = values.pop("context").find_root().obj
        given = {name: values.pop(name) for name in options}
        session = make(outer if isinstance(outer, SharedOptions) else SharedOptions(), given)
        try:
            inner(session, **values)
        except BrokenPipeError as error:
            raise OutputClosed from error

    parameters = [context, *(parameter.replace(kind=keyword) for parameter in own), *added]
    run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
    del run.__wrapped__
    return run


def make_session(options: SharedOptions) -> Session:
    """Raises CommandFailed for an address that is none."""
    output = options.make_output()
    lane = options.lane or os.environ.get(LANE_VARIABLE, "")
    connection = Connection(
        bootstrap_server=check_addresses(options.bootstrap_server or default_address()),
        lane=check_lane(lane) if lane else "",
        timeout_s=DEFAULT_TIMEOUT_S if options.timeout is None else options.timeout,
        waiting=output.waiting,
    )
    return Session(connection=connection, output=output)
