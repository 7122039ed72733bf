"""Shared segments that were made while a store is copied, and up to where their partitions' logs have to be in the
copy.

One that is copied because one partition names it has runs of others, whose manifests may have been copied before they
named it. Over such a copy those runs begin where their logs end, as if newer versions of the manifests had been lost
(docs/decisions/0042): the partition would stop.
"""

from collections.abc import Iterable, Mapping

from bmq.errors import FormatError, ObjectMissing
from bmq.fairness.grouping import in_groups
from bmq.storage.durable import together
from bmq.storage.keys import SHARED_PREFIX
from bmq.values import TopicPartition
from bmq_audit.cost.attribution import directory_of
from bmq_audit.reading import Reader


class SharedRuns:
    """The shared segments that one pass came upon in copied manifests, but for those that were there before. What was
    there before its WAL was copied held records that are in there, or in manifests that are copied later.
    """

    def __init__(self, before: Iterable[str] = ()) -> None:
        """`before`: the shared segments that a listing showed when the pass began."""
        self._before = frozenset(before)
        self._unread: set[str] = set()
        self._read: set[str] = set()
        self._bases: dict[TopicPartition, int] = {}

    def named(self, keys: Iterable[str]) -> None:
        """Copied manifests name these."""
        self._unread.update(key for key in keys if key not in self._before and key not in self._read)

    async def beyond(self, copy: Reader, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Partitions of which a run begins at or above the end that their copied manifest has, with where the highest
        begins. Raises StoreLost.
        """
        if self._unread:
            sizes = {meta.key: meta.size_bytes async for meta in copy.list(SHARED_PREFIX) if meta.key in self._unread}
            for group in in_groups(list(sizes.items()), copy.at_once):
                await together(self._look(copy, key, size_bytes) for key, size_bytes in group)
            self._read |= self._unread
            self._unread.clear()
        return {tp: base for tp, base in self._bases.items() if tp in ends and ends[tp] <= base}

    async def _look(self, copy: Reader, key: str, size_bytes: int) -> None:
        try:
            directory = await directory_of(copy, key, size_bytes)
        except (ObjectMissing, FormatError):  # a check of the copy tells
            return
        for run in directory:
            self._bases[run.tp] = max(self._bases.get(run.tp, 0), run.base_offset)
