"""Clients of other languages: a process that reads a JSON request a line on its standard input, and answers each with a
JSON line.

A request is `{"op": …, "servers": …, …}`, an answer `{"result": …}` or `{"error": "…"}`. Bytes are base64; a record is
`[partition, timestamp in ms, key, value, [[header, value], …], offset]`. The operations are those of
compat_contract.Client, and of a member: `join` and `leave`, and `member`, which tells what it has and was given since
it was asked last.
"""

import base64
import itertools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compat_contract import ADMIN, CODECS, Record
from compat_server import tool, tools_folder

SOURCES = Path(__file__).parents[1]
_member_ids = itertools.count(1)


class DrivenClient:
    """One driver process, started at its first request."""

    idempotent = True
    assigns = True
    compresses_every_batch = True
    null_headers = True
    null_records = True
    static_members = True
    keeps_membership = True
    admin_calls = ADMIN
    codecs: tuple[str, ...] = CODECS
    assignors: tuple[str, ...]

    def __init__(self, name: str, command: Sequence[str], *, log: Path) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def request(self, op: str, **arguments: Any) -> Any:
        """Raises AssertionError with what the driver says."""
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, (
            f"the driver of {self.name} ended, code "
            f"{self._process.wait(5)}:\n{self._log.read_text(errors='replace')[-4000:]}"
        )
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(f"{self.name} {op}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def produce(
        self, servers: str, topic: str, records: Sequence[Record], *, codec: str, idempotent: bool
    ) -> list[int]:
        encoded = [_encode(record) for record in records]
        offsets = self.request(
            "produce", servers=servers, topic=topic, records=encoded, codec=codec, idempotent=idempotent
        )
        return [int(offset) for offset in offsets]

    def read(self, servers: str, topic: str, *, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Record]:
        return _records(self.request("read", servers=servers, topic=topic, starts=starts, ends=ends))

    def offsets_at(self, servers: str, topic: str, *, partitions: int, timestamp_ms: int) -> dict[int, int]:
        return _by_partition(
            self.request("offsets_at", servers=servers, topic=topic, partitions=partitions, timestamp=timestamp_ms)
        )

    def read_group(self, servers: str, topic: str, group: str, *, count: int) -> list[Record]:
        return _records(self.request("read_group", servers=servers, topic=topic, group=group, count=count))

    def join(
        self, servers: str, topic: str, group: str, *, assignor: str, instance_id: str | None = None
    ) -> "DrivenMember":
        member = f"member-{next(_member_ids)}"
        self.request(
            "join",
            servers=servers,
            topic=topic,
            group=group,
            member=member,
            assignor=assignor,
            instance=instance_id or "",
        )
        return DrivenMember(self, member)

    def create_topic(self, servers: str, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        self.request("create_topic", servers=servers, topic=topic, partitions=partitions, configs=dict(configs))

    def describe_topic(self, servers: str, topic: str) -> int:
        return int(self.request("describe_topic", servers=servers, topic=topic))

    def list_topics(self, servers: str) -> list[str]:
        return list(self.request("list_topics", servers=servers))

    def describe_configs(self, servers: str, topic: str) -> dict[str, str]:
        return dict(self.request("describe_configs", servers=servers, topic=topic))

    def alter_configs(self, servers: str, topic: str, configs: Mapping[str, str]) -> None:
        self.request("alter_configs", servers=servers, topic=topic, configs=dict(configs))

    def create_partitions(self, servers: str, topic: str, *, total: int) -> None:
        self.request("create_partitions", servers=servers, topic=topic, partitions=total)

    def delete_records(self, servers: str, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        return _by_partition(self.request("delete_records", servers=servers, topic=topic, starts=before))

    def list_groups(self, servers: str) -> list[str]:
        return list(self.request("list_groups", servers=servers))

    def describe_group(self, servers: str, group: str) -> tuple[str, int]:
        state, members = self.request("describe_group", servers=servers, group=group)
        return state.replace("_", "").lower(), members

    def group_offsets(self, servers: str, group: str, topic: str) -> dict[int, int]:
        return _by_partition(self.request("group_offsets", servers=servers, topic=topic, group=group))

    def delete_group(self, servers: str, group: str) -> None:
        self.request("delete_group", servers=servers, group=group)

    def delete_topic(self, servers: str, topic: str) -> None:
        self.request("delete_topic", servers=servers, topic=topic)


class DrivenMember:
    def __init__(self, client: DrivenClient, member: str) -> None:
        self._client = client
        self._member = member
        self._assignment: frozenset[int] = frozenset()
        self._consumed: list[tuple[int, int]] = []
        self._rebalances = -1

    def assignment(self) -> frozenset[int]:
        self._ask()
        return self._assignment

    def consumed(self) -> list[tuple[int, int]]:
        self._ask()
        return self._consumed

    def rebalances(self) -> int:
        self._ask()
        return self._rebalances

    def leave(self) -> None:
        self._ask()
        self._client.request("leave", member=self._member)

    def _ask(self) -> None:
        answer = self._client.request("member", member=self._member)
        assert not answer["error"], f"{self._client.name} {self._member}: {answer['error']}"
        self._assignment = frozenset(answer["assignment"])
        self._consumed += [(partition, int(offset)) for partition, offset in answer["consumed"]]
        self._rebalances = answer["rebalances"]


class Kafkajs(DrivenClient):
    """It has no manual assignment, no cooperative assignor and no static members, and its headers cannot be null."""

    assigns = False
    null_headers = False
    static_members = False
    codecs = ("none", "gzip", "snappy", "lz4")
    assignors = ("roundrobin",)

    def __init__(self, log: Path) -> None:
        tool("get", "kafkajs")
        modules = tools_folder() / "kafkajs"
        node = modules / "node"
        super().__init__("kafkajs", [str(node), str(SOURCES / "kafkajs" / "driver.js"), str(modules)], log=log)


class FranzGo(DrivenClient):
    compresses_every_batch = False
    keeps_membership = False
    assignors = ("range", "roundrobin", "cooperative-sticky")

    def __init__(self, log: Path) -> None:
        tool("get", "franz-client")
        super().__init__("franz-go", [str(tools_folder() / "franz-client" / "franz-client")], log=log)


class Java(DrivenClient):
    """The Java client of Apache Kafka."""

    assignors = ("range", "roundrobin", "cooperative-sticky")

    def __init__(self, log: Path) -> None:
        tool("get", "java-client")
        folder = tools_folder()
        command = [
            str(folder / "java-client" / "java"),
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xmx512m",
            "-Dorg.apache.logging.log4j.level=INFO",
        ]
        super().__init__("java", [*command, "-cp", f"{folder}/java-client:{folder}/kafka/*", "Driver"], log=log)


def _encode(record: Record) -> list[Any]:
    headers = [[name, _base64(value)] for name, value in record.headers]
    return [record.partition, record.timestamp_ms, _base64(record.key), _base64(record.value), headers]


def _records(encoded: list[Any]) -> list[Record]:
    return [
        Record(
            partition=partition,
            timestamp_ms=int(timestamp),
            key=_bytes(key),
            value=_bytes(value),
            headers=tuple((name, _bytes(header)) for name, header in headers),
            offset=int(offset),
        )
        for partition, timestamp, key, value, headers, offset in encoded
    ]


def _by_partition(answer: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in answer.items()}


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
