"""Who may have how many bytes of appends under way: so that who sends little does not wait behind who sends all it can. Pure.

Whatever is being made durable delays what comes behind it, so it is not enough to serve senders by turns: what the greedy have there is bounded
too, while there is anybody modest to protect. The bound is found, not set: it shrinks while the modest wait for longer than an append needs
by itself, and grows while they do not. Where all are greedy nothing is held back but by a bound for each, where one is alone nothing at all.

For a proxy each connection is a *sender*, and each client (host and client id; a principal, once there are any) a *party*: many connections
do not make a greedy client modest. For a broker, which hears several proxies, topics are both.
"""

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Final

MODEST_BYTES: Final = 256 << 10
"""What a sender may always have under way…"""
MODEST_PARTY_BYTES: Final = 1 << 20
"""…as long as all of its party have no more than this together."""
SMALL_BYTES: Final = 32 << 10
"""An append of at most this size is let in where nothing else of its sender is under way, in any case; and only such ones are waited with."""
REMEMBERED_S: Final = 1.0
"""For so long one counts as greedy, and the modest as being there, after they last were."""
WINDOW_FIRST_BYTES: Final = 4 << 20
WINDOW_MIN_BYTES: Final = 512 << 10
SLOWER_MAX: Final = 2.5
"""The modest may wait so many times longer than an append needs by itself."""
SHRINK_MIN: Final = 0.6
GROW_MAX: Final = 1.1
GROW_EVERY_S: Final = 0.1
"""It shrinks as fast as it is known to be too large, and grows slowly: what is too much under way is there for as long as it takes."""
SMOOTHING: Final = 0.3
FASTEST_KEPT_S: Final = 30.0
"""What an append needs by itself is the least that one needed in about so long: a store may get slower."""


class Admitted(Enum):
    """As what an append was let in."""

    MODEST = "modest"
    """Its sender is to be protected."""
    SPARED = "spared"
    """Within what any may have under way."""
    GREEDY = "greedy"


_MODEST, _SPARED, _GREEDY = Admitted  # looking one up in its class takes longer than all the rest


class Party:
    """All senders that belong together."""

    __slots__ = ("held_bytes", "senders")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.senders = 0


class Share:
    """One sender's. `resume` is called when `admit`, which said no, may be asked again."""

    __slots__ = ("greedy_until", "held_bytes", "key", "modest", "party", "resume", "wanted_bytes")

    def __init__(self, key: Hashable, party: Party, resume: Callable[[], None]) -> None:
        self.key = key
        self.party = party
        self.resume = resume
        self.held_bytes = 0
        self.modest = 0
        """Appends under way that were let in as such."""
        self.greedy_until = float("-inf")
        self.wanted_bytes = 0
        """Of the append that waits; 0: none does."""


class FairShares:
    """All senders of one proxy or broker. Times are the loop's."""

    def __init__(self, *, sender_bytes_max: int, window_bytes_max: int) -> None:
        """`sender_bytes_max`: what one may have under way while others have anything; a larger append alone."""
        self._sender_bytes_max = sender_bytes_max
        self._window_bytes_max = window_bytes_max
        self._parties: dict[Hashable, Party] = {}
        self._waiting: dict[Share, None] = {}
        self._modest_at = float("-inf")
        self._modest_last: Share | None = None
        self._modest = 0
        """Appends under way."""
        self._latency = _Latency()
        self._is_letting_in = self._may_let_in = False
        self.window_bytes = min(WINDOW_FIRST_BYTES, window_bytes_max)
        self.held_bytes = 0
        """Under way."""
        self.greedy_bytes = 0
        """Of that, what came beyond what is always let in."""

    def open(self, party: Hashable, resume: Callable[[], None]) -> Share:
        """A sender begins."""
        found = self._parties.get(party)
        if found is None:
            found = self._parties[party] = Party()
        found.senders += 1
        return Share(party, found, resume)

    def close(self, share: Share, now: float) -> None:
        """It is gone; of what it has under way it is still told that it is `over`."""
        self._waiting.pop(share, None)
        share.wanted_bytes = 0
        if self._modest_last is share:
            self._modest_last = None
        share.party.senders -= 1
        if not share.party.senders:
            del self._parties[share.key]
        self._let_in(now)

    def admit(self, share: Share, size_bytes: int, now: float) -> Admitted | None:
        """As what an append may start now; it is held from then on. None: later, by turns."""
        held_bytes, party = share.held_bytes, share.party
        after_bytes = held_bytes + size_bytes
        within = after_bytes <= MODEST_BYTES and party.held_bytes + size_bytes <= MODEST_PARTY_BYTES
        if within or (not held_bytes and size_bytes <= SMALL_BYTES):
            if share.wanted_bytes:
                share.wanted_bytes = 0
                self._waiting.pop(share, None)
            share.held_bytes = after_bytes
            party.held_bytes += size_bytes
            self.held_bytes += size_bytes
            if size_bytes > SMALL_BYTES or now < share.greedy_until:
                return _SPARED
            self._modest += 1
            share.modest += 1
            self._modest_at, self._modest_last = now, share
            return _MODEST
        share.greedy_until = now + REMEMBERED_S
        # Where nothing greedy is under way nobody would be told to go on: then who comes goes.
        newcomer = bool(self._waiting) and not share.wanted_bytes and self.greedy_bytes > 0 and self._others_to_protect(share, now)
        if newcomer or not self._fits(share, size_bytes, now):
            share.wanted_bytes = size_bytes
            self._waiting[share] = None
            return None
        share.wanted_bytes = 0
        self._waiting.pop(share, None)
        share.held_bytes = after_bytes
        party.held_bytes += size_bytes
        self.held_bytes += size_bytes
        self.greedy_bytes += size_bytes
        return _GREEDY

    def withdraw(self, share: Share, now: float) -> None:
        """It waits for nothing any more."""
        if self._waiting.pop(share, self) is None:
            share.wanted_bytes = 0
            self._let_in(now)

    def over(self, share: Share, size_bytes: int, admitted: Admitted, *, took_s: float | None, now: float) -> None:
        """An append was answered, after so long; None: at once, because it was refused."""
        share.held_bytes -= size_bytes
        share.party.held_bytes -= size_bytes
        self.held_bytes -= size_bytes
        assert share.held_bytes >= 0
        if admitted is _GREEDY:
            self.greedy_bytes -= size_bytes
        elif admitted is _MODEST:
            self._modest -= 1
            share.modest -= 1
            self._modest_at, self._modest_last = now, share
            if took_s is not None:
                self._latency.fastest_s = min(self._latency.fastest_s, took_s)
                if self.greedy_bytes:
                    self._adapt(took_s, now)
        if self._waiting:
            self._let_in(now)

    def _others_to_protect(self, share: Share, now: float) -> bool:
        """Who is greedy now may have begun with something small: that was its own."""
        return self._modest > share.modest or (self._modest_last is not share and now - self._modest_at < REMEMBERED_S)

    def _fits(self, share: Share, size_bytes: int, now: float) -> bool:
        is_alone = share.held_bytes == self.held_bytes
        if share.held_bytes and not is_alone and share.held_bytes + size_bytes > self._sender_bytes_max:
            return False
        return not self.greedy_bytes or self.greedy_bytes + size_bytes <= self.window_bytes or not self._others_to_protect(share, now)

    def _let_in(self, now: float) -> None:
        """Who waits, by turns: each starts one append, and waits behind the others for its next.

        An append that is answered at once is over while its sender is being resumed: who may go on then is let in here and not from within
        there, since that would be as deep as many wait.
        """
        self._may_let_in = True
        if self._is_letting_in:
            return
        self._is_letting_in = True
        try:
            while self._may_let_in:
                self._may_let_in = False
                for share in list(self._waiting):
                    if share in self._waiting and self._fits(share, share.wanted_bytes, now):
                        share.resume()  # it asks again at once
        finally:
            self._is_letting_in = False

    def _adapt(self, took_s: float, now: float) -> None:
        ratio = self._latency.slower(took_s, now)
        if ratio is not None:
            change = min(GROW_MAX, max(SHRINK_MIN, SLOWER_MAX / ratio))
            self.window_bytes = int(min(self._window_bytes_max, max(WINDOW_MIN_BYTES, self.window_bytes * change)))


class _Latency:
    """How much longer the modest wait than an append needs by itself."""

    __slots__ = ("_before_s", "_changed_at", "_smoothed_s", "_turned_at", "fastest_s")

    def __init__(self) -> None:
        self.fastest_s = self._before_s = float("inf")
        self._turned_at = float("-inf")
        self._changed_at = float("-inf")
        self._smoothed_s = 0.0

    def slower(self, took_s: float, now: float) -> float | None:
        """The factor, once in the time that an append takes; None: it was said already, or it is good news too soon."""
        if now - self._turned_at >= FASTEST_KEPT_S:
            self._before_s, self.fastest_s, self._turned_at = self.fastest_s, took_s, now
        self._smoothed_s = took_s if not self._smoothed_s else self._smoothed_s + SMOOTHING * (took_s - self._smoothed_s)
        fastest_s = min(self.fastest_s, self._before_s)
        ratio = self._smoothed_s / fastest_s if fastest_s > 0 else 1.0
        if now - self._changed_at < (self._smoothed_s if ratio > SLOWER_MAX else max(self._smoothed_s, GROW_EVERY_S)):
            return None
        self._changed_at = now
        return ratio
