"""What every command about the cluster itself takes: where its admin API is, a token, and how results are printed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from bmq_cli.cluster.client import DEFAULT_URL, TOKEN_VARIABLE, URL_VARIABLE, ClusterClient, check_urls, default_url
from bmq_cli.options import DEFAULT_TIMEOUT_S, PANEL, NoColorOption, OutputOption, SharedOptions, TimeoutOption
from bmq_cli.session import with_options
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Output

P = ParamSpec("P")

AdminOption = Annotated[
    str | None,
    typer.Option(
        "--admin",
        "-a",
        metavar="URL",
        rich_help_panel=PANEL,
        help=f"A node's admin address, or several with commas. Default: ${URL_VARIABLE}, else {DEFAULT_URL}.",
        show_default=False,
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        rich_help_panel=PANEL,
        help=f"One of the nodes' tokens. Better as ${TOKEN_VARIABLE}: others on the machine can read options.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSession:
    """One command's cluster and output."""

    client: ClusterClient
    output: Output


def with_cluster(command: Callable[Concatenate[ClusterSession, P], None]) -> Callable[..., None]:
    """Gives `command` the options above and, as its first argument, the session that they make."""
    options = {
        "admin": AdminOption,
        "token": TokenOption,
        "output": OutputOption,
        "timeout": TimeoutOption,
        "no_color": NoColorOption,
    }
    return with_options(command, options, _make)


def _make(outer: SharedOptions, values: dict[str, Any]) -> ClusterSession:
    admin, token = values.pop("admin"), values.pop("token")
    options = SharedOptions(**values).over(outer)
    urls = check_urls(admin or default_url())
    timeout_s = DEFAULT_TIMEOUT_S if options.timeout is None else options.timeout
    given = token or os.environ.get(TOKEN_VARIABLE, "")
    if not (given.isascii() and given.isprintable()):
        raise CommandFailed(
            "--token",
            "it has characters that no header can carry",
            "use letters, digits and signs of ASCII",
            code=ExitCode.USAGE,
        )
    return ClusterSession(
        client=ClusterClient(urls, token=given, timeout_s=timeout_s, patience_s=timeout_s), output=options.make_output()
    )
