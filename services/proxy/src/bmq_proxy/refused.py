"""Which batch of an idempotent producer was refused first: until it comes again, what is numbered behind it is refused
too.

Clients send the next batches before they know what became of the first one. An owner that knows nothing of a producer
takes any batch of it for the first: one that overtook another would leave that one refused for good, and the client
would have to give up its numbers and its order. So whoever refuses a batch in a way that clients send it again says so
here in the same moment, and each batch that arrives is looked up. Remembered for each connection, because a client that
connects again sends what has no answer in order; and not for ever, because one that goes on over another connection may
have sent the batch there, and come back. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from typing_extensions import Buffer

from bmq.errors import BmqError, NotReady
from bmq.fairness.fullest import Fullest
from bmq.roles.unheard import SENT_AGAIN
from bmq.wire.batch_headers import read_header
from bmq_proxy.origins import Origin

PER_CONNECTION: Final = 10_000
PER_PROXY: Final = 100_000
"""What is remembered. A connection that comes to have more forgets its oldest; where all together do, the address that
has most does.
"""
WAITED_FOR_S: Final = 60.0
"""So long after it was last refused it is not coming over this connection any more. Who has not heard of the refusal by
then, and so still sends what it had ready to follow, has closed the connection: clients wait for an answer for 30 s
(Java's `request.timeout.ms`) to 60 s (librdkafka's `socket.timeout.ms`); and they send batches for twice as long."""
NAME_CHARS_MAX: Final = 249
"""No topic has a longer name, so none will come to be there."""
_SEQUENCES: Final = 2**31

Named = tuple[Any, int]
"""(a topic's name or id, the number of a partition): as the client names it, for by its next batch the name may be
another topic's."""


class _First(NamedTuple):
    """The first batch of a producer that was refused."""

    epoch: int
    sequence: int
    until_s: float
    """It is waited for."""


class RefusedBatches:
    """One proxy's. False while nothing is remembered."""

    __slots__ = ("_addresses", "_counts", "_now_s", "_per_connection", "_per_proxy")

    def __init__(
        self, now_s: Callable[[], float], *, per_connection: int = PER_CONNECTION, per_proxy: int = PER_PROXY
    ) -> None:
        self._addresses: dict[str, dict[Origin, dict[tuple[Named, int], _First]]] = {}
        """By address and connection, those first that have had something for longest."""
        self._counts: Fullest[str] = Fullest()
        """How much each address has."""
        self._now_s = now_s
        self._per_connection = per_connection
        self._per_proxy = per_proxy

    def __bool__(self) -> bool:
        return self._counts.total > 0

    def __len__(self) -> int:
        return self._counts.total

    def note(self, origin: Origin | None, place: Named, records: Buffer, error: BmqError) -> None:
        """A batch that came over the connection `origin` (None: over none) is refused with that error."""
        if (
            origin is None
            or origin.is_over
            or not isinstance(error, SENT_AGAIN)
            or (isinstance(place[0], str) and len(place[0]) > NAME_CHARS_MAX)
        ):
            return
        try:
            header = read_header(records)
        except BmqError:
            return
        if header.producer_id < 0:
            return
        own = self._addresses.get(origin.peer, {}).get(origin, {})
        key = place, header.producer_id
        known = own.get(key)
        if known is None:
            self._make_room(origin, own)
            self._counts.take(origin.peer)
        elif known.epoch > header.producer_epoch or (
            known.epoch == header.producer_epoch and is_behind(header.base_sequence, known.sequence)
        ):
            return
        # Looked up anew: what was forgotten may have been all that it had.
        self._addresses.setdefault(origin.peer, {}).setdefault(origin, {})[key] = _First(
            header.producer_epoch, header.base_sequence, self._now_s() + WAITED_FOR_S
        )

    def check(self, origin: Origin | None, place: Named, records: Buffer) -> None:
        """A batch has come: the one that was waited for is waited for no more. Raises NotReady for one that is numbered
        behind it, as long as that may come.
        """
        own = None if origin is None else self._addresses.get(origin.peer, {}).get(origin)
        if origin is None or not own:
            return
        try:
            header = read_header(records)
        except BmqError:
            return
        first = own.get((place, header.producer_id))
        if first is None or header.producer_epoch < first.epoch:
            return
        is_awaited = header.base_sequence != first.sequence and self._now_s() < first.until_s
        if header.producer_epoch > first.epoch or not is_awaited:
            self._forget(origin, (place, header.producer_id))
        elif is_behind(header.base_sequence, first.sequence):
            raise NotReady(
                f"producer {header.producer_id}: sequence {first.sequence} was refused, and has to be sent again "
                f"before {header.base_sequence}"
            )

    def left(self, origin: Origin) -> None:
        """A connection is over, with all that came over it."""
        own = self._addresses.get(origin.peer, {}).get(origin, {})
        for key in list(own):
            self._forget(origin, key)

    def _make_room(self, origin: Origin, own: Mapping[tuple[Named, int], _First]) -> None:
        if len(own) >= self._per_connection:
            self._forget(origin, next(iter(own)))
        elif len(self) >= self._per_proxy:
            other, others = next(iter(self._addresses[self._counts.fullest].items()))
            self._forget(other, next(iter(others)))

    def _forget(self, origin: Origin, key: tuple[Named, int]) -> None:
        connections = self._addresses[origin.peer]
        del connections[origin][key]
        self._counts.give_back(origin.peer)
        if not connections[origin]:
            del connections[origin]
            if not connections:
                del self._addresses[origin.peer]


def is_behind(sequence: int, first: int) -> bool:
    """Whether a sequence comes after another. They begin again at 0."""
    return 0 < (sequence - first) % _SEQUENCES < _SEQUENCES // 2
