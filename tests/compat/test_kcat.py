"""kcat, as people use it in a shell: every codec, idempotence, by partition, from a timestamp, as a group."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from compat_clients.librdkafka import Librdkafka
from compat_contract import CODECS, Record, in_order, starts_and_ends
from compat_server import Bmq, tool
from compat_wire import stored_codecs
from test_clients_gaps import BATCHES, made, over_a_folder, written
from tests.waiting import until

PARTITIONS = 2
BASE_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def kcat() -> str:
    tool("get", "kcat")
    path = shutil.which("kcat")
    assert path is not None
    return path


def run(kcat: str, servers: str, *arguments: str, lines: Sequence[str] = (), timeout_s: float = 60) -> str:
    done = subprocess.run(
        [kcat, "-b", servers, *arguments],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"kcat {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def shown(output: str) -> list[Record]:
    """What `kcat -J` prints."""
    records = []
    for line in output.splitlines():
        seen: dict[str, Any] = json.loads(line)
        names = iter(seen.get("headers", []))
        headers = tuple((name, value.encode()) for name, value in zip(names, names, strict=True))
        key, value = (None if seen[field] is None else seen[field].encode() for field in ("key", "payload"))
        records.append(
            Record(
                partition=seen["partition"],
                offset=seen["offset"],
                timestamp_ms=seen["ts"],
                key=key,
                value=value,
                headers=headers,
            )
        )
    return in_order(records)


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_kcat_reads_back_every_codec_it_writes(
    bmq: Bmq, kcat: str, reference: Librdkafka, topic: str, idempotent: bool
) -> None:
    reference.create_topic(bmq.servers, topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    lines = [f"key-{index}\t{'text ' * (index + 1) * 20}" for index in range(20)]
    for index, codec in enumerate(CODECS):
        for partition in range(PARTITIONS):
            options = [
                "-X",
                f"compression.codec={codec}",
                "-X",
                f"enable.idempotence={str(idempotent).lower()}",
                "-H",
                "codec=" + codec,
                "-H",
                "empty=",
            ]
            run(kcat, bmq.servers, "-P", "-t", topic, "-p", str(partition), "-K", "\t", *options, lines=lines)
            assert stored_codecs(bmq.servers, topic, partition, index * len(lines)) == {codec}
    read = shown(run(kcat, bmq.servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"))
    starts, ends = starts_and_ends(read)
    assert (starts, ends) == (
        dict.fromkeys(range(PARTITIONS), 0),
        dict.fromkeys(range(PARTITIONS), len(lines) * len(CODECS)),
    )
    for record in read:
        assert f"{(record.key or b'').decode()}\t{(record.value or b'').decode()}" == lines[record.offset % len(lines)]
        assert record.headers == (("codec", CODECS[record.offset // len(lines)].encode()), ("empty", b""))
    assert in_order(reference.read(bmq.servers, topic, starts=starts, ends=ends)) == read


def test_kcat_reads_null_values_partitions_and_timestamps(
    bmq: Bmq, kcat: str, reference: Librdkafka, topic: str
) -> None:
    reference.create_topic(bmq.servers, topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    run(kcat, bmq.servers, "-P", "-t", topic, "-p", "0", "-Z", "-K", ":", lines=["gone:", "kept:value"])
    assert [
        record.value
        for record in shown(run(kcat, bmq.servers, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J"))
    ] == [
        None,
        b"value",
    ]
    sent = [
        Record(partition=1, timestamp_ms=BASE_MS + index * 1000, key=None, value=b"%d" % index) for index in range(50)
    ]
    reference.produce(bmq.servers, topic, sent, codec="lz4", idempotent=True)
    from_time = shown(
        run(kcat, bmq.servers, "-C", "-t", topic, "-p", "1", "-o", f"s@{BASE_MS + 30_500}", "-e", "-q", "-J")
    )
    assert [record.offset for record in from_time] == list(range(31, 50))
    between = run(
        kcat,
        bmq.servers,
        "-C",
        "-t",
        topic,
        "-p",
        "1",
        "-o",
        f"s@{BASE_MS + 10_000}",
        "-o",
        f"e@{BASE_MS + 12_000}",
        "-e",
        "-q",
        "-J",
    )
    assert [record.offset for record in shown(between)] == [10, 11]
    last = shown(run(kcat, bmq.servers, "-C", "-t", topic, "-p", "1", "-o", "-3", "-e", "-q", "-J"))
    assert [record.offset for record in last] == [47, 48, 49]
    assert run(kcat, bmq.servers, "-Q", "-t", f"{topic}:1:{BASE_MS + 5_000}").strip() == f"{topic} [1] offset 5"
    listed = json.loads(run(kcat, bmq.servers, "-L", "-J", "-t", topic))
    assert [partition["partition"] for partition in listed["topics"][0]["partitions"]] == [0, 1]


@over_a_folder
def test_kcat_reads_batches_with_gaps_and_without_records_and_knows_the_end(
    bmq: Bmq, kcat: str, reference: Librdkafka, topic: str
) -> None:
    kept = written(bmq, reference, topic, made(bmq, reference, topic), *BATCHES, "ll", "l")
    read = shown(run(kcat, bmq.servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"))
    assert [(record.offset, record.value) for record in read] == [(record.offset, record.value) for record in kept]
    assert run(kcat, bmq.servers, "-C", "-t", topic, "-p", "0", "-o", str(kept[-1].offset + 1), "-e", "-q") == ""


def test_two_kcats_share_a_group_and_resume_after_a_kill(
    bmq: Bmq, kcat: str, reference: Librdkafka, topic: str
) -> None:
    group = f"{topic}-group"
    reference.create_topic(bmq.servers, topic, partitions=4, configs={"retention.ms": "-1"})
    first_half = [
        Record(partition=index % 4, timestamp_ms=BASE_MS, key=None, value=b"%d" % index) for index in range(40)
    ]
    second_half = [
        Record(partition=index % 4, timestamp_ms=BASE_MS, key=None, value=b"%d" % index) for index in range(40, 80)
    ]
    options = [
        "-X",
        "auto.offset.reset=earliest",
        "-X",
        "heartbeat.interval.ms=300",
        "-X",
        "session.timeout.ms=6000",
        "-u",
    ]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [kcat, "-b", bmq.servers, *options, "-G", group, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def end(process: subprocess.Popen[str]) -> list[int]:
        process.terminate()
        return [int(line) for line in process.communicate(timeout=20)[0].split()]

    members = [start(), start()]
    try:
        until(
            lambda: reference.describe_group(bmq.servers, group),
            "both to be members",
            holds=lambda found: found == ("stable", 2),
        )
        reference.produce(bmq.servers, topic, first_half, codec="none", idempotent=True)
        until(
            lambda: reference.group_offsets(bmq.servers, group, topic),
            "all 40 to be committed",
            holds=lambda offsets: sum(offsets.values()) == 40,
        )
    finally:
        shares = [end(member) for member in members]
    assert all(shares), "one of the two was given nothing"
    assert sorted(shares[0] + shares[1]) == list(range(40))

    bmq.kill9()
    bmq.start()
    reference.produce(bmq.servers, topic, second_half, codec="none", idempotent=True)
    again = run(kcat, bmq.servers, *options, "-c", "40", "-G", group, topic)
    assert sorted(map(int, again.split())) == list(range(40, 80))
