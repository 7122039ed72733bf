"""`bmq channels`: create, list, describe, alter, delete. By the admin REST API."""

import json
import os
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import typer

from bmq.naming.bearer import watching_token
from bmq_admin import pages
from bmq_cli.channels.fields import with_fields
from bmq_cli.cluster.client import TOKEN_VARIABLE
from bmq_cli.cluster.deleting import delete_each
from bmq_cli.cluster.session import ClusterSession, TokenOption, with_cluster
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Column, fields
from bmq_cli.topics.commands import confirm

app = typer.Typer(
    name="channels",
    help="Create, list, describe, alter and delete channels: what applications write to by Databus.",
    no_args_is_help=True,
)

ChannelName = Annotated[str, typer.Argument(metavar="NAME", help="The channel.")]
ChannelNames = Annotated[list[str], typer.Argument(metavar="NAME...", help="The channels.")]
TopicOption = Annotated[
    str | None,
    typer.Option("--topic", metavar="TOPIC", help="The topic that its messages go to. [default: the channel's name]"),
]
AcknowledgementOption = Annotated[
    Literal["durable", "accepted"] | None,
    typer.Option(
        "--acknowledgement",
        help="When a writer is answered: once the cluster has the message, or once the sidecar has it on its disk. "
        "[default: durable]",
    ),
]
EnabledOption = Annotated[
    bool | None,
    typer.Option("--enabled/--disabled", help="Whether it takes messages. [default: enabled]", show_default=False),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Any field of a Channel's spec, by its path: spool.maxBytes=1048576. May be repeated.",
    ),
]
_COLUMNS: Final = (
    Column(title="CHANNEL"),
    Column(title="TOPIC"),
    Column(title="ACKNOWLEDGEMENT"),
    Column(title="ENABLED"),
)


@app.command()
@with_cluster
def create(
    session: ClusterSession,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The new channel: lower-case letters, digits, - and ."),
    ],
    *,
    topic: TopicOption = None,
    acknowledgement: AcknowledgementOption = None,
    enabled: EnabledOption = None,
    settings: SetOption = None,
) -> None:
    """Create a channel. Sidecars that follow the cluster take messages for it within seconds."""
    spec = _spec({}, topic, acknowledgement, enabled, given=settings, taken=None)
    session.output.document(session.client.ask(pages.create_channel(name, spec)))
    session.output.text(f"created channel {name}")


@app.command("list")
@with_cluster
def list_channels(session: ClusterSession) -> None:
    """List the channels."""
    channels = list(session.client.items("channels"))
    session.output.document(channels)
    session.output.table(_COLUMNS, [_row(channel) for channel in channels])


@app.command()
@with_cluster
def describe(session: ClusterSession, name: ChannelName) -> None:
    """Show a channel."""
    channel = session.client.get("channels", name)
    session.output.document(channel)
    created = datetime.fromtimestamp(channel["created_ms"] / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    _, topic, acknowledgement, enabled = _row(channel)
    session.output.text(fields([("channel", name), ("created", created)]))
    session.output.text(fields([("topic", topic), ("acknowledgement", acknowledgement), ("enabled", enabled)]))
    for field, value in sorted(channel["spec"].items()):
        if field not in ("topic", "acknowledgement", "enabled"):
            session.output.text(fields([(field, json.dumps(value))]))


@app.command()
@with_cluster
def alter(
    session: ClusterSession,
    name: ChannelName,
    *,
    topic: TopicOption = None,
    acknowledgement: AcknowledgementOption = None,
    enabled: EnabledOption = None,
    settings: SetOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="FIELD", help="A field that goes back to its default. May be repeated."),
    ] = None,
) -> None:
    """Change a channel; what is not said stays. Sidecars follow within seconds."""
    present = session.client.ask(pages.channel(name))
    spec = _spec(present["spec"], topic, acknowledgement, enabled, given=settings, taken=unset)
    changed = session.client.ask(pages.change_channel(name, spec, version=present["version"]))
    session.output.document(changed)
    same = changed["version"] == present["version"]
    session.output.text(f"channel {name} is so already" if same else f"changed channel {name}")


@app.command()
def token(*, token: TokenOption = None) -> None:
    """Print what sidecars may present to follow the channels, and nothing else: it is made of the nodes' token, without
    asking them, and ends with it.
    """
    given = token or os.environ.get(TOKEN_VARIABLE, "")
    if not given:
        raise CommandFailed(
            "--token", "it is missing", f"set ${TOKEN_VARIABLE} to one of the nodes' tokens", code=ExitCode.USAGE
        )
    print(watching_token(given))


@app.command()
@with_cluster
def delete(
    session: ClusterSession,
    names: ChannelNames,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete channels. Who writes to them is refused; what was accepted is still sent, and topics stay."""
    confirm(f"delete {', '.join(names)}?", yes=yes)
    delete_each(session, "channel", names, pages.delete_channel)


def _spec(
    before: dict[str, Any],
    topic: str | None,
    acknowledgement: str | None,
    enabled: bool | None,
    *,
    given: list[str] | None,
    taken: list[str] | None,
) -> dict[str, Any]:
    said = {"topic": topic, "acknowledgement": acknowledgement, "enabled": enabled}
    spec = before | {name: value for name, value in said.items() if value is not None}
    return with_fields(spec, given=given or (), taken=taken or ())


def _row(channel: dict[str, Any]) -> tuple[str, str, str, str]:
    spec = channel["spec"]
    return (
        channel["name"],
        spec.get("topic") or channel["name"],
        spec.get("acknowledgement", "durable"),
        "yes" if spec.get("enabled", True) else "no",
    )
