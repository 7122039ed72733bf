"""Who may have how many bytes of appends under way: so that who sends little does not wait behind who sends all it can.
Pure.

Whatever is being made durable delays what comes behind it, so it is not enough to serve senders by turns: what the
greedy have there is bounded too, while there is anybody modest to protect (bmq.fairness.greedy_window). Where all are
greedy nothing is held back but by a bound for each, where one is alone nothing at all.

For a proxy each connection is a *sender*, and each client (host and client id; a principal, once there are any) a
*party*: many connections do not make a greedy client modest. All clients of a host have an *address*: nor do many
client ids. For a broker, which hears several proxies, topics are all three.
"""

from collections.abc import Callable, Hashable
from enum import Enum
from itertools import islice
from typing import Final

from bmq.fairness.greedy_window import REMEMBERED_S, Modest

MODEST_BYTES: Final = 256 << 10
"""What a sender may always have under way…"""
MODEST_PARTY_BYTES: Final = 1 << 20
"""…as long as all of its party have no more than this together…"""
MODEST_ADDRESS_BYTES: Final = 8 << 20
"""…and all of its address no more than this."""
SMALL_BYTES: Final = 32 << 10
"""An append of at most this size is let in where nothing else of its sender is under way, in any case; and only such
ones are waited with."""
LOOKED_AT_MAX: Final = 64
"""How many who wait in vain are looked at when an append is over: thousands may wait."""


class Admitted(Enum):
    """As what an append was let in."""

    MODEST = "modest"
    """Its sender is to be protected."""
    SPARED = "spared"
    """Within what any may have under way."""
    GREEDY = "greedy"


_MODEST, _SPARED, _GREEDY = Admitted  # looking one up in its class takes longer than all the rest


class Address:
    """All parties that come from one place."""

    __slots__ = ("held_bytes", "parties")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.parties: dict[Hashable, Party] = {}


class Party:
    """All senders that belong together."""

    __slots__ = ("address", "held_bytes", "senders")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.held_bytes = 0
        self.senders = 0


class Share:
    """One sender's. `resume` is called when `admit`, which said no, may be asked again."""

    __slots__ = ("greedy_until", "held_bytes", "key", "modest", "party", "resume", "wanted_bytes")

    def __init__(self, key: tuple[Hashable, Hashable], party: Party, resume: Callable[[], None]) -> None:
        self.key = key
        self.party = party
        self.resume = resume
        self.held_bytes = 0
        self.modest = 0
        """Appends under way that were let in as such."""
        self.greedy_until = float("-inf")
        self.wanted_bytes = 0
        """The bytes of the append that waits; 0: none does."""


class FairShares:
    """All senders of one proxy or broker. Times are the loop's."""

    def __init__(
        self,
        *,
        sender_bytes_max: int,
        window_bytes_max: int,
        call_at: Callable[[float, Callable[[], None]], object],
        modest: Modest | None = None,
    ) -> None:
        """`sender_bytes_max`: what one may have under way while others have anything; a larger append alone. `call_at`:
        the loop's.

        `modest`: where other windows follow those who are modest here.
        """
        self._sender_bytes_max = sender_bytes_max
        self._addresses: dict[Hashable, Address] = {}
        self._waiting: dict[Share, None] = {}
        self._modest = modest or Modest()
        self._modest_last: Share | None = None
        self._is_letting_in = self._may_let_in = False
        self.window = self._modest.window(bytes_max=window_bytes_max, call_at=call_at)
        """What came beyond what is always let in."""
        self.held_bytes = 0
        """Under way."""

    def open(self, party: Hashable, resume: Callable[[], None], *, address: Hashable = None) -> Share:
        """A sender begins. None as address: the party has one for itself."""
        key = (party if address is None else address, party)
        place = self._addresses.get(key[0])
        if place is None:
            place = self._addresses[key[0]] = Address()
        found = place.parties.get(party)
        if found is None:
            found = place.parties[party] = Party(place)
        found.senders += 1
        return Share(key, found, resume)

    def close(self, share: Share, now: float) -> None:
        """It is gone; of what it has under way it is still told that it is `over`."""
        self._waiting.pop(share, None)
        share.wanted_bytes = 0
        if self._modest_last is share:
            self._modest_last = None
        share.party.senders -= 1
        if not share.party.senders:
            address, party = share.key
            del self._addresses[address].parties[party]
            if not self._addresses[address].parties:
                del self._addresses[address]
        self._let_in(now)

    def admit(self, share: Share, size_bytes: int, now: float) -> Admitted | None:
        """As what an append may start now; it is held from then on. None: later, by turns."""
        held_bytes, party = share.held_bytes, share.party
        address = party.address
        after_bytes = held_bytes + size_bytes
        within = (
            after_bytes <= MODEST_BYTES
            and party.held_bytes + size_bytes <= MODEST_PARTY_BYTES
            and address.held_bytes + size_bytes <= MODEST_ADDRESS_BYTES
        )
        if within or (not held_bytes and size_bytes <= SMALL_BYTES):
            if share.wanted_bytes:
                share.wanted_bytes = 0
                self._waiting.pop(share, None)
            share.held_bytes = after_bytes
            party.held_bytes += size_bytes
            address.held_bytes += size_bytes
            self.held_bytes += size_bytes
            if size_bytes > SMALL_BYTES or now < share.greedy_until:
                return _SPARED
            share.modest += 1
            self._modest.began(now)
            self._modest_last = share
            return _MODEST
        share.greedy_until = now + REMEMBERED_S
        # Where nothing greedy is under way nobody would be told to go on: then who comes goes.
        newcomer = (
            bool(self._waiting)
            and not share.wanted_bytes
            and self.window.held_bytes > 0
            and self._others_to_protect(share, now)
        )
        if newcomer or not self._fits(share, size_bytes, now):
            share.wanted_bytes = size_bytes
            self._waiting[share] = None
            return None
        share.wanted_bytes = 0
        self._waiting.pop(share, None)
        share.held_bytes = after_bytes
        party.held_bytes += size_bytes
        address.held_bytes += size_bytes
        self.held_bytes += size_bytes
        self.window.began(size_bytes)
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
        share.party.address.held_bytes -= size_bytes
        self.held_bytes -= size_bytes
        assert share.held_bytes >= 0
        if admitted is _GREEDY:
            self.window.over(size_bytes, took_s=took_s, now=now)
        elif admitted is _MODEST:
            share.modest -= 1
            self._modest_last = share
            self._modest.over(took_s, now)
        if self._waiting:
            self._let_in(now)

    def _others_to_protect(self, share: Share, now: float) -> bool:
        """Who is greedy now may have begun with something small: that was its own."""
        return self._modest.under_way > share.modest or (
            self._modest_last is not share and self._modest.were_there(now)
        )

    def _fits(self, share: Share, size_bytes: int, now: float) -> bool:
        is_alone = share.held_bytes == self.held_bytes
        if share.held_bytes and not is_alone and share.held_bytes + size_bytes > self._sender_bytes_max:
            return False
        if self.window.fits(size_bytes, now) or not self._others_to_protect(share, now):
            return True
        self.window.tell_rested(self._let_in)
        return False

    def _let_in(self, now: float) -> None:
        """Who waits, by turns: each starts one append, and waits behind the others for its next.

        After some who may not go on yet the others wait, too: as long as nobody may, something is under way, or a rest
        is, whose end looks again. So they do after some who may and do not yet, as whoever resumes them holds them up
        for another reason, where something is under way.

        An append that is answered at once is over while its sender is being resumed: who may go on then is let in here
        and not from within there, since that would be as deep as many wait.
        """
        self._may_let_in = True
        if self._is_letting_in:
            return
        self._is_letting_in = True
        try:
            while self._may_let_in:
                self._may_let_in = False
                self._let_in_once(now)
        finally:
            self._is_letting_in = False

    def _let_in_once(self, now: float) -> None:
        left, not_now, in_front = len(self._waiting), 0, 0
        while left > 0:
            shares = list(islice(self._waiting, in_front, in_front + LOOKED_AT_MAX))
            left -= max(1, len(shares))
            for share in shares:
                if share not in self._waiting:
                    continue
                if not self._fits(share, share.wanted_bytes, now):
                    in_front += 1
                else:
                    share.resume()  # it asks again at once, or when whoever holds it up for another reason lets it
                    if next(islice(self._waiting, in_front, None), None) is share:
                        self._waiting[share] = self._waiting.pop(share)
                        not_now += 1
                if in_front == LOOKED_AT_MAX or (not_now >= LOOKED_AT_MAX and self.held_bytes):
                    return
