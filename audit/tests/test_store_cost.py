"""The bill adds up, and what topics share is everybody's by bytes."""

import pytest
from audit_world import OFFSETS, ORDERS, STREAM, World, full_world, tp
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_store import run

from bmq.storage.wal import directory_end
from bmq.values import TopicId
from bmq_audit.cost.attribution import shared_bytes
from bmq_audit.cost.bill import PRICE_LISTS, Bill, Prices, SharedBytes, bill_of
from bmq_audit.reading import Progress, Reader
from bmq_audit.survey import Survey, survey_store


def look(world: World) -> tuple[Survey, SharedBytes]:
    async def both() -> tuple[Survey, SharedBytes]:
        reader = Reader(world.store, rng=world.rng, at_once=3, progress=Progress())
        return await survey_store(reader), await shared_bytes(reader)

    return run(both())


def bill(world: World) -> Bill:
    survey, shared = look(world)
    return bill_of(survey, world.image, shared)


def test_every_byte_of_the_store_is_on_the_bill_once() -> None:
    world = full_world()
    world.put("backup/notes.txt", [b"hello"])
    found = bill(world)
    assert sum(cost.size_bytes for cost in found.topics) == pytest.approx(sum(map(len, world.objects.values())))
    assert sum(each.objects for _, each in found.kinds) == len(world.objects) == found.total.own.objects
    assert sum(each.size_bytes for _, each in found.kinds) == found.total.own.size_bytes


def test_wal_and_shared_segments_are_attributed_by_their_directories() -> None:
    _, shared = look(full_world())
    assert set(shared.wal) == {ORDERS}
    assert set(shared.segments) == {ORDERS, OFFSETS}
    assert shared.segments[ORDERS] == pytest.approx(shared.segments[OFFSETS], rel=0.01)


def test_a_directory_longer_than_the_first_read_is_read_whole() -> None:
    world = full_world()
    topics = [TopicId(each) for each in (ORDERS, OFFSETS)]
    key = world.wal(STREAM, 4, [(tp(topics[n % 2], n), 0, 1) for n in range(300)], epoch=2, durable_below=2)
    assert directory_end(world.objects[key]) > 16 << 10
    _, shared = look(world)
    assert shared.wal[OFFSETS] > 150 * 100


def test_manifest_versions_that_are_gone_were_put_all_the_same() -> None:
    world = full_world()
    before = {cost.name: cost.puts for cost in bill(world).topics}
    key = sorted(key for key in world.objects if "/manifest/" in key and str(ORDERS) in key)[1]
    del world.objects[key]
    after = {cost.name: cost.puts for cost in bill(world).topics}
    assert round(after["orders"]) == round(before["orders"])


@settings(max_examples=50)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_dollars_are_the_formula(storage: float, put: float, get: float) -> None:
    prices = Prices(name="x", storage_gib_month=storage, put_per_1000=put, get_per_1000=get)
    total = bill(full_world()).total
    assert total.storage_month(prices) == pytest.approx(total.size_bytes / 2**30 * storage)
    assert total.put_dollars(prices) == pytest.approx(total.puts * put / 1000)
    assert total.get_dollars(prices) == pytest.approx(total.gets * get / 1000)


def test_price_lists_are_in_the_order_of_what_things_cost() -> None:
    for prices in PRICE_LISTS.values():
        assert prices.storage_gib_month >= prices.put_per_1000 >= prices.get_per_1000 >= 0


def test_an_empty_cluster_has_an_empty_bill() -> None:
    found = bill_of(Survey(), full_world().image, SharedBytes())
    assert found.total.own.size_bytes == 0
    assert found.months is None
