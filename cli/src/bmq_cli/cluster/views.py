"""What the commands of `bmq cluster` print for people, and what is amiss in a cluster, in words."""

from typing import Any, Final

from bmq_cli.terminal.output import Column, Output, counted, fields
from bmq_cli.terminal.sizes import size_text

NOTHING: Final = "nothing to move (partitions that moved within the last minute rest)"
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


def problems(cluster: dict[str, Any], nodes: list[dict[str, Any]] | None) -> list[str]:
    """What is amiss, in words with a remedy."""
    if nodes is None:
        return [
            "no controller leads: clients go on, but nothing can be created, moved or taken over; look at the "
            "controllers"
        ]
    problems = [
        f"node {node['node_id']} is {node['state']}: look at its log, or start it again"
        for node in nodes
        if node["state"] in ("silent", "fencing")
    ]
    problems += [
        f"node {node['node_id']} {node['trouble']}"
        for node in nodes
        if node.get("trouble") and node["state"] == "alive"
    ]
    if cluster["partitions_unowned"]:
        problems.append(
            f"{counted(cluster['partitions_unowned'], 'partition')} without an owner: start a broker, or uncordon one"
        )
    for role in ("broker", "proxy"):
        if not any(role in node["roles"] for node in nodes):
            problems.append(f"there is no {role}: start one")
    return problems


def show_status(output: Output, document: dict[str, Any]) -> None:
    """Prints the document of `bmq cluster status`."""
    led = f"node {document['controller_id']} (epoch {document['controller_epoch']})" if document["led"] else "nobody"
    output.text(f"cluster {document['cluster_id']}")
    output.text(
        fields(
            [("led by", led), ("metadata", document["metadata_position"]), ("as seen by node", document["answered_by"])]
        )
    )
    figures = [
        ("topics", document["topics"]),
        ("partitions", document["partitions"]),
        ("without owner", document["partitions_unowned"]),
    ]
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


def show_nodes(output: Output, nodes: list[dict[str, Any]]) -> None:
    """One a line."""
    output.table(_NODE_COLUMNS, [_node_row(node) for node in nodes])


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


def show_load(output: Output, load: dict[str, Any]) -> None:
    """By broker and by partition."""
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
        output.table(
            _BUSY_COLUMNS,
            [
                [one["topic"], one["partition"], one["owner"], size_text(one["bytes_per_s"])]
                for one in load["partitions"]
            ],
        )


def show_plan(output: Output, plan: dict[str, Any]) -> None:
    """What brokers would have, the moves, and what no move can mend."""
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
        show_moves(output, plan["moves"])
    output.text()
    for problem in plan["problems"]:
        output.text(f"problem: {problem}")
    output.text(f"{counted(len(plan['moves']), 'move')} planned, nothing was moved" if plan["moves"] else NOTHING)


def show_moves(output: Output, moves: list[dict[str, Any]]) -> None:
    """One a line, with its reason."""
    output.table(_MOVE_COLUMNS, [_move_row(move) for move in moves])


def _move_row(move: dict[str, Any]) -> list[Any]:
    source = None if move["source"] < 0 else move["source"]
    return [move["topic"], move["partition"], source, move["target"], size_text(move["bytes_per_s"]), move["reason"]]
