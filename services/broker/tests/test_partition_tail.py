"""The tail against a list that is searched from its start."""

from hypothesis import given
from hypothesis import strategies as st

from bmq.values import LeaderEpoch, Offset
from bmq_broker.partitions.tail import Run, Tail, TailTotal


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
    assert total.size_bytes == tail.size_bytes == sum(len(body) for *_, body in plain)
    durable_runs = data.draw(st.integers(0, len(runs)))
    durable_below = run_ends[durable_runs]
    for batches in runs[:durable_runs]:
        tail.durable(len(batches))
    trimmed_to = data.draw(st.sampled_from(run_ends[: durable_runs + 1]))
    dropped = tail.trim(trimmed_to)
    assert [run.next_offset for run in dropped] == [end for end in run_ends[1:] if end <= trimmed_to]
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
    assert total.size_bytes == 0
