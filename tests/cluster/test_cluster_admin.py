"""`bmq cluster` and `bmq debug` against processes: what an operator does with a cluster, and what they are told."""

import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import pytest
from compat_server import BMQ
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import until
from up_nodes import UpNodes

TOKEN = "a-token-of-the-operators"
PARTITIONS = 6

pytestmark = pytest.mark.slow


class Done(NamedTuple):
    code: int
    out: str
    err: str


Bmq = Callable[..., Done]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpNodes]:
    folder = tmp_path_factory.mktemp("admin")
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    arguments = ["--data", str(folder / "data"), "--no-fsync", "--admin-token-file", str(tokens)]
    # What the balancer does by itself would be in the way of what the tests ask for.
    running = UpNodes(
        "1c2b1p",
        arguments,
        log=folder / "bmq.log",
        environment={"BMQ_BALANCE_INTERVAL_MS": "0", "BMQ_BALANCE_REST_MS": "0"},
    )
    try:
        admin = AdminClient({"bootstrap.servers": running.servers})
        for future in admin.create_topics([NewTopic("orders", num_partitions=PARTITIONS)], request_timeout=30).values():
            future.result(60)
        yield running
        assert running.stop() == 0, running.tail_of_log()
    finally:
        running.close()


@pytest.fixture
def bmq(cluster: UpNodes, tmp_path: Path) -> Bmq:
    """Runs the command against the cluster's first proxy, with the token."""

    def run(*arguments: str, token: str = TOKEN, admin: str | None = None) -> Done:
        environment = {**os.environ, "BMQ_ADMIN_URL": f"http://{admin or cluster.admin}", "BMQ_TOKEN": token}
        done = subprocess.run(
            [str(BMQ), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
            cwd=tmp_path,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def document(done: Done) -> Any:
    assert (done.code, done.err) == (0, ""), done
    return json.loads(done.out)


def test_the_status_names_the_leader_and_the_nodes(bmq: Bmq) -> None:
    status = document(bmq("cluster", "status", "-o", "json"))
    assert (status["led"], status["controller_id"], status["problems"]) == (True, 201, [])
    assert [node["node_id"] for node in status["nodes"]] == [1, 101, 102, 201]
    lines = bmq("cluster", "status").out.splitlines()
    assert "brokers 101, 102" in lines
    assert "led by node 201" in lines[1]


def test_without_a_token_nothing_is_told(bmq: Bmq) -> None:
    for token in ("", "another-token-altogether"):
        done = bmq("cluster", "nodes", token=token)
        assert (done.code, done.out) == (1, "")
        assert "present a token with $BMQ_TOKEN or --token" in done.err


def test_load_is_told_by_broker_and_by_partition(cluster: UpNodes, bmq: Bmq) -> None:
    producer = Producer({"bootstrap.servers": cluster.servers, "linger.ms": 5})
    deadline = monotonic() + 30
    while True:
        for number in range(2_000):
            producer.produce("orders", b"x" * 200, partition=number % PARTITIONS)
        producer.flush(30)
        load = document(bmq("cluster", "top", "-n", "3", "-o", "json"))
        if len(load["partitions"]) == 3 and all(broker["bytes_per_s"] > 0 for broker in load["brokers"]):
            break
        assert monotonic() < deadline, load
    assert load["bytes_per_s"] == pytest.approx(sum(broker["bytes_per_s"] for broker in load["brokers"]), abs=1)
    rates = [one["bytes_per_s"] for one in load["partitions"]]
    assert rates == sorted(rates, reverse=True)


def test_a_dry_run_shows_the_plan_with_reasons_and_balance_carries_it_out(cluster: UpNodes, bmq: Bmq) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers})

    def create(name: str, partitions: int) -> None:
        admin.create_topics([NewTopic(name, num_partitions=partitions)], request_timeout=30)[name].result(60)

    def counted() -> dict[int, int]:
        return {
            node["node_id"]: node["partitions"]
            for node in document(bmq("cluster", "nodes", "-o", "json"))
            if "broker" in node["roles"]
        }

    assert bmq("cluster", "cordon", "101", "102").out == "cordoned node 101\ncordoned node 102\n"
    create("waiting", 4)
    assert document(bmq("cluster", "status", "-o", "json"))["problems"] == [
        "4 partitions without an owner: start a broker, or uncordon one"
    ]
    assert bmq("cluster", "uncordon", "101").code == 0
    assert document(bmq("cluster", "status", "-o", "json"))["problems"] == [], "it takes at once what has no owner"
    create("crowded", 80)  # all on the one that takes partitions
    before = counted()
    assert before[101] - before[102] >= 70, before
    assert bmq("cluster", "uncordon", "102").code == 0
    moves = document(bmq("cluster", "balance", "--dry-run", "-o", "json"))["moves"]
    assert {(move["source"], move["target"], bool(move["reason"])) for move in moves} == {(101, 102, True)}
    shown = bmq("cluster", "balance", "--dry-run").out
    assert "REASON" in shown
    assert shown.endswith(f"{len(moves)} moves planned, nothing was moved\n")
    assert counted() == before
    done = bmq("cluster", "balance").out
    # planned anew: rates of what was written before still decay
    moved = int(done.splitlines()[-1].removesuffix(" partitions moved"))
    assert moved == pytest.approx(len(moves), abs=10), done
    after = counted()
    assert (after[101], after[102]) == (before[101] - moved, before[102] + moved)


def test_a_drain_waits_until_the_broker_holds_nothing_and_writes_go_on(cluster: UpNodes, bmq: Bmq) -> None:
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.servers,
            "linger.ms": 2,
            "on_delivery": lambda error, _: error and failed.append(str(error)),
        }
    )
    draining = subprocess.Popen(
        [str(BMQ), "cluster", "drain", "101", "-o", "json", "--admin", cluster.admin],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BMQ_TOKEN": TOKEN},
    )
    while draining.poll() is None:
        for partition in range(PARTITIONS):
            producer.produce("orders", b"y", partition=partition)
        producer.poll(0.01)
    out, err = draining.communicate()
    assert json.loads(out) | {"partitions_before": 0} == {
        "node": 101,
        "partitions_before": 0,
        "partitions": 0,
        "drained": True,
    }, err
    assert producer.flush(30) == 0
    assert not failed
    nodes = {node["node_id"]: node for node in document(bmq("cluster", "nodes", "-o", "json"))}
    assert (nodes[101]["partitions"], nodes[101]["cordoned"], nodes[101]["draining"]) == (0, True, True)
    assert nodes[102]["partitions"] >= PARTITIONS
    refused = bmq("cluster", "drain", "102")
    assert (refused.code, refused.err) == (
        1,
        "error: node 102: no other broker takes partitions. start another one, or uncordon one, first\n",
    )
    assert bmq("cluster", "uncordon", "101").out == "uncordoned node 101\n"


def test_a_node_that_is_unknown_is_told_with_its_own_exit_code(bmq: Bmq) -> None:
    done = bmq("cluster", "cordon", "77")
    said = "error: node 77: no node of this number was ever registered. list the nodes (`bmq cluster nodes`)\n"
    assert (done.code, done.err) == (3, said)
    assert bmq("cluster", "drain", "1").code == 1
    assert bmq("cluster", "drain", "one").code == 2


def test_a_bundle_holds_every_node_and_no_record_and_no_secret(cluster: UpNodes, bmq: Bmq, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": cluster.servers})
    producer.produce("orders", b"the-value-of-a-record", key=b"the-key-of-a-record")
    assert producer.flush(30) == 0
    written = document(bmq("debug", "bundle", "-f", "bundle.tar.gz", "-o", "json"))
    assert written["missing"] == []
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        files = {member.name.removeprefix("bmq-debug/"): archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert set(written["entries"]) == set(files)
    for node in (1, 101, 102, 201):
        assert json.loads(files[f"nodes/{node}/self.json"])["node_id"] == node
        assert b"bmq_store_operations_total" in files[f"nodes/{node}/metrics.txt"]
    assert json.loads(files["store.json"])["ok"]
    assert sorted(topic["name"] for topic in json.loads(files["metadata/image.json"])["topics"]) == [
        "crowded",
        "orders",
        "waiting",
    ]
    assert json.loads(files["metadata/log.json"])["entries"]
    everything = b"\n".join(files.values())
    for secret in (TOKEN.encode(), b"the-value-of-a-record", b"the-key-of-a-record"):
        assert secret not in everything
    assert (tmp_path / "bundle.tar.gz").stat().st_mode & 0o777 == 0o600
    again = bmq("debug", "bundle", "-f", "bundle.tar.gz")
    assert (again.code, "file exists" in again.err) == (1, True)


def test_without_a_leader_the_status_says_so_and_what_is_known(tmp_path: Path) -> None:
    cluster = UpNodes("1c1b1p", ["--data", str(tmp_path / "data"), "--no-fsync"], log=tmp_path / "bmq.log")
    try:
        stopped = cluster.pids()[201]
        os.kill(stopped, 19)  # SIGSTOP: it is there and answers nobody
        try:
            command = [str(BMQ), "cluster", "status", "-o", "json", "--admin", cluster.admin, "--timeout", "50"]
            done = until(
                lambda: subprocess.run(command, capture_output=True, text=True, timeout=60, check=False),
                "a status without a leader",
                holds=lambda ended: ended.returncode == 4,
            )
            status = json.loads(done.stdout)
            assert (status["led"], status["controller_id"]) == (False, 201)
            assert status["problems"][0].startswith("no controller leads")
            assert "no leading controller answers" in done.stderr
            command = [
                str(BMQ),
                "debug",
                "bundle",
                "-f",
                str(tmp_path / "b.tgz"),
                "-o",
                "json",
                "--admin",
                cluster.admin,
                "--timeout",
                "50",
            ]
            written = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=85, check=True).stdout)
            assert {
                "metadata/image.json",
                "metadata/log.json",
                "store.json",
                "self.json",
                "metrics.txt",
                "missing.json",
            } <= set(written["entries"])
            assert {one["name"] for one in written["missing"]} == {
                "nodes.json",
                "configs.json",
                "load.json",
                "balance.json",
                "groups.json",
            }
        finally:
            os.kill(stopped, 18)
        assert cluster.stop() == 0, cluster.tail_of_log()
    finally:
        cluster.close()
