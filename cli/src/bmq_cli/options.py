"""The options that commands share, and what is used without them. Imported by each run of `bmq`, so it imports little:
neither Kafka's client nor what draws tables.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bmq_cli.terminal.output_format import OutputFormat

if TYPE_CHECKING:
    from bmq_cli.terminal.output import Output

DEFAULT_BOOTSTRAP_SERVER: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S: Final = 10.0
PANEL: Final = "Connection and output"
LANE_VARIABLE: Final = "BMQ_LANE"

BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        rich_help_panel=PANEL,
        help="The cluster's address, or several with commas. Default: $BMQ_BOOTSTRAP_SERVER, else "
        f"{DEFAULT_BOOTSTRAP_SERVER}.",
        show_default=False,
    ),
]
LaneOption = Annotated[
    str | None,
    typer.Option(
        "--lane",
        metavar="NAME",
        rich_help_panel=PANEL,
        help=f"Be in this lane (docs/lanes.md). Default: ${LANE_VARIABLE}.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    OutputFormat | None,
    typer.Option(
        "--output", "-o", rich_help_panel=PANEL, help="How to print results. Default: table.", show_default=False
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        max=3600,
        rich_help_panel=PANEL,
        help=f"How long to wait for a connection, and for each answer. Default: {DEFAULT_TIMEOUT_S:g}.",
        show_default=False,
    ),
]
NoColorOption = Annotated[
    bool | None,
    typer.Option(
        "--no-color",
        rich_help_panel=PANEL,
        help="No colours (NO_COLOR in the environment does the same).",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOptions:
    """The shared options as far as they were given; None where not."""

    bootstrap_server: str | None = None
    output: OutputFormat | None = None
    timeout: float | None = None
    no_color: bool | None = None
    lane: str | None = None

    def over(self, outer: "SharedOptions") -> "SharedOptions":
        """These, and what `outer` gives where these give nothing."""
        return SharedOptions(
            bootstrap_server=self.bootstrap_server or outer.bootstrap_server,
            output=self.output or outer.output,
            timeout=outer.timeout if self.timeout is None else self.timeout,
            no_color=self.no_color or outer.no_color,
            lane=self.lane or outer.lane,
        )

    def make_output(self) -> "Output":
        """The output that these options ask for."""
        from bmq_cli.terminal.output import Output

        return Output(form=self.output or OutputFormat.TABLE, color=not self.no_color)


class OutputClosed(Exception):
    """Whoever read standard output has left (`| head`): the command ends quietly."""


def debugging() -> bool:
    """Whether BMQ_DEBUG asks for tracebacks and the client library's log."""
    return os.environ.get("BMQ_DEBUG", "") not in ("", "0")
