"""Produce requests that differ in what they write alone go on as one: their answers, and what is written in which
order, are as if each went by itself.
"""

import asyncio
import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import Histogram
from proxy_in_memory import Client, MemoryOwner, Running, batch, running_proxy
from tests.bare_client import framed
from tests.waiting import until_async

from bmq.config.limits import Limits
from bmq.errors import BmqError, InvalidTimestamp, NotReady, StoreError, UnknownOutcome
from bmq.fairness.turns import NOBODY, Party
from bmq.roles.owner import Appended, AppendedAlike, Proved
from bmq.values import TopicPartition
from bmq.wire.batch_headers import read_header
from bmq.wire.error_codes import ErrorCode
from bmq.wire.produce import TOPIC_IDS_FROM
from bmq.wire.records import Record, build_batch
from bmq_proxy import metrics
from bmq_proxy.appends import Taken
from bmq_proxy.calls import Call
from bmq_proxy.settings import ProxySettings

PRODUCE = 0
TOPIC_ID = UUID(int=1 << 64)
"""That of the first topic of a proxy in memory."""


@dataclass(frozen=True)
class Sent:
    """One request."""

    partition: int
    records: bytes
    acks: int
    version: int
    client_id: str

    def frame(self, number: int) -> bytes:
        partitions = [{"index": self.partition, "records": self.records}]
        fields = {"transactional_id": None, "acks": self.acks, "timeout_ms": 5_000}
        topic = {"name": "orders"} if self.version < TOPIC_IDS_FROM else {"topic_id": TOPIC_ID}
        topics = [{**topic, "partition_data": partitions}]
        return framed(
            PRODUCE, self.version, fields | {"topic_data": topics}, correlation_id=number, client_id=self.client_id
        )


class Refusing:
    """A MemoryOwner whose calls of these numbers are refused."""

    def __init__(self, owner: MemoryOwner, refused: Mapping[int, BmqError]) -> None:
        self._append, self.refused, self.calls = owner.append, refused, 0
        self._alike = owner.append_alike
        self.together = 0
        """How many batches were taken together with others."""
        owner.append = self.append  # type: ignore[method-assign]
        owner.append_alike = self.append_alike  # type: ignore[method-assign]

    def append(
        self, tp: TopicPartition, records: Any, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        number, self.calls = self.calls, self.calls + 1
        if number in self.refused:
            future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
            future.set_exception(self.refused[number])
            return future
        return self._append(tp, records, produce_version=produce_version, party=party)

    def append_alike(
        self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int
    ) -> "tuple[int, asyncio.Future[AppendedAlike]] | None":
        plain = [number for number in range(self.calls, self.calls + len(batches)) if number in self.refused]
        most = min(plain, default=self.calls + len(batches)) - self.calls
        taken = self._alike(tp, batches[:most], produce_version=produce_version)
        if taken is not None:
            self.together += taken[0] if taken[0] > 1 else 0
        return taken


def good(number: int, producer_id: int) -> bytes:
    if producer_id < 0:
        return batch(b"%d" % number)
    return build_batch(
        [Record(0, 1_000, None, b"%d" % number)], producer_id=producer_id, producer_epoch=0, base_sequence=number
    )


def damaged(number: int, producer_id: int) -> bytes:
    data = bytearray(good(number, producer_id))
    data[-1] ^= 1
    return bytes(data)


KINDS = {
    "good": good,
    "damaged": damaged,
    "nothing": lambda number, producer_id: b"",
    "garbage": lambda number, producer_id: b"garbage %d" % number,
    "two": lambda number, producer_id: good(number, producer_id) + good(number, producer_id),
}
ERRORS = (NotReady("not now"), InvalidTimestamp("too old"), UnknownOutcome("who knows"), StoreError("away"))

requests = st.lists(
    st.tuples(
        st.sampled_from(["good"] * 8 + list(KINDS)),
        st.sampled_from([0] * 8 + [1, 2]),
        st.sampled_from([-1, -1, 7]),
        st.sampled_from([-1] * 6 + [1, 3]),
        st.sampled_from([9] * 6 + [3, 7, 8, 12, 13]),
        st.sampled_from(["alike"] * 8 + ["another", ""]),
    ),
    min_size=1,
    max_size=40,
)


def sent(drawn: Sequence[tuple[str, int, int, int, int, str]]) -> list[Sent]:
    return [
        Sent(partition, KINDS[kind](number, producer_id), acks, version, client_id)
        for number, (kind, partition, producer_id, acks, version, client_id) in enumerate(drawn)
    ]


async def answered(
    found: Sequence[Sent], *, alike_max: int, refused: Mapping[int, BmqError], cuts: Sequence[int]
) -> tuple[bytes, list[tuple[int, bytes]], int]:
    """(all that the client got, what the log has, how many were taken together)."""
    limits = Limits(alike_requests_max=max(1, alike_max))
    async with running_proxy(ProxySettings(limits=limits, produce_retry_ms=200)) as proxy:
        topic = proxy.metadata.add_topic("orders", 2)
        proxy.owner.alike_max = alike_max
        owner = Refusing(proxy.owner, refused)
        reader, writer = await asyncio.open_connection(proxy.role.host, proxy.role.port)
        data = b"".join(one.frame(number) for number, one in enumerate(found))
        begin = 0
        for end in [*sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]:
            writer.write(data[begin:end])
            begin = end
            await asyncio.sleep(0)
        writer.write(framed(18, 0, {}, correlation_id=1 << 20))  # is answered behind all that
        got = b""
        while (1 << 20).to_bytes(4, "big") not in got:
            more = await asyncio.wait_for(reader.read(1 << 16), 20)
            if not more:
                break
            got += more
        writer.close()
        logs = [
            (index, data)
            for index in range(2)
            for _, _, data in proxy.owner.log(TopicPartition(topic.topic_id, index)).batches
        ]
        return got.split((1 << 20).to_bytes(4, "big"))[0], logs, owner.together


@settings(max_examples=150)
@given(
    requests,
    st.dictionaries(st.integers(0, 30), st.sampled_from(ERRORS), max_size=3),
    st.lists(st.integers(0, 1 << 16), max_size=3),
    st.integers(1, 40),
)
def test_they_are_answered_and_written_as_if_each_went_by_itself(
    drawn: list[tuple[str, int, int, int, int, str]],
    refused: dict[int, BmqError],
    cuts: list[int],
    alike_max: int,
) -> None:
    async def main() -> None:
        found = sent(drawn)
        alone = await answered(found, alike_max=0, refused=refused, cuts=[])
        together = await answered(found, alike_max=alike_max, refused=refused, cuts=cuts)
        assert together[:2] == alone[:2]

    asyncio.run(main())


def test_what_comes_together_is_taken_together() -> None:
    async def main() -> None:
        found = sent([("good", 0, -1, -1, 9, "alike")] * 30)
        _, logs, together = await answered(found, alike_max=8, refused={}, cuts=[])
        assert [data[-2:-1] for _, data in logs]
        assert len(logs) == together == 30

    asyncio.run(main())


async def asked(proxy: Running, count: int, *, producer_id: int = -1, acks: int = -1, begin: int = 0) -> Client:
    """A client that has sent so many requests in one write."""
    client = await proxy.connect()
    for number in range(begin, begin + count):
        client.send_produce("orders", {0: good(number, producer_id)}, acks=acks)
    return client


async def offsets(client: Client, count: int) -> list[tuple[ErrorCode, int]]:
    """(code, base offset) of the next answers."""
    answers = [(await client.receive())[1].responses[0].partition_responses[0] for _ in range(count)]
    return [(ErrorCode(one.error_code), one.base_offset) for one in answers]


def test_those_that_have_an_outcome_are_answered_while_the_others_wait() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max = 3
            owner = Refusing(proxy.owner, dict.fromkeys(range(3, 1_000), NotReady("not yet")))
            client = await asked(proxy, 5)
            assert await offsets(client, 3) == [(ErrorCode.none, 0), (ErrorCode.none, 1), (ErrorCode.none, 2)]
            owner.refused = {}
            assert await offsets(client, 2) == [(ErrorCode.none, 3), (ErrorCode.none, 4)]
            await until_async(lambda: not proxy.role.server.endpoint.request_memory.held_bytes, "memory given back")
            assert proxy.role.server.endpoint.in_flight == 0

    asyncio.run(main())


def test_a_client_that_goes_while_some_wait_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max = 3
            owner = Refusing(proxy.owner, dict.fromkeys(range(3, 1_000), NotReady("not yet")))
            client = await asked(proxy, 5)
            await offsets(client, 3)
            client.close()
            await until_async(lambda: not proxy.role.server.endpoint.connections, "it to be gone")
            owner.refused = {}
            endpoint = proxy.role.server.endpoint
            await until_async(lambda: not endpoint.request_memory.held_bytes, "memory given back")
            assert endpoint.in_flight == 0
            assert len(proxy.owner.appended) == 5

    asyncio.run(main())


def test_what_is_left_of_several_counts_as_under_way_until_it_is_answered() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(limits=Limits(produce_requests_max=4))) as proxy:
            proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max = 2
            owner = Refusing(proxy.owner, dict.fromkeys(range(2, 1_000), NotReady("not yet")))
            endpoint = proxy.role.server.endpoint
            client = await asked(proxy, 5)
            await offsets(client, 2)
            other = await asked(proxy, 5, begin=5)
            await asyncio.sleep(0.05)
            assert endpoint._producing.count > 0
            assert endpoint.shares.held_bytes > 0
            assert len(endpoint._producing._addresses) == 1, "the other one waits for a place"
            owner.refused = {}
            assert [code for code, _ in await offsets(client, 3)] == [ErrorCode.none] * 3
            assert [code for code, _ in await offsets(other, 5)] == [ErrorCode.none] * 5
            await until_async(lambda: not endpoint._producing.count, "all places given back")
            assert endpoint.shares.held_bytes == 0

    asyncio.run(main())


def test_one_that_is_refused_at_once_does_not_wait_for_those_behind_it() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max = 3
            owner = Refusing(proxy.owner, dict.fromkeys(range(1_000), NotReady("not yet")))
            client = await proxy.connect()
            for kind in ("damaged", "good", "good"):
                client.send_produce("orders", {0: KINDS[kind](1, 7)})
            client.send_produce("orders", {0: batch(b"plain")})
            assert [code for code, _ in await offsets(client, 1)] == [ErrorCode.corrupt_message]
            owner.refused = {}
            client.close()

    asyncio.run(main())


def test_behind_a_wide_request_they_are_answered_as_anywhere() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 300)
            proxy.owner.alike_max = 2
            client = await proxy.connect()
            client.send_produce("orders", {index: batch(b"wide") for index in range(300)})
            owner = Refusing(proxy.owner, dict.fromkeys(range(302, 1_000), NotReady("not yet")))
            for _ in range(4):
                client.send_produce("orders", {0: batch(b"alike")})
            assert len((await client.receive())[1].responses[0].partition_responses) == 300
            assert [code for code, _ in await offsets(client, 2)] == [ErrorCode.none] * 2
            owner.refused = {}
            assert [code for code, _ in await offsets(client, 2)] == [ErrorCode.none] * 2

    asyncio.run(main())


def test_who_wants_no_answers_is_cut_off_at_once_though_others_wait() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max, proxy.owner.hold = 10, True
            Refusing(proxy.owner, {1: InvalidTimestamp("too old")})
            client = await asked(proxy, 3, acks=0)
            with pytest.raises(asyncio.IncompleteReadError):
                await client.receive()
            proxy.owner.let_go(len(proxy.owner.held))
            await until_async(lambda: not proxy.role.server.endpoint.request_memory.held_bytes, "memory given back")

    asyncio.run(main())


class Failing:
    """A MemoryOwner that loses what it took, once."""

    def __init__(self, owner: MemoryOwner, error: BmqError) -> None:
        self._alike = owner.append_alike
        self._error: BmqError | None = error
        owner.append_alike = self.append_alike  # type: ignore[method-assign]

    def append_alike(
        self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int
    ) -> "tuple[int, asyncio.Future[AppendedAlike]] | None":
        if self._error is None:
            return self._alike(tp, batches, produce_version=produce_version)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[AppendedAlike] = loop.create_future()
        loop.call_later(0.01, future.set_exception, self._error)
        self._error = None
        return len(batches), future


@pytest.mark.parametrize("producer_id", [7, -1])
def test_what_is_lost_with_its_owner_is_sent_again_in_order_where_that_can_tell_copies(producer_id: int) -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            topic = proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max = 10
            Failing(proxy.owner, StoreError("away"))
            client = await asked(proxy, 4, producer_id=producer_id)
            found = await offsets(client, 4)
            client.close()
            log = [data for _, _, data in proxy.owner.log(TopicPartition(topic.topic_id, 0)).batches]
            if producer_id < 0:
                assert [code for code, _ in found] == [ErrorCode.kafka_storage_error] * 4
                assert not log
            else:
                assert found == [(ErrorCode.none, number) for number in range(4)]
                assert [read_header(data).base_sequence for data in log] == [0, 1, 2, 3]

    asyncio.run(main())


def test_all_are_told_when_time_is_up_and_what_comes_of_them_later_is_nobodys() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(write_timeout_ms_min=50)) as proxy:
            proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max, proxy.owner.hold = 10, True
            client = await proxy.connect()
            for number in range(4):
                client.send_produce("orders", {0: good(number, 7)}, timeout_ms=20)
            assert [code for code, _ in await offsets(client, 4)] == [ErrorCode.request_timed_out] * 4
            assert proxy.role.server.endpoint.request_memory.held_bytes > 0, "the owner still has them"
            proxy.owner.let_go(4)
            await until_async(lambda: not proxy.role.server.endpoint.request_memory.held_bytes, "memory given back")

    asyncio.run(main())


def test_who_wants_no_answers_gets_none_and_is_cut_off_where_one_failed() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max = 10
            client = await asked(proxy, 5, acks=0)
            client.send(18, 0, {})
            assert (await client.receive())[0] == 6, "the answer to what came behind them"
            assert len(proxy.owner.appended) == 5
            Refusing(proxy.owner, {1: InvalidTimestamp("too old")})
            client = await asked(proxy, 3, acks=0)
            with pytest.raises(asyncio.IncompleteReadError):
                await client.receive()

    asyncio.run(main())


def test_each_of_them_is_counted() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max = 10
            Refusing(proxy.owner, {1: InvalidTimestamp("too old")})
            before = [counted("none"), counted("invalid_timestamp")]
            client = await asked(proxy, 5)
            await offsets(client, 5)
            await asyncio.sleep(0)
            assert [counted("none") - before[0], counted("invalid_timestamp") - before[1]] == [4, 1]

    asyncio.run(main())


def counted(error: str) -> float:
    return float(metrics.REQUESTS.labels("Produce", error)._value.get())


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5))))
def test_a_histogram_of_many_is_what_it_is_told_one_by_one(told: list[tuple[float, int]]) -> None:
    buckets = (0.5, 1, 30)
    one, many = (
        Histogram("one", "…", buckets=buckets, registry=None),
        metrics.HistogramOfMany("many", "…", buckets=buckets, registry=None),
    )
    for amount, times in [*told, (0.5, 2)]:
        many.observe_many(amount, times)
        for _ in range(times):
            one.observe(amount)

    def samples(of: Histogram) -> list[tuple[str, object, object]]:
        (found,) = of.collect()
        counts = [(sample.name.split("_")[-1], sample.labels.get("le"), sample.value) for sample in found.samples]
        return [
            (name, le, pytest.approx(value) if name == "sum" else value)
            for name, le, value in counts
            if name != "created"
        ]

    assert samples(many) == samples(one)


def test_nothing_of_them_waits_for_the_collector_of_garbage() -> None:
    """A circle of references would hold each frame until then, and has all be looked through the more often."""

    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            proxy.owner.alike_max = 10
            gc.collect()
            gc.disable()
            try:
                client = await asked(proxy, 7)
                await offsets(client, 7)
                await until_async(lambda: not proxy.role.server.endpoint.request_memory.held_bytes, "memory given back")
                assert not [one for one in gc.get_objects() if isinstance(one, Taken | Call)]
            finally:
                gc.enable()

    asyncio.run(main())
