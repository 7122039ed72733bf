"""`bmq databus spool`: what a sidecar has on disk and the cluster does not have: shown, exported, or written to it."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bmq_cli.options import NoColorOption, OutputOption, SharedOptions
from bmq_cli.session import with_options
from bmq_cli.terminal.output import Output

app = typer.Typer(name="spool", help="Show, export and replay what a sidecar keeps on its disk.", no_args_is_help=True)

SpoolOption = Annotated[
    Path, typer.Option("--spool", metavar="DIR", envvar="BMQ_DATABUS_SPOOL", help="The folder of a sidecar's spools.")
]
ChannelOption = Annotated[
    str | None, typer.Option("--channel", metavar="NAME", help="This one alone.", show_default=False)
]
_SHARED: Final = {"output": OutputOption, "no_color": NoColorOption}


def _output(outer: SharedOptions, values: dict[str, Any]) -> Output:
    return SharedOptions(**values).over(outer).make_output()


def show(output: Output, *, spool: SpoolOption, channel: ChannelOption = None) -> None:
    """Show what each channel has on disk: what waits, what was refused, what is damaged.

    It reads all that waits and changes nothing; a sidecar may run.
    """
    from bmq_cli.databus.spool_summary import show_spool

    show_spool(spool, output, channel=channel)


def export(
    output: Output,
    *,
    spool: SpoolOption,
    channel: Annotated[
        str | None,
        typer.Option("--channel", metavar="NAME", help="Whose. Default: the only one there is.", show_default=False),
    ] = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="Those that the cluster refused, instead of those that wait.")
    ] = False,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Those in damaged segments, as far as they are whole and were not sent.")
    ] = False,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="PLACE", help="Begin where an export ended, which said so.", show_default=False
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="A new file, instead of standard output.", show_default=False),
    ] = None,
) -> None:
    """Write messages as lines of JSON, as a channel takes them again (application/x-ndjson).

    It changes nothing, and a sidecar may run: then some of them may be sent meanwhile. Exit code 1: some could not be
    read; the others are written.
    """
    from bmq_cli.databus.spool_export import export_spool

    export_spool(spool, output, channel=channel, refused=refused, damaged=damaged, after=after, to=to)


def replay(
    output: Output,
    *,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", envvar="BMQ_DATABUS_BOOTSTRAP_SERVERS", help="The cluster; several with commas."
        ),
    ],
    spool: SpoolOption,
    channel: ChannelOption = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="What the cluster refused, instead of what waits.")
    ] = False,
    patience: Annotated[
        float,
        typer.Option("--patience", min=1, max=86_400, metavar="SECONDS", help="Give up when nothing gets through."),
    ] = 60,
) -> None:
    """Write what waits to the cluster, in the order in which it was accepted. No sidecar may run over the folder.

    One that was interrupted goes on when it is run again. Exit code 1: something was refused, is damaged or is of a
    later version; 4: the cluster does not answer, or takes nothing.
    """
    from bmq_cli.databus.spool_replay import replay_spool

    code = replay_spool(
        spool,
        output,
        bootstrap_servers=bootstrap_servers,
        channel=channel,
        refused=refused,
        patience_s=patience,
    )
    raise typer.Exit(code)


app.command("show")(with_options(show, _SHARED, _output))
app.command("export")(with_options(export, _SHARED, _output))
app.command("replay")(with_options(replay, _SHARED, _output))
