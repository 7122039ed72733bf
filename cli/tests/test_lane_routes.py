"""What `bmq lanes routes` prints of what the API answers, and what it asks for."""

import io
import json
from typing import Any, cast

from bmq_cli.cluster.session import ClusterSession
from bmq_cli.lanes.routes import routes
from bmq_cli.terminal.output import Output
from bmq_cli.terminal.output_format import OutputFormat

PARTITIONS = 250


def route(lane: str = "dev", **other: Any) -> dict[str, Any]:
    return {
        "lane": lane,
        "topic": "orders",
        "handled_by": "base",
        "why": "nobody in the lane consumes it",
        "partitions": PARTITIONS,
        "base_partitions": PARTITIONS,
        "turns": {"lane": 0, "base": PARTITIONS, "closing": 0, "stay": 0},
        "waiting": {"partitions": 8, "unknown": 0, "records": 5, "seconds": 2.5},
        **other,
    }


def partition(index: int) -> dict[str, Any]:
    return {
        "partition": index,
        "handled_by": "base",
        "since_offset": 3,
        "end_offset": 9,
        "base_next_offset": 8,
        "waiting_records": 1,
        "waiting_seconds": 2.04,
    }


class Api:
    """Pages of a lane's partitions, as the API gives them; remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.routes = [route("", handled_by="base", waiting=nothing(0)), route()]

    def items(self, *path: str, **query: Any) -> list[dict[str, Any]]:
        assert path == ("routes", "orders")
        return self.routes

    def get(self, *path: str, **query: Any) -> dict[str, Any]:
        assert path == ("lanes", "dev", "routes", "orders")
        self.asked.append(query)
        if (one := query.get("partition")) is not None:
            shown, after = [one], None
        else:
            first = int(query.get("continue", 0))
            shown = list(range(first, min(PARTITIONS, first + query["limit"])))
            after = str(shown[-1] + 1) if shown[-1] + 1 < PARTITIONS else None
        waiting = {"partitions": len(shown), "unknown": 0, "records": len(shown), "seconds": 2.04}
        return route(waiting=waiting, items=[partition(index) for index in shown]) | {"continue": after}


def nothing(partitions: int, *, unknown: int = 0) -> dict[str, Any]:
    return {"partitions": partitions, "unknown": unknown, "records": 0, "seconds": None}


def shown(api: Api, *, form: OutputFormat = OutputFormat.TABLE, **options: Any) -> str:
    out = io.StringIO()
    session = ClusterSession(client=cast(Any, api), output=Output(form=form, stdout=out))
    routes(session, "orders", **options)
    return out.getvalue()


def test_all_lanes_are_a_table_in_which_the_base_is_first() -> None:
    assert shown(Api()).splitlines() == [
        "LANE    HANDLED BY  WAITING  WHY",
        "(base)  base              -  nobody in the lane consumes it",
        "dev     base             5+  nobody in the lane consumes it",
    ]


def test_what_waits_says_whether_there_may_be_more_and_whether_anybody_knows() -> None:
    api = Api()
    few = {"lane": 0, "base": 2, "closing": 0, "stay": 0}
    api.routes = [
        route("all", turns=few, waiting=nothing(2) | {"records": 4}),
        route("some", turns=few, waiting=nothing(2, unknown=1) | {"records": 4}),
        route("none", turns=few, waiting=nothing(2, unknown=2)),
    ]
    assert [line.split()[2] for line in shown(api).splitlines()[1:]] == ["4", "4+", "-"]


def test_a_lane_shows_few_partitions_and_says_how_many_more_there_are() -> None:
    api = Api()
    lines = shown(api, lane="dev").splitlines()
    assert api.asked == [{"limit": 10}]
    assert lines[:3] == [
        "lane dev  topic orders  handled by base",
        "nobody in the lane consumes it",
        f"in the lane {PARTITIONS} partitions  in the base {PARTITIONS} partitions  waiting 10+",
    ]
    titles = " ".join(lines[4].split())
    assert titles == "PARTITION HANDLED BY SINCE OFFSET END BASE IS AT WAITING FOR SECONDS"
    assert lines[5].split() == ["0", "base", "3", "9", "8", "1", "2"]
    assert lines[-1] == f"and {PARTITIONS - 10} more partitions: {PARTITIONS} the base's of all"


def test_more_partitions_come_page_by_page_and_only_as_many_as_are_wanted() -> None:
    api = Api()
    found = json.loads(shown(api, lane="dev", limit=120, form=OutputFormat.JSON))
    assert api.asked == [{"limit": 100}, {"limit": 20, "continue": "100"}]
    assert [one["partition"] for one in found["items"]] == list(range(120))
    assert (found["waiting"]["records"], found["more_partitions"]) == (120, PARTITIONS - 120)
    api = Api()
    assert len(json.loads(shown(api, lane="dev", limit=10_000, form=OutputFormat.JSON))["items"]) == PARTITIONS
    assert len(api.asked) == 3


def test_partitions_that_are_named_are_shown_alone() -> None:
    api = Api()
    found = json.loads(shown(api, lane="dev", partition=[7, 3, 7], form=OutputFormat.JSON))
    assert api.asked == [{"partition": 3}, {"partition": 7}]
    assert [one["partition"] for one in found["items"]] == [3, 7]


def test_a_topic_that_is_not_made_says_so() -> None:
    api = Api()
    unmade = route(partitions=None, base_partitions=1, waiting=nothing(0), items=[]) | {"continue": None}
    api.get = lambda *_path, **_query: unmade  # type: ignore[method-assign]
    assert shown(api, lane="dev").splitlines()[-1] == "in the lane not made yet  in the base 1 partition  waiting -"
