"""Kafka's own tools: kafka-producer-perf-test and kafka-consumer-perf-test."""

import re
import subprocess
from dataclasses import dataclass
from datetime import datetime

from benchmarks import topics
from benchmarks.processes import end_group, run_client
from benchmarks.servers import ROOT, Server

MIB = 1 << 20
TOOL = str(ROOT / "tools" / "kafka")
_SENT = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec.*?([\d.]+) ms avg latency.*?(\d+) ms 50th.*?(\d+) ms 99th"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """One run of the consumer. `ended_s` is seconds since 1970."""

    mib_per_s: float
    ended_s: float


def produce(
    server: Server, topic: str, *, records: int, record_bytes: int, batch_bytes: int, timeout_s: float
) -> float:
    """MiB/s of values over the whole run."""
    output = run_client(
        [
            *(TOOL, "run", "producer-perf", "--bootstrap-server", server.address, "--topic", topic),
            *(
                "--num-records",
                str(records),
                "--record-size",
                str(record_bytes),
                "--throughput",
                "-1",
                "--reporting-interval",
                "3600000",
            ),
            *(
                "--command-property",
                "acks=all",
                f"batch.size={batch_bytes}",
                "linger.ms=5",
                f"buffer.memory={64 * MIB}",
            ),
        ],
        timeout_s=timeout_s,
    )
    lines = [found for line in output.splitlines() if (found := _SENT.search(line))]
    assert lines and int(lines[-1][1]) == records, f"the producer did not send {records} records:\n{output[-3000:]}"
    return float(lines[-1][2]) * record_bytes / MIB


def consumer_command(server: Server, topic: str, *, records: int, group: str) -> list[str]:
    """Reads so many records of the topic from its start on, with the settings that suit large reads."""
    return [
        *(
            TOOL,
            "run",
            "consumer-perf",
            "--bootstrap-server",
            server.address,
            "--topic",
            topic,
            "--num-records",
            str(records),
        ),
        *("--group", group, "--timeout", "60000", "--fetch-size", str(4 * MIB), "--hide-header"),
        *("--command-property", f"fetch.max.bytes={32 * MIB}", "max.poll.records=5000"),
    ]


def consume(server: Server, topic: str, *, records: int, timeout_s: float) -> Consumed:
    """One consumer, from the beginning."""
    return consumed(
        run_client(consumer_command(server, topic, records=records, group=topics.fresh("group")), timeout_s=timeout_s),
        records=records,
    )


def consumed(output: str, *, records: int) -> Consumed:
    """Reads the consumer's line: start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, MB/s fetching,
    records/s fetching.
    """
    for line in output.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 10 and fields[0][:2] == "20":
            assert int(fields[4]) >= records, f"the consumer read {fields[4]} of {records} records"
            return Consumed(
                mib_per_s=float(fields[8]), ended_s=datetime.strptime(fields[1], "%Y-%m-%d %H:%M:%S:%f").timestamp()
            )
    raise AssertionError(f"the consumer said:\n{output[-3000:]}")


def start_consumer(server: Server, topic: str, *, records: int) -> "subprocess.Popen[str]":
    """For reading at the tail: it has its partitions when this returns. The caller ends it (`processes.end_group`)."""
    group = topics.fresh("group")
    process = subprocess.Popen(
        consumer_command(server, topic, records=records, group=group),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        topics.until_stable(server, group)
    except BaseException:
        end_group(process)
        raise
    return process
