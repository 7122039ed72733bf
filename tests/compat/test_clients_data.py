"""What each client writes, it reads back: every codec, with and without idempotence, by assignment, by subscription, by
timestamp.
"""

import pytest
from compat_clients.librdkafka import Librdkafka
from compat_contract import CODECS, Client, Record, acknowledged, in_order, sample_records, starts_and_ends
from compat_server import Bmq
from compat_wire import stored_codecs

PARTITIONS = 3
PER_PARTITION = 24
BASE_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1", "max.message.bytes": "2000000"}


def produced(
    client: Client, servers: str, topic: str, *, codec: str, idempotent: bool, base_ms: int = BASE_MS
) -> list[Record]:
    records = sample_records(partitions=PARTITIONS, per_partition=PER_PARTITION, base_ms=base_ms, sender=client)
    return acknowledged(records, client.produce(servers, topic, records, codec=codec, idempotent=idempotent))


def assert_dense(records: list[Record]) -> None:
    for partition in range(PARTITIONS):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(len(offsets)))


def test_client_reads_back_every_codec_it_writes(bmq: Bmq, client: Client, reference: Librdkafka, topic: str) -> None:
    reference.create_topic(bmq.servers, topic, partitions=PARTITIONS, configs=KEPT)
    modes = [False, True] if client.idempotent else [False]
    sent: list[Record] = []
    for idempotent in modes:
        for codec in client.codecs:
            batch = produced(
                client, bmq.servers, topic, codec=codec, idempotent=idempotent, base_ms=BASE_MS + len(sent) * 1000
            )
            for partition, start in starts_and_ends(batch)[0].items():
                stored = stored_codecs(bmq.servers, topic, partition, start)
                assert stored == {codec} or (stored == {codec, "none"} and not client.compresses_every_batch)
            sent += batch
    sent = in_order(sent)
    assert_dense(sent)
    starts, ends = starts_and_ends(sent)
    assert in_order(reference.read(bmq.servers, topic, starts=starts, ends=ends)) == sent
    if client.assigns:
        assert in_order(client.read(bmq.servers, topic, starts=starts, ends=ends)) == sent
    assert in_order(client.read_group(bmq.servers, topic, f"{topic}-readers", count=len(sent))) == sent


def test_client_reads_what_another_wrote_with_any_codec_and_without_a_group_from_the_middle(
    bmq: Bmq, client: Client, reference: Librdkafka, topic: str
) -> None:
    reference.create_topic(bmq.servers, topic, partitions=PARTITIONS, configs=KEPT)
    sent: list[Record] = []
    for codec in (codec for codec in CODECS if codec in client.codecs):
        records = sample_records(partitions=PARTITIONS, per_partition=PER_PARTITION, base_ms=BASE_MS, sender=client)
        sent += acknowledged(records, reference.produce(bmq.servers, topic, records, codec=codec, idempotent=True))
    sent = in_order(sent)
    if client.assigns:
        starts, ends = starts_and_ends(sent)
        starts = {partition: start + 7 + partition for partition, start in starts.items()}
        wanted = [record for record in sent if record.offset >= starts[record.partition]]
        assert in_order(client.read(bmq.servers, topic, starts=starts, ends=ends)) == wanted
    else:
        assert in_order(client.read_group(bmq.servers, topic, f"{topic}-readers", count=len(sent))) == sent


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_client_finds_the_first_record_at_a_timestamp(
    bmq: Bmq, client: Client, reference: Librdkafka, topic: str, codec: str
) -> None:
    reference.create_topic(bmq.servers, topic, partitions=PARTITIONS, configs=KEPT)
    sent = produced(reference, bmq.servers, topic, codec=codec, idempotent=True)
    for timestamp_ms, wanted in [
        (BASE_MS - 1, 0),
        (BASE_MS + 11_000, 11),
        (BASE_MS + 11_001, 12),
        (BASE_MS + (PER_PARTITION - 1) * 1000, PER_PARTITION - 1),
        (BASE_MS + PER_PARTITION * 1000, -1),
    ]:
        found = client.offsets_at(bmq.servers, topic, partitions=PARTITIONS, timestamp_ms=timestamp_ms)
        assert found == dict.fromkeys(range(PARTITIONS), wanted), timestamp_ms
    if client.assigns:
        starts = client.offsets_at(bmq.servers, topic, partitions=PARTITIONS, timestamp_ms=BASE_MS + 11_001)
        read = client.read(bmq.servers, topic, starts=starts, ends=starts_and_ends(sent)[1])
        assert in_order(read) == [record for record in sent if record.timestamp_ms >= BASE_MS + 11_001]
