"""The memory of requests that are still arriving, for all connections of a process: what has come of them, never what
they claim to be.

Apart from the memory of whole requests, so that who sends half a request never holds up who sends a small one. When
there is none left, the address that holds more than half of it gives way to another one at once. One request at a time
may go beyond the limit, so that memory always comes back; who sends nothing then is cut off (`stuck`).

No call looks at all who wait: thousands do, at the end of each frame.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Protocol

STILL_S_MAX: Final = 1.0
"""While others wait for memory, a request that is not whole has to go on arriving at least this often…"""
BYTES_PER_S_MIN: Final = 64 << 10
"""…and never at less than this for long."""
SHORT_WITHIN_S: Final = 5.0
"""How long, while others wait for memory; `half_sent_within_ms` at other times."""

BRINGING_SHARE: Final = 4
"""What requests that wait may have brought in unasked: of one address the limit divided by this, of all addresses the
limit times this."""
STALE_SHARE: Final = 2
STALE_MAX: Final = 64
"""A heap is made anew when it has more entries than those times STALE_SHARE that are current, and so many."""


class Incoming(Protocol):
    """One connection's request that is not whole yet."""

    frame_since: float
    """Since when it has been arriving, in the loop's time."""
    whole_bytes: int
    """What it claims to come to."""
    arrived_bytes: int
    """What has come of it."""
    arrived_at: float
    """When its newest bytes came, or it got leave to read on."""

    @property
    def peer(self) -> str:
        """The address of its other side."""

    @property
    def is_read(self) -> bool:
        """Whether it is for the peer to send more; False: it is not read on for the time being."""

    def go_on(self) -> None:
        """It has the memory that it waited for."""

    def make_room(self, reason: str) -> None:
        """It is to end at once."""


class _Address:
    """What one has."""

    __slots__ = ("brought_bytes", "claims", "held_bytes", "holds", "waits")

    def __init__(self) -> None:
        self.brought_bytes = 0
        """What those that wait, and hold nothing yet, have brought in: nobody was asked for it."""
        self.held_bytes = 0
        self.holds: OrderedDict[Incoming, int] = OrderedDict()
        """The one that has moved least lately first."""
        self.waits = 0
        self.claims: list[tuple[int, int, Incoming]] = []
        """A heap of those that wait, by what they claim and when they came; those that do no more are in there until
        they come up."""


class ArrivingMemory:
    """Grants memory: to the address that has least of it first, of its requests to the one that claims least, then
    first come first served.
    """

    def __init__(self, limit_bytes: int, *, whole_within_s: float = 60.0) -> None:
        assert limit_bytes > 0
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.is_overdrawn = False
        """Whether somebody has brought in so much, with requests that wait and hold nothing yet, that it matters who
        may: see `may_bring`."""
        self._whole_within_s = whole_within_s
        self._addresses: dict[str, _Address] = {}
        self._numbers = count()
        self._waiting: OrderedDict[Incoming, tuple[int, int, int]] = OrderedDict()
        """(what it wants in all, its number, what it has brought in that nobody was asked for), the one that has waited
        longest first."""
        self._turns: list[tuple[int, int, int, str]] = []
        """A heap of addresses that wait, by what they hold and what their next one claims; what is so no more is there
        until it comes up."""
        self._greedy: dict[str, _Address] = {}
        """The addresses that hold more than half: one, and the one of which a request goes beyond the limit."""
        self._brought_bytes = 0
        self._ahead: Incoming | None = None
        """The one that may go beyond the limit, up to its whole size: the one that has waited longest."""

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody wants more than there is."""
        return bool(self._waiting)

    def may_bring(self, peer: str) -> bool:
        """Whether more than a little may be read of another request of an address, before it is known how large that
        is.
        """
        address = self._addresses.get(peer)
        own_bytes = 0 if address is None else address.brought_bytes
        return own_bytes * BRINGING_SHARE < self.limit_bytes and self._brought_bytes < self.limit_bytes * BRINGING_SHARE

    def has_room(self, size_bytes: int) -> bool:
        """Whether one that holds nothing yet would get so much at once."""
        return self.held_bytes + size_bytes <= self.limit_bytes

    def ask(self, incoming: Incoming, size_bytes: int) -> bool:
        """Holds `size_bytes` in all for it from now on (True), or (False) from when it is told to `go_on`."""
        address = self._addresses.get(incoming.peer)
        if address is None:
            address = self._addresses[incoming.peer] = _Address()
        if incoming is self._ahead or self._fits(address, incoming, size_bytes):
            # It may pass some that wait: the one that is ahead of them all goes on meanwhile.
            self._hold(address, incoming, size_bytes)
            return True
        self._wait(address, incoming, size_bytes)
        self._make_room(address, incoming, size_bytes)
        if incoming not in self._waiting:
            return True  # those that made room let it go on
        if self._ahead is None and next(iter(self._waiting)) is incoming:
            self._let_ahead()
            return True
        return False

    def moved(self, incoming: Incoming) -> None:
        """More of it came."""
        address = self._addresses.get(incoming.peer)
        if address is not None and incoming in address.holds:
            address.holds.move_to_end(incoming)

    def forget(self, incoming: Incoming) -> None:
        """It is whole, or never will be."""
        address = self._addresses.get(incoming.peer)
        if address is None:
            return
        if incoming in self._waiting:
            self._wait_no_more(address, incoming)
        held_bytes = address.holds.pop(incoming, 0)
        self._change(incoming.peer, address, -held_bytes)
        if not address.holds and not address.waits:
            del self._addresses[incoming.peer]
        if incoming is self._ahead:
            self._ahead = None
        while (waiting := self._next()) is not None:
            theirs, size_bytes = self._addresses[waiting.peer], self._waiting[waiting][0]
            if not self._fits(theirs, waiting, size_bytes):
                break
            self._hold(theirs, waiting, size_bytes)
            waiting.go_on()
        if self._waiting and self._ahead is None:
            self._let_ahead().go_on()

    def stuck(self, now: float) -> Iterator[tuple[Incoming, str]]:
        """Those to be cut off, and why: for the sake of others that wait, or because they drip. `now` is the loop's
        time.
        """
        short = bool(self._waiting)
        within_s = min(SHORT_WITHIN_S, self._whole_within_s) if short else self._whole_within_s
        for address in list(self._addresses.values()):
            for incoming, held_bytes in list(address.holds.items()):
                if incoming in self._waiting or not incoming.is_read:
                    continue
                if short and now - incoming.arrived_at > STILL_S_MAX:
                    yield incoming, f"nothing more of a request came for {STILL_S_MAX:.0f} s while memory is short"
                elif now - incoming.frame_since > within_s + held_bytes / BYTES_PER_S_MIN:
                    yield (
                        incoming,
                        f"a request arrives at less than {BYTES_PER_S_MIN >> 10} KiB/s for more than {within_s:g} s",
                    )

    def _fits(self, address: _Address, incoming: Incoming, size_bytes: int) -> bool:
        return self.held_bytes + size_bytes - address.holds.get(incoming, 0) <= self.limit_bytes

    def _make_room(self, address: _Address, incoming: Incoming, size_bytes: int) -> None:
        """Cuts off those of the address that holds more than half, the stillest first, for one of another address that
        has not as much.
        """
        wanted_bytes = address.held_bytes + size_bytes - address.holds.get(incoming, 0)
        if not self._greedy or 2 * wanted_bytes > self.limit_bytes:
            return
        greedy = max(self._greedy.values(), key=lambda one: one.held_bytes)
        if greedy is address:
            return
        for _ in range(len(greedy.holds)):
            if not greedy.holds or incoming not in self._waiting or self._fits(address, incoming, size_bytes):
                break
            one = next(iter(greedy.holds))
            one.make_room(
                "its address holds more than half of the memory for requests that arrive, which others wait for"
            )
            self.forget(one)

    def _hold(self, address: _Address, incoming: Incoming, size_bytes: int) -> None:
        if incoming in self._waiting:
            self._wait_no_more(address, incoming)
        more_bytes = size_bytes - address.holds.get(incoming, 0)
        address.holds[incoming] = size_bytes
        address.holds.move_to_end(incoming)
        self._change(incoming.peer, address, more_bytes)

    def _change(self, peer: str, address: _Address, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        address.held_bytes += more_bytes
        if 2 * address.held_bytes > self.limit_bytes:
            self._greedy[peer] = address
        elif self._greedy:
            self._greedy.pop(peer, None)
        if address.waits:
            self._take_turn(peer, address)

    def _wait(self, address: _Address, incoming: Incoming, size_bytes: int) -> None:
        if incoming in self._waiting:
            self._wait_no_more(address, incoming)
        number = next(self._numbers)
        brought_bytes = 0 if incoming in address.holds else incoming.arrived_bytes
        self._waiting[incoming] = size_bytes, number, brought_bytes
        address.waits += 1
        heappush(address.claims, (incoming.whole_bytes, number, incoming))
        self._bring(address, brought_bytes)
        self._take_turn(incoming.peer, address)

    def _wait_no_more(self, address: _Address, incoming: Incoming) -> None:
        self._bring(address, -self._waiting.pop(incoming)[2])
        address.waits -= 1
        if address.waits:
            self._take_turn(incoming.peer, address)
        else:
            address.claims.clear()

    def _bring(self, address: _Address, size_bytes: int) -> None:
        address.brought_bytes += size_bytes
        self._brought_bytes += size_bytes
        self.is_overdrawn = self._brought_bytes * BRINGING_SHARE >= self.limit_bytes

    def _top(self, address: _Address) -> tuple[int, int, Incoming]:
        """The next one of an address of which some wait."""
        claims = address.claims
        if len(claims) > STALE_SHARE * address.waits + STALE_MAX:
            claims[:] = [claim for claim in claims if self._is_current(claim)]
            heapify(claims)
        while not self._is_current(claims[0]):
            heappop(claims)
        return claims[0]

    def _is_current(self, claim: tuple[int, int, Incoming]) -> bool:
        waits = self._waiting.get(claim[2])
        return waits is not None and waits[1] == claim[1]

    def _take_turn(self, peer: str, address: _Address) -> None:
        whole_bytes, number, _ = self._top(address)
        heappush(self._turns, (address.held_bytes, whole_bytes, number, peer))
        if len(self._turns) > STALE_SHARE * len(self._waiting) + STALE_MAX:
            self._turns = [
                (one.held_bytes, *self._top(one)[:2], name) for name, one in self._addresses.items() if one.waits
            ]
            heapify(self._turns)

    def _next(self) -> Incoming | None:
        """Whose turn it is of those that wait."""
        turns = self._turns
        while turns:
            held_bytes, _, number, peer = turns[0]
            address = self._addresses.get(peer)
            if address is not None and address.waits and address.held_bytes == held_bytes:
                claim = self._top(address)
                if claim[1] == number:
                    return claim[2]
            heappop(turns)
        return None

    def _let_ahead(self) -> Incoming:
        first, (size_bytes, _, _) = next(iter(self._waiting.items()))
        self._hold(self._addresses[first.peer], first, size_bytes)
        self._ahead = first
        return first
