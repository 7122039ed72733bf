"""Batches of the base whose records name lanes: what goes where, what is refused, and what a client is told."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from parted_topic import Owners, Said, add_overlay, answer, numbered, on_parted_topic, told, with_lanes
from proxy_in_memory import Client, Running
from test_proxy_lane_produce import Gate

from bmq.errors import ControllerUnavailable, LaneFull, UnknownLane
from bmq.naming.lane_choice import LaneChoice
from bmq.roles.controller import NewTopic, TopicResult
from bmq.roles.owner import OF_LANE, PARTED
from bmq.wire.batch_headers import patched, read_header
from bmq.wire.compression import Codec
from bmq.wire.error_codes import ErrorCode
from bmq.wire.records import Record, build_batch
from bmq_proxy import metrics
from bmq_proxy.parting import TOLD_MAX

MIXED: Sequence[Said] = ((b"0", None), (b"1", "dev"), (b"2", "prod"), (b"3", ""), (b"4", "dev"), (b"5", None))
AGAIN = ErrorCode.not_leader_or_follower
WRONG = ErrorCode.invalid_record


def parted_records(lane: str) -> float:
    value: float = metrics.PARTED.labels(lane)._value.get()
    return value


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("producer", [{}, {"producer_id": 7, "producer_epoch": 2, "base_sequence": 0}])
def test_each_record_goes_to_the_lane_that_it_names_whose_topic_is_made_by_it(
    codec: Codec, producer: dict[str, int]
) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        before = parted_records("dev")
        mixed = with_lanes(*MIXED, codec=codec, **producer)
        client.send_produce("orders", {1: mixed})
        found = await answer(client)
        assert (found.error_code, found.base_offset) == (0, 0)
        assert sorted(gate.asked) == ["dev:orders", "prod:orders"]
        assert owners.log("orders", 1) == [(0, b"0"), (3, b"3"), (5, b"5")]
        assert owners.log("dev:orders", 1) == [(1, b"1"), (4, b"4")]
        assert owners.log("prod:orders", 1) == [(2, b"2")]
        [*parts, (name, version, base)] = owners.got
        assert (name, version) == ("orders", PARTED)
        assert {(name, version) for name, version, _ in parts} == {("dev:orders", OF_LANE), ("prod:orders", OF_LANE)}
        whole = read_header(mixed)
        for part in (base, *(part for _, _, part in parts)):
            header = read_header(part)
            assert (header.producer_id, header.producer_epoch) == (whole.producer_id, whole.producer_epoch)
            assert (header.base_sequence, header.last_sequence) == (whole.base_sequence, whole.last_sequence)
        assert parted_records("dev") == before + 2
        client.send_produce("orders", {1: with_lanes((b"6", None))})
        assert (await answer(client)).base_offset == 6

    on_parted_topic(test)


def test_a_batch_that_names_no_lane_is_the_bases_as_it_is() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        sent = [
            with_lanes((b"0", None)),
            with_lanes((b"x-lane", None), (b"1", " ")),
            with_lanes((b"2", "dev"), name="y"),
        ]
        assert await told(client, *sent) == [0, 0, 0]
        assert owners.got == [("orders", 9, one) for one in sent]
        assert gate.asked == []

    on_parted_topic(test)


def test_of_a_batch_that_is_all_one_lanes_the_base_has_the_offsets() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        assert await told(client, with_lanes((b"0", "dev"), (b"1", "dev")), with_lanes((b"2", None))) == [0, 0]
        assert (owners.log("orders"), owners.log("dev:orders")) == ([(2, b"2")], [(0, b"0"), (1, b"1")])

    on_parted_topic(test)


def test_a_member_of_baggage_names_the_lane() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        said = [(b"0", "user=ann"), (b"1", "user=ann,lane=d%65v;ttl=1"), (b"2", "Lane=prod")]
        assert await told(client, with_lanes(*said, name="Baggage")) == [0]
        assert (owners.values("orders"), owners.values("dev:orders")) == ([b"0", b"2"], [b"1"])
        assert gate.asked == ["dev:orders"]

    on_parted_topic(test, header="baggage:lane")


def test_a_topic_whose_configuration_names_no_header_is_as_any() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        assert await told(client, with_lanes((b"0", "dev")), with_lanes((b"1", "nowhere"))) == [0, 0]
        assert owners.values("orders") == [b"0", b"1"]

    on_parted_topic(test, header="")


def test_a_client_of_a_lane_writes_to_its_lane_whatever_its_records_say() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        client.client_id = "lane=dev,app"
        assert await told(client, with_lanes((b"0", "prod"), (b"1", "nowhere"), (b"2", None))) == [0]
        assert owners.values("dev:orders") == [b"0", b"1", b"2"]
        assert owners.values("orders") == owners.values("prod:orders") == []

    on_parted_topic(test)


def told_wrong(message: Any) -> list[tuple[int, str]]:
    return [(one.batch_index, one.batch_index_error_message) for one in message.record_errors]


@pytest.mark.parametrize(
    ("said", "number", "says"),
    [
        ([(b"0", None), (b"1", "nowhere")], 1, "there is no lane 'nowhere'"),
        ([(b"0", "dev"), (b"1", "Not/Legal")], 1, "there is no lane 'Not/Legal'"),
        ([(b"0", "x" * 100)], 0, "there is no lane 'xxx"),
        ([(b"0", "x" * 1_000_000)], 0, "there is no lane 'xxx"),
        ([(b"0", "dev:orders")], 0, "there is no lane 'dev:orders'"),
    ],
)
def test_a_batch_that_names_a_lane_that_is_not_there_is_refused_whole(said: list[Said], number: int, says: str) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        client.send_produce("orders", {0: numbered(0, *said)})
        found = await answer(client)
        assert (found.error_code, [at for at, _ in told_wrong(found)]) == (WRONG, [number])
        assert says in told_wrong(found)[0][1]
        assert found.error_message.startswith(f"the batch is refused for record {number}: {says}")
        assert (owners.got, gate.asked) == ([], [])
        assert await told(client, numbered(0, (b"0", None))) == [0], "it holds up nothing"

    on_parted_topic(test)


@pytest.mark.parametrize("version", [3, 7, 8, 12])
def test_what_a_version_has_no_field_for_is_not_told(version: int) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        client.send_produce("orders", {0: with_lanes((b"0", "nowhere"))}, version=version)
        found = await answer(client)
        assert found.error_code == WRONG
        assert bool(found.error_message) is bool(found.record_errors) is (version >= 8)

    on_parted_topic(test)


def test_a_record_that_names_two_lanes_is_refused_and_one_that_names_one_twice_is_not() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        two = (("x-lane", b"dev"), ("X-Lane", b"prod"))
        client.send_produce("orders", {0: build_batch([Record(0, 1, None, b"0"), Record(0, 1, None, b"1", two)])})
        found = await answer(client)
        assert found.error_code == WRONG
        assert told_wrong(found) == [(1, "it names several lanes (dev, prod): name one")]
        assert owners.got == []
        same = (("x-lane", b"dev"), ("X-Lane", b" dev"), ("x-lane", b""))
        assert await told(client, build_batch([Record(0, 1, None, b"2", same)])) == [0]
        assert owners.values("dev:orders") == [b"2"]

    on_parted_topic(test)


def test_all_records_that_are_wrong_are_told_up_to_some() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        client.send_produce(
            "orders", {0: with_lanes((b"0", "dev"), *[(b"x", f"no-{at}") for at in range(TOLD_MAX + 5)])}
        )
        found = told_wrong(await answer(client))
        assert [number for number, _ in found] == list(range(1, TOLD_MAX + 1))
        assert "'no-7'" in found[7][1]

    on_parted_topic(test)


def test_of_a_batch_with_more_wrong_records_than_are_told_the_others_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    names = LaneChoice.names

    def counted(choice: LaneChoice, contents: Sequence[bytes]) -> set[str]:
        looked_at.append(len(contents))
        return names(choice, contents)

    monkeypatch.setattr(LaneChoice, "names", counted)

    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        client.send_produce("orders", {0: with_lanes(*[(b"x", f"no-{at}") for at in range(5_000)])})
        assert [number for number, _ in told_wrong(await answer(client))] == list(range(TOLD_MAX))
        assert sum(looked_at) == TOLD_MAX
        assert (owners.got, gate.asked) == ([], [])

    on_parted_topic(test)


def test_a_partition_that_the_lanes_topic_does_not_have_is_refused_and_those_that_it_has_are_not() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        add_overlay(proxy, "dev:orders", 0, width=2)
        client.send_produce("orders", {2: with_lanes((b"0", None), (b"1", "dev"))})
        found = await answer(client)
        assert found.error_code == WRONG
        assert told_wrong(found) == [
            (
                1,
                "partition 2 of orders, which lane dev has 2 of: add partitions there, or delete the lane's topic",
            )
        ]
        assert owners.got == []
        assert await told(client, with_lanes((b"0", None), (b"1", "dev")), partition=1) == [0]
        assert await told(client, with_lanes((b"2", None), (b"3", "prod")), partition=2) == [0]
        assert owners.log("dev:orders", 1) == [(1, b"1")]

    on_parted_topic(test)


def refusing(gate: Gate, error: Exception) -> None:
    """The controller answers this to the creation of the lane `dev`'s topics."""
    create = gate._create

    async def refuse(topics: Sequence[NewTopic], **more: Any) -> list[TopicResult]:
        if all(topic.name.startswith("dev:") for topic in topics):
            return [TopicResult(name=topic.name, error=error) for topic in topics]  # type: ignore[arg-type]
        return await create(topics, **more)

    gate._create = refuse


@pytest.mark.parametrize("error", [LaneFull("lane 'dev' has 4 partitions and would have 7"), UnknownLane("it is gone")])
def test_what_is_for_a_lane_that_is_full_is_refused_with_the_reason_and_the_others_go_on(error: Exception) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        refusing(gate, error)
        client.send_produce("orders", {0: numbered(0, (b"0", None), (b"1", "dev"), (b"2", "prod"))})
        found = await answer(client)
        assert found.error_code == WRONG
        assert told_wrong(found) == [(1, f"lane dev has no topic orders: {error}")]
        assert owners.got == []
        assert await told(client, numbered(0, (b"3", None)), numbered(1, (b"4", "prod"), (b"5", None))) == [0, 0]
        assert (owners.values("orders"), owners.values("prod:orders")) == ([b"3", b"5"], [b"4"])

    on_parted_topic(test)


def test_while_a_lanes_topic_cannot_be_made_its_records_are_to_come_again_and_nothing_passes_them() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        create = gate._create
        refusing(gate, ControllerUnavailable("none leads"))
        assert await told(client, numbered(0, (b"0", "dev")), numbered(1, (b"1", None))) == [AGAIN, AGAIN]
        assert owners.got == []
        gate._create = create
        assert await told(client, numbered(1, (b"1", None))) == [AGAIN]
        assert await told(client, numbered(0, (b"0", "dev")), numbered(1, (b"1", None))) == [0, 0]
        assert (owners.log("orders"), owners.log("dev:orders")) == ([(1, b"1")], [(0, b"0")])

    on_parted_topic(test)


def test_batches_keep_their_order_while_the_first_ones_topic_is_made() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        gate.open.clear()
        sent = [(b"%d" % number, "dev" if number % 2 == 0 else None) for number in range(6)]
        numbers = [client.send_produce("orders", {0: with_lanes(one)}) for one in sent]
        await client.writer.drain()
        gate.open.set()
        assert [(await client.receive())[0] for _ in sent] == numbers
        assert owners.log("orders") == [(at, b"%d" % at) for at in (1, 3, 5)]
        assert owners.values("dev:orders") == [b"0", b"2", b"4"]

    on_parted_topic(test)


@pytest.mark.parametrize("validation", ["header", "lengths", "records"])
@pytest.mark.parametrize("producer_id", [-1, 7])
@pytest.mark.parametrize("damaged", ["value", "lane"])
def test_a_damaged_batch_is_told_from_one_that_is_wrong(validation: str, producer_id: int, damaged: str) -> None:
    """A client sends it again."""

    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        good = with_lanes(
            (b"value", "dev"), (b"more", None), producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
        bad = bytearray(good)
        bad[good.index({"value": b"value", "lane": b"dev"}[damaged])] ^= 1
        assert await told(client, bytes(bad)) == [ErrorCode.corrupt_message]
        assert (owners.got, gate.asked) == ([], [])
        assert await told(client, good) == [0]

    on_parted_topic(test, bmq_validation=validation)


@pytest.mark.parametrize("validation", ["header", "lengths", "records"])
def test_a_batch_that_cannot_be_read_is_refused(validation: str) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        good = with_lanes((b"value", "dev"), (b"more", None))
        at = good.index(b"x-lane") - 2
        bad = bytes(
            patched(
                good[:at] + b"\x7e" + good[at + 1 :],
                read_header(good),
                base_offset=0,
                leader_epoch=0,
                max_timestamp_ms=1_001,
            )
        )
        assert await told(client, bad) == [WRONG]
        assert owners.got == []

    on_parted_topic(test, bmq_validation=validation)


@pytest.mark.parametrize("said", [(b"1", None), (b"1", "dev")])
def test_a_largest_time_that_is_not_true_is_corrected_as_in_any_batch(said: Said) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        good = with_lanes((b"0", None), said)
        late = patched(good, read_header(good), base_offset=0, leader_epoch=0, max_timestamp_ms=9_000)
        assert await told(client, bytes(late)) == [0]
        headers = [read_header(one) for _, _, one in owners.got]
        assert [one.max_timestamp_ms for one in headers] == ([1_001] if said[1] is None else [1_001, 1_000])

    on_parted_topic(test, bmq_validation="records")


def test_what_was_counted_of_a_lane_goes_with_it() -> None:
    def lanes() -> set[str]:
        return {one.labels["lane"] for metric in metrics.PARTED.collect() for one in metric.samples}

    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        assert await told(client, with_lanes(*MIXED)) == [0]
        assert {"dev", "prod"} <= lanes()
        proxy.metadata.change(lanes={"prod": proxy.metadata.image.lanes["prod"]})
        assert "dev" not in lanes()
        assert "prod" in lanes()

    on_parted_topic(test)


def test_two_batches_for_a_partition_are_refused_and_nothing_of_them_is_written() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        both = with_lanes((b"0", "dev")) + with_lanes((b"1", "dev"), (b"2", None))
        assert await told(client, both) == [WRONG]
        assert (owners.got, gate.asked) == ([], [])

    on_parted_topic(test)


def test_who_wants_no_answer_gets_none_and_what_cannot_be_taken_ends_the_connection() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        client.send_produce("orders", {0: with_lanes(*MIXED)}, acks=0)
        number = client.send_produce("orders", {0: with_lanes((b"6", "dev"))})
        assert (await client.receive())[0] == number
        assert owners.values("orders") == [b"0", b"3", b"5"]
        assert owners.values("dev:orders") == [b"1", b"4", b"6"]
        client.send_produce("orders", {0: with_lanes((b"7", "nowhere"))}, acks=0)
        assert await client.closed()

    on_parted_topic(test)


def test_who_names_the_topic_by_its_id_has_its_batches_parted_too() -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        topic_id = proxy.metadata.image.topic_ids["orders"]
        data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": with_lanes(*MIXED)}]}]
        client.send(0, 13, {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": data})
        assert (await answer(client)).error_code == 0
        assert owners.values("dev:orders") == [b"1", b"4"]

    on_parted_topic(test)


def test_a_batch_that_is_too_large_is_refused_where_it_names_a_lane_and_left_to_its_owner_where_it_names_none() -> None:
    """The owner may know another bound by now, and would take all of it for the base's."""

    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        topic = proxy.metadata.image.topic("orders")
        assert topic is not None
        changed = replace(topic, configs={**topic.configs, "max.message.bytes": "200"})
        proxy.metadata.change(topics={**proxy.metadata.image.topics, topic.topic_id: changed})
        large = with_lanes((b"0", None), (bytes(400), "dev"))
        assert await told(client, large) == [ErrorCode.message_too_large]
        assert (owners.got, gate.asked) == ([], [])
        assert await told(client, with_lanes((bytes(400), None))) == [0], "as it knows it"
        assert await told(client, with_lanes((b"2", "dev"))) == [0]

    on_parted_topic(test)


@pytest.mark.parametrize("lane", [None, "dev"])
def test_what_a_version_may_not_have_is_left_to_its_owner_to_refuse(lane: str | None) -> None:
    async def test(proxy: Running, client: Client, owners: Owners, gate: Gate) -> None:
        client.send_produce("orders", {0: with_lanes((b"0", lane), codec=Codec.ZSTD)}, version=6)
        await answer(client)
        [(name, version, _)] = owners.got
        assert (name, version) == ("orders", 6)

    on_parted_topic(test)
