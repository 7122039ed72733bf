"""What was parted among lanes comes to each log once and in order, whatever owners refuse, clients send again and when
the proxy stops.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from parted_topic import Owners, Said, answer, numbered, on_parted_topic, told, with_lanes
from proxy_in_memory import Client, Running
from test_proxy_lane_produce import Gate
from tests.waiting import until_async

from bmq.errors import BatchTooLarge, BmqError, NotReady, NotYetNext
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.settings import ProxySettings

AGAIN = ErrorCode.not_leader_or_follower
BASE, DEV, PROD = "orders", "dev:orders", "prod:orders"
NOT_NOW = NotReady("opening")
IMPATIENT = ProxySettings(produce_retry_ms=0)
"""What an owner refuses its client is told at once."""
EAGER = ProxySettings(write_timeout_ms_min=0)
"""A client that says so is told after a short time that it is up."""


def both(number: int) -> bytes:
    """A batch of a record for the base, one for each lane."""
    return numbered(3 * number, (b"b%d" % number, None), (b"d%d" % number, "dev"), (b"p%d" % number, "prod"))


def written(owners: Owners, count: int) -> None:
    """So many of those are in each log, once and in order."""
    for name, letter in ((BASE, b"b"), (DEV, b"d"), (PROD, b"p")):
        assert owners.values(name) == [letter + b"%d" % number for number in range(count)], name


async def nothing_is_left(proxy: Running) -> None:
    parts, appends = proxy.role.proxy.parting, proxy.role.proxy.appends
    await until_async(lambda: not parts._tasks and not parts._under_way, "all to be over")
    assert not parts._memory.held_bytes
    assert not appends.refused, "nothing is to come again"
    assert not appends._queues


def test_what_a_lanes_owner_refuses_for_a_while_is_sent_to_it_again_in_order_and_to_no_other() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.refuses[DEV] = NOT_NOW
        for number in range(3):
            client.send_produce("orders", {0: both(number)})
        await until_async(lambda: owners.refused.count((DEV, 0)) > 2, "the lane to refuse more than once")
        assert {name for name, *_ in owners.got} == {PROD}, "the base comes last"
        assert owners.values(PROD) == [b"p0"], "the lanes' parts of the next one wait"
        del owners.refuses[DEV]
        assert [(await answer(client)).error_code for _ in range(3)] == [0, 0, 0]
        written(owners, 3)
        assert len(owners.got) == 9, "nothing went twice"
        await nothing_is_left(proxy)

    on_parted_topic(test)


def test_what_was_refused_comes_again_in_order_and_is_in_each_log_once() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.refuses[DEV] = NOT_NOW
        assert await told(client, both(0), both(1)) == [AGAIN, AGAIN]
        assert (owners.values(BASE), owners.values(DEV)) == ([], [])
        del owners.refuses[DEV]
        assert await told(client, both(1), both(2)) == [AGAIN, AGAIN], "what was refused first is to come first"
        assert await told(client, both(0), both(1), both(2)) == [0, 0, 0]
        written(owners, 3)
        await nothing_is_left(proxy)

    on_parted_topic(test, IMPATIENT)


@pytest.mark.parametrize("refuses", [DEV, PROD])
def test_what_is_under_way_behind_a_batch_that_a_lane_refuses_is_refused_until_that_one_has_come_again(
    refuses: str,
) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.held[refuses] = asyncio.Event()
        owners.refuses_once[refuses] = NOT_NOW
        for number in range(3):
            client.send_produce("orders", {0: both(number)})
        await until_async(lambda: (refuses, 0) in owners.asked, "the lane to be asked")
        owners.held[refuses].set()
        assert [(await answer(client)).error_code for _ in range(3)] == [AGAIN] * 3
        assert {sequence for _, sequence in owners.asked} == {0}, "no part of those behind it went"
        assert owners.values(BASE) == []
        assert await told(client, both(0), both(1), both(2), both(3)) == [0] * 4
        written(owners, 4)
        await nothing_is_left(proxy)

    on_parted_topic(test, IMPATIENT)


def test_a_batch_that_names_no_lane_needs_none_and_waits_behind_what_is_to_come_again() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.held[DEV] = asyncio.Event()
        owners.refuses_once[DEV] = NOT_NOW
        client.send_produce("orders", {0: numbered(0, (b"0", "dev"))})
        client.send_produce("orders", {0: numbered(1, (b"1", None))})
        await until_async(lambda: (DEV, 0) in owners.asked, "the lane to be asked")
        owners.held[DEV].set()
        assert [(await answer(client)).error_code for _ in range(2)] == [AGAIN, AGAIN]
        assert owners.log(BASE) == []
        assert await told(client, numbered(1, (b"1", None))) == [AGAIN]
        again = [numbered(0, (b"0", "dev")), numbered(1, (b"1", None)), numbered(2, (b"2", None))]
        assert await told(client, *again) == [0, 0, 0]
        assert (owners.log(BASE), owners.log(DEV)) == ([(1, b"1"), (2, b"2")], [(0, b"0")])
        await nothing_is_left(proxy)

    on_parted_topic(test, IMPATIENT)


def test_what_the_base_refuses_no_lane_gets() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.refuses[BASE] = NOT_NOW
        assert await told(client, both(0), both(1)) == [AGAIN, AGAIN]
        assert owners.got == []
        del owners.refuses[BASE]
        assert await told(client, both(1), both(0), both(1)) == [AGAIN, 0, 0]
        written(owners, 2)
        await nothing_is_left(proxy)

    on_parted_topic(test, IMPATIENT)


def test_another_producer_and_one_that_is_not_numbered_wait_for_nobody_elses_batches_to_come_again() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.held[DEV] = asyncio.Event()
        owners.refuses_once[DEV] = NOT_NOW
        others = [numbered(0, (b"8", "dev"), producer_id=8), with_lanes((b"x", "dev"))]
        for one in (numbered(0, (b"7", "dev")), *others):
            client.send_produce("orders", {0: one})
        await until_async(lambda: (DEV, 0) in owners.asked, "the lane to be asked")
        owners.held[DEV].set()
        assert [(await answer(client)).error_code for _ in range(3)] == [AGAIN, 0, 0]
        assert owners.values(DEV) == [b"8", b"x"]

    on_parted_topic(test, IMPATIENT)


def test_of_what_is_not_numbered_the_base_has_nothing_when_a_lane_refuses_it() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.refuses_once[DEV] = NOT_NOW
        mixed = with_lanes((b"b", None), (b"d", "dev"))
        assert await told(client, mixed, mixed) == [AGAIN, 0]
        assert (owners.values(BASE), owners.values(DEV)) == ([b"b"], [b"d"])
        await nothing_is_left(proxy)

    on_parted_topic(test, IMPATIENT)


def test_what_one_lane_refuses_for_good_the_client_is_told_and_nothing_waits_for_it() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.refuses_once |= {DEV: BatchTooLarge("10 bytes are the limit"), PROD: NOT_NOW}
        assert await told(client, both(0)) == [ErrorCode.message_too_large]
        assert owners.values(BASE) == []
        assert await told(client, numbered(0, (b"d1", "dev"), producer_id=8)) == [0]
        assert (owners.values(BASE), owners.values(DEV), owners.values(PROD)) == ([], [b"d1"], [])

    on_parted_topic(test, IMPATIENT)


def test_a_bug_behind_a_lane_is_told_and_holds_up_nothing() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.refuses_once[DEV] = ZeroDivisionError("a bug")
        assert await told(client, both(0)) == [ErrorCode.unknown_server_error]
        assert await told(client, both(0), both(1)) == [0, 0]
        written(owners, 2)
        await nothing_is_left(proxy)

    on_parted_topic(test, IMPATIENT)


def test_a_batch_that_has_come_again_when_a_lane_refuses_its_first_copy_is_refused_with_it() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.held[DEV] = asyncio.Event()
        owners.refuses_once[DEV] = NOT_NOW
        for number in (0, 0, 1):
            client.send_produce("orders", {0: both(number)})
        await until_async(lambda: (DEV, 0) in owners.asked, "the lane to be asked")
        owners.held[DEV].set()
        assert [(await answer(client)).error_code for _ in range(3)] == [AGAIN] * 3
        assert await told(client, both(0), both(1), both(2)) == [0, 0, 0]
        written(owners, 3)
        await nothing_is_left(proxy)

    on_parted_topic(test, IMPATIENT)


def test_what_goes_over_another_proxy_before_what_precedes_it_is_written_goes_to_no_lane() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        other = await proxy.connect()
        assert await told(client, both(0)) == [0]
        owners.held[DEV] = asyncio.Event()
        for number in (1, 2):
            client.send_produce("orders", {0: both(number)})
        await until_async(lambda: (DEV, 3) in owners.asked, "the lane to be asked")
        assert await told(other, both(3), both(4)) == [AGAIN, AGAIN]
        assert not {(DEV, 9), (DEV, 12)} & set(owners.asked)
        owners.held[DEV].set()
        assert [(await answer(client)).error_code for _ in range(2)] == [0, 0]
        assert await told(other, both(3), both(4)) == [0, 0]
        written(owners, 5)
        await nothing_is_left(proxy)

    on_parted_topic(test)


def test_what_came_before_what_precedes_it_over_one_connection_is_to_come_again_behind_that() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        assert await told(client, both(1), both(0), both(1)) == [AGAIN, 0, 0]
        owners.is_impatient = True
        assert await told(client, both(3)) == [ErrorCode.out_of_order_sequence_number]
        assert await told(client, both(2), both(3)) == [0, 0]
        written(owners, 4)
        await nothing_is_left(proxy)

    on_parted_topic(test)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_batch_that_went_on_over_another_proxy_is_answered_as_it_is_there(*, is_known: bool) -> None:
    """Its parts were on their way when its client sent it again elsewhere, and more behind it."""

    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        topics, may = proxy.role.proxy.parting._topics, asyncio.Event()
        make, waiting = topics.make, list[Any]()

        async def late(*asked: Any) -> Mapping[str, BmqError]:
            if len(waiting) < 2:
                waiting.append(asked)
                await may.wait()
            return await make(*asked)

        topics.make = late  # type: ignore[method-assign]
        client.send_produce("orders", {0: both(0)})
        await until_async(lambda: len(waiting) == 2, "its lanes' topics to be made")
        assert await told(await proxy.connect(), *[both(number) for number in range(3)]) == [0, 0, 0]
        if not is_known:
            owners.forget(DEV)
        may.set()
        found = await answer(client)
        assert (found.error_code, found.base_offset) == (0, 0)
        written(owners, 3)
        await nothing_is_left(proxy)

    on_parted_topic(test)


def test_a_batch_that_was_the_next_one_and_is_not_any_more_is_to_come_again() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.refuses_written[BASE] = NotYetNext("another owner has less")
        assert await told(client, both(0)) == [AGAIN]
        del owners.refuses_written[BASE]
        assert await told(client, both(0), both(1)) == [0, 0]
        written(owners, 2)
        await nothing_is_left(proxy)

    on_parted_topic(test)


@pytest.mark.parametrize("goes", ["the lane", "the partition"])
def test_what_the_base_has_already_needs_its_lane_no_more(goes: str) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        assert await told(client, both(0), both(1)) == [0, 0]
        image = proxy.metadata.image
        topic = image.topic(DEV)
        assert topic is not None
        if goes == "the lane":
            left = {topic_id: one for topic_id, one in image.topics.items() if one is not topic}
            names = {name: topic_id for name, topic_id in image.topic_ids.items() if name != DEV}
            proxy.metadata.change(topics=left, topic_ids=names, lanes={"prod": image.lanes["prod"]})
        else:
            proxy.metadata.change(topics={**image.topics, topic.topic_id: replace(topic, partitions=())})
        client.send_produce("orders", {0: both(1)})
        found = await answer(client)
        assert (found.error_code, found.base_offset) == (0, 3)
        assert await told(client, both(2)) == [ErrorCode.invalid_record]
        assert owners.values(BASE) == [b"b0", b"b1"]

    on_parted_topic(test)


@pytest.mark.parametrize("refuses", [False, True])
def test_what_no_answer_came_for_is_in_the_lane_once_when_its_client_connects_anew(*, refuses: bool) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.held[DEV] = asyncio.Event()
        if refuses:
            owners.refuses_once[DEV] = NOT_NOW
        for number in range(2):
            client.send_produce("orders", {0: both(number)})
        await until_async(lambda: owners.asked.count((DEV, 0)) == 1, "the lane to be asked")
        client.close()
        again = await proxy.connect()
        for number in range(3):
            again.send_produce("orders", {0: both(number)})
        await until_async(lambda: owners.asked.count((DEV, 0)) == 2, "the lane to be asked again")
        owners.held[DEV].set()
        assert [(await answer(again)).error_code for _ in range(3)] == [0, 0, 0]
        written(owners, 3)
        await nothing_is_left(proxy)

    on_parted_topic(test)


def test_parts_count_as_memory_until_they_are_written_and_others_of_its_address_wait_for_room() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        memory = proxy.role.proxy.parting._memory
        owners.held[DEV] = asyncio.Event()
        large = with_lanes((b"b" * 100_000, None), (b"d" * 100_000, "dev"))
        for partition in range(3):
            client.send_produce("orders", {partition: large})
        await until_async(lambda: DEV in {name for name, _ in owners.asked}, "the lane to be asked")
        assert 200_000 <= memory.held_bytes <= 210_000, "one has its parts, and the others wait"
        owners.held[DEV].set()
        assert [(await answer(client)).error_code for _ in range(3)] == [0, 0, 0]
        await nothing_is_left(proxy)

    on_parted_topic(test, ProxySettings(request_memory_bytes=400_000))


BATCHES = 12


class Sending:
    """A client that has some batches under way, over two proxies at once, and sends what was refused, or has no answer,
    again, the oldest first.
    """

    def __init__(self, proxy: Running, client: Client, rng: Random) -> None:
        self._proxy = proxy
        self._rng = rng
        self._said = [self._batch(number) for number in range(BATCHES)]
        self._clients = [client]
        self._under_way: list[list[int]] = [[], []]
        self.left = list(range(BATCHES))

    def _batch(self, number: int) -> list[Said]:
        lanes = self._rng.sample([None, "dev", "prod"], self._rng.randrange(1, 4))
        return [(b"%d" % number, lane) for lane in (*lanes, *[None] * (3 - len(lanes)))]

    def values(self, lane: str | None) -> list[bytes]:
        return [value for said in self._said for value, named in said if named == lane]

    async def step(self) -> None:
        if len(self._clients) < 2:
            self._clients.append(await self._proxy.connect())
        rng, over = self._rng, self._rng.randrange(2)
        under_way = self._under_way[over]
        sent = [number for numbers in self._under_way for number in numbers]
        following = next((number for number in self.left if number not in sent), None)
        if following is not None and following < self.left[0] + 5 and rng.random() < 0.6:
            self._clients[over].send_produce("orders", {0: numbered(3 * following, *self._said[following])})
            under_way.append(following)
        elif under_way and rng.random() < 0.1:
            for _ in range(rng.randrange(30)):
                await asyncio.sleep(0)
            self._clients[over].close()
            self._clients[over] = await self._proxy.connect()
            under_way.clear()
        elif under_way:
            code = (await answer(self._clients[over])).error_code
            assert code in (0, AGAIN)
            number = under_way.pop(0)
            if code == 0:
                self.left.remove(number)


@pytest.mark.parametrize("retry_ms", [0, 60])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_owners_refuse_and_clients_send_again_each_log_has_all_once_and_in_order(
    seed: int, retry_ms: int
) -> None:
    rng = Random(seed)

    async def some_time_or_not_now(_: str) -> None:
        for _ in range(rng.randrange(20)):
            await asyncio.sleep(0)
        if rng.random() < 0.3:
            raise NOT_NOW

    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        owners.before = some_time_or_not_now
        sending = Sending(proxy, client, rng)
        for _ in range(5_000):
            if not sending.left:
                break
            await sending.step()
        assert not sending.left
        assert (owners.values(BASE), owners.values(DEV), owners.values(PROD)) == (
            sending.values(None),
            sending.values("dev"),
            sending.values("prod"),
        )

    on_parted_topic(test, ProxySettings(produce_retry_ms=retry_ms))


def test_what_is_given_up_while_a_lanes_topic_is_made_is_written_nowhere() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        gate.open.clear()
        assert await told(client, both(0), timeout_ms=30) == [ErrorCode.request_timed_out]
        gate.open.set()
        assert await told(client, both(1)) == [AGAIN]
        assert owners.asked == []
        assert await told(client, both(0), both(1)) == [0, 0]
        written(owners, 2)
        await nothing_is_left(proxy)

    on_parted_topic(test, EAGER)


def of_parting() -> set[str]:
    names = {task.get_name() for task in asyncio.all_tasks()}
    return {name for name in names if name.startswith(("part ", "make "))}


@pytest.mark.parametrize("waits_for", ["the topic", BASE, DEV])
def test_a_stop_ends_what_is_under_way_and_nothing_is_written_afterwards(waits_for: str) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        if waits_for == "the topic":
            gate.open.clear()
        else:
            owners.held[waits_for] = asyncio.Event()
        for number in range(3):
            client.send_produce("orders", {0: both(number)})
        await until_async(
            lambda: (
                bool(gate.asked)
                if waits_for == "the topic"
                else bool(owners.questions)
                if waits_for == BASE
                else (waits_for, 0) in owners.asked
            ),
            "the first one",
        )
        await proxy.role.stop(grace_s=0)
        assert not of_parting()
        asked = list(owners.asked)
        gate.open.set()
        for held in owners.held.values():
            held.set()
        await until_async(
            lambda: not [task for task in asyncio.all_tasks() if "Owners._in_turn" in repr(task)], "owners to be done"
        )
        for _ in range(20):
            await asyncio.sleep(0)
        assert owners.asked == asked
        assert not of_parting()
        assert not proxy.role.proxy.parting._under_way

    on_parted_topic(test)


@pytest.mark.parametrize("turns", range(24))
def test_a_stop_at_any_moment_settles_every_batch(turns: int) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        assert await told(client, both(0)) == [0]
        parts = proxy.role.proxy.parting
        client.send_produce("orders", {0: both(1)})
        await until_async(lambda: 3 in owners.questions, "the base to be asked")
        [[batch]] = parts._under_way.values()
        for _ in range(turns):
            await asyncio.sleep(0)
        await parts.close()
        proxy.role.proxy.appends.close()
        await until_async(batch.append.done.done, "its client to be told")
        assert not of_parting()

    on_parted_topic(test)
