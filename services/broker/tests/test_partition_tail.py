"""The tail against a list that is searched from its start."""

import tracemalloc
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.config.topic_config import resolve
from bmq.values import LeaderEpoch, Offset, TopicPartition
from bmq.wire.batches import Record, build_batch, patched, read_header
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.tail import BATCH_MEMORY_BYTES, RUN_MEMORY_BYTES, Run, Slot, Tail, TailTotal


def new_run(base_offset: int) -> Run:
    return Run(
        slot=None,
        leader_epoch=LeaderEpoch(1),
        base_offset=Offset(base_offset),
        next_offset=Offset(base_offset),
        batches=[],
        size_bytes=0,
        max_timestamp_ms=0,
        since_ms=0,
    )


RUNS = st.lists(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50)), min_size=1, max_size=4), max_size=8)


@given(RUNS, st.data())
def test_the_tail_agrees_with_a_plain_list(runs: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    total = TailTotal()
    tail = Tail(total)
    plain: list[tuple[int, int, bytes]] = []  # base offset, next offset, batch
    run_ends = [0]
    offset = 0
    for batches in runs:
        run = new_run(offset)
        for records, size_bytes in batches:
            body = bytes(size_bytes)
            tail.add(run, body, base_offset=offset, size_bytes=size_bytes)
            run.batches.append(body)
            run.size_bytes += size_bytes
            plain.append((offset, offset + records, body))
            offset += records
            run.next_offset = Offset(offset)
        run_ends.append(offset)
    assert tail.size_bytes == sum(len(body) for *_, body in plain)
    assert total.memory_bytes == tail.memory_bytes == in_memory(plain, tail)
    durable_runs = data.draw(st.integers(0, len(runs)))
    durable_below = run_ends[durable_runs]
    for batches in runs[:durable_runs]:
        tail.durable(len(batches))
    if durable_runs and data.draw(st.booleans()):
        carried_runs = data.draw(st.integers(1, durable_runs))
        carried_from = data.draw(st.integers(0, carried_runs - 1))
        in_two = tail.part(run_ends[carried_from], run_ends[carried_runs], max_bytes=data.draw(st.integers(1, 200)))
        assert in_two[0].base_offset == run_ends[carried_from]
        held = [
            body
            for base, next_offset, body in plain
            if in_two[0].base_offset <= base and next_offset <= in_two[-1].next_offset
        ]
        assert [body for run in in_two for body in run.batches] == held
        assert sum(run.size_bytes for run in in_two) == sum(map(len, held))
        slot = Slot()
        tail.carried(in_two[0].base_offset, in_two[-1].next_offset, slot)
        assert [body for run in tail.runs if run.slot is slot for body in run.batches] == held
        assert [body for run in tail.runs for body in run.batches] == [body for *_, body in plain]
        assert slot.runs == sum(run.slot is slot for run in tail.runs)
        assert total.memory_bytes == tail.memory_bytes == in_memory(plain, tail)
        # A roll that began before may cut the run that they are now.
        in_one_run = data.draw(st.sampled_from(run_ends[: carried_runs + 1]))
        tail.trim(in_one_run)
        assert (
            total.memory_bytes
            == tail.memory_bytes
            == in_memory([each for each in plain if each[0] >= in_one_run], tail)
        )
        tail.drop()
        assert (total.memory_bytes, tail.memory_bytes) == (0, 0)
        return
    trimmed_to = data.draw(st.sampled_from(run_ends[: durable_runs + 1]))
    dropped = tail.trim(trimmed_to)
    assert [run.next_offset for run in dropped] == [end for end in run_ends[1:] if end <= trimmed_to]
    assert total.memory_bytes == tail.memory_bytes == in_memory([each for each in plain if each[0] >= trimmed_to], tail)
    visible = [entry for entry in plain if trimmed_to <= entry[0] and entry[1] <= durable_below]
    assert list(tail.durable_batches()) == [body for *_, body in visible]
    if visible:
        start = data.draw(st.integers(trimmed_to, durable_below - 1))
        max_bytes = data.draw(st.integers(0, 200))
        expected: list[bytes] = []
        for _, next_offset, body in visible:
            if next_offset <= start:
                continue
            if expected and sum(map(len, expected)) + len(body) > max_bytes:
                break
            expected.append(body)
        batches_read, size_bytes = tail.read(start, max_bytes=max_bytes)
        assert list(batches_read) == expected
        assert size_bytes == sum(map(len, expected))
    tail.drop()
    assert (total.memory_bytes, tail.memory_bytes) == (0, 0)


def in_memory(plain: list[tuple[int, int, bytes]], tail: Tail) -> int:
    return sum(len(body) + BATCH_MEMORY_BYTES for *_, body in plain) + len(tail.runs) * RUN_MEMORY_BYTES


@pytest.mark.parametrize("batches_per_run", [1, 4, 100])
def test_a_tail_of_tiny_batches_is_said_to_hold_what_it_takes(batches_per_run: int) -> None:
    total = TailTotal()
    partition = Partition(
        TopicPartition(UUID(int=1), 0), leader_epoch=LeaderEpoch(1), config=resolve({}, {}), ranges=(), total=total
    )
    batch = build_batch([Record(offset=0, timestamp_ms=1, key=None, value=b"", headers=())])
    header = read_header(batch)
    tracemalloc.start()
    before_bytes, _ = tracemalloc.get_traced_memory()
    for number in range(4_000 // batches_per_run):
        run = replace(
            new_run(partition.next_offset), slot=Slot(number=number, tps=(partition.tp,)), since_ms=10**12 + number
        )
        for _ in range(batches_per_run):
            copy = patched(batch, header, base_offset=partition.next_offset, leader_epoch=1)
            run.batches.append(copy)
            run.size_bytes += len(copy)
            partition.appended(run, copy, header, now_ms=1)
    after_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    taken_bytes = after_bytes - before_bytes
    assert 0.9 * taken_bytes <= total.memory_bytes <= 1.25 * taken_bytes, (
        "the allocator itself takes some more than is traced"
    )
