"""From a spool to a cluster: in order, whatever the producer says, and with a bound on what is under way."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from test_channel_spool import in_a_loop, message, opened
from tests.waiting import until_async

from bmq.fairness.turns import Turns
from bmq_databus.errors import QueueFull
from bmq_databus.producing import draining
from bmq_databus.producing.draining import Draining
from bmq_databus.producing.producer import Reports
from bmq_databus.producing.under_way import UnderWay
from bmq_databus.spool.frames import Spooled


class Cluster:
    """Takes what it gets a turn later; `fails` says how often a message of that key is given up first."""

    def __init__(self, fails: dict[str, list[int]]) -> None:
        self.topic: list[str] = []
        self.fails = fails
        self.under_way = self.most = 0
        self.room = 1_000_000

    def produce(self, messages: Sequence[Spooled], reports: Reports, *, first: int, end: int) -> int:
        if self.under_way >= self.room:
            raise QueueFull("full")
        end = min(end, first + self.room - self.under_way)
        for place in range(first, end):
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            key = (messages[place].key or b"").decode()
            asyncio.get_running_loop().call_later(0.001, self._answer, key, reports, place)
        return end

    def _answer(self, key: str, reports: Reports, place: int) -> None:
        self.under_way -= 1
        if self.fails.get(key):
            reports(place, KafkaError(self.fails[key].pop(0)), -1, -1)
        else:
            self.topic.append(key)
            reports(place, None, 0, len(self.topic))


@pytest.fixture(autouse=True)
def again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "AGAIN_FIRST_S", 0.01)
    monkeypatch.setattr(draining, "ROOM_S", 0.001)


@in_a_loop
async def test_what_librdkafka_gives_up_is_sent_again_before_what_is_behind_it(tmp_path: Path) -> None:
    spool = await opened(tmp_path, segment_bytes=2_000)
    for n in range(0, 60, 3):
        await spool.accept([message(f"m{part}", 100) for part in range(n, n + 3)], patience_s=1)
    cluster = Cluster({"m1": [KafkaError.UNKNOWN, KafkaError.POLICY_VIOLATION], "m40": [KafkaError._MSG_TIMED_OUT]})
    cluster.room = 7
    task = asyncio.ensure_future(Draining(spool, cluster, under_way=UnderWay(1 << 20), turns=Turns()).run())
    await until_async(lambda: spool.waiting == 0, "all to be sent", 20)
    first = list(dict.fromkeys(cluster.topic))
    assert sorted(first, key=lambda key: int(key[1:])) == [f"m{n}" for n in range(60)]
    last = {key: at for at, key in enumerate(cluster.topic)}
    assert all(last["m1"] < last[f"m{n}"] for n in range(20, 60))
    assert cluster.most <= 7
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await spool.close()


@in_a_loop
async def test_what_the_cluster_never_takes_goes_to_a_file_and_holds_up_nothing(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    await spool.accept([message(f"m{n}") for n in range(10)], patience_s=1)
    cluster = Cluster({"m3": [KafkaError.MSG_SIZE_TOO_LARGE], "m7": [KafkaError._UNKNOWN_TOPIC]})
    task = asyncio.ensure_future(Draining(spool, cluster, under_way=UnderWay(1 << 20), turns=Turns()).run())
    await until_async(lambda: spool.waiting == 0, "all to be settled", 20)
    assert cluster.topic == [f"m{n}" for n in range(10) if n not in (3, 7)]
    lines = (tmp_path / "refused.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert "bTM=" in lines[0]  # m3 in base64
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await spool.close()


@in_a_loop
async def test_so_many_messages_of_a_spool_are_with_the_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "UNDER_WAY_MAX", 5)
    spool = await opened(tmp_path)
    await spool.accept([message(f"m{n}") for n in range(100)], patience_s=1)
    cluster = Cluster({})
    task = asyncio.ensure_future(Draining(spool, cluster, under_way=UnderWay(1 << 20), turns=Turns()).run())
    await until_async(lambda: spool.waiting == 0, "all to be sent", 20)
    assert (cluster.topic, cluster.most) == ([f"m{n}" for n in range(100)], 5)
    large = 600_000
    await spool.accept([message(f"l{n}", large) for n in range(3)], patience_s=1)
    cluster.most = 0
    await until_async(lambda: spool.waiting == 0, "all to be sent", 20)
    assert cluster.most == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await spool.close()


@in_a_loop
async def test_another_producer_goes_on_where_the_first_one_has_nothing_under_way(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    topic: list[str] = []
    first, then = Cluster({}), Cluster({})
    first.topic = then.topic = topic
    first.room = 3
    await spool.accept([message(f"m{n}") for n in range(40)], patience_s=1)
    one = Draining(spool, first, under_way=UnderWay(1 << 20), turns=Turns())
    task = asyncio.ensure_future(one.run())
    await until_async(lambda: len(topic) >= 10, "some to be sent", 20)
    one.send_by(then)
    await until_async(lambda: spool.waiting == 0, "all to be sent", 20)
    assert topic == [f"m{n}" for n in range(40)]
    assert then.most > 3
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await spool.close()


@in_a_loop
async def test_the_last_message_is_sent_again_though_nothing_comes_behind_it(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    cluster = Cluster({"m1": [KafkaError._PURGE_QUEUE], "m2": [KafkaError._PURGE_QUEUE]})
    task = asyncio.ensure_future(Draining(spool, cluster, under_way=UnderWay(1 << 20), turns=Turns()).run())
    try:
        await spool.accept([message(f"m{number}") for number in range(3)], patience_s=1)
        await until_async(lambda: not spool.waiting, "all to be sent", 30)
        assert cluster.topic[-1] == "m2", "in their order"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await spool.close()
