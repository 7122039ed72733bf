"""Memory of requests that arrive: the fast one grants as the plain one does, and takes no longer where thousands
wait.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from bmq.wire.frames import FrameReader
from bmq_proxy.arriving import ArrivingMemory
from bmq_proxy.fair_memory import FairMemory
from bmq_proxy.intake import UNASKED_BYTES_MAX, Intake

KIB = 1 << 10
LIMIT = 1_000


class One:
    """A request that arrives, and what it was told."""

    is_read, frame_since, arrived_at, arrived_bytes = True, 0.0, 0.0, 0

    def __init__(self, peer: str, whole_bytes: int, told: list[tuple[str, int]], number: int) -> None:
        self.peer, self.whole_bytes, self.number, self._told = peer, whole_bytes, number, told

    def go_on(self) -> None:
        self._told.append(("go on", self.number))

    def make_room(self, reason: str) -> None:
        self._told.append(("make room", self.number))


class PlainMemory:
    """Looks at all who wait each time."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held: dict[One, int] = {}
        self.waiting: dict[One, int] = {}
        self.came: dict[One, int] = {}
        self.ahead: One | None = None

    def held_by(self, peer: str) -> int:
        return sum(size for one, size in self.held.items() if one.peer == peer)

    def fits(self, one: One, size: int) -> bool:
        return sum(self.held.values()) + size - self.held.get(one, 0) <= self.limit_bytes

    def hold(self, one: One, size: int) -> None:
        self.waiting.pop(one, None)
        self.held.pop(one, None)
        self.held[one] = size

    def moved(self, one: One) -> None:
        if one in self.held:
            self.held[one] = self.held.pop(one)

    def ask(self, one: One, size: int) -> bool:
        if one is self.ahead or self.fits(one, size):
            self.hold(one, size)
            return True
        self.waiting[one] = size
        self.came.pop(one, None)
        self.came[one] = max(self.came.values(), default=0) + 1
        by_peer = Counter[str]()
        for held, held_size in self.held.items():
            by_peer[held.peer] += held_size
        greedy, most = by_peer.most_common(1)[0] if by_peer else ("", 0)
        wanted = self.held_by(one.peer) + size - self.held.get(one, 0)
        if greedy != one.peer and 2 * most > self.limit_bytes and 2 * wanted <= self.limit_bytes:
            for _ in [held for held in self.held if held.peer == greedy]:
                theirs = [held for held in self.held if held.peer == greedy]
                if not theirs or one not in self.waiting or self.fits(one, size):
                    break
                theirs[0].make_room("")
                self.forget(theirs[0])
        if one not in self.waiting:
            return True
        if self.ahead is None and next(iter(self.waiting)) is one:
            self.let_ahead()
            return True
        return False

    def forget(self, one: One) -> None:
        self.waiting.pop(one, None)
        self.held.pop(one, None)
        if one is self.ahead:
            self.ahead = None
        while self.waiting:
            waiting = min(self.waiting, key=lambda each: (self.held_by(each.peer), each.whole_bytes, self.came[each]))
            if not self.fits(waiting, self.waiting[waiting]):
                break
            self.hold(waiting, self.waiting[waiting])
            waiting.go_on()
        if self.waiting and self.ahead is None:
            self.let_ahead().go_on()

    def let_ahead(self) -> One:
        first = next(iter(self.waiting))
        self.hold(first, self.waiting[first])
        self.ahead = first
        return first


@pytest.mark.parametrize("seed", range(60))
def test_memory_is_granted_as_by_one_that_looks_at_all(seed: int) -> None:
    chosen = random.Random(seed)
    told: tuple[list[tuple[str, int]], list[tuple[str, int]]] = ([], [])
    fast, plain = ArrivingMemory(LIMIT), PlainMemory(LIMIT)
    there: list[tuple[One, One]] = []
    gone: set[int] = set()
    for number in range(300):
        act = chosen.random()
        if act < 0.5 or not there:
            peer, whole = f"10.0.0.{chosen.randrange(chosen.choice((2, 6)))}", chosen.randrange(1, 900)
            pair = One(peer, whole, told[0], number), One(peer, whole, told[1], number)
            there.append(pair)
            size = chosen.randrange(1, whole + 1)
            assert fast.ask(pair[0], size) == plain.ask(pair[1], size)
        else:
            pair = chosen.choice(there)
            if act < 0.6:
                fast.moved(pair[0])
                plain.moved(pair[1])
            elif act < 0.75 and pair[1] in plain.held and pair[1] not in plain.waiting:
                size = min(pair[0].whole_bytes, 2 * plain.held[pair[1]])
                assert fast.ask(pair[0], size) == plain.ask(pair[1], size)
            else:
                there.remove(pair)
                fast.forget(pair[0])
                plain.forget(pair[1])
        assert told[0] == told[1]
        gone.update(each for word, each in told[0] if word == "make room")
        there = [each for each in there if each[0].number not in gone]
        assert fast.held_bytes == sum(plain.held.values())
        assert fast.is_waited_for == bool(plain.waiting)
    for each, _ in there:
        fast.forget(each)
    assert (fast.held_bytes, fast.is_waited_for, fast._addresses, fast._brought_bytes) == (0, False, {}, 0)


@pytest.mark.parametrize("addresses", [1, 20_000])
def test_the_end_of_a_frame_takes_no_longer_where_twenty_thousand_wait(addresses: int) -> None:
    memory, told = ArrivingMemory(64 * KIB), list[tuple[str, int]]()
    ones = [One(f"{n % addresses}", 1 << 20, told, n) for n in range(20_000)]
    for one in ones:
        memory.ask(one, 4 * KIB)
    began_s = time.thread_time()
    for one in ones:
        memory.forget(one)
    assert time.thread_time() - began_s < 2
    assert not memory.is_waited_for and memory.held_bytes == 0


def frame_start(size_bytes: int, arrived_bytes: int) -> bytes:
    """Of a Produce request."""
    return (size_bytes.to_bytes(4, "big") + bytes(4) + b"\x00\x00\x00\x01" + bytes(arrived_bytes))[:arrived_bytes]


class Transport:
    """Takes note of whether it is read."""

    def __init__(self) -> None:
        self.is_read = True

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "10.0.0.1", 1

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def abort(self) -> None: ...


def brings(intake: Intake, data: bytes) -> None:
    """As much of it as is taken at once."""
    buffer = intake.get_buffer(-1)
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    intake.received(count)
    intake.reserve()
    intake.update(wanted=True)


def in_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


def intakes(count: int, arriving: ArrivingMemory) -> list[Intake]:
    scratch, memory = bytearray(256 * KIB), FairMemory(1 << 30)
    found = []
    for _ in range(count):
        found.append(Intake(scratch, memory, arriving, lambda peer, reason: None, lambda: False))
        found[-1].open(cast(Any, Transport()))
    return found


@in_a_loop
async def test_what_was_sent_before_gets_nobody_memory_that_is_not_there() -> None:
    """Each has sent 2 MiB once: so much was set aside for the next frame of each, and then asked for."""
    arriving = ArrivingMemory(4 << 20)
    held = intakes(60, arriving)
    large = frame_start(2 << 20, (2 << 20) + 4)
    for one in held:
        for first in range(0, len(large), 200 * KIB):
            brings(one, large[first : first + 200 * KIB])
        while one._frames.whole_bytes:
            brings(one, large)
    for one in held:
        brings(one, frame_start(2 << 20, 100))
    assert sum(one._frames.held_bytes for one in held) <= arriving.limit_bytes + (2 << 20) + 60 * 100


@in_a_loop
async def test_starts_of_frames_that_nobody_has_memory_for_are_bounded_too() -> None:
    arriving = ArrivingMemory(1 << 20)
    held = intakes(500, arriving)
    for one in held:
        brings(one, frame_start(50 << 20, 200 * KIB))
    assert sum(one._frames.held_bytes for one in held) <= 2 * arriving.limit_bytes + 500 * UNASKED_BYTES_MAX
    [other] = intakes(1, arriving)
    other._peer = "10.0.0.2"
    assert len(other.get_buffer(-1)) > UNASKED_BYTES_MAX
    others = intakes(100, arriving)
    for number, one in enumerate(others):
        one._peer = f"10.0.1.{number}"
        brings(one, frame_start(50 << 20, 200 * KIB))
    assert sum(one._frames.held_bytes for one in held + others) <= 6 * arriving.limit_bytes + 600 * UNASKED_BYTES_MAX
    for one in others:
        one.close()
    for one in held:
        one.close()
    assert not arriving.is_overdrawn and arriving.held_bytes == 0


def test_a_frame_grows_to_what_is_trusted_when_it_is_read_on() -> None:
    room = [True]
    reader = FrameReader(scratch=bytearray(1 * KIB), has_room=lambda size: room[0])
    sent = frame_start(600 * KIB, 600 * KIB + 4)
    [first] = reader.feed(sent)
    room[0] = False
    assert reader.feed(sent[:500]) == []
    assert (reader.held_bytes, reader.needed_bytes, reader.arrived_bytes) == (496, 600 * KIB, 496)
    [second] = reader.feed(sent[500:])
    assert first == second == sent[4:]
