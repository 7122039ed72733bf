"""`bmq databus`: run the sidecar, and look at what it holds on disk."""

import asyncio
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from bmq.errors import ConfigurationError
from bmq.runtime.logging import configure_logging
from bmq.runtime.loop import run_service, settle
from bmq.runtime.system import SystemClock, SystemRng
from bmq_cli.databus import explain as explain_command
from bmq_cli.databus import spool as spool_commands
from bmq_cli.kafka.connection import check_addresses
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_node.configuration.addresses import address_of, address_text

app = typer.Typer(
    name="databus", help="A sidecar that takes messages by HTTP and writes them to a cluster.", no_args_is_help=True
)
app.add_typer(spool_commands.app)
explain_command.add_to(app)
DEFAULT_LISTEN: Final = "127.0.0.1:8600"


@app.command()
def serve(
    *,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", envvar="BMQ_DATABUS_BOOTSTRAP_SERVERS", help="The cluster; several with commas."
        ),
    ],
    channels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="BMQ_DATABUS_CHANNELS",
            help="The channels: YAML documents of kind Channel. Or --control-plane.",
            show_default=False,
        ),
    ] = None,
    control_plane: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            envvar="BMQ_DATABUS_CONTROL_PLANE",
            help="Follow the channels of the cluster with this admin address, http://HOST:PORT. May be repeated: "
            "where one does not answer the next one is asked.",
            show_default=False,
        ),
    ] = None,
    control_plane_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="BMQ_DATABUS_CONTROL_PLANE_TOKEN_FILE",
            help="The admin API's token, in the first line. It is read again when it is refused.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="BMQ_DATABUS_STATE",
            help="Where the last known channels are kept, by which it serves without a control plane. [default: the "
            "folder of --spool]",
            show_default=False,
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar="BMQ_DATABUS_LISTEN", help="Where applications write to it.")
    ] = DEFAULT_LISTEN,
    unix: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A Unix socket for the same.", show_default=False)
    ] = None,
    spool: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="BMQ_DATABUS_SPOOL",
            help="Where channels of acknowledgement accepted keep what is not in the cluster yet.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="BMQ_DATABUS_TOKEN_FILE",
            help="Who writes presents one of its tokens (one a line): Authorization: Bearer TOKEN. It is read again "
            "while the sidecar runs.",
            show_default=False,
        ),
    ] = None,
    refused_bytes: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1 << 20,
            envvar="BMQ_DATABUS_REFUSED_BYTES",
            help="How much each channel keeps of messages that the cluster refused for good; the newest stay.",
        ),
    ] = 128 << 20,
    damaged_bytes: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1 << 20,
            envvar="BMQ_DATABUS_DAMAGED_BYTES",
            help="How much each channel keeps of segments that the disk damaged; the newest stay.",
        ),
    ] = 128 << 20,
    empty_spools_seconds: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=0,
            max=3600,
            envvar="BMQ_DATABUS_EMPTY_SPOOLS_SECONDS",
            help="How long an end waits until the cluster has what is in spools: for a disk that does not outlive "
            "the sidecar. 0: it stays there for the next start.",
        ),
    ] = 0,
) -> None:
    """Take messages by HTTP until it is stopped. docs/databus.md says how they are written."""
    from bmq_databus.channels.files import channels_of
    from bmq_databus.control_plane.following import ControlPlane, token_in
    from bmq_databus.errors import DatabusError
    from bmq_databus.serving import Settings
    from bmq_databus.serving import serve as serve_databus
    from bmq_databus.spool.aside import AsideLimits

    configure_logging()
    try:
        host, port = address_of(listen)
    except ValueError:
        raise ConfigurationError(f"--listen {listen}: write HOST:PORT, for example {DEFAULT_LISTEN}") from None
    check_addresses(bootstrap_servers)
    if (channels is None) == (not control_plane):
        raise ConfigurationError("say where channels come from: either --channels FILE or --control-plane URL")
    followed = None
    if control_plane:
        if (folder := state or spool) is None:
            raise ConfigurationError("--control-plane: say --state DIR, where the last known channels are kept")
        urls = [_checked_url(url) for url in control_plane]
        followed = ControlPlane(urls=urls, state=folder, token_file=control_plane_token_file)
        token_in(control_plane_token_file)
    settings = Settings(
        bootstrap_servers=bootstrap_servers,
        channels={} if channels is None else channels_of(channels),
        host=host,
        port=port,
        unix=unix,
        spool=spool,
        token_file=token_file,
        control_plane=followed,
        aside=AsideLimits(refused_bytes_max=refused_bytes, damaged_bytes_max=damaged_bytes),
        empty_spools_s=empty_spools_seconds,
    )

    async def main(stop: asyncio.Event) -> int:
        settle()
        return await serve_databus(settings, stop, clock=SystemClock(), rng=SystemRng(), listens=_say)

    try:
        code = run_service(main)
    except DatabusError as error:
        raise CommandFailed("databus", str(error), code=ExitCode.USAGE) from error
    raise typer.Exit(code)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) and parts.path in ("", "/")
    except ValueError:
        usable = False
    if not usable or "@" in url:
        raise ConfigurationError(f"--control-plane {url[:200]}: write http://HOST:PORT of an admin address")
    return url.rstrip("/")


def _say(host: str, port: int) -> None:
    print(f"databus listens on {address_text(host, port)}", flush=True)
