"""Which batch of an idempotent producer was refused first: until it comes again, what is numbered behind it is refused
too.

Clients send the next batches before they know what became of the first one. An owner that knows nothing of a producer
takes any batch of it for the first: one that overtook another would leave that one refused for good, and the client
would have to give up its numbers and its order. So whoever refuses a batch in a way that clients send it again says so
here in the same moment, and each batch that arrives is looked up. Remembered for each connection, because a client that
connects again sends what has no answer in order. Pure, but for the connections' end.
"""

from collections.abc import Hashable
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary, finalize

from typing_extensions import Buffer

from bmq.errors import BmqError, NotReady
from bmq.roles.unheard import SENT_AGAIN
from bmq.wire.batch_headers import read_header

PER_CONNECTION: Final = 10_000
PER_PROXY: Final = 100_000
"""What is remembered; a connection that comes to have more, or comes when all have that many, forgets its oldest."""
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


class RefusedBatches:
    """One proxy's. False while nothing is remembered."""

    __slots__ = ("_connections", "_count", "_per_connection", "_per_proxy")

    def __init__(self, *, per_connection: int = PER_CONNECTION, per_proxy: int = PER_PROXY) -> None:
        self._connections: WeakKeyDictionary[Any, dict[tuple[Named, int], _First]] = WeakKeyDictionary()
        self._count = 0
        self._per_connection = per_connection
        self._per_proxy = per_proxy

    def __bool__(self) -> bool:
        return self._count > 0

    def __len__(self) -> int:
        return self._count

    def note(self, origin: Hashable, place: Named, records: Buffer, error: BmqError) -> None:
        """A batch that came over the connection `origin` (None: over none) is refused with that error."""
        if (
            origin is None
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
        own = self._connections.get(origin)
        if own is None:
            own = self._connections[origin] = {}
            finalize(origin, self._left, own).atexit = False
        key = place, header.producer_id
        known = own.get(key)
        if known is None:
            self._count += 1
        elif known.epoch > header.producer_epoch or (
            known.epoch == header.producer_epoch and _is_behind(header.base_sequence, known.sequence)
        ):
            return
        own[key] = _First(header.producer_epoch, header.base_sequence)
        if len(own) > self._per_connection or self._count > self._per_proxy:
            del own[next(iter(own))]
            self._count -= 1

    def check(self, origin: Hashable, place: Named, records: Buffer) -> None:
        """A batch has come: the one that was waited for is waited for no more. Raises NotReady for one that is numbered
        behind it.
        """
        own = None if origin is None else self._connections.get(origin)
        if not own:
            return
        try:
            header = read_header(records)
        except BmqError:
            return
        first = own.get((place, header.producer_id))
        if first is None or header.producer_epoch < first.epoch:
            return
        if header.producer_epoch > first.epoch or header.base_sequence == first.sequence:
            del own[place, header.producer_id]
            self._count -= 1
        elif _is_behind(header.base_sequence, first.sequence):
            raise NotReady(
                f"producer {header.producer_id}: sequence {first.sequence} was refused, and has to be sent again "
                f"before {header.base_sequence}"
            )

    def _left(self, own: "dict[tuple[Named, int], _First]") -> None:
        self._count -= len(own)
        own.clear()


def _is_behind(sequence: int, first: int) -> bool:
    """They begin again at 0."""
    return 0 < (sequence - first) % _SEQUENCES < _SEQUENCES // 2
