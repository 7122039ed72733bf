"""A channel that accepts messages for several clusters: each gets all of them, in their order, by itself, whichever is
away and whatever is killed.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from compat_server import BMQ, Bmq
from databus_process import Databus
from test_databus import records, values
from tests.waiting import until

HEAD = "apiVersion: bmq.io/v1alpha1\nkind: Channel\nmetadata: {name: moving}\n"


@dataclass(slots=True)
class Two:
    """A sidecar, its own cluster, and another one."""

    sidecar: Databus
    own: Bmq
    other: Bmq

    @property
    def others_spool(self) -> str:
        return f"moving@{self.other.servers}"

    def waiting(self) -> dict[str, float]:
        names = ("moving", self.others_spool)
        return {name: self.sidecar.value("bmq_databus_spool_messages", channel=name) for name in names}

    def shown(self) -> dict[str, int]:
        """What `bmq databus spool show` says that waits."""
        command = [BMQ, "databus", "spool", "show", "--spool", self.sidecar.spool, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return {one["channel"]: one["waiting"] for one in json.loads(done.stdout) if one["waiting"]}


@pytest.fixture
def two(bmq: Bmq, tmp_path: Path) -> Iterator[Two]:
    bmq.start()
    other = Bmq(["--data", str(tmp_path / "other"), "--no-fsync"], log=tmp_path / "other.log")
    other.start()
    targets = f"[{{topic: moved}}, {{topic: moved-2}}, {{topic: moved, bootstrapServers: '{other.servers}'}}]"
    channels = f"{HEAD}spec: {{acknowledgement: accepted, targets: {targets}}}\n"
    sidecar = Databus(bmq.servers, channels, tmp_path / "databus")
    sidecar.start()
    yield Two(sidecar, bmq, other)
    sidecar.stop()
    other.stop()


def accepted(sidecar: Databus, numbers: range, **options: Any) -> None:
    status, answer = sidecar.post("moving", *body(numbers), **options)
    assert (status, {one["status"] for one in answer["results"]}) == (202, {202})


def body(numbers: range) -> tuple[bytes]:
    return (b"\n".join(json.dumps({"text": str(number), "key": "k"}).encode() for number in numbers),)


LINES = {"media": "application/x-ndjson"}


def test_each_cluster_gets_all_in_their_order_though_one_was_away_and_the_sidecar_was_killed(two: Two) -> None:
    sidecar = two.sidecar
    two.other.stop()
    accepted(sidecar, range(20), **LINES)
    wanted = [str(number).encode() for number in range(20)]
    for topic in ("moved", "moved-2"):
        assert [one.value() for one in records(two.own, topic, 20)] == wanted, "a cluster waits for no other one"
    assert two.waiting() == {"moving": 0, two.others_spool: 20}
    sidecar.kill9()
    assert two.shown() == {two.others_spool: 20}
    sidecar.start()
    accepted(sidecar, range(20, 30), **LINES)
    two.other.start()
    wanted = [str(number).encode() for number in range(30)]
    assert [one.value() for one in records(two.other, "moved", 30)] == wanted
    until(lambda: set(two.waiting().values()) == {0}, "nothing to wait any more")
    assert [one.value() for one in records(two.own, "moved", 30)] == wanted


def test_a_request_that_comes_again_after_a_kill_is_in_no_cluster_twice(two: Two) -> None:
    key = {"headers": {"idempotency-key": "one"}, **LINES}
    accepted(two.sidecar, range(3), **key)
    for _ in range(2):
        # What a kill between a cluster's answer and the note of it sends twice is another matter.
        until(lambda: set(two.waiting().values()) == {0}, "all to be sent, and written down")
        two.sidecar.kill9()
        two.sidecar.start()
        accepted(two.sidecar, range(3), **key)
    accepted(two.sidecar, range(3, 4), **LINES)
    for cluster in (two.own, two.other):
        assert values(cluster, "moved", 4) == ["0", "1", "2", "3"]


def test_where_one_cluster_has_no_room_none_gets_a_message_and_its_writer_is_told(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    away = "127.0.0.1:9"
    spool = "spool: {maxBytes: 1048576, whenFull: reject}"
    targets = f"targets: [{{topic: full}}, {{topic: full, bootstrapServers: '{away}'}}]"
    sidecar = Databus(bmq.servers, f"{HEAD}spec: {{acknowledgement: accepted, {spool}, {targets}}}\n", tmp_path / "d")
    sidecar.start()
    try:
        taken = 0
        while (answer := sidecar.post("moving", b"x" * 200_000))[0] == 202:
            taken += 1
        assert answer[0] == 507 and "the spool has" in answer[1]["error"]
        assert taken >= 3
        until(lambda: sidecar.value("bmq_databus_spool_messages", channel="moving") == 0, "the other one to be sent")
        assert len(records(bmq, "full", taken)) == taken
    finally:
        sidecar.stop()


def test_what_waits_for_another_cluster_goes_there_whatever_becomes_of_the_channel_and_by_a_replay(two: Two) -> None:
    sidecar = two.sidecar
    two.other.stop()
    accepted(sidecar, range(5), **LINES)
    sidecar.stop()
    assert two.shown() == {two.others_spool: 5}
    (sidecar._folder / "channels.yaml").write_text(f"{HEAD}spec: {{acknowledgement: accepted, topic: moved}}\n")
    sidecar.start()
    accepted(sidecar, range(5, 6), **LINES)
    assert values(two.own, "moved", 6) == [str(number) for number in range(6)]
    assert two.waiting() == {"moving": 0, two.others_spool: 5}
    sidecar.kill9()
    two.other.start()
    command = [BMQ, "databus", "spool", "replay", "--spool", sidecar.spool, "--bootstrap-servers", two.own.servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{two.others_spool}: 5 messages written" in done.stdout
    assert values(two.other, "moved", 5) == [str(number) for number in range(5)]
    assert values(two.own, "moved", 6) == [str(number) for number in range(6)], "not to the cluster that was named"
