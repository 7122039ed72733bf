"""The metadata of a copy: its log, an entry of the copy's own above it, and what an interrupted one left of it."""

from bmq.errors import FormatError, ObjectMissing
from bmq.metadata.codec import LOG_PREFIX, SNAPSHOT_PREFIX, decode_records, encode_records
from bmq.metadata.image import Node
from bmq.metadata.records import AnyRecord, ClusterCreated, FencingBegun, NodeRegistered, NodeUnregistered
from bmq.storage.flatlog import Entry, decode_entry, encode_entry
from bmq.storage.numbered import number_of, numbered_key
from bmq_audit.metadata import Metadata
from bmq_audit.reading import Reader
from bmq_backup.transfer import Transfer


async def copy_metadata(transfer: Transfer, end: Metadata) -> bool:
    """Newest entries first, snapshots last: whoever reads half of it finds a gap, and not an older cluster."""
    entries = [
        meta for meta in await transfer.listed(LOG_PREFIX) if (number_of(LOG_PREFIX, meta.key) or 0) <= end.position
    ]
    snapshots = [
        meta
        for meta in await transfer.listed(SNAPSHOT_PREFIX)
        if (number_of(SNAPSHOT_PREFIX, meta.key) or 0) <= end.position
    ]
    data: dict[str, bytes] = {}
    for meta in (*entries, *snapshots):
        try:
            data[meta.key] = await transfer.source.get(meta.key)
        except ObjectMissing:
            return False
    await _own_entry(transfer, end)
    for meta in (*sorted(entries, key=lambda each: each.key, reverse=True), *snapshots):
        await transfer.put(meta.key, data[meta.key])
    return True


async def clear_interrupted(transfer: Transfer, cluster_id: str) -> bool:
    """Whether the target's metadata was what a copy of this cluster had written of it when it ended, and is gone
    now: a store that has gone on since has another entry where that has its own. Its newest entry tells, and so
    goes last."""
    entries = sorted(await transfer.there.numbers(LOG_PREFIX))
    if not entries or await transfer.there.numbers(SNAPSHOT_PREFIX):
        return False
    key = numbered_key(LOG_PREFIX, entries[-1])
    try:
        first, *_ = decode_records(decode_entry(await transfer.there.get(key), what=key).payload, what=key)
    except (FormatError, ValueError):
        return False
    if not (isinstance(first, ClusterCreated) and first.copy and first.cluster_id == cluster_id):
        return False
    for number in entries:
        await transfer.delete(numbered_key(LOG_PREFIX, number))
    return True


async def records_between(source: Reader, after: int, last: int) -> list[AnyRecord] | None:
    """The records of the metadata log's entries above `after`, up to `last`; None where an entry was deleted
    meanwhile.
    """
    found: list[AnyRecord] = []
    for number in range(after + 1, last + 1):
        try:
            entry = decode_entry(
                await source.get(numbered_key(LOG_PREFIX, number)), what=f"metadata log entry {number}"
            )
        except ObjectMissing:
            return None
        found += decode_records(entry.payload, what=f"metadata log entry {number}")
    return found


async def _own_entry(transfer: Transfer, end: Metadata) -> None:
    """The one that says which copy this is. Proxies are gone in it: clients would be told the addresses of those
    that serve the original.
    """
    nonce = transfer.rng.nonce()
    gone = [
        record
        for node in end.image.nodes.values()
        for record in _without_proxy(node, fencing=node.node_id in end.image.fencing)
    ]
    payload = encode_records([ClusterCreated(cluster_id=end.image.cluster_id, copy=nonce.hex()), *gone])
    number, epoch = end.position + 1, end.image.controller_epoch
    entry = Entry(number=number, epoch=epoch, nonce=nonce, predecessor=end.nonce, claim=True, payload=payload)
    await transfer.put(numbered_key(LOG_PREFIX, number), b"".join(encode_entry(entry)))


def _without_proxy(node: Node, *, fencing: bool) -> list[AnyRecord]:
    """A node that is a broker, too, is fenced for what it wrote, and so stays as that, under its epoch."""
    if "broker" not in node.roles:
        return [NodeUnregistered(node_id=node.node_id, broker_epoch=node.broker_epoch)]
    if "proxy" not in node.roles:
        return []
    as_broker = NodeRegistered(
        node_id=node.node_id,
        broker_epoch=node.broker_epoch,
        boot=node.boot,
        roles=tuple(role for role in node.roles if role != "proxy"),
        host="",
        port=0,
        rack=node.rack,
        internal_host=node.internal_host,
        internal_port=node.internal_port,
        pool=node.pool,
    )
    return [as_broker, FencingBegun(node_id=node.node_id, broker_epoch=node.broker_epoch)] if fencing else [as_broker]
