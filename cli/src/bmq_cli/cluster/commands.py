"""`bmq cluster`: status, nodes, top, cordon, uncordon, drain, balance. What Kafka's protocol has no word for, by the
admin REST API.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from bmq_admin import documents, pages
from bmq_admin.requests import PAGE_ITEMS, Request
from bmq_cli.cluster.client import ApiFailed, ClusterClient
from bmq_cli.cluster.session import ClusterSession, with_cluster
from bmq_cli.cluster.views import NOTHING, problems, show_load, show_moves, show_nodes, show_plan, show_status
from bmq_cli.cluster.waiting import Wait
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import counted
from bmq_cli.topics.commands import raise_failures
from bmq_cli.wall_clock import sleep_s

app = typer.Typer(
    name="cluster", help="See a cluster's nodes and load; drain, cordon and balance its brokers.", no_args_is_help=True
)

Node = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node's number.")]
Nodes = Annotated[list[int], typer.Argument(metavar="NODE...", min=0, help="The nodes' numbers.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is done.")]
Within = Annotated[
    float, typer.Option("--within", min=0, metavar="SECONDS", help="Wait at most so long; what was begun goes on.")
]

Change = Callable[[int], Request[documents.Node]]

WITHIN_S: Final = 600.0
ROUNDS_MAX: Final = 1_000


@app.command()
@with_cluster
def status(session: ClusterSession) -> None:
    """Show whether the cluster is well: its leader, its nodes, and what is amiss. Exit code 4 while no controller
    leads.
    """
    client, output = session.client.at_once(), session.output
    cluster = client.get("cluster")
    nodes: list[dict[str, Any]] | None = None
    failure: ApiFailed | None = None
    try:
        nodes = list(client.items("nodes"))
    except ApiFailed as error:
        if not error.passes:
            raise
        failure = error
    found = problems(cluster, nodes)
    document = {
        **{name: value for name, value in cluster.items() if name != "nodes"},
        "led": nodes is not None,
        "problems": found,
    }
    document["nodes"] = cluster["nodes"] if nodes is None else nodes
    output.document(document)
    show_status(output, document)
    if failure is not None:
        raise failure


@app.command("nodes")
@with_cluster
def list_nodes(session: ClusterSession) -> None:
    """List the nodes with their roles, partitions and load."""
    nodes = list(session.client.items("nodes"))
    session.output.document(nodes)
    show_nodes(session.output, nodes)


@app.command()
@with_cluster
def top(
    session: ClusterSession,
    *,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1_000, metavar="N", help="How many of the busiest partitions.")
    ] = 10,
    every: Annotated[
        float | None,
        typer.Option(
            "--every", min=0.2, metavar="SECONDS", help="Show it again and again until Ctrl-C.", show_default=False
        ),
    ] = None,
) -> None:
    """Show what is written per second: by broker, and the busiest partitions. Brokers smooth it over ten seconds."""
    while True:
        load = session.client.get("load", limit=count)
        session.output.document(load)
        show_load(session.output, load)
        if every is None:
            return
        session.output.flush()
        sleep_s(every)
        session.output.text()


@app.command()
@with_cluster
def cordon(session: ClusterSession, nodes: Nodes) -> None:
    """Give nodes no new partitions; those that they have stay. Holds across their restarts."""
    _each(session, nodes, pages.cordon, "cordoned")


@app.command()
@with_cluster
def uncordon(session: ClusterSession, nodes: Nodes) -> None:
    """Give nodes partitions again; ends a drain, too."""
    _each(session, nodes, pages.uncordon, "uncordoned")


@app.command()
@with_cluster
def drain(session: ClusterSession, node: Node, *, no_wait: NoWait = False, within: Within = WITHIN_S) -> None:
    """Move all partitions of a broker to others, and wait until it holds none. It stays cordoned until `bmq cluster
    uncordon`.

    Nothing is copied: a partition's writes pause for a moment when it changes hands.
    """
    client, output = session.client, session.output
    begun = client.ask(pages.drain(node))
    before = left = begun["partitions"]
    if not no_wait and before:
        with Wait(output, f"draining node {node}", total=before, unit="partition", within_s=within) as wait:
            while left:
                wait.pause(before - left, left)
                try:
                    seen = client.ask(pages.node(node))
                    if seen["partitions"] and not seen["draining"]:
                        # another controller leads since, which was not told
                        seen = client.ask(pages.drain(node))
                except ApiFailed as failure:
                    if failure.problem == "UnknownNode":
                        left = 0  # it stopped meanwhile, and so handed everything over
                        break
                    if not failure.passes:
                        raise
                    continue
                left = seen["partitions"]
    output.document({"node": node, "partitions_before": before, "partitions": left, "drained": not left})
    output.text(
        f"node {node} holds no partitions"
        if not left
        else f"node {node} is being drained of {counted(left, 'partition')}"
    )


@app.command()
@with_cluster
def balance(
    session: ClusterSession,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be moved and why, and change nothing.")
    ] = False,
    moves: Annotated[
        int,
        typer.Option(
            "--moves", min=1, max=1_000, metavar="N", help="How many partitions may be on their way at a time."
        ),
    ] = 100,
    no_wait: NoWait = False,
    within: Within = WITHIN_S,
) -> None:
    """Even out partitions and bytes per second over the brokers, round by round until nothing is left to do. Moves copy
    nothing.
    """
    client, output = session.client, session.output
    if dry_run:
        plan = client.get("balance")
        output.document(plan)
        show_plan(output, plan)
        return
    begun: list[dict[str, Any]] = []
    left_over: list[str] = []
    with Wait(output, "balancing", total=None, unit="move", within_s=within) as wait:
        for _ in range(ROUNDS_MAX):
            answer = client.post("balance", body={"moves_max": moves})
            begun += answer["begun"]
            left_over = answer["problems"]
            if no_wait or not answer["begun"]:
                break
            while moving := _moving(client):
                wait.pause(len(begun) - moving, moving)
    output.document({"moved": begun, "problems": left_over})
    show_moves(output, begun)
    for problem in left_over:
        output.note(f"problem: {problem}")
    output.text(f"{counted(len(begun), 'partition')} {'on the way' if no_wait else 'moved'}" if begun else NOTHING)


def _moving(client: ClusterClient) -> int:
    """How many partitions are on their way, as far as one page tells; 1 where nobody can say now."""
    try:
        return len(client.get("placement", moving=True, limit=PAGE_ITEMS)["items"])
    except ApiFailed as failure:
        if not failure.passes:
            raise
        return 1


def _each(session: ClusterSession, nodes: list[int], change: Change, done: str) -> None:
    failures: list[CommandFailed] = []
    changed = []
    for node in dict.fromkeys(nodes):
        try:
            changed.append(session.client.ask(change(node)))
        except ApiFailed as failure:
            if failure.code is ExitCode.NO_CONNECTION:
                raise
            failures.append(failure)
        else:
            session.output.text(f"{done} node {node}")
    session.output.document(changed)
    raise_failures(failures)
