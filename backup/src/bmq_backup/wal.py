"""The WAL of a copy: copied until two listings in a row agree."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from bmq.ports import ObjectMeta
from bmq.storage.numbered import number_of
from bmq.storage.wal import WalHeader, decode_head
from bmq_backup.transfer import Transfer

WAL_PREFIX: Final = "wal/"
WAL_ROUNDS_MAX: Final = 200


async def copy_wal(transfer: Transfer) -> bool:
    """Whether it came to a moment at which all of it was copied.

    What is deleted while this looks was rolled before, or carried forward into an object with a higher number: a
    listing, which goes upwards, has that one. So two listings in a row are compared. Nothing of the first may be
    gone: then nothing is carried elsewhere meanwhile. And nothing may be new below what was durable when the newest
    copied object was sent: that was on its way while its successors were listed, and missing it would look as if it
    had been deleted.
    """
    durable_below: dict[str, int] = defaultdict(int)
    heads: set[str] = set()
    before: Mapping[str, frozenset[int]] | None = None
    for _ in range(WAL_ROUNDS_MAX):
        listed = await transfer.listed(WAL_PREFIX)
        now = _by_stream(listed)
        if before is not None and _agree(before, now, durable_below):
            return True
        copied = await transfer.copy_all(listed, WAL_PREFIX)
        for meta in listed:
            if meta.key in copied and meta.key not in heads:
                heads.add(meta.key)
                stream, _, _ = meta.key.rpartition("/")
                durable_below[stream] = max(durable_below[stream], await _durable_below(transfer, meta.key))
        before = now if len(copied) == len(listed) else None
    return False


async def _durable_below(transfer: Transfer, key: str) -> int:
    """What a copied object says; 0: it is a seal."""
    head = await transfer.read(key, decode_head)
    return head.durable_below if isinstance(head, WalHeader) else 0


def _by_stream(listed: Iterable[ObjectMeta]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for meta in listed:
        stream, _, _ = meta.key.rpartition("/")
        number = number_of(f"{stream}/", meta.key)
        if number is not None:
            found[stream].add(number)
    return {stream: frozenset(numbers) for stream, numbers in found.items()}


def _agree(
    before: Mapping[str, Collection[int]], now: Mapping[str, frozenset[int]], durable_below: Mapping[str, int]
) -> bool:
    for stream, numbers in before.items():
        later = now.get(stream, frozenset())
        if not later.issuperset(numbers):
            return False
        if any(number < durable_below[stream] for number in later.difference(numbers)):
            return False
    return True
