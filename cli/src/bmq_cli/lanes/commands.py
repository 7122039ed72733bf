"""`bmq lanes`: create, list, describe, routes, promote, delete. By the admin REST API: Kafka's protocol has no word for
them.
"""

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from bmq_admin import pages
from bmq_cli.cluster.deleting import delete_each
from bmq_cli.cluster.nested_lanes import innermost_first
from bmq_cli.cluster.session import ClusterSession, with_cluster
from bmq_cli.lanes.promote import promote
from bmq_cli.lanes.routes import routes
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Column, Output, counted, fields
from bmq_cli.terminal.sizes import size_text
from bmq_cli.topics.commands import confirm

app = typer.Typer(
    name="lanes",
    help="Create, list, describe, promote and delete lanes: lines of traffic of their own. Show where their messages "
    "go.",
    no_args_is_help=True,
)


class Fallback(StrEnum):
    """What happens to messages that nobody in a lane consumes."""

    NONE = "none"
    BASE = "base"


LaneName = Annotated[str, typer.Argument(metavar="NAME", help="The lane.")]
LaneNames = Annotated[list[str], typer.Argument(metavar="NAME...", help="The lanes.")]

_COLUMNS: Final = (
    Column(title="LANE"),
    Column(title="TOPICS", number=True),
    Column(title="EXPIRES"),
    Column(title="BROKERS"),
    Column(title="READS BASE"),
    Column(title="NESTED IN"),
    Column(title="PROXIES"),
)
_TTL: Final = re.compile(r"([0-9]{1,9})([smhd]?)")
_UNIT_S: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_BYTES_PER_SECOND: Final = 1_048_576


@app.command()
@with_cluster
def create(
    session: ClusterSession,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The new lane: up to 32 lower-case letters, digits and -.")
    ],
    *,
    ttl: Annotated[
        str,
        typer.Option("--ttl", metavar="TIME", help="Delete it by itself after so long: 90s, 30m, 8h, 7d. 0: it stays."),
    ] = "0",
    own_brokers: Annotated[
        bool, typer.Option("--own-brokers", help="Keep its topics on the brokers of the pool lane-NAME alone.")
    ] = False,
    reads_base: Annotated[
        list[str] | None,
        typer.Option(
            "--reads-base",
            metavar="PATTERN",
            help="Let its clients read these topics of the base (* for any characters); may be repeated.",
        ),
    ] = None,
    fallback: Annotated[
        Fallback | None,
        typer.Option(
            "--fallback",
            help="What happens to messages that nobody in the lane consumes: none, they stay in it; base, they go on "
            "to the base's topic of the same name. It cannot be changed later.  [default: none, base with --parent]",
        ),
    ] = None,
    parent: Annotated[
        str,
        typer.Option(
            "--parent",
            metavar="NAME",
            help="Nest it in this lane: what nobody in the new one consumes goes on to this one first, and from there "
            "as that falls back. It cannot be changed later.",
        ),
    ] = "",
    bytes_per_second: Annotated[
        int,
        typer.Option(
            "--bytes-per-second",
            min=1_024,
            metavar="N",
            help="How much of the base all of them read at most, on each proxy.",
        ),
    ] = _BYTES_PER_SECOND,
    write_bytes_per_second: Annotated[
        int,
        typer.Option(
            "--write-bytes-per-second",
            min=0,
            metavar="N",
            help="How much all of its clients together write at most, on each proxy. 0: no bound.",
        ),
    ] = 0,
    read_bytes_per_second: Annotated[
        int,
        typer.Option(
            "--read-bytes-per-second",
            min=0,
            metavar="N",
            help="How much all of its clients together read at most, on each proxy. 0: no bound.",
        ),
    ] = 0,
    partitions_max: Annotated[
        int,
        typer.Option(
            "--partitions-max",
            min=0,
            metavar="N",
            help="How many partitions all of its own topics have together at most. 0: no bound.",
        ),
    ] = 0,
    storage_bytes: Annotated[
        int,
        typer.Option(
            "--storage-bytes",
            min=0,
            metavar="N",
            help="How many bytes so many partitions keep together at most, each an equal part. Needs --partitions-max. "
            "0: no bound.",
        ),
    ] = 0,
) -> None:
    """Create a lane. Clients are in it by lane=NAME in their client.id, or by a proxy that serves it alone; its topics
    come by themselves.
    """
    asked: dict[str, object] = {
        "name": name,
        "ttl_seconds": _seconds(ttl),
        "own_brokers": own_brokers,
        "reads_base": {
            "enabled": bool(reads_base),
            "topics": reads_base or ["*"],
            "bytes_per_second": bytes_per_second,
        },
        "fallback": str(fallback or (Fallback.BASE if parent else Fallback.NONE)),
    }
    quota = {
        "write_bytes_per_second": write_bytes_per_second,
        "read_bytes_per_second": read_bytes_per_second,
        "partitions": partitions_max,
        "storage_bytes": storage_bytes,
    }
    # What is not asked for is left out: a cluster of an earlier version does not know it.
    asked |= {"parent": parent} if parent else {}
    asked |= {"quota": quota} if any(quota.values()) else {}
    made = session.client.ask(pages.create_lane(asked))
    session.output.document(made)
    session.output.text(
        f"created lane {name}" + (f", which ends at {_time(made['expires_ms'])}" if made["expires_ms"] else "")
    )


@app.command("list")
@with_cluster
def list_lanes(session: ClusterSession) -> None:
    """List the lanes."""
    lanes = list(session.client.items("lanes"))
    session.output.document(lanes)
    session.output.table(_COLUMNS, [_row(lane) for lane in lanes])


@app.command()
@with_cluster
def describe(session: ClusterSession, name: LaneName) -> None:
    """Show a lane with its topics and groups."""
    lane = session.client.get("lanes", name)
    topics = list(session.client.items("topics", lane=name))
    groups = list(session.client.items("groups", lane=name))
    prefix = f":{name}#{lane['number']}:"
    lane |= {
        "topic_names": [one["name"].removeprefix(f"{name}:") for one in topics],
        "group_ids": [one["group_id"].removeprefix(prefix) for one in groups],
    }
    session.output.document(lane)
    _show(session.output, lane)


app.command()(with_cluster(routes))
app.command()(with_cluster(promote))


@app.command()
@with_cluster
def delete(
    session: ClusterSession,
    names: LaneNames,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete lanes with their topics and groups. Their clients are refused from then on. One that others are nested in
    is deleted after those, or together with them.
    """
    confirm(f"delete {', '.join(names)} with all topics, records and groups?", yes=yes)
    parents = {lane["name"]: lane.get("parent", "") for lane in session.client.items("lanes")} if len(names) > 1 else {}
    delete_each(session, "lane", innermost_first(names, parents), pages.delete_lane)


def _seconds(text: str) -> int:
    found = _TTL.fullmatch(text.strip())
    if found is None:
        raise CommandFailed(
            "--ttl", f"{text!r} is no time", "write for example 90s, 30m, 8h or 7d", code=ExitCode.USAGE
        )
    seconds = int(found[1]) * _UNIT_S[found[2]]
    if not seconds and found[2]:
        raise CommandFailed(
            "--ttl",
            f"{text!r} is over at once",
            "Write for example 8h, or 0 for a lane that stays.",
            code=ExitCode.USAGE,
        )
    return seconds


def _row(lane: dict[str, Any]) -> tuple[str | int | None, ...]:
    return (
        lane["name"],
        lane["topics"],
        _time(lane["expires_ms"]),
        lane["pool"] or "shared",
        _reads(lane),
        lane.get("parent") or None,
        _listed(lane["proxies"]),
    )


def _show(output: Output, lane: dict[str, Any]) -> None:
    output.text(
        fields([("lane", lane["name"]), ("created", _time(lane["created_ms"])), ("expires", _time(lane["expires_ms"]))])
    )
    output.text(
        fields(
            [("brokers", lane["pool"] or "shared"), ("proxies", _listed(lane["proxies"])), ("reads base", _reads(lane))]
        )
    )
    if lane["fallback"] != Fallback.NONE:
        parent = lane.get("parent")
        nobodys = f"go on to {f'lane {parent}' if parent else 'the base'}"
        output.text(fields([("unread messages", nobodys)]))
    if quota := _quota(lane):
        output.text(fields([("quota", quota)]))
    output.text()
    output.text(f"{counted(len(lane['topic_names']), 'topic')}: {', '.join(lane['topic_names']) or '-'}")
    output.text(f"{counted(len(lane['group_ids']), 'group')}: {', '.join(lane['group_ids']) or '-'}")


def _reads(lane: dict[str, Any]) -> str | None:
    reads = lane["reads_base"]
    return f"{','.join(reads['topics'])} at {size_text(reads['bytes_per_second'])}/s" if reads["enabled"] else None


def _quota(lane: dict[str, Any]) -> str | None:
    quota = lane.get("quota", {})
    said = [
        f"{verb} {size_text(quota[name])}/s"
        for verb, name in (("write", "write_bytes_per_second"), ("read", "read_bytes_per_second"))
        if quota.get(name)
    ]
    if most := quota.get("partitions"):
        said.append(f"{lane['partitions']} of {counted(most, 'partition')}")
    if most := quota.get("storage_bytes"):
        said.append(f"keep {size_text(most)}")
    return ", ".join(said) or None


def _listed(numbers: list[int]) -> str | None:
    return ", ".join(map(str, numbers)) or None


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
