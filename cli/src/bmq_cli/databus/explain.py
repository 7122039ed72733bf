"""`bmq databus explain`: what a message would become, step by step. It asks no sidecar and no cluster."""

import base64
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from bmq.errors import ConfigurationError
from bmq.runtime.system import SystemClock, SystemRng
from bmq_cli.options import NoColorOption, OutputOption, SharedOptions
from bmq_cli.session import with_options
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Cell, Column, Output

if TYPE_CHECKING:
    from bmq_databus.channels.channel import Channel
    from bmq_databus.channels.steps import Decision
    from bmq_databus.messages.forms import NewMessage
    from bmq_databus.spool.frames import Spooled

VALUE_BYTES_MAX: Final = 16 << 20
_COLUMNS: Final = (Column(title="STEP"), Column(title="WHAT IT DOES"))
_SHARED: Final = {"output": OutputOption, "no_color": NoColorOption}


def _output(outer: SharedOptions, values: dict[str, Any]) -> Output:
    return SharedOptions(**values).over(outer).make_output()


def explain(
    output: Output,
    *,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel that it would be written to.")],
    message: Annotated[
        Path, typer.Option("--message", metavar="FILE", help="The message's value as it is; - is standard input.")
    ],
    channels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="BMQ_DATABUS_CHANNELS",
            help="The channels: YAML documents of kind Channel.",
            show_default=False,
        ),
    ] = None,
    any_topic: Annotated[
        bool,
        typer.Option(
            "--any-topic",
            envvar="BMQ_DATABUS_ANY_TOPIC",
            help="The sidecar is started with it: CHANNEL is a topic where it is no channel.",
        ),
    ] = False,
    any_topic_lane_header: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            envvar="BMQ_DATABUS_ANY_TOPIC_LANE_HEADER",
            help="As the sidecar is started with it.",
            show_default=False,
        ),
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME=TEXT",
            help="A header of the message, and of its request; may be said again.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="The key that its writer says.", show_default=False)
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", metavar="N", min=0, help="The partition that its writer names.", show_default=False
        ),
    ] = None,
) -> None:
    """Say what a message would become by a channel's rules, step by step, and why. Nothing is written.

    Exit code 0: it would be written; 1: it would not; 3: there is no such channel.
    """
    from bmq_databus.channels.files import channels_of
    from bmq_databus.channels.topics import check_topic, topic_channel, topic_rule
    from bmq_databus.errors import DatabusError
    from bmq_databus.messages.forms import NewMessage

    if channels is None and not any_topic:
        raise ConfigurationError("say which channels there are: --channels FILE, or --any-topic")
    known = {} if channels is None else channels_of(channels)
    explained = _Explained()
    if channel in known:
        by = known[channel]
    elif not any_topic:
        names = ", ".join(sorted(known)[:10])
        raise CommandFailed(f"channel {channel}", f"{channels} has {names}", code=ExitCode.NOT_FOUND)
    elif theirs := [one.name for one in known.values() if channel in one.topics]:
        raise CommandFailed(
            f"topic {channel}", f"it is written by channel {', '.join(theirs)} alone", code=ExitCode.NOT_FOUND
        )
    else:
        try:
            check_topic(channel)
        except DatabusError as error:
            raise CommandFailed(f"topic {channel[:200]}", str(error), code=ExitCode.NOT_FOUND) from None
        by = topic_channel(channel, topic_rule(any_topic_lane_header))
        explained.steps.append(("topic", "no channel is declared: the topic is one, where the cluster has it"))
    new = NewMessage(
        key=None if key is None else key.encode(),
        value=_value_of(message),
        headers=tuple(map(_header_of, header or ())),
        partition=-1 if partition is None else partition,
    )
    _explain(explained, known, by, new)
    output.document(_document(channel, explained))
    output.table(_COLUMNS, explained.steps)
    for line in _lines(explained):
        output.text(line)
    raise typer.Exit(ExitCode.OK if explained.messages else ExitCode.FAILED)


def add_to(app: typer.Typer) -> None:
    """Makes it one of the commands."""
    app.command("explain")(with_options(explain, _SHARED, _output))


@dataclass(slots=True, kw_only=True)
class _Explained:
    steps: list[tuple[Cell, ...]] = field(default_factory=list)
    messages: list[tuple["Spooled", str]] = field(default_factory=list)
    """What would be written, and to which cluster; empty: the sidecar's."""
    why_not: str = ""


def _explain(explained: _Explained, known: "dict[str, Channel]", channel: "Channel", new: "NewMessage") -> None:
    from bmq_databus.channels.steps import Moment, Refused, StepsOfChannels, Write
    from bmq_databus.rules.lanes import Lanes
    from bmq_databus.rules.rates import Ahead

    at = Moment(now_s=0.0, now_ms=SystemClock().now_ms())
    steps = StepsOfChannels(known, random=SystemRng().random, now_s=lambda: at.now_s).of(channel)
    request = [(name.lower().encode(), value or b"") for name, value in new.headers]
    decision: Decision = steps.decide(
        new, at, ahead=Ahead(), lanes=Lanes(request), told=lambda step, what: explained.steps.append((step, what))
    )
    match decision:
        case Write(channel=by, message=message):
            explained.messages = [(message, by.manner.bootstrap_servers)]
            explained.messages += [
                (msgspec.structs.replace(message, topic=one.topic), one.manner.bootstrap_servers) for one in by.others
            ]
        case Refused(error=error):
            explained.why_not = str(error)
        case _:
            explained.why_not = "it is sampled out; its writer is told that it was taken"


def _document(channel: str, explained: _Explained) -> dict[str, Any]:
    document: dict[str, Any] = {
        "channel": channel,
        "written": bool(explained.messages),
        "steps": [{"step": step, "what": what} for step, what in explained.steps],
        "messages": [_message(one, servers) for one, servers in explained.messages],
    }
    return document if explained.messages else {**document, "why": explained.why_not}


def _message(message: "Spooled", servers: str) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "bootstrapServers": servers or None,
        "lane": message.lane or None,
        "partition": None if message.partition < 0 else message.partition,
        **_bytes("key", message.key),
        **_bytes("value", message.value),
        "headers": [{"name": name, **_bytes("value", value)} for name, value in message.headers],
        "timestamp": message.timestamp_ms,
    }


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}


def _lines(explained: _Explained) -> list[str]:
    if not explained.messages:
        return [f"it would not be written: {explained.why_not}"]
    lines = []
    for one, servers in explained.messages:
        value = b"" if one.value is None else one.value
        shown = "no value" if one.value is None else value[:200].decode(errors="backslashreplace")
        where = f"{one.topic} of {servers}" if servers else one.topic
        lines.append(f"it would be written to topic {where}: {shown}{'…' if len(value) > 200 else ''}")
    return lines


def _value_of(path: Path) -> bytes:
    try:
        if str(path) == "-":
            value = sys.stdin.buffer.read(VALUE_BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                value = file.read(VALUE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"--message {path}: {error.strerror}: name another file") from error
    if len(value) > VALUE_BYTES_MAX:
        raise ConfigurationError(f"--message {path}: a message has {VALUE_BYTES_MAX >> 20} MiB at most")
    return value


def _header_of(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigurationError(f"--header {text[:40]}: write NAME=TEXT")
    return name, value.encode()
