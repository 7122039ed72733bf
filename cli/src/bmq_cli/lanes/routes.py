"""`bmq lanes routes`: who handles what is written to a topic, in the base and in lanes."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from bmq_cli.cluster.session import ClusterSession
from bmq_cli.terminal.output import Cell, Column, Output, counted, fields

BASE: Final = "(base)"
"""What the base is called where lanes are listed: no lane has such a name."""
_AT_ONCE: Final = 100
_ROUTES: Final = (
    Column(title="LANE"),
    Column(title="HANDLED BY"),
    Column(title="WAITING", number=True),
    Column(title="WHY"),
)
_PARTITIONS: Final = (
    Column(title="PARTITION", number=True),
    Column(title="HANDLED BY"),
    Column(title="SINCE OFFSET", number=True),
    Column(title="END", number=True),
    Column(title="BASE IS AT", number=True),
    Column(title="WAITING", number=True),
    Column(title="FOR SECONDS", number=True),
)


def routes(
    session: ClusterSession,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, as clients call it.")],
    *,
    lane: Annotated[
        str | None,
        typer.Option("--lane", metavar="NAME", help="This lane alone, with partitions.", show_default=False),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, metavar="N", help="With --lane: this partition; may be repeated."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="With --lane: show so many partitions at most.")
    ] = 10,
) -> None:
    """Show who handles what is written to a topic now, and why: in the base and in each lane, or in one lane with its
    partitions.
    """
    if lane is None:
        _show_all(session, list(session.client.items("routes", topic, limit=_AT_ONCE)))
        return
    route = _route(session, topic, lane, partition or [], limit)
    session.output.document(route)
    _show(session.output, route)


def _route(session: ClusterSession, topic: str, lane: str, partitions: list[int], limit: int) -> dict[str, Any]:
    """The page of the lane with the partitions that are asked for, in place of any others."""
    pages = list(_pages(session, ("lanes", lane, "routes", topic), partitions, limit))
    route: dict[str, Any] = {**pages[0], "items": [one for page in pages for one in page["items"]]}
    route["waiting"] = _together([page["waiting"] for page in pages])
    route["more_partitions"] = (route["partitions"] or 0) - len(route["items"])
    del route["continue"]
    return route


def _pages(
    session: ClusterSession, path: tuple[str, ...], partitions: list[int], limit: int
) -> Iterator[dict[str, Any]]:
    if partitions:
        for partition in sorted(set(partitions)):
            yield session.client.get(*path, partition=partition)
        return
    query: dict[str, object] = {}
    while limit > 0:
        page = session.client.get(*path, limit=min(limit, _AT_ONCE), **query)
        yield page
        limit -= len(page["items"])
        if not page["continue"]:
            return
        query = {"continue": page["continue"]}


def _together(waiting: list[dict[str, Any]]) -> dict[str, Any]:
    ages = [one["seconds"] for one in waiting]
    return {
        **{name: sum(one[name] for one in waiting) for name in ("partitions", "unknown", "records")},
        "seconds": max((age for age in ages if age is not None), default=None),
    }


def _show_all(session: ClusterSession, routes: list[dict[str, Any]]) -> None:
    session.output.document(routes)
    rows = [(one["lane"] or BASE, one["handled_by"], _waiting(one), one["why"]) for one in routes]
    session.output.table(_ROUTES, rows)


def _show(output: Output, route: dict[str, Any]) -> None:
    made = "not made yet" if route["partitions"] is None else counted(route["partitions"], "partition")
    of_base = route["base_partitions"]
    base = "no such topic" if of_base is None else counted(of_base, "partition")
    output.text(fields([("lane", route["lane"]), ("topic", route["topic"]), ("handled by", route["handled_by"])]))
    output.text(route["why"])
    beneath = f"in lane {route['parent']}" if route.get("parent") else "in the base"
    output.text(fields([("in the lane", made), (beneath, base), ("waiting", _waiting(route))]))
    if not route["items"]:
        return
    output.text()
    output.table(_PARTITIONS, [_row(one) for one in route["items"]])
    if route["more_partitions"]:
        output.text(f"and {counted(route['more_partitions'], 'more partition')}: {_turns(route)} of all")


def _row(one: dict[str, Any]) -> tuple[Cell, ...]:
    seconds = one["waiting_seconds"]
    return (
        one["partition"],
        one["handled_by"],
        one["since_offset"],
        one["end_offset"],
        one["base_next_offset"],
        one["waiting_records"],
        None if seconds is None else round(seconds, 1),
    )


def _turns(route: dict[str, Any]) -> str:
    turns = route["turns"]
    whose = [(turns["lane"], "the lane's"), (turns["base"], "the base's"), (turns["closing"], "closing")]
    return ", ".join(f"{count} {words}" for count, words in whose if count)


def _waiting(route: dict[str, Any]) -> str | None:
    """With a + where there may be more; None where nothing can wait, or nobody knows."""
    waiting = route["waiting"]
    known = waiting["partitions"] - waiting["unknown"]
    if not known:
        return None
    return f"{waiting['records']}{'' if known == route['turns']['base'] else '+'}"
