"""Lanes that are nested in others, by the command: how they are made, shown and deleted."""

import json
import subprocess
from collections.abc import Iterator

import pytest
from tests.started_bmq import BMQ, StartedBmq, started_bmq

from bmq_cli.cluster.nested_lanes import innermost_first


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with started_bmq(tmp_path_factory.mktemp("bmq")) as started:
        yield started


def lanes(bmq: StartedBmq, *arguments: str) -> tuple[int, str]:
    """(exit code, what it printed) of `bmq lanes`."""
    done = subprocess.run(
        [BMQ, "lanes", *arguments, "--admin", bmq.admin], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_lane_is_nested_falls_back_and_goes_before_the_one_around_it(bmq: StartedBmq) -> None:
    code, said = lanes(bmq, "create", "dev", "--parent", "ppe")
    assert (code, "parent = ppe: there is no such lane. create it first" in said) == (2, True), said
    assert lanes(bmq, "create", "ppe", "--fallback", "base")[0] == 0
    code, said = lanes(bmq, "create", "dev", "--parent", "ppe", "--fallback", "none")
    assert (code, "set fallback = base" in said) == (2, True), said
    assert lanes(bmq, "create", "dev", "--parent", "ppe") == (0, "created lane dev\n")
    assert "go on to lane ppe" in lanes(bmq, "describe", "dev")[1]
    assert "go on to the base" in lanes(bmq, "describe", "ppe")[1]
    [row] = [line for line in lanes(bmq, "list")[1].splitlines() if line.startswith("dev ")]
    assert " ppe " in row
    code, said = lanes(bmq, "delete", "ppe", "--yes")
    assert code == 1
    assert "in 'ppe' there are nested dev" in said
    assert "delete those that are nested in it first" in said
    assert lanes(bmq, "delete", "ppe", "dev", "--yes") == (0, "deleted lane dev\ndeleted lane ppe\n")


def test_what_is_nested_deepest_comes_first_and_circles_end() -> None:
    parents = {"a": "", "b": "a", "c": "b", "x": "y", "y": "x"}
    assert innermost_first(["a", "b", "c"], parents) == ["c", "b", "a"]
    assert innermost_first(["other", "b", "a"], parents) == ["b", "other", "a"]
    assert sorted(innermost_first(["x", "y"], parents)) == ["x", "y"]


def topics(bmq: StartedBmq, *arguments: str) -> str:
    done = subprocess.run(
        [BMQ, "topics", *arguments, "--bootstrap-server", bmq.kafka],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def promoted(bmq: StartedBmq, *arguments: str) -> dict[str, tuple[str, dict[str, object]]]:
    """(action, the fields that differ as they are in the lane) of each topic."""
    code, said = lanes(bmq, "promote", *arguments, "-o", "json")
    assert code == 0, said
    return {
        one["name"]: (one["action"], {change["field"]: change["after"] for change in one["changes"]})
        for one in json.JSONDecoder().raw_decode(said)[0]  # notes follow
    }


def test_what_a_lanes_topics_are_is_promoted_lane_by_lane_and_a_second_time_nothing_changes(bmq: StartedBmq) -> None:
    assert lanes(bmq, "create", "ppe", "--fallback", "base")[0] == 0
    assert lanes(bmq, "create", "dev", "--parent", "ppe")[0] == 0
    topics(bmq, "create", "kept", "--partitions", "2", "--config", "retention.ms=1000")
    topics(bmq, "create", "kept", "--partitions", "3", "--config", "retention.ms=2000", "--lane", "dev")
    topics(bmq, "create", "new", "--partitions", "4", "--config", "retention.ms=3000", "--lane", "dev")
    wanted = {
        "kept": ("changed", {"partitions": 3}),
        "new": ("created", {"partitions": 4, "config.retention.ms": "3000"}),
    }
    assert promoted(bmq, "dev", "--dry-run") == wanted
    assert "would be created" in lanes(bmq, "promote", "dev", "--dry-run")[1]
    assert promoted(bmq, "dev", "--dry-run") == wanted, "nothing was changed"
    assert promoted(bmq, "dev") == wanted
    assert promoted(bmq, "dev") == {"kept": ("unchanged", {}), "new": ("unchanged", {})}
    said = lanes(bmq, "promote", "dev")[1]
    assert "differs" in said
    assert "--config gives topics that differ" in said
    assert promoted(bmq, "dev", "--config")["kept"] == ("changed", {"config.retention.ms": "2000"})
    assert promoted(bmq, "dev")["kept"] == ("unchanged", {})
    of_ppe = lanes(bmq, "routes", "kept", "--lane", "ppe")[1]
    assert "3 partitions" in of_ppe
    assert "2 partitions" in of_ppe, "the base's is as it was"

    assert promoted(bmq, "ppe", "--config") == {
        "kept": ("changed", {"partitions": 3, "config.retention.ms": "2000"}),
        "new": wanted["new"],
    }
    assert promoted(bmq, "ppe") == {"kept": ("unchanged", {}), "new": ("unchanged", {})}
    assert lanes(bmq, "promote", "nothing")[0] == 3
    assert lanes(bmq, "create", "late", "--parent", "ppe")[0] == 0  # what is old may have gone on by now
    topics(bmq, "create", "kept", "--partitions", "3", "--config", "retention.ms=2000", "--lane", "late")
    code, said = lanes(bmq, "promote", "late", "--config", "--wait", "1")
    assert (code, "not all of it has gone on" in said, "goes on to lane ppe once" in said) == (1, True, True), said
    assert lanes(bmq, "create", "alone")[0] == 0
    code, said = lanes(bmq, "promote", "alone", "--wait", "1")
    assert (code, "it has no fallback" in said) == (2, True), said


def test_a_lane_has_a_quota_that_is_shown_and_is_none_of_what_is_promoted(bmq: StartedBmq) -> None:
    given = ("--partitions-max", "4", "--storage-bytes", "4194304", "--write-bytes-per-second", "2048")
    code, said = lanes(bmq, "create", "bounded", "--storage-bytes", "4194304")
    assert (code, "set quota.partitions" in said) == (2, True), said
    assert lanes(bmq, "create", "bounded", "--fallback", "base", *given)[0] == 0
    topics(bmq, "create", "kept-less", "--lane", "bounded", "--partitions", "3")
    assert "write 2 KiB/s, 3 of 4 partitions, keep 4 MiB" in lanes(bmq, "describe", "bounded")[1]
    assert promoted(bmq, "bounded", "--config") == {"kept-less": ("created", {"partitions": 3})}
    assert lanes(bmq, "delete", "bounded", "--yes")[0] == 0


def test_the_header_that_names_lanes_is_what_a_topic_was_made_with_whatever_is_promoted(bmq: StartedBmq) -> None:
    assert lanes(bmq, "create", "chosen", "--fallback", "base")[0] == 0
    topics(bmq, "create", "by-header")
    for name in ("by-header", "by-header-too"):
        topics(bmq, "create", name, "--config", "bmq.lane.header=x-lane", "--lane", "chosen")
    assert promoted(bmq, "chosen", "--config") == {
        "by-header": ("unchanged", {}),
        "by-header-too": ("created", {"partitions": 1, "config.bmq.lane.header": "x-lane"}),
    }
    assert "bmq.lane.header" in lanes(bmq, "promote", "chosen", "--config")[1]
    assert lanes(bmq, "delete", "chosen", "--yes")[0] == 0
