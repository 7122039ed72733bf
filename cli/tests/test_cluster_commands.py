"""`bmq cluster` against an API that answers as a test tells it to: what is printed, what is waited for, how it ends."""

import io
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from api_server import Answer, Server, ok, problem, serving

from bmq_cli.cluster import waiting as cluster_waiting
from bmq_cli.cluster.waiting import Wait
from bmq_cli.main import execute
from bmq_cli.terminal.exit_codes import CommandFailed
from bmq_cli.terminal.output import Output

Run = Callable[..., tuple[int, str, str]]
CLUSTER = {
    "cluster_id": "abc",
    "controller_id": 201,
    "controller_epoch": 3,
    "metadata_position": 77,
    "answered_by": 1,
    "nodes": [{"node_id": 101, "roles": ["broker"], "host": "", "port": 0, "rack": "z1"}],
    "topics": 2,
    "partitions": 12,
    "partitions_unowned": 0,
    "partitions_moving": 0,
    "cordoned": [],
    "features": {},
}


def node(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "node_id": number,
        "roles": ["broker"],
        "rack": "z1",
        "pool": "",
        "host": "",
        "port": 0,
        "internal_address": "10.0.0.1:9190",
        "epoch": 4,
        "state": "alive",
        "trouble": "",
        "leads": False,
        "last_heard_s": 0.51,
        "cordoned": False,
        "draining": False,
        "partitions": 12,
        "moving_away": 0,
        "moving_here": 0,
        "bytes_per_s": 3_500_000.0,
        "version": "v",
        **fields,
    }


def listed(*items: Any) -> Answer:
    return ok({"items": list(items), "continue": None})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.delenv("BMQ_TOKEN", raising=False)
    monkeypatch.setattr(cluster_waiting, "PAUSE_S", 0.0)

    def command(server: Server, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("BMQ_ADMIN_URL", server.url)
        capfd.readouterr()
        code = execute(arguments)
        out, err = capfd.readouterr()
        return int(code), out, err

    return command


def test_the_status_is_a_page_for_people_and_a_document_for_programs(run: Run) -> None:
    nodes = [
        node(201, roles=["controller"], leads=True),
        node(101, state="silent"),
        node(
            102,
            draining=True,
            cordoned=True,
            trouble="cannot write to the store for 7 s: no space left in /data: make some",
        ),
        node(1, roles=["proxy"]),
    ]
    with serving(ok(CLUSTER), listed(*nodes), ok(CLUSTER), listed(*nodes)) as server:
        code, out, err = run(server, "cluster", "status")
        assert (code, err) == (0, "")
        assert out.splitlines() == [
            "cluster abc",
            "led by node 201 (epoch 3)  metadata 77  as seen by node 1",
            "topics 2  partitions 12  without owner 0  moving 0",
            "",
            "controller 201",
            "brokers 101 (silent), 102 (draining)",
            "proxy 1",
            "",
            "problem: node 101 is silent: look at its log, or start it again",
            "problem: node 102 cannot write to the store for 7 s: no space left in /data: make some",
        ]
        code, out, _ = run(server, "cluster", "status", "-o", "yaml")
        document = yaml.safe_load(out)
    assert (document["led"], [one["node_id"] for one in document["nodes"]]) == (True, [201, 101, 102, 1])


def test_a_status_without_a_leader_tells_what_is_known_and_ends_with_4(run: Run) -> None:
    with serving(ok(CLUSTER), problem(503, "NoLeader")) as server:
        code, out, err = run(server, "cluster", "status")
    assert code == 4
    assert "led by nobody" in out
    assert "problem: no controller leads" in out
    assert err == "error: node 7: because. mend it\n"


def test_a_status_that_is_refused_is_an_error(run: Run) -> None:
    with serving(ok(CLUSTER), problem(401, "Unauthenticated")) as server:
        code, out, err = run(server, "cluster", "status")
    assert (code, out) == (1, "")
    assert "$BMQ_TOKEN" in err


def test_nodes_are_a_table(run: Run) -> None:
    with serving(
        listed(node(101, moving_away=2), node(201, roles=["controller"], leads=True, last_heard_s=None, partitions=0))
    ) as server:
        code, out, _ = run(server, "cluster", "nodes")
    assert code == 0
    assert [line.split() for line in out.splitlines()][1:] == [
        ["101", "broker", "z1", "alive", "0.5", "s", "12", "-2", "+0", "3.34", "MiB", "10.0.0.1:9190"],
        ["201", "controller", "z1", "alive,", "leads", "-", "-", "-", "-", "10.0.0.1:9190"],
    ]


def test_the_load_is_shown_by_broker_with_shares_and_by_partition(run: Run) -> None:
    load = {
        "bytes_per_s": 4_000_000.0,
        "brokers": [
            {"node_id": number, "rack": "", "partitions": 3, "bytes_per_s": rate}
            for number, rate in ((102, 3_000_000.0), (101, 1_000_000.0))
        ],
        "partitions": [{"topic": "orders", "partition": 3, "owner": 102, "bytes_per_s": 2_000_000.0}],
    }
    with serving(ok(load)) as server:
        code, out, _ = run(server, "cluster", "top", "-n", "1")
        assert server.asked[0][1] == "/v1/load?limit=1"
    assert code == 0
    assert out.startswith("3.81 MiB/s written\n")
    assert "75%" in out
    assert out.splitlines()[-1].split() == ["orders", "3", "102", "1.91", "MiB"]


def test_a_drain_waits_through_a_change_of_the_leader_until_nothing_is_left(run: Run) -> None:
    answers = [
        ok(node(101, draining=True, partitions=3)),
        problem(503, "NoLeader"),
        ok(node(101, draining=True, partitions=2)),
        ok(node(101, draining=False, partitions=2)),  # another controller leads, and was not told
        ok(node(101, draining=True, partitions=1)),
        ok(node(101, draining=True, partitions=0)),
    ]
    with serving(*answers) as server:
        code, out, err = run(server, "cluster", "drain", "101")
        assert [(method, path) for method, path, _, _ in server.asked] == [
            ("POST", "/v1/nodes/101/drain"),
            *[("GET", "/v1/nodes/101")] * 3,
            ("POST", "/v1/nodes/101/drain"),
            ("GET", "/v1/nodes/101"),
        ]
    assert (code, out, err) == (0, "node 101 holds no partitions\n", "")


def test_a_drain_of_a_node_that_stops_meanwhile_is_done(run: Run) -> None:
    with serving(ok(node(101, draining=True, partitions=3)), problem(404, "UnknownNode")) as server:
        code, out, _ = run(server, "cluster", "drain", "101", "-o", "json")
    assert (code, json.loads(out)) == (0, {"node": 101, "partitions_before": 3, "partitions": 0, "drained": True})


def test_a_drain_that_takes_too_long_goes_on_and_says_so(run: Run) -> None:
    with serving(ok(node(101, draining=True, partitions=3)), ok(node(101, draining=True, partitions=3))) as server:
        code, _, err = run(server, "cluster", "drain", "101", "--within", "0")
    assert code == 1
    assert err.startswith("error: draining node 101: 3 partitions left after 0 s. it goes on;")


def test_a_drain_may_be_begun_without_waiting(run: Run) -> None:
    with serving(ok(node(101, draining=True, partitions=3))) as server:
        code, out, _ = run(server, "cluster", "drain", "101", "--no-wait")
    assert (code, out) == (0, "node 101 is being drained of 3 partitions\n")


def test_progress_is_told_now_and_then_where_nobody_watches() -> None:
    clock = itertools.count(step=3)
    slept: list[float] = []
    said = io.StringIO()
    output = Output(stdout=io.StringIO(), stderr=said)
    with Wait(
        output, "draining", total=5, unit="partition", within_s=14, now_s=lambda: next(clock), sleep=slept.append
    ) as wait:
        for left in (4, 3, 2, 1):
            wait.pause(5 - left, left)
        with pytest.raises(CommandFailed, match="1 partition left after 14 s"):
            wait.pause(4, 1)
    assert said.getvalue().splitlines() == ["draining: 3 partitions left", "draining: 1 partition left"]
    assert len(slept) == 4


def test_of_several_nodes_those_that_can_be_are_cordoned(run: Run) -> None:
    with serving(ok(node(101, cordoned=True)), problem(404, "UnknownNode")) as server:
        code, out, err = run(server, "cluster", "cordon", "101", "7", "101")
        assert len(server.asked) == 2
    assert (code, out, err) == (3, "cordoned node 101\n", "error: node 7: because. mend it\n")


def move(partition: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": partition,
        "source": 101,
        "target": 102,
        "kind": "bytes",
        "bytes_per_s": 2_000_000,
        "reason": "too busy",
    }


def test_balance_goes_on_round_by_round_until_nothing_is_begun(run: Run) -> None:
    begun = [ok({"begun": [move(index)], "planned": 1, "problems": []}) for index in range(2)]
    nothing = ok({"begun": [], "planned": 0, "problems": ["give orders more partitions"]})
    with serving(begun[0], listed({}), listed(), begun[1], listed(), nothing) as server:
        code, out, err = run(server, "cluster", "balance", "--moves", "1")
        assert [method for method, _, _, _ in server.asked] == ["POST", "GET", "GET", "POST", "GET", "POST"]
        assert json.loads(server.asked[0][3]) == {"moves_max": 1}
    assert (code, err) == (0, "problem: give orders more partitions\n")
    assert out.splitlines()[-1] == "2 partitions moved"


def test_a_dry_run_shows_shares_moves_reasons_and_problems(run: Run) -> None:
    share = {
        "node_id": 101,
        "rack": "",
        "pool": "",
        "partitions_before": 7,
        "partitions_after": 6,
        "bytes_per_s_before": 9_000,
        "bytes_per_s_after": 7_000,
    }
    plan = {"moves": [move(0)], "problems": ["node 9 is alone"], "before": {}, "after": {}, "brokers": [share]}
    with serving(ok(plan), ok({**plan, "moves": []})) as server:
        code, out, _ = run(server, "cluster", "balance", "--dry-run")
        assert server.asked[0][0] == "GET"
        assert code == 0
        assert "too busy" in out
        assert out.splitlines()[-2:] == ["problem: node 9 is alone", "1 move planned, nothing was moved"]
        assert run(server, "cluster", "balance", "--dry-run")[1].splitlines()[-1].startswith("nothing to move")


def test_wrong_usage_ends_with_2(run: Run) -> None:
    with serving() as server:
        for arguments in (
            ("drain",),
            ("drain", "x"),
            ("drain", "-1"),
            ("top", "-n", "0"),
            ("balance", "--moves", "0"),
            ("status", "--admin", "x:y"),
        ):
            assert run(server, "cluster", *arguments)[0] == 2, arguments
        assert run(server, "cluster", "status", "--token", "t\u00f6ken")[0] == 2
        assert not server.asked
