"""Apache Kafka's own command-line tools, each as a process of its own. What they print is what is looked at."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_clients.librdkafka import Librdkafka
from compat_contract import Record
from compat_server import Bmq, tool
from test_clients_gaps import BATCHES, made, written

BASE_MS = 1_700_000_000_000
TOOL_S = 120
QUIET_MS = (1_500, 20_000)
"""The second where a busy machine did not get through in the first."""
over_a_folder = pytest.mark.parametrize("bmq", ["folder"], indirect=True)
"""For what asks nothing of the store that keeps records."""


@pytest.fixture(autouse=True)
def quick_start_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def run(bmq: Bmq, name: str, *arguments: str, lines: str | None = None, check: bool = True) -> str:
    return tool(
        "kafka",
        "run",
        name,
        "--bootstrap-server",
        bmq.servers,
        *arguments,
        input_text=lines,
        timeout_s=TOOL_S,
        check=check,
    )


def objects(output: str) -> Iterator[dict[str, Any]]:
    """JSON values that follow each other, with or without lines between them."""
    decoder = json.JSONDecoder()
    at = output.find("{")
    while at >= 0:
        value, end = decoder.raw_decode(output, at)
        yield value
        at = output.find("{", end)


@over_a_folder
def test_topics_and_configs_tools(bmq: Bmq, topic: str) -> None:
    assert f"Created topic {topic}." in run(
        bmq, "topics", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=-1"
    )
    run(bmq, "topics", "--alter", "--topic", topic, "--partitions", "4")
    described = run(bmq, "topics", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 4\s+ReplicationFactor: 1\s+Configs: retention.ms=-1", described)
    assert len(re.findall(r"Partition: \d+\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 4
    entity = ("--entity-type", "topics", "--entity-name", topic)
    run(
        bmq,
        "configs",
        "--alter",
        *entity,
        "--add-config",
        "max.message.bytes=2000000",
        "--delete-config",
        "retention.ms",
    )
    configured = run(bmq, "configs", "--describe", *entity)
    assert "max.message.bytes=2000000" in configured
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms" not in configured
    run(bmq, "topics", "--delete", "--topic", topic)
    assert topic not in run(bmq, "topics", "--list").split()


def test_console_groups_and_offsets_tools(bmq: Bmq, reference: Librdkafka, topic: str) -> None:
    group = f"{topic}-group"
    reference.create_topic(bmq.servers, topic, partitions=1, configs={"retention.ms": "-1"})
    reference.produce(
        bmq.servers,
        topic,
        [
            Record(partition=0, timestamp_ms=BASE_MS + index, key=b"k", value=b"old", headers=(("h", b"0"),))
            for index in range(3)
        ],
        codec="none",
        idempotent=False,
    )
    reader = [f"--reader-property=parse.{part}=true" for part in ("key", "headers")]
    lines = "a:1\tk1\tv1\nb:2,c:3\tk2\tv2\nd:4\tk3\tNULL\n"
    run(
        bmq,
        "console-producer",
        "--topic",
        topic,
        *reader,
        "--reader-property=null.marker=NULL",
        "--compression-codec",
        "zstd",
        lines=lines,
    )
    shown = [f"--formatter-property=print.{part}=true" for part in ("key", "headers", "offset", "partition")]
    read = run(
        bmq, "console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "6", *shown
    )
    assert read.splitlines()[:6] == [
        *(f"Partition:0\tOffset:{offset}\th:0\tk\told" for offset in range(3)),
        "Partition:0\tOffset:3\ta:1\tk1\tv1",
        "Partition:0\tOffset:4\tb:2,c:3\tk2\tv2",
        "Partition:0\tOffset:5\td:4\tk3\tnull",
    ]

    for time, offset in (("-1", 6), ("-2", 0), (str(BASE_MS + 1), 1)):
        assert run(bmq, "get-offsets", "--topic", topic, "--time", time).split() == [f"{topic}:0:{offset}"]

    largest = run(bmq, "get-offsets", "--topic", topic, "--time", "-3").strip()
    assert largest in {f"{topic}:0:{offset}" for offset in (3, 4, 5)}, (
        "not one of those of now, of which several may be as late"
    )

    assert group in run(bmq, "consumer-groups", "--list").split()
    described = run(bmq, "consumer-groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+6\s+6\s+0\s", described)
    reset = run(
        bmq, "consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "4", "--execute"
    )
    assert re.search(rf"{group}\s+{topic}\s+0\s+4", reset)
    assert reference.group_offsets(bmq.servers, group, topic) == {0: 4}

    commits = internal(bmq, "OffsetsMessageFormatter", group, count=2)
    assert [(entry["key"]["data"]["topic"], entry["key"]["data"]["partition"]) for entry in commits] == [
        (topic, 0)
    ] * len(commits)
    assert [entry["value"]["data"]["offset"] for entry in commits][-2:] == [6, 4]
    generations = [entry["value"]["data"] for entry in internal(bmq, "GroupMetadataMessageFormatter", group, count=2)]
    assert [(value["generation"], value["protocol"], len(value["members"])) for value in generations] == [
        (1, "range", 1),
        (2, None, 0),
    ]

    assert "was successful" in run(bmq, "consumer-groups", "--delete", "--group", group)
    assert group not in reference.list_groups(bmq.servers)


@over_a_folder
def test_console_consumer_reads_batches_with_gaps_and_without_records_to_the_end(
    bmq: Bmq, reference: Librdkafka, topic: str
) -> None:
    group = f"{topic}-group"
    kept = written(bmq, reference, topic, made(bmq, reference, topic), *BATCHES, "ll", "l")
    end = sum(map(len, BATCHES)) + 3
    read: list[str] = []
    for quiet_ms in QUIET_MS:
        options = ["--topic", topic, "--group", group, "--from-beginning", "--formatter-property=print.offset=true"]
        # The tool ends with an error when nothing more comes for so long: that is how it is told to stop at the end.
        output = run(bmq, "console-consumer", *options, "--timeout-ms", str(quiet_ms), check=False)
        read += [line for line in output.splitlines() if line.startswith("Offset:")]
        if len(read) >= len(kept):
            break
    assert read == [f"Offset:{record.offset}\t{(record.value or b'').decode()}" for record in kept]
    described = run(bmq, "consumer-groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+{end}\s+{end}\s+0\s", described), described


def internal(bmq: Bmq, formatter: str, group: str, *, count: int) -> list[dict[str, Any]]:
    """What Kafka's formatter makes of the group's records in __consumer_offsets, up to now. `count`: how many there are
    at least.
    """
    options = [
        "--topic",
        "__consumer_offsets",
        "--from-beginning",
        "--formatter",
        f"org.apache.kafka.tools.consumer.{formatter}",
    ]
    found: list[dict[str, Any]] = []
    for quiet_ms in QUIET_MS:
        # The tool ends with an error when nothing more comes for so long: that is how it is told to stop at the end.
        output = run(bmq, "console-consumer", *options, "--timeout-ms", str(quiet_ms), check=False)
        found = [entry for entry in objects(output) if entry["value"] and entry["key"]["data"]["group"] == group]
        if len(found) >= count:
            break
    return found


def test_perf_and_verifiable_tools(bmq: Bmq, reference: Librdkafka, topic: str) -> None:
    reference.create_topic(bmq.servers, topic, partitions=2, configs={})
    options = ["--topic", topic, "--num-records", "20000"]
    settings = ["--command-property", f"bootstrap.servers={bmq.servers}", "acks=all", "compression.type=lz4"]
    perf = tool(
        "kafka",
        "run",
        "producer-perf",
        *options,
        "--record-size",
        "200",
        "--throughput",
        "-1",
        *settings,
        timeout_s=TOOL_S,
    )
    assert "20000 records sent" in perf
    consumed = run(bmq, "consumer-perf", *options, "--timeout", "20000").splitlines()[-1].split(", ")
    assert int(consumed[4]) == 20_000

    verified = list(
        objects(
            run(
                bmq,
                "verifiable-producer",
                "--topic",
                topic,
                "--max-messages",
                "300",
                "--throughput",
                "-1",
                "--acks",
                "-1",
            )
        )
    )
    assert {event["value"] for event in verified if event["name"] == "producer_send_success"} == {
        str(number) for number in range(300)
    }
    assert (verified[-1]["sent"], verified[-1]["acked"]) == (300, 300)
    group = f"{topic}-group"
    events = list(
        objects(
            run(
                bmq,
                "verifiable-consumer",
                "--topic",
                topic,
                "--group-id",
                group,
                "--max-messages",
                "20300",
                "--reset-policy",
                "earliest",
            )
        )
    )
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 20_300
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert sum(reference.group_offsets(bmq.servers, group, topic).values()) == 20_300


@over_a_folder
def test_reassignment_and_election_tools(bmq: Bmq, reference: Librdkafka, topic: str, tmp_path: Path) -> None:
    """`bmq up` is one node with every role: the broker that Metadata names owns all partitions."""
    reference.create_topic(bmq.servers, topic, partitions=2, configs={})
    reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    moved = tmp_path / "topics.json"
    moved.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = run(bmq, reassign, "--generate", "--topics-to-move-json-file", str(moved), "--broker-list", "1")
    plan = tmp_path / "plan.json"
    plan.write_text(generated.split("Proposed partition reassignment configuration\n")[1].strip())
    assert {tuple(one["replicas"]) for one in json.loads(plan.read_text())["partitions"]} == {(1,)}
    assert "Successfully started partition reassignments" in run(
        bmq, reassign, "--execute", "--reassignment-json-file", str(plan)
    )
    verified = run(bmq, reassign, "--verify", "--reassignment-json-file", str(plan))
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "Clearing broker-level throttles" in verified
    assert "No partition reassignments found." in run(bmq, reassign, "--list")
    assert "None of the specified partition moves are active" in run(
        bmq, reassign, "--cancel", "--reassignment-json-file", str(plan)
    )

    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1, 2]}]}))
    assert "Unknown broker id 2" in run(bmq, reassign, "--execute", "--reassignment-json-file", str(plan), check=False)

    elect = "org.apache.kafka.tools.LeaderElectionCommand"
    for kind in ("preferred", "unclean"):
        one = run(bmq, elect, "--election-type", kind, "--topic", topic, "--partition", "1")
        assert f"Valid replica already elected for partitions {topic}-1" in one
    run(bmq, elect, "--election-type", "preferred", "--all-topic-partitions")
    unknown = run(
        bmq, elect, "--election-type", "preferred", "--topic", f"{topic}-none", "--partition", "0", check=False
    )
    assert "UnknownTopicOrPartition" in unknown or "does not exist" in unknown or "no partition" in unknown


@over_a_folder
def test_a_transactional_producer_fails_at_once_and_says_why_in_java(bmq: Bmq, topic: str) -> None:
    load = (
        "--topic",
        topic,
        "--num-records",
        "1",
        "--record-size",
        "1",
        "--throughput",
        "-1",
        "--transactional-id",
        topic,
    )
    with pytest.raises(AssertionError, match="transactions are not served by this version of bmq"):
        run(bmq, "producer-perf", *load)
