"""`bmq databus`: run the sidecar, and look at what it holds on disk."""

import asyncio
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from bmq.errors import ConfigurationError
from bmq.runtime.logging import configure_logging
from bmq.runtime.loop import run_service, settle
from bmq.runtime.memory import share_arenas
from bmq.runtime.system import SystemClock, SystemRng
from bmq_cli.databus import explain as explain_command
from bmq_cli.databus import spool as spool_commands
from bmq_cli.kafka.connection import check_addresses
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_node.configuration.addresses import address_of, address_text

app = typer.Typer(
    name="databus",
    help="A sidecar that takes messages by HTTP or gRPC and writes them to a cluster.",
    no_args_is_help=True,
)
app.add_typer(spool_commands.app)
explain_command.add_to(app)
DEFAULT_LISTEN: Final = "127.0.0.1:8600"
ARENAS: Final = 2
"""How many arenas of memory all threads have together: a sidecar is to be small."""


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
            help="The channels: YAML documents of kind Channel. Or --control-plane, or --any-topic.",
            show_default=False,
        ),
    ] = None,
    any_topic: Annotated[
        bool,
        typer.Option(
            "--any-topic",
            envvar="BMQ_DATABUS_ANY_TOPIC",
            help="Each topic of the cluster that there is takes messages by its name, where no channel of that name is "
            "declared: alone, or beside --channels or --control-plane.",
        ),
    ] = False,
    any_topic_lane_header: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            envvar="BMQ_DATABUS_ANY_TOPIC_LANE_HEADER",
            help="With --any-topic: the header, of a message or its request, that names the lane it is written in.",
            show_default=False,
        ),
    ] = "",
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
    grpc_listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            envvar="BMQ_DATABUS_GRPC_LISTEN",
            help="Another address, where applications call it by gRPC: bmq.databus.v1.Databus.",
            show_default=False,
        ),
    ] = "",
    grpc_unix: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A Unix socket where they call it by gRPC.", show_default=False),
    ] = None,
    health_listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            envvar="BMQ_DATABUS_HEALTH_LISTEN",
            help="Another address, which serves /livez, /readyz and /metrics alone: for those who watch it from "
            "elsewhere, while applications write to a loopback.",
            show_default=False,
        ),
    ] = "",
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
    spool_bytes: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            envvar="BMQ_DATABUS_SPOOL_BYTES",
            help="How much all channels of a control plane may keep in --spool together; one for which there is no "
            "room is not served. 0: as much as they say.",
        ),
    ] = 0,
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
    """Take messages by HTTP, and by gRPC, until it is stopped. docs/databus.md says how they are written."""
    from bmq_databus.channels.files import channels_of
    from bmq_databus.channels.topics import topic_rule
    from bmq_databus.errors import DatabusError
    from bmq_databus.serving import Settings
    from bmq_databus.serving import serve as serve_databus
    from bmq_databus.spool.aside import AsideLimits

    configure_logging()
    host, port = _address(listen, "--listen")
    check_addresses(bootstrap_servers)
    if channels is not None and control_plane:
        raise ConfigurationError("say where channels come from: either --channels FILE or --control-plane URL")
    if channels is None and not control_plane and not any_topic:
        raise ConfigurationError(
            "say where channels come from: --channels FILE or --control-plane URL; or --any-topic, for topics by their "
            "names"
        )
    if any_topic_lane_header and not any_topic:
        raise ConfigurationError("--any-topic-lane-header is of topics by their names: say --any-topic, too")
    followed = None
    if control_plane:
        from bmq_databus.control_plane.configuration import Room
        from bmq_databus.control_plane.following import ControlPlane, token_in

        if (folder := state or spool) is None:
            raise ConfigurationError("--control-plane: say --state DIR, where the last known channels are kept")
        urls = [_checked_url(url) for url in control_plane]
        room = Room(disk_bytes=spool_bytes or None, aside_bytes=refused_bytes + damaged_bytes)
        followed = ControlPlane(urls=urls, state=folder, token_file=control_plane_token_file, room=room)
        token_in(control_plane_token_file)
    settings = Settings(
        bootstrap_servers=bootstrap_servers,
        channels={} if channels is None else channels_of(channels),
        host=host,
        port=port,
        unix=unix,
        grpc=_address(grpc_listen, "--grpc-listen") if grpc_listen else None,
        grpc_unix=grpc_unix,
        health=_address(health_listen, "--health-listen") if health_listen else None,
        spool=spool,
        token_file=token_file,
        any_topic=topic_rule(any_topic_lane_header) if any_topic else None,
        control_plane=followed,
        aside=AsideLimits(refused_bytes_max=refused_bytes, damaged_bytes_max=damaged_bytes),
        empty_spools_s=empty_spools_seconds,
    )

    def say(host: str, port: int, grpc_port: int | None) -> None:
        print(f"databus listens on {address_text(host, port)}", flush=True)
        if settings.grpc is not None and grpc_port is not None:
            print(f"gRPC at {address_text(settings.grpc[0], grpc_port)}", flush=True)

    async def main(stop: asyncio.Event) -> int:
        settle()
        share_arenas(ARENAS)
        return await serve_databus(settings, stop, clock=SystemClock(), rng=SystemRng(), listens=say)

    try:
        code = run_service(main)
    except DatabusError as error:
        raise CommandFailed("databus", str(error), code=ExitCode.USAGE) from error
    raise typer.Exit(code)


def _address(text: str, option: str) -> tuple[str, int]:
    try:
        return address_of(text)
    except ValueError:
        raise ConfigurationError(f"{option} {text}: write HOST:PORT, for example {DEFAULT_LISTEN}") from None


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) and parts.path in ("", "/")
    except ValueError:
        usable = False
    if not usable or "@" in url:
        raise ConfigurationError(f"--control-plane {url[:200]}: write http://HOST:PORT of an admin address")
    return url.rstrip("/")
