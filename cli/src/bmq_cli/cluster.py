"""`bmq cluster`: status, nodes, top, cordon, uncordon, drain, balance. What Kafka's protocol has no word for, by the admin REST API."""

from typing import Annotated, Any, Final

import typer

from bmq_cli.cluster_client import PAGE_ITEMS, ApiFailed, ClusterClient
from bmq_cli.cluster_session import ClusterSession, with_cluster
from bmq_cli.cluster_waiting import Wait
from bmq_cli.exit_codes import CommandFailed, ExitCode
from bmq_cli.output import Column, Output, counted, fields
from bmq_cli.sizes import size_text
from bmq_cli.topics import raise_failures
from bmq_cli.wall_clock import sleep_s

app = typer.Typer(name="cluster", help="See a cluster's nodes and load; drain, cordon and balance its brokers.", no_args_is_help=True)

Node = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node's number.")]
Nodes = Annotated[list[int], typer.Argument(metavar="NODE...", min=0, help="The nodes' numbers.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is done.")]
Within = Annotated[float, typer.Option("--within", min=0, metavar="SECONDS", help="Wait at most so long; what was begun goes on.")]

WITHIN_S: Final = 600.0
ROUNDS_MAX: Final = 1_000
_NOTHING: Final = "nothing to move (partitions that moved within the last minute rest)"
_PLURALS: Final = {"controller": "controllers", "broker": "brokers", "proxy": "proxies"}
_NODE_COLUMNS: Final = (
    Column(title="NODE", number=True),
    Column(title="ROLES"),
    Column(title="RACK"),
    Column(title="STATE"),
    Column(title="HEARD", number=True),
    Column(title="PARTITIONS", number=True),
    Column(title="MOVING", number=True),
    Column(title="BYTES/S", number=True),
    Column(title="ADDRESS"),
)
_BROKER_COLUMNS: Final = (
    Column(title="BROKER", number=True),
    Column(title="RACK"),
    Column(title="PARTITIONS", number=True),
    Column(title="BYTES/S", number=True),
    Column(title="SHARE", number=True),
)
_BUSY_COLUMNS: Final = (
    Column(title="TOPIC"),
    Column(title="PARTITION", number=True),
    Column(title="OWNER", number=True),
    Column(title="BYTES/S", number=True),
)
_MOVE_COLUMNS: Final = (
    Column(title="TOPIC"),
    Column(title="PARTITION", number=True),
    Column(title="FROM", number=True),
    Column(title="TO", number=True),
    Column(title="BYTES/S", number=True),
    Column(title="REASON"),
)
_SHARE_COLUMNS: Final = (
    Column(title="BROKER", number=True),
    Column(title="RACK"),
    Column(title="POOL"),
    Column(title="PARTITIONS", number=True),
    Column(title="AFTER", number=True),
    Column(title="BYTES/S", number=True),
    Column(title="AFTER", number=True),
)


@app.command()
@with_cluster
def status(session: ClusterSession) -> None:
    """Show whether the cluster is well: its leader, its nodes, and what is amiss. Exit code 4 while no controller leads."""
    client, output = session.client.at_once(), session.output
    cluster = client.get("/v1/cluster")
    nodes: list[dict[str, Any]] | None = None
    failure: ApiFailed | None = None
    try:
        nodes = list(client.items("/v1/nodes"))
    except ApiFailed as error:
        if not error.passes:
            raise
        failure = error
    problems = _problems(cluster, nodes)
    document = {**{name: value for name, value in cluster.items() if name != "nodes"}, "led": nodes is not None, "problems": problems}
    document["nodes"] = cluster["nodes"] if nodes is None else nodes
    output.document(document)
    _show_status(output, document)
    if failure is not None:
        raise failure


@app.command("nodes")
@with_cluster
def list_nodes(session: ClusterSession) -> None:
    """List the nodes with their roles, partitions and load."""
    nodes = list(session.client.items("/v1/nodes"))
    session.output.document(nodes)
    session.output.table(_NODE_COLUMNS, [_node_row(node) for node in nodes])


@app.command()
@with_cluster
def top(
    session: ClusterSession,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1_000, metavar="N", help="How many of the busiest partitions.")] = 10,
    every: Annotated[
        float | None, typer.Option("--every", min=0.2, metavar="SECONDS", help="Show it again and again until Ctrl-C.", show_default=False)
    ] = None,
) -> None:
    """Show what is written per second: by broker, and the busiest partitions. Brokers smooth it over ten seconds."""
    while True:
        load = session.client.get("/v1/load", limit=count)
        session.output.document(load)
        _show_load(session.output, load)
        if every is None:
            return
        sleep_s(every)
        session.output.text()


@app.command()
@with_cluster
def cordon(session: ClusterSession, nodes: Nodes) -> None:
    """Give nodes no new partitions; those that they have stay. Holds across their restarts."""
    _each(session, nodes, "cordon", "cordoned")


@app.command()
@with_cluster
def uncordon(session: ClusterSession, nodes: Nodes) -> None:
    """Give nodes partitions again; ends a drain, too."""
    _each(session, nodes, "uncordon", "uncordoned")


@app.command()
@with_cluster
def drain(session: ClusterSession, node: Node, *, no_wait: NoWait = False, within: Within = WITHIN_S) -> None:
    """Move all partitions of a broker to others, and wait until it holds none. It stays cordoned until `bmq cluster uncordon`.

    Nothing is copied: a partition's writes pause for a moment when it changes hands.
    """
    client, output = session.client, session.output
    begun = client.post(f"/v1/nodes/{node}/drain")
    before = left = begun["partitions"]
    if not no_wait and before:
        with Wait(output, f"draining node {node}", total=before, unit="partition", within_s=within) as wait:
            while left:
                wait.pause(before - left, left)
                try:
                    seen = client.get(f"/v1/nodes/{node}")
                    if seen["partitions"] and not seen["draining"]:
                        seen = client.post(f"/v1/nodes/{node}/drain")  # another controller leads since, which was not told
                except ApiFailed as failure:
                    if failure.problem == "UnknownNode":
                        left = 0  # it stopped meanwhile, and so handed everything over
                        break
                    if not failure.passes:
                        raise
                    continue
                left = seen["partitions"]
    output.document({"node": node, "partitions_before": before, "partitions": left, "drained": not left})
    output.text(f"node {node} holds no partitions" if not left else f"node {node} is being drained of {counted(left, 'partition')}")


@app.command()
@with_cluster
def balance(
    session: ClusterSession,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be moved and why, and change nothing.")] = False,
    moves: Annotated[int, typer.Option("--moves", min=1, max=1_000, metavar="N", help="How many partitions may be on their way at a time.")] = 100,
    no_wait: NoWait = False,
    within: Within = WITHIN_S,
) -> None:
    """Even out partitions and bytes per second over the brokers, round by round until nothing is left to do. Moves copy nothing."""
    client, output = session.client, session.output
    if dry_run:
        plan = client.get("/v1/balance")
        output.document(plan)
        _show_plan(output, plan)
        return
    begun: list[dict[str, Any]] = []
    problems: list[str] = []
    with Wait(output, "balancing", total=None, unit="move", within_s=within) as wait:
        for _ in range(ROUNDS_MAX):
            answer = client.post("/v1/balance", {"moves_max": moves})
            begun += answer["begun"]
            problems = answer["problems"]
            if no_wait or not answer["begun"]:
                break
            while moving := _moving(client):
                wait.pause(len(begun) - moving, moving)
    output.document({"moved": begun, "problems": problems})
    output.table(_MOVE_COLUMNS, [_move_row(move) for move in begun])
    for problem in problems:
        output.note(f"problem: {problem}")
    output.text(f"{counted(len(begun), 'partition')} {'on the way' if no_wait else 'moved'}" if begun else _NOTHING)


def _moving(client: ClusterClient) -> int:
    """How many partitions are on their way, as far as one page tells; 1 where nobody can say now."""
    try:
        return len(client.get("/v1/placement", moving=True, limit=PAGE_ITEMS)["items"])
    except ApiFailed as failure:
        if not failure.passes:
            raise
        return 1


def _each(session: ClusterSession, nodes: list[int], verb: str, done: str) -> None:
    failures: list[CommandFailed] = []
    changed = []
    for node in dict.fromkeys(nodes):
        try:
            changed.append(session.client.post(f"/v1/nodes/{node}/{verb}"))
        except ApiFailed as failure:
            if failure.code is ExitCode.NO_CONNECTION:
                raise
            failures.append(failure)
        else:
            session.output.text(f"{done} node {node}")
    session.output.document(changed)
    raise_failures(failures)


def _problems(cluster: dict[str, Any], nodes: list[dict[str, Any]] | None) -> list[str]:
    """What is amiss, in words with a remedy."""
    if nodes is None:
        return ["no controller leads: clients go on, but nothing can be created, moved or taken over; look at the controllers"]
    problems = [
        f"node {node['node_id']} is {node['state']}: look at its log, or start it again" for node in nodes if node["state"] in ("silent", "fencing")
    ]
    if cluster["partitions_unowned"]:
        problems.append(f"{counted(cluster['partitions_unowned'], 'partition')} without an owner: start a broker, or uncordon one")
    for role in ("broker", "proxy"):
        if not any(role in node["roles"] for node in nodes):
            problems.append(f"there is no {role}: start one")
    return problems


def _show_status(output: Output, document: dict[str, Any]) -> None:
    led = f"node {document['controller_id']} (epoch {document['controller_epoch']})" if document["led"] else "nobody"
    output.text(f"cluster {document['cluster_id']}")
    output.text(fields([("led by", led), ("metadata", document["metadata_position"]), ("as seen by node", document["answered_by"])]))
    figures = [("topics", document["topics"]), ("partitions", document["partitions"]), ("without owner", document["partitions_unowned"])]
    output.text(fields([*figures, ("moving", document["partitions_moving"])]))
    output.text()
    for role in _PLURALS:
        members = [node for node in document["nodes"] if role in node["roles"]]
        numbers = ", ".join(_named(node) for node in members)
        output.text(f"{role if len(members) == 1 else _PLURALS[role]} {numbers or '-'}")
    if document["problems"]:
        output.text()
    for problem in document["problems"]:
        output.text(f"problem: {problem}")


def _named(node: dict[str, Any]) -> str:
    """`101`, with what is special about it."""
    marks = [node["state"]] if node.get("state") not in (None, "alive") else []
    marks += [mark for mark in ("draining", "cordoned") if node.get(mark)][:1]
    return f"{node['node_id']} ({', '.join(marks)})" if marks else str(node["node_id"])


def _node_row(node: dict[str, Any]) -> list[Any]:
    state = ", ".join([node["state"], *(mark for mark in ("leads", "draining", "cordoned") if node[mark])])
    heard = None if node["last_heard_s"] is None else f"{node['last_heard_s']:.1f} s"
    address = f"{node['host']}:{node['port']}" if node["host"] else node["internal_address"] or None
    holds = "broker" in node["roles"] or node["partitions"]
    moving = f"-{node['moving_away']} +{node['moving_here']}" if node["moving_away"] or node["moving_here"] else None
    figures = [node["partitions"], moving, size_text(node["bytes_per_s"])] if holds else [None, None, None]
    return [node["node_id"], ",".join(node["roles"]) or None, node["rack"] or None, state, heard, *figures, address]


def _show_load(output: Output, load: dict[str, Any]) -> None:
    total = load["bytes_per_s"]
    output.text(f"{size_text(total)}/s written")
    output.text()
    shares = [f"{broker['bytes_per_s'] / total:.0%}" if total else None for broker in load["brokers"]]
    output.table(
        _BROKER_COLUMNS,
        [
            [broker["node_id"], broker["rack"] or None, broker["partitions"], size_text(broker["bytes_per_s"]), share]
            for broker, share in zip(load["brokers"], shares, strict=True)
        ],
    )
    if load["partitions"]:
        output.text()
        output.table(_BUSY_COLUMNS, [[one["topic"], one["partition"], one["owner"], size_text(one["bytes_per_s"])] for one in load["partitions"]])


def _show_plan(output: Output, plan: dict[str, Any]) -> None:
    output.table(
        _SHARE_COLUMNS,
        [
            [
                share["node_id"],
                share["rack"] or None,
                share["pool"] or None,
                share["partitions_before"],
                share["partitions_after"],
                size_text(share["bytes_per_s_before"]),
                size_text(share["bytes_per_s_after"]),
            ]
            for share in plan["brokers"]
        ],
    )
    if plan["moves"]:
        output.text()
        output.table(_MOVE_COLUMNS, [_move_row(move) for move in plan["moves"]])
    output.text()
    for problem in plan["problems"]:
        output.text(f"problem: {problem}")
    output.text(f"{counted(len(plan['moves']), 'move')} planned, nothing was moved" if plan["moves"] else _NOTHING)


def _move_row(move: dict[str, Any]) -> list[Any]:
    source = None if move["source"] < 0 else move["source"]
    return [move["topic"], move["partition"], source, move["target"], size_text(move["bytes_per_s"]), move["reason"]]
