"""Room for what a broker is asked about groups: an answer counts from before it is worked out until its peer has taken
it.

What an answer has is known once it is there, so what is counted is what such a one may well come to. Its texts are the
groups' own, and it is packed as it is sent: what it takes is about as much for each of its elements. Who finds no room
waits: by turns of clients' addresses, those of each connection apart. Answers of few offsets, as members of groups ask
for when they begin, wait behind each other alone.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, NamedTuple

from bmq.fairness.turns import Rotation
from bmq.internal import limits
from bmq.roles.group_pages import AFTER
from bmq.wire.apis import ApiKey

OFFSET_BYTES: Final = 1 << 10
"""What is counted for each offset that is asked for by its partition."""
GROUP_BYTES: Final = 256 << 10
"""For the description of a group."""
PAGE_BYTES: Final = 1 << 20
"""For a page of the list of groups."""
WHOLE_BYTES: Final = 4 << 20
"""For all offsets of a group, or for a list of all groups, as nodes of an older version ask for."""
NARROW_BYTES: Final = 64 << 10
"""What is counted for an answer of few offsets at most."""
NARROW_SHARE: Final = 4
PASSED_OVER_MAX: Final = 64
"""So many who may not go on yet are looked at when room is given back: thousands may wait."""

GROUP_READS: Final = frozenset((ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS))


class GroupReads:
    """One broker's."""

    def __init__(self) -> None:
        self._wide = AnswerRoom(share=1)
        self._narrow = AnswerRoom(share=NARROW_SHARE)

    async def enter(self, api_key: int, request: Any, *, connection: Hashable, address: str) -> Callable[[], None]:
        """Waits for room; returns what gives it back, which may be called more than once."""
        size_bytes = assumed_bytes(api_key, request)
        del request  # it may wait long
        room = self._narrow if size_bytes <= NARROW_BYTES else self._wide
        return await room.enter(size_bytes, connection=connection, address=address)


class _Waiting(NamedTuple):
    size_bytes: int
    party: tuple[Hashable, str]
    turn: "asyncio.Future[None]"


class AnswerRoom:
    """Bytes of answers, with bounds for all, for each connection and for each address. One alone always has room."""

    def __init__(self, *, share: int) -> None:
        self._bytes_max = limits.GROUP_READS_BYTES_MAX // share
        self._connection_bytes_max = limits.GROUP_READS_CONNECTION_BYTES_MAX // share
        self._address_bytes_max = limits.GROUP_READS_ADDRESS_BYTES_MAX // share
        self._of_connections: Counter[Hashable] = Counter()
        self._of_addresses: Counter[str] = Counter()
        self._waiting: Rotation[_Waiting] = Rotation()
        self.held_bytes = 0

    async def enter(self, size_bytes: int, *, connection: Hashable, address: str) -> Callable[[], None]:
        """Waits for its turn; returns what gives the room back."""
        size_bytes = min(size_bytes, self._address_bytes_max, self._connection_bytes_max, self._bytes_max)
        party = (connection, address)
        if self._waiting or not self._fits(size_bytes, party):
            one = _Waiting(size_bytes, party, asyncio.get_running_loop().create_future())
            self._waiting.push(one, party=party)
            self._admit()
            try:
                await one.turn
            except asyncio.CancelledError:
                if one.turn.cancelled():
                    self._waiting.discard(one, party=party)
                else:
                    self._give_back(size_bytes, party)
                raise
        else:
            self._hold(size_bytes, party)
        is_held = True

        def leave() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._give_back(size_bytes, party)

        return leave

    def _fits(self, size_bytes: int, party: tuple[Hashable, str]) -> bool:
        return self.held_bytes + size_bytes <= self._bytes_max and self._may_have(size_bytes, party)

    def _may_have(self, size_bytes: int, party: tuple[Hashable, str]) -> bool:
        connection, address = party
        return (
            self._of_connections[connection] + size_bytes <= self._connection_bytes_max
            and self._of_addresses[address] + size_bytes <= self._address_bytes_max
        )

    def _hold(self, size_bytes: int, party: tuple[Hashable, str]) -> None:
        connection, address = party
        self.held_bytes += size_bytes
        self._of_connections[connection] += size_bytes
        self._of_addresses[address] += size_bytes

    def _give_back(self, size_bytes: int, party: tuple[Hashable, str]) -> None:
        connection, address = party
        self.held_bytes -= size_bytes
        self._of_connections[connection] -= size_bytes
        self._of_addresses[address] -= size_bytes
        assert self.held_bytes >= 0
        if not self._of_connections[connection]:
            del self._of_connections[connection]
        if not self._of_addresses[address]:
            del self._of_addresses[address]
        self._admit()

    def _admit(self) -> None:
        """Whose turn it is, as long as there is room. Whose connection or address has its fill is passed over: of what
        those have something is given back in the end, and looks at some again.
        """
        passed_over = 0
        while self._waiting and passed_over < min(self._waiting.parties, PASSED_OVER_MAX):
            one = self._waiting.first
            if not one.turn.done():
                if self.held_bytes + one.size_bytes > self._bytes_max:
                    return
                if not self._may_have(one.size_bytes, one.party):
                    self._waiting.pass_over()
                    passed_over += 1
                    continue
                self._hold(one.size_bytes, one.party)
                one.turn.set_result(None)
            self._waiting.pop()


def assumed_bytes(api_key: int, request: Any) -> int:
    """What the answer is counted as."""
    fields = _fields(request)
    if api_key == ApiKey.OFFSET_FETCH:
        return sum([_offsets_bytes(_fields(group).get("topics")) for group in fields.get("groups") or [fields]])
    if api_key == ApiKey.DESCRIBE_GROUPS:
        return GROUP_BYTES * len(fields.get("groups") or ())
    return PAGE_BYTES if fields.get(AFTER) is not None else WHOLE_BYTES


def _offsets_bytes(topics: Any) -> int:
    if topics is None:
        return WHOLE_BYTES
    return OFFSET_BYTES * (1 + sum([len(_fields(topic).get("partition_indexes") or ()) for topic in topics]))


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else vars(value)
