"""Clients that write in the lane, and such that take away what is there."""

from typing import Final

from bmq.wire.records import Record, build_batch
from bmq_sim.client import DELETE_RECORDS, PRODUCE, ConnectionLost, SimClient
from bmq_sim.history import Place
from bmq_sim.producer import produce_fields
from bmq_sim.programs.falling.batches import batch_of
from bmq_sim.programs.falling.ledger import LANE, PARTITIONS, TOPIC, Ledger

TIMEOUT_MS: Final = 20_000
CHOSEN: Final = ("x-lane", LANE.encode())
"""The header that has a message of the base's client go to the lane."""
BASES_OWN: Final = b"own "
"""How values begin that have none."""


async def write(client: SimClient, ledger: Ledger, *, pause_s: float) -> None:
    """Until the client is stopped: batches of some messages, each sent once."""
    rng = client.rng
    while not client.stopped:
        await client.rest(pause_s * rng.random())
        place = Place(TOPIC, rng.randrange(PARTITIONS))
        values = [ledger.next_value() for _ in range(rng.randint(1, 4))]
        try:
            answer = await (await client.leader(place)).send(PRODUCE, produce_fields(place, batch_of(values, rng)))
        except ConnectionLost:
            client.forget_leaders()
            continue
        part = answer.responses[0].partition_responses[0]
        if part.error_code:
            client.forget_leaders()
        else:
            ledger.written(values, place.partition, part.base_offset)


async def write_by_header(client: SimClient, ledger: Ledger, *, pause_s: float) -> None:
    """Until the client, which is the base's, is stopped: batches of which some messages name the lane."""
    rng = client.rng
    number = 0
    while not client.stopped:
        await client.rest(pause_s * rng.random())
        place = Place(TOPIC, rng.randrange(PARTITIONS))
        number += 1
        values, records = [], []
        for at in range(rng.randint(1, 4)):
            if rng.random() < 0.5:
                values.append(ledger.next_value())
                records.append(Record(0, 1_000, None, values[-1], (CHOSEN,)))
            else:
                records.append(Record(0, 1_000, None, BASES_OWN + b"%d-%d" % (number, at)))
        data = build_batch(records, codec=rng.choice((0, 1)))
        try:
            answer = await (await client.leader(place)).send(PRODUCE, produce_fields(place, data))
        except ConnectionLost:
            client.forget_leaders()
            continue
        if answer.responses[0].partition_responses[0].error_code:
            client.forget_leaders()
        else:
            ledger.written_somewhere(values, place.partition)


async def delete_some(client: SimClient, ledger: Ledger) -> None:
    """Deletes the first messages of one partition of the lane, in one try."""
    rng = client.rng
    place = Place(TOPIC, rng.randrange(PARTITIONS))
    offset = ledger.some_offset(place.partition, 0.5 + 0.5 * rng.random())
    ledger.deleted_below(place.partition, offset)
    part = {"partition_index": place.partition, "offset": offset}
    fields = {"topics": [{"name": TOPIC, "partitions": [part]}], "timeout_ms": TIMEOUT_MS}
    try:
        await (await client.leader(place)).send(DELETE_RECORDS, fields)
    except ConnectionLost:
        client.forget_leaders()


async def remake_base(client: SimClient, ledger: Ledger, configs: dict[str, str]) -> None:
    """Deletes the base's topic and makes another one of its name."""
    ledger.base_deleted()
    await client.delete_topic(TOPIC)
    await client.rest(2 * client.rng.random())
    await client.create_topic(TOPIC, partitions=PARTITIONS, configs=configs)
    ledger.base_deleted()
