"""Who sends little does not wait behind who sends all it can, and nobody is held back where there is nobody to
protect.
"""

from collections.abc import Callable
from random import Random
from typing import ClassVar

import pytest

from bmq.fairness import fair_shares
from bmq.fairness.fair_shares import (
    LOOKED_AT_MAX,
    MODEST_ADDRESS_BYTES,
    MODEST_BYTES,
    MODEST_PARTY_BYTES,
    SMALL_BYTES,
    Admitted,
    FairShares,
    Share,
)
from bmq.fairness.greedy_window import (
    REMEMBERED_S,
    REST_MAX,
    REST_S_MAX,
    SLOWER_MAX,
    WINDOW_FIRST_BYTES,
    WINDOW_MIN_BYTES,
)

MIB = 1 << 20
LARGE = 512 << 10
CONNECTION_MAX = 16 * MIB


class Sender:
    """A connection that wants to send so many requests of one size, one after the other."""

    def __init__(
        self, shares: FairShares, client: str, size_bytes: int, count: int, *, address: str | None = None
    ) -> None:
        self.shares = shares
        self.size_bytes = size_bytes
        self.left = count
        self.started: list[Admitted] = []
        self.share: Share = shares.open(client, self.advance, address=address)

    now = 100.0
    timers: ClassVar[list[tuple[float, Callable[[], None]]]] = []
    is_answered_at_once = False

    def advance(self) -> None:
        while self.left:
            admitted = self.shares.admit(self.share, self.size_bytes, Sender.now)
            if admitted is None:
                return
            self.left -= 1
            self.started.append(admitted)
            if self.is_answered_at_once:
                self.answered()

    def answered(self, *, took_s: float = 0.01) -> None:
        """The oldest of its requests."""
        self.shares.over(self.share, self.size_bytes, self.started.pop(0), took_s=took_s, now=Sender.now)


@pytest.fixture(autouse=True)
def _time() -> None:
    Sender.now = 100.0
    Sender.timers.clear()


def made(**bounds: int) -> FairShares:
    return FairShares(
        sender_bytes_max=bounds.get("connection", CONNECTION_MAX),
        window_bytes_max=bounds.get("window", 64 * MIB),
        call_at=lambda when, then: Sender.timers.append((when, then)),
    )


def ring(until: float) -> None:
    """Timers are due."""
    Sender.now = max(Sender.now, until)
    due = [then for when, then in Sender.timers if when <= until]
    Sender.timers[:] = [one for one in Sender.timers if one[0] > until]
    for then in due:
        then()


def modest_there(shares: FairShares) -> Sender:
    sender = Sender(shares, "modest", 1000, 1)
    sender.advance()
    assert sender.started == [Admitted.MODEST]
    return sender


def test_who_is_alone_is_not_held_back_and_beside_others_each_has_its_bound() -> None:
    shares = made()
    first, second, third = (Sender(shares, f"greedy {n}", LARGE, 100) for n in range(3))
    first.advance()
    assert first.left == 0
    for sender in (second, third):
        sender.advance()
        assert sender.share.held_bytes == CONNECTION_MAX


def test_who_begins_with_something_small_is_not_held_back_for_its_own_sake() -> None:
    shares = made()
    greedy = Sender(shares, "greedy", 1000, 1)
    greedy.advance()
    assert greedy.started == [Admitted.MODEST]
    greedy.size_bytes, greedy.left = LARGE, 50
    greedy.advance()
    assert greedy.left == 0
    another = Sender(shares, "another", LARGE, 50)
    another.advance()
    assert another.left > 0  # for it there is somebody to protect


def test_a_request_above_every_bound_goes_alone() -> None:
    shares = made(connection=MIB)
    Sender(shares, "another", LARGE, 1).advance()
    sender = Sender(shares, "greedy", 4 * MIB, 2)
    sender.advance()
    assert len(sender.started) == 1
    sender.answered()
    assert len(sender.started) == 1
    assert sender.left == 0


def test_beside_a_modest_client_the_greedy_have_a_window_together_and_take_turns() -> None:
    shares = made()
    modest_there(shares)
    senders = [Sender(shares, f"greedy {n}", LARGE, 1000) for n in range(4)]
    for sender in senders:
        sender.advance()
    assert shares.window.held_bytes == WINDOW_FIRST_BYTES
    left = {id(sender): sender.left for sender in senders}
    for _ in range(400):
        oldest = next(sender for sender in senders if sender.started)
        oldest.answered()
        senders.append(senders.pop(senders.index(oldest)))
        assert shares.window.held_bytes == WINDOW_FIRST_BYTES
    served = [left[id(sender)] - sender.left for sender in senders]
    assert all(80 <= count <= 120 for count in served), served


def test_the_modest_are_admitted_whatever_the_greedy_have_under_way() -> None:
    shares = made()
    greedy = Sender(shares, "greedy", LARGE, 1000)
    greedy.advance()
    assert greedy.share.held_bytes == 1000 * LARGE
    modest = Sender(shares, "modest", 10_000, 20)
    modest.advance()
    assert modest.started == [Admitted.MODEST] * 20


def test_the_greedy_are_free_again_when_the_modest_are_gone() -> None:
    shares = made()
    modest = modest_there(shares)
    greedy = Sender(shares, "greedy", LARGE, 1000)
    greedy.advance()
    assert greedy.share.held_bytes == WINDOW_FIRST_BYTES
    Sender.now += 10 * REMEMBERED_S
    greedy.answered()
    assert greedy.share.held_bytes == WINDOW_FIRST_BYTES  # it waits for its answer all the while
    modest.answered()
    Sender.now += REMEMBERED_S
    greedy.answered()
    assert greedy.left == 0


def test_the_window_follows_how_long_the_modest_wait() -> None:
    shares = made()
    modest = Sender(shares, "modest", 1000, 1)
    greedy = Sender(shares, "greedy", LARGE, 100_000)
    for _ in range(20):
        wait(shares, modest, 0.01)
    greedy.advance()
    for _ in range(100):
        wait(shares, modest, 0.012)
    grown = shares.window.size_bytes
    assert grown > WINDOW_FIRST_BYTES
    for _ in range(50):
        wait(shares, modest, 0.01 * 2 * SLOWER_MAX)
    assert shares.window.size_bytes == WINDOW_MIN_BYTES
    # a store that is slower for good: what the modest need by themselves is looked at again now and then
    for _ in range(2000):
        greedy.left = 100_000
        for _ in range(len(greedy.started)):
            greedy.answered()
        wait(shares, modest, 0.01 * 2 * SLOWER_MAX)
        ring(Sender.now)
        wait(shares, modest, 0.01 * 2 * SLOWER_MAX)
    assert shares.window.size_bytes > WINDOW_FIRST_BYTES


def test_the_greedy_pause_where_nobody_knows_how_long_the_modest_wait_by_themselves() -> None:
    shares = made()
    modest = Sender(shares, "modest", 1000, 1)
    greedy = Sender(shares, "greedy", LARGE, 100_000)
    modest.advance()
    greedy.advance()
    began = Sender.now
    paused_s = 0.0
    while Sender.now < began + 60:
        greedy.left = 100_000
        for _ in range(len(greedy.started)):
            greedy.answered(took_s=0.05)
        wait(shares, modest, 0.05)
        ring(Sender.now)
        paused_s += 0 if greedy.started else 0.05
    assert 0.005 * 60 < paused_s < 0.05 * 60
    assert shares.window.size_bytes > WINDOW_FIRST_BYTES  # they wait as long either way


def test_a_linger_is_not_taken_for_a_queue() -> None:
    """What waits for a WAL object to be due needs nothing to a tenth of a second, whoever else writes."""
    rng = Random(1)
    shares = made()
    modest = Sender(shares, "modest", 1000, 1)
    greedy = Sender(shares, "greedy", LARGE, 100_000)
    for _ in range(30):
        wait(shares, modest, 0.03 + rng.random() / 10)
    greedy.advance()
    for _ in range(600):
        greedy.left = 100_000
        while len(greedy.started) > 1:
            greedy.answered(took_s=0.08)
        wait(shares, modest, 0.03 + rng.random() / 10)
        ring(Sender.now)
    assert shares.window.size_bytes > WINDOW_FIRST_BYTES


def wait(shares: FairShares, modest: Sender, took_s: float) -> None:
    """An append of who is modest, that needs so long; timers that are due meanwhile ring."""
    admitted = shares.admit(modest.share, 1000, Sender.now)
    assert admitted is Admitted.MODEST
    ring(Sender.now + took_s)
    shares.over(modest.share, 1000, admitted, took_s=took_s, now=Sender.now)


def test_a_clock_that_cannot_tell_how_long_an_append_took_does_not_let_the_window_grow() -> None:
    shares = made()
    modest = Sender(shares, "modest", 1000, 1)
    wait(shares, modest, 0.0)  # less than a tick of the loop's clock
    greedy = Sender(shares, "greedy", LARGE, 1)
    greedy.advance()
    for _ in range(50):
        wait(shares, modest, 0.1)
    assert shares.window.size_bytes == WINDOW_MIN_BYTES


def resting() -> tuple[Sender, Sender]:
    """Who is modest, and who is greedy and rests for as long as there is."""
    shares = made()
    modest = Sender(shares, "modest", 1000, 1)
    wait(shares, modest, 0.01)
    greedy = Sender(shares, "greedy", LARGE, 1000)
    greedy.advance()
    for _ in range(100):
        wait(shares, modest, 0.01 * 2 * SLOWER_MAX)
    return modest, greedy


def test_where_the_smallest_window_is_too_much_the_greedy_rest_and_go_on_by_themselves() -> None:
    modest, greedy = resting()
    shares = greedy.shares
    while len(greedy.started) > 1:
        greedy.answered()
    began, left = Sender.now, greedy.left
    for _ in range(20):
        greedy.answered(took_s=0.01)
        assert not greedy.started
        [(when, _)] = Sender.timers
        assert when == pytest.approx(Sender.now + REST_MAX * 0.01)
        wait(shares, modest, 0.01)  # there is somebody to protect all the time; what is over meanwhile ends no rest
        assert not greedy.started
        ring(when - 0.0004)  # nothing is due yet
        assert not greedy.started
        ring(when)
        assert len(greedy.started) == 1
        Sender.now += 0.01
    assert left - greedy.left == 20
    assert Sender.now - began == pytest.approx(20 * 0.05, rel=0.1)
    for _ in range(500):
        wait(shares, modest, 0.01)
    greedy.answered()
    assert len(greedy.started) > 1
    assert not Sender.timers


def test_a_rest_is_short_even_where_the_store_did_not_answer_for_long() -> None:
    _, greedy = resting()
    while greedy.started:
        greedy.answered(took_s=60)
    [(when, _)] = Sender.timers
    assert when == Sender.now + REST_S_MAX


def test_a_timer_of_a_rest_does_not_end_a_pause_that_came_after_it() -> None:
    _, greedy = resting()
    while greedy.started:
        greedy.answered()
    [(when, _)] = Sender.timers
    greedy.shares.window.pause(when + 0.1)
    ring(when)
    assert not greedy.started
    [(later, _)] = Sender.timers
    assert later == when + 0.1
    ring(later)
    assert len(greedy.started) == 1


def test_a_timer_that_is_early_ends_the_rest_all_the_same() -> None:
    _, greedy = resting()
    while greedy.started:
        greedy.answered()
    [(_, then)] = Sender.timers
    Sender.timers.clear()
    then()
    assert len(greedy.started) == 1


def test_many_connections_do_not_make_a_client_modest() -> None:
    shares = made()
    modest_there(shares)
    senders = [Sender(shares, "greedy", MODEST_BYTES // 2, 2) for _ in range(100)]
    for sender in senders:
        sender.advance()
    assert sum(sender.share.held_bytes for sender in senders) <= MODEST_PARTY_BYTES + WINDOW_FIRST_BYTES
    small = Sender(shares, "greedy", SMALL_BYTES, 2)
    small.advance()
    assert small.started == [Admitted.MODEST]


def test_many_client_ids_do_not_make_an_address_modest() -> None:
    shares = made()
    modest_there(shares)
    senders = [Sender(shares, f"made up {n}", MODEST_BYTES, 2, address="one") for n in range(1000)]
    for sender in senders:
        sender.advance()
    assert sum(sender.share.held_bytes for sender in senders) <= MODEST_ADDRESS_BYTES + WINDOW_FIRST_BYTES
    another = Sender(shares, "made up 1", MODEST_BYTES, 1, address="another")
    another.advance()
    assert another.started == [Admitted.SPARED]
    small = Sender(shares, "made up 1", SMALL_BYTES, 1, address="one")
    small.advance()
    assert small.started == [Admitted.MODEST]


def test_what_thousands_wait_for_is_not_asked_for_each_of_them_when_one_append_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = made()
    modest = modest_there(shares)
    senders = [Sender(shares, f"greedy {n}", WINDOW_FIRST_BYTES, 1) for n in range(5000)]
    for sender in senders:
        sender.advance()
    asked: list[Share] = []
    fits = shares._fits

    def counted(share: Share, size_bytes: int, now: float) -> bool:
        asked.append(share)
        return fits(share, size_bytes, now)

    monkeypatch.setattr(shares, "_fits", counted)
    modest.answered()
    assert len(asked) <= LOOKED_AT_MAX


def test_of_thousands_who_may_go_on_and_are_held_up_for_another_reason_few_are_resumed_when_one_append_is_over() -> (
    None
):
    """A proxy begins so many requests in one turn of its loop, and tells the others to come back in the next."""
    shares = made()
    modest_there(shares)
    first, *others = [Sender(shares, f"greedy {n}", WINDOW_FIRST_BYTES, 1) for n in range(5000)]
    for sender in (first, *others):
        sender.advance()
    assert (len(first.started), sum(len(sender.started) for sender in others)) == (1, 0)
    resumed: list[Sender] = []
    for sender in others:
        sender.share.resume = lambda sender=sender: resumed.append(sender)  # type: ignore[misc]
    first.answered()
    assert 0 < len(resumed) <= LOOKED_AT_MAX
    for sender in others:
        sender.share.resume = sender.advance
    resumed[0].advance()
    for _ in others:
        under_way = [sender for sender in others if sender.started]
        if not under_way:
            break
        under_way[0].answered(took_s=0.0)
    assert not any(sender.left for sender in others), "nobody is forgotten"


def test_who_goes_while_it_waits_holds_up_nobody() -> None:
    shares = made()
    modest_there(shares)
    first, second, third = (Sender(shares, f"greedy {n}", WINDOW_FIRST_BYTES, 1) for n in range(3))
    for sender in (first, second, third):
        sender.advance()
    assert [len(sender.started) for sender in (first, second, third)] == [1, 0, 0]
    shares.close(second.share, Sender.now)
    shares.close(first.share, Sender.now)
    assert shares.window.held_bytes == WINDOW_FIRST_BYTES  # it is still with its owner
    first.answered()
    assert len(third.started) == 1
    third.answered()
    assert shares.window.held_bytes == 0


def test_who_waited_and_went_on_within_what_anybody_may_have_is_not_called_again() -> None:
    shares = made()
    modest = modest_there(shares)
    greedy = Sender(shares, "greedy", LARGE, 1000)
    greedy.advance()
    greedy.left = 0
    sender = Sender(shares, "sender", 100 << 10, 1)
    sender.advance()
    sender.size_bytes, sender.left = 200 << 10, 1
    sender.advance()
    assert sender.left == 1  # with what it has under way it is more than anybody may have, and the window is full
    shares.over(sender.share, 100 << 10, sender.started.pop(), took_s=0.01, now=Sender.now)
    sender.advance()
    assert sender.started == [Admitted.SPARED]
    calls: list[None] = []
    sender.share.resume = lambda: calls.append(None)
    modest.answered()
    while greedy.started:
        greedy.answered()
    assert calls == []


def test_however_many_wait_all_get_through_when_their_requests_are_answered_at_once() -> None:
    shares = made()
    modest_there(shares)
    senders = [Sender(shares, f"greedy {n}", LARGE, 2) for n in range(2000)]
    for sender in senders:
        sender.advance()
    first = [sender for sender in senders if sender.started]
    assert len(first) < 20
    for sender in senders:
        sender.is_answered_at_once = True
    for sender in first:
        while sender.started:
            sender.answered()
    assert [sender.left for sender in senders] == [0] * len(senders)
    assert shares.window.held_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_everybody_gets_through_in_the_end_and_every_byte_comes_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    monkeypatch.setattr(fair_shares, "LOOKED_AT_MAX", rng.choice((1, 2, LOOKED_AT_MAX)))
    monkeypatch.setattr(fair_shares, "MODEST_ADDRESS_BYTES", rng.choice((MODEST_BYTES, MODEST_ADDRESS_BYTES)))
    shares = made(connection=rng.choice((MIB, CONNECTION_MAX)))
    sizes = (100, SMALL_BYTES, MODEST_BYTES, LARGE, 2 * MIB)
    senders = [
        Sender(
            shares, f"client {rng.randrange(5)}", rng.choice(sizes), 50, address=rng.choice((None, "one", "another"))
        )
        for _ in range(12)
    ]
    for _ in range(100_000):
        ring(Sender.now + rng.random() / 50)
        sender = rng.choice(senders)
        if rng.random() < 0.5:
            sender.advance()
        elif sender.started:
            sender.answered(took_s=rng.random() / 10)
        if all(not one.left and not one.started for one in senders):
            break
    assert [one.left for one in senders] == [0] * len(senders)
    assert shares.window.held_bytes == 0
    assert all(one.share.held_bytes == 0 for one in senders)
    assert all(one.share.party.address.held_bytes == 0 for one in senders)
    for one in senders:
        shares.close(one.share, Sender.now)
    assert not shares._addresses
