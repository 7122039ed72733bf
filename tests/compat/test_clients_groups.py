"""Consumer groups of each client: two members share, hand over, come back as static members, and resume exactly after a
kill of bmq.
"""

from collections.abc import Sequence

import pytest
from compat_clients.librdkafka import Librdkafka
from compat_contract import Client, Member, Record, acknowledged, in_order
from compat_server import Bmq
from tests.waiting import until

PARTITIONS = 6
PER_PARTITION = 10
SETTLED_S = 60.0
"""Longer than a session of any of these clients: one that a busy machine held up joins anew."""


def records_for(partitions: int, per_partition: int = PER_PARTITION) -> list[Record]:
    return [
        Record(partition=partition, timestamp_ms=1_700_000_000_000 + index, key=None, value=b"%d" % index)
        for index in range(per_partition)
        for partition in range(partitions)
    ]


def send(client: Client, servers: str, topic: str, partitions: int = PARTITIONS) -> list[Record]:
    records = records_for(partitions)
    return acknowledged(records, client.produce(servers, topic, records, codec="none", idempotent=client.idempotent))


def places(records: Sequence[Record]) -> set[tuple[int, int]]:
    return {(record.partition, record.offset) for record in records}


def settled(*members: Member) -> bool:
    """Whether the members own all partitions between them, none twice, each at least one."""
    owned = [member.assignment() for member in members]
    return (
        all(owned) and sum(map(len, owned)) == PARTITIONS and frozenset().union(*owned) == frozenset(range(PARTITIONS))
    )


def wait_settled(*members: Member) -> None:
    until(lambda: settled(*members), "all partitions to be owned, none twice", SETTLED_S)


def wait_consumed(wanted: set[tuple[int, int]], *members: Member) -> None:
    until(
        lambda: wanted <= {place for member in members for place in member.consumed()},
        f"{len(wanted)} records to be consumed",
        SETTLED_S,
    )


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
def test_two_members_share_the_partitions_and_hand_them_over(
    bmq: Bmq, client: Client, reference: Librdkafka, topic: str, kind: str
) -> None:
    assignors = [
        assignor for assignor in client.assignors if (assignor == "cooperative-sticky") == (kind == "cooperative")
    ]
    group = f"{topic}-group"
    reference.create_topic(bmq.servers, topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    for assignor in assignors[:1]:
        sent = send(reference, bmq.servers, topic)
        first = client.join(bmq.servers, topic, group, assignor=assignor)
        wait_settled(first)
        wait_consumed(places(sent), first)

        second = client.join(bmq.servers, topic, group, assignor=assignor)
        wait_settled(first, second)
        before = len(first.consumed()), len(second.consumed())
        more = places(send(reference, bmq.servers, topic))
        wait_consumed(more, first, second)
        for member, already in zip((first, second), before, strict=True):
            assert {partition for partition, _ in member.consumed()[already:]} <= member.assignment()
        given = [place for member in (first, second) for place in member.consumed() if place in more]
        assert len(given) == len(more), "a record was given to both members"

        first.leave()
        wait_settled(second)
        last = places(send(reference, bmq.servers, topic))
        wait_consumed(last, second)
        second.leave()
        assert reference.describe_group(bmq.servers, group) == ("empty", 0)
        assert reference.group_offsets(bmq.servers, group, topic) == dict.fromkeys(range(PARTITIONS), 3 * PER_PARTITION)


def test_static_members_keep_their_partitions_over_a_restart_of_their_own(
    bmq: Bmq, client: Client, reference: Librdkafka, topic: str
) -> None:
    if not client.static_members:
        return
    group = f"{topic}-group"
    reference.create_topic(bmq.servers, topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    assignor = client.assignors[0]
    first = client.join(bmq.servers, topic, group, assignor=assignor, instance_id="one")
    second = client.join(bmq.servers, topic, group, assignor=assignor, instance_id="two")
    wait_settled(first, second)
    owned, rebalances = first.assignment(), second.rebalances()
    sent = places(send(reference, bmq.servers, topic))
    wait_consumed(sent, first, second)
    first.leave()
    assert reference.describe_group(bmq.servers, group) == ("stable", 2)
    more = places(send(reference, bmq.servers, topic))
    again = client.join(bmq.servers, topic, group, assignor=assignor, instance_id="one")
    wait_settled(again, second)
    wait_consumed(more, again, second)
    assert again.assignment() == owned
    assert second.rebalances() == rebalances
    assert not sent & set(again.consumed()), "records that were committed came again"
    again.leave()
    second.leave()


def test_client_resumes_exactly_where_it_was_after_a_kill(
    bmq: Bmq, client: Client, reference: Librdkafka, topic: str
) -> None:
    group = f"{topic}-group"
    reference.create_topic(bmq.servers, topic, partitions=3, configs={"retention.ms": "-1"})
    sent = send(client, bmq.servers, topic, 3)
    read = client.read_group(bmq.servers, topic, group, count=17)
    member = client.join(bmq.servers, topic, f"{group}-live", assignor=client.assignors[-1])
    wait_consumed(places(sent), member)
    all_of_it = dict.fromkeys(range(3), PER_PARTITION)
    until(
        lambda: reference.group_offsets(bmq.servers, f"{group}-live", topic),
        "all to be committed",
        SETTLED_S,
        holds=lambda offsets: offsets == all_of_it,
    )
    committed, rebalances = reference.group_offsets(bmq.servers, group, topic), member.rebalances()

    bmq.kill9()
    bmq.start()
    assert reference.group_offsets(bmq.servers, group, topic) == committed
    sent += send(client, bmq.servers, topic, 3)
    rest = client.read_group(bmq.servers, topic, group, count=len(sent) - len(read))
    assert in_order([*read, *rest]) == in_order(sent)
    wait_consumed(places(sent), member)
    assert sorted(member.consumed()) == sorted(places(sent)), "the running member was given a record twice"
    if client.keeps_membership:
        assert member.rebalances() == rebalances, "the restart made the group rebalance"
    member.leave()
