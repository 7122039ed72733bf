"""Results of a stream count by their size until they are sent, and few are written down in one go."""

import asyncio

from bmq_databus.errors import Unfit
from bmq_databus.producing.outcomes import failed, of_all, sent
from bmq_databus.requests.results import MESSAGE_EXTRA_BYTES, TAKEN_MAX, Results


async def told() -> None:
    results = Results(bytes_max=lambda: 10 * MESSAGE_EXTRA_BYTES)
    results.add(0)
    results.add(0)
    assert results.has_room(0)
    results.settle(0, failed(Unfit("x" * 9 * MESSAGE_EXTRA_BYTES)))
    assert not results.has_room(0)
    results.settle(1, of_all([(f"topic{n}", sent(0, n)) for n in range(8)]))
    assert results.unanswered_bytes == (2 + 9 + 8) * MESSAGE_EXTRA_BYTES
    outcomes, size_bytes = await results.take()
    results.give_back(size_bytes)
    assert (len(outcomes), results.unanswered_bytes) == (2, 0)


async def taken() -> None:
    results = Results(bytes_max=lambda: 1 << 20)
    for number in range(2 * TAKEN_MAX + 1):
        results.add(0)
        results.settle(number, sent(0, number))
    results.close()
    found = [await results.take() for _ in range(4)]
    assert [len(outcomes) for outcomes, _ in found] == [TAKEN_MAX, TAKEN_MAX, 1, 0]
    assert [one["offset"] for outcomes, _ in found for one in outcomes] == list(range(2 * TAKEN_MAX + 1))


def test_what_is_told_of_a_message_counts_until_it_is_sent() -> None:
    asyncio.run(told())


def test_so_many_results_are_taken_at_a_time_in_their_order() -> None:
    asyncio.run(taken())
