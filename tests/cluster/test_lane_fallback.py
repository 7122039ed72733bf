"""Lanes that fall back, with the clients that people use: what nobody in the lane consumes goes on to the base, and
what somebody does stays.
"""

import subprocess
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from free_ports import free_port
from lane_clients import BASE, admin, consumer, make_lane, poll_values, producer, read, rest, write
from server_process import BMQ, Server, server_arguments
from tests.waiting import until

pytestmark = pytest.mark.slow
GRACE_MS = 3_000


class OneNode:
    """One process with all roles, over a folder, that goes on at its addresses after a kill."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir()
        self.servers = f"127.0.0.1:{free_port()}"
        self.api = f"127.0.0.1:{free_port()}"
        self._arguments = [
            *server_arguments("controller,broker,proxy", 1, f"file://{folder}/data?shared=true"),
            *("--listen", self.servers, "--admin", self.api, "--lane-grace-ms", str(GRACE_MS)),
        ]
        self._log = folder / "bmq.log"
        self._start()

    def _start(self) -> None:
        self.process = Server(self._arguments, log=self._log)
        self.process.until_it_serves()

    def kill_and_start(self) -> None:
        self.process.close()
        self._start()


@pytest.fixture
def bmq(tmp_path: Path) -> Iterator[OneNode]:
    running = OneNode(tmp_path)
    try:
        yield running
        assert running.process.stop() == 0, running.process.text()
    finally:
        running.process.close()


def begin(bmq: OneNode, *topics: str, partitions: int = 2) -> None:
    client = admin(bmq.servers, BASE)
    for made in client.create_topics([NewTopic(name, num_partitions=partitions) for name in topics]).values():
        made.result(20)
    make_lane(bmq.api, "dev", fallback="base")


def messages(client: Consumer, count: int, *, timeout_s: float = 40) -> list[tuple[str, dict[str, bytes]]]:
    found: list[tuple[str, dict[str, bytes]]] = []

    def enough() -> bool:
        message = client.poll(0.2)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append((value.decode(), {name: data or b"" for name, data in message.headers() or []}))
        return len(found) >= count

    until(enough, f"{count} messages", timeout_s=timeout_s)
    return found


def test_what_nobody_in_the_lane_consumes_is_read_in_the_base_once_and_the_rest_in_the_lane(bmq: OneNode) -> None:
    begin(bmq, "orders")
    base = consumer(bmq.servers, BASE, "g")
    base.subscribe(["orders"])
    try:
        write(bmq.servers, "dev", "orders", [f"first-{i}" for i in range(20)], **{"compression.type": "zstd"})
        found = messages(base, 20)
        assert sorted(value for value, _ in found) == sorted(f"first-{i}" for i in range(20))
        assert all(headers == {"bmq-lane": b"dev"} for _, headers in found)
        base.commit(asynchronous=False)  # else it may begin there anew when the node was killed

        inside = consumer(bmq.servers, "dev", "g", **{"auto.offset.reset": "latest"})
        inside.subscribe(["orders"])
        until(lambda: inside.poll(0.1) or len(inside.assignment()) == 2, "its partitions")
        bmq.kill_and_start()
        written: list[str] = []

        def one_in_the_lane() -> list[str]:
            written.append(f"second-{len(written)}")
            write(bmq.servers, "dev", "orders", [written[-1]])
            return poll_values(inside, 1, timeout_s=2)

        in_lane = until(one_in_the_lane, "the lane's consumer to have something")
        in_lane += poll_values(inside, 100, timeout_s=2)
        inside.commit(asynchronous=False)
        with pytest.raises(KafkaException, match="ILLEGAL_GENERATION"):
            inside.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        inside.close()
        write(bmq.servers, "dev", "orders", [f"third-{i}" for i in range(10)])
        wanted = {*written, *(f"third-{i}" for i in range(10))} - set(in_lane)
        went_on = [value for value, _ in messages(base, len(wanted))]
        went_on += poll_values(base, 1, timeout_s=GRACE_MS / 1000)
        assert sorted(went_on) == sorted(wanted), "each once, in the lane or in the base"
        assert not set(went_on) & set(in_lane)
    finally:
        base.close()


def test_in_a_chain_of_services_of_which_the_lane_has_one_each_message_goes_where_it_is_handled(bmq: OneNode) -> None:
    """A and C run in the base, B in the base and, as somebody works on it, in the lane. What comes in for the lane is
    handled by the lane's B, and what that makes of it by the base's C, which is told the lane.
    """
    begin(bmq, "asked", "answered", partitions=1)
    base_b, lane_b = consumer(bmq.servers, BASE, "b"), consumer(bmq.servers, "dev", "b")
    c = consumer(bmq.servers, BASE, "c")
    base_b.subscribe(["asked"])
    lane_b.subscribe(["asked"])
    c.subscribe(["answered"])
    try:
        write(bmq.servers, "dev", "asked", ["for the lane"])
        write(bmq.servers, BASE, "asked", ["for everybody"])
        assert poll_values(lane_b, 1) == ["for the lane"]
        lane_b.commit(asynchronous=False)
        assert poll_values(base_b, 1) == ["for everybody"]
        of_lane, of_base = producer(bmq.servers, "dev"), producer(bmq.servers, BASE)
        of_lane.produce("answered", b"by the lane's B", headers=[("trace", b"7")])
        of_base.produce("answered", b"by the base's B")
        assert of_lane.flush(20) == of_base.flush(20) == 0
        found = dict(messages(c, 2))
        assert found == {"by the lane's B": {"trace": b"7", "bmq-lane": b"dev"}, "by the base's B": {}}
        assert poll_values(base_b, 1, timeout_s=GRACE_MS / 1000) == [], "the lane's own stays with its B"
    finally:
        for client in (base_b, lane_b, c):
            client.close()


def test_what_nobody_in_a_nested_lane_consumes_is_handled_in_the_one_around_it_and_what_nobody_there_does_in_the_base(
    bmq: OneNode,
) -> None:
    begin(bmq, "asked", "answered", partitions=1)
    make_lane(bmq.api, "inner", fallback="base", parent="dev")
    around, base = consumer(bmq.servers, "dev", "b"), consumer(bmq.servers, BASE, "c")
    around.subscribe(["asked"])
    base.subscribe(["asked", "answered"])
    try:
        until(lambda: around.poll(0.1) or around.assignment(), "its partition")
        for topic in ("asked", "answered"):
            write(bmq.servers, "inner", topic, [f"{topic} of the inner lane"])
        write(bmq.servers, "dev", "answered", ["answered of the lane around it"])
        assert messages(around, 1) == [("asked of the inner lane", {"bmq-lane": b"inner"})]
        around.commit(asynchronous=False)
        bmq.kill_and_start()
        assert sorted(messages(base, 2, timeout_s=60)) == [
            ("answered of the inner lane", {"bmq-lane": b"inner"}),
            ("answered of the lane around it", {"bmq-lane": b"dev"}),
        ]
        assert poll_values(base, 1, timeout_s=GRACE_MS / 1000) == [], "what the lane around it handled stays there"
        status, refused = rest(bmq.api, "DELETE", "/v1/lanes/dev")
        assert (status, refused["detail"]) == (409, refused["detail"])
        assert "inner" in refused["detail"]
    finally:
        around.close()
        base.close()


def test_a_promotion_waits_until_all_of_the_lane_has_gone_on_and_says_who_keeps_it(bmq: OneNode) -> None:
    begin(bmq, "orders", partitions=1)

    def promote(wait_s: int) -> tuple[int, str]:
        command = [BMQ, "lanes", "promote", "dev", "--wait", str(wait_s), "--admin", f"http://{bmq.api}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    inside = consumer(bmq.servers, "dev", "g")
    inside.subscribe(["orders"])
    try:
        write(bmq.servers, "dev", "orders", ["in the lane"])
        assert poll_values(inside, 1) == ["in the lane"]
        write(bmq.servers, "dev", "orders", ["waits"])
        code, said = promote(1)
        assert (code, "group g consumes it" in said, "end the lane's consumers" in said) == (1, True, True), said
        inside.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    finally:
        inside.close()
    code, said = promote(60)
    assert (code, "nothing waits in lane dev" in said) == (0, True), said
    assert read(bmq.servers, BASE, "orders", 1, quiet_s=1) == ["waits"]


@pytest.mark.verify
def test_two_members_of_a_group_that_come_and_go_and_the_base_handle_each_message_once(bmq: OneNode) -> None:
    begin(bmq, "orders", partitions=3)
    written = 0
    handled: list[str] = []

    def more(many: int) -> None:
        nonlocal written
        write(bmq.servers, "dev", "orders", [str(n) for n in range(written, written + many)])
        written += many

    for life in range(3):
        more(30)
        members = [consumer(bmq.servers, "dev", "g") for _ in range(2)]
        for member in members:
            member.subscribe(["orders"])

        def one_handled(members: Sequence[Consumer] = members, before: int = len(handled)) -> bool:
            more(1)  # what was written before they came may have gone on
            for member in members:
                if values := poll_values(member, 50, timeout_s=0.3):
                    handled.extend(values)
                    member.commit(asynchronous=False)
            return len(handled) > before

        until(one_handled, "something for the lane's consumers")
        for member in members:
            member.close()
        read(bmq.servers, BASE, "orders", 0, group=f"waits-{life}", quiet_s=GRACE_MS / 1000 + 1)
    more(5)
    in_base: list[str] = []
    number = count()

    def everything() -> bool:
        in_base[:] = read(bmq.servers, BASE, "orders", 0, group=f"all-{next(number)}", quiet_s=4.0)
        return len(in_base) + len(handled) >= written

    until(everything, "each message in the lane or in the base", timeout_s=60)
    assert sorted(in_base + handled, key=int) == [str(n) for n in range(written)]
