"""A batch never overtakes one of its partition that was refused and has to be sent again."""

from collections import deque
from random import Random

import pytest

from bmq.internal.framing.refusals import NO_REFUSAL, Refusal, Refusals

BATCHES = 40


class Sender:
    """A client that sends ahead: what a refusal tells it of, and what it therefore knows of the calls behind, goes
    again in order.
    """

    def __init__(self, partitions: range) -> None:
        self.to_send = {partition: deque(range(BATCHES)) for partition in partitions}
        self.heard = 0
        self.unanswered: dict[int, tuple[int, int]] = {}
        self.last = 0

    def send(self, partition: int) -> tuple[int, int, int, int]:
        self.last += 1
        batch = self.to_send[partition].popleft()
        self.unanswered[self.last] = partition, batch
        return self.last, partition, batch, self.heard

    def answered(self, number: int, refused: bool, refusal: Refusal) -> None:
        if number not in self.unanswered:
            assert refused
            assert refusal == NO_REFUSAL
            return
        partition, batch = self.unanswered.pop(number)
        if not refused:
            return
        assert refusal.number > self.heard
        self.heard = refusal.number
        again = [batch]
        for behind, (of, later) in list(self.unanswered.items()):
            if of == partition and behind > refusal.looked_at:
                del self.unanswered[behind]
                again.append(later)
        self.to_send[partition] = deque(sorted([*again, *self.to_send[partition]]))


@pytest.mark.parametrize("seed", range(50))
def test_batches_are_taken_once_and_in_order_however_many_are_refused_and_under_way(seed: int) -> None:
    rng = Random(seed)
    partitions = range(3)
    taken: dict[int, list[int]] = {partition: [] for partition in partitions}
    here, there = Sender(partitions), Refusals()
    requests: deque[tuple[int, int, int, int]] = deque()
    replies: deque[tuple[int, bool, Refusal]] = deque()
    steps = 0
    while any(len(batches) < BATCHES for batches in taken.values()):
        steps += 1
        assert steps < 20_000
        match rng.randrange(3):
            case 0:
                partition = rng.choice(partitions)
                if here.to_send[partition]:
                    requests.append(here.send(partition))
            case 1 if requests:
                number, partition, batch, heard = requests.popleft()
                admitted = there.admits(partition, number, heard)
                refused = not admitted or rng.random() < 0.2
                if admitted and refused:
                    there.refused(partition, number)
                elif not refused:
                    taken[partition].append(batch)
                replies.append((number, refused, there.take(number)))
            case 2 if replies:
                here.answered(*replies.popleft())
    assert taken == {partition: list(range(BATCHES)) for partition in partitions}


def test_what_was_sent_before_its_sender_heard_is_refused_and_what_is_sent_after_is_not() -> None:
    refusals = Refusals()
    assert refusals.admits("p", 5, 0)
    refusals.refused("p", 5)
    assert refusals.take(5) == Refusal(1, 5)
    assert refusals.take(5) == NO_REFUSAL
    assert not refusals.admits("p", 6, 0)
    assert refusals.take(6) == NO_REFUSAL
    assert refusals.admits("q", 7, 0)
    assert refusals.admits("p", 8, 1)
    assert refusals.admits("p", 9, 1)


def test_a_refusal_that_comes_late_spares_what_was_looked_at_before() -> None:
    refusals = Refusals()
    for number in (1, 2, 3):
        assert refusals.admits("p", number, 0)
    refusals.refused("p", 1)
    assert refusals.take(1) == Refusal(1, 3)
    assert not refusals.admits("p", 4, 0)


def test_nothing_is_remembered_that_was_heard_of() -> None:
    refusals = Refusals()
    for number in range(1, 1001):
        assert refusals.admits(number, number, 0)
        refusals.refused(number, number)
        refusals.take(number)
    assert not refusals.admits(7, 1001, 6)
    assert refusals.admits(7, 1002, 7)
    assert not refusals.admits(1000, 1003, 999)
    assert len(refusals._unheard) == 1
