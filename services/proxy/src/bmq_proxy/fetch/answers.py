"""What a Fetch asks of partitions, what there is of each, and how an answer's bytes are shared among them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from typing_extensions import Buffer

from bmq.errors import BmqError
from bmq.roles.owner import TailAnswer
from bmq.storage.manifest import Manifest
from bmq.values import TopicPartition
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.fetch.segments import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One partition to read. `max_bytes` is soft: the first batch of a response comes whole (KIP-74)."""

    tp: TopicPartition
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(slots=True, kw_only=True)
class Found:
    """What there is of one partition: either an error or whole batches, maybe none, in `parts` of which two may share
    one.
    """

    error: BmqError | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    parts: Sequence[Buffer] = ()
    size_bytes: int = 0
    diverging_epoch: int = -1
    diverging_end_offset: int = -1

    def without_records(self) -> "Found":
        """What it says of the partition alone."""
        return replace(self, parts=(), size_bytes=0)


def whole(parts: Sequence[Buffer]) -> memoryview:
    """All of the parts in one, for who looks into batches; a copy where they are several."""
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


@dataclass(slots=True)
class Result:
    """One Found per Read. `held_bytes` of memory are counted until `release` is called, once."""

    found: list[Found]
    held_bytes: int
    memory: MemoryBudget

    def release(self) -> None:
        """The response is gone."""
        held, self.held_bytes = self.held_bytes, 0
        if held:
            self.memory.release(held)


@dataclass(slots=True)
class Plan:
    """How a response's bytes are shared: indexes of partitions with the bytes that each may take from segments."""

    segments: list[tuple[int, int]] = field(default_factory=list)
    planned_bytes: int = 0
    unsent: list[tuple[int, int]] = field(default_factory=list)
    """Indexes of partitions whose bytes, so many, have yet to be fetched of their owners."""


def may_diverge(read: Read, found: Found, answer: TailAnswer) -> bool:
    """Not where the reader's epoch is the owner's own, which ends at the high watermark: above that the offset would be
    out of range.
    """
    return read.last_fetched_epoch >= 0 and found.error is None and read.last_fetched_epoch != answer.leader_epoch


def _is_below_tail(read: Read, answer: TailAnswer) -> bool:
    return answer.error is None and read.offset < answer.tail_start


def share(reads: Sequence[Read], answers: list[TailAnswer], max_bytes: int) -> Plan:
    """Gives out `max_bytes` in the order of the request; tail answers that do not fit any more lose their last
    batches.
    """
    plan = Plan()
    for i, (read, answer) in enumerate(zip(reads, answers, strict=True)):
        left = max_bytes - plan.planned_bytes
        if _is_below_tail(read, answer):
            limit = min(max(read.max_bytes, 0), left)
            if limit > 0 or not plan.planned_bytes:
                plan.segments.append((i, limit))
                plan.planned_bytes += max(limit, 1)
        elif answer.error is None and answer.unsent_bytes:
            if left > 0 or not plan.planned_bytes:
                size_bytes = min(answer.unsent_bytes, left) if plan.planned_bytes else answer.unsent_bytes
                plan.unsent.append((i, size_bytes))
                plan.planned_bytes += size_bytes
        elif answer.error is None and answer.size_bytes:
            if answer.size_bytes > left:
                answer = answers[i] = _cut(answer, left, at_least_one=not plan.planned_bytes)
            plan.planned_bytes += answer.size_bytes
    return plan


def _cut(answer: TailAnswer, left: int, *, at_least_one: bool) -> TailAnswer:
    batches: list[Buffer] = []
    size_bytes = 0
    for batch in answer.batches:
        length = memoryview(batch).nbytes
        if size_bytes + length > left and (batches or not at_least_one):
            break
        batches.append(batch)
        size_bytes += length
    return TailAnswer(
        tp=answer.tp,
        leader_epoch=answer.leader_epoch,
        manifest_version=answer.manifest_version,
        log_start=answer.log_start,
        tail_start=answer.tail_start,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        batches=tuple(batches),
        size_bytes=size_bytes,
    )


def from_tail(answer: TailAnswer) -> Found:
    return Found(
        error=answer.error,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start=answer.log_start,
        parts=answer.batches,
        size_bytes=answer.size_bytes,
    )


def from_slice(answer: TailAnswer, manifest: Manifest, found: Slice) -> Found:
    """The manifest may be newer than the answer: segments hold only what is below the high watermark, so that is at
    least at their end.
    """
    return Found(
        high_watermark=max(answer.high_watermark, manifest.next_offset),
        last_stable_offset=max(answer.last_stable_offset, manifest.last_stable_offset),
        log_start=max(answer.log_start, manifest.log_start),
        parts=found.parts,
        size_bytes=found.size_bytes,
    )
