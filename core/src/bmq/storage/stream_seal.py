"""How a WAL stream ends: finding its seal, or making one, whoever else writes, deletes and seals meanwhile.

The seal is the lowest one at or above the newest data object's `durable_below` that has no free number between the two.
That is stable: what was durable is below it, no number below it can be taken any more, and seals are never deleted.
Simpler rules lose data (core/tests/models/stream_model.py shows each with its shortest trace).

A listing takes time, while the owner creates above and deletes below. So a look counts only if every seal in it was
known to be one before it began, and if the newest data object in it is still there after it. The owner deletes from
below, so nothing above that object can have gone unseen (core/tests/models/listing_model.py).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from bmq.errors import (
    Conflict,
    Corrupt,
    FormatError,
    FormatTooNew,
    NotApplied,
    ObjectMissing,
    StoreError,
    UnknownOutcome,
)
from bmq.ports import ObjectMeta, ObjectStore, Rng
from bmq.storage.durable import Backoff, Trouble, TroubleLog, together, when_available
from bmq.storage.numbered import just_before, number_of, wal_key
from bmq.storage.wal import SEAL_SIZE_BYTES, WAL_HEADER_SIZE_BYTES, Seal, WalHeader, decode_head, encode_seal
from bmq.values import StreamId

_log = structlog.get_logger(__name__)

assert SEAL_SIZE_BYTES < WAL_HEADER_SIZE_BYTES  # a listing's sizes tell seals from data

OWNER_DELETES_AT_ONCE: Final = 4
"""From below: the next four when these are gone. What makes a look enough rests on the order
(docs/formats/stream.md)."""
SEALS_AHEAD_MAX: Final = 64
"""Against a writer that takes each free number before the sealer does, so many are sealed at once."""


@dataclass(frozen=True, slots=True)
class _Survey:
    """`durable_below` of the newest data object (0 without one), and the numbers that are data and that are seals.

    Each was at some moment of the listing what it is here, and the newest data object was still there after it.
    """

    durable_below: int
    data: frozenset[int]
    seals: frozenset[int]

    @property
    def newest(self) -> int | None:
        """The newest data object."""
        return max(self.data, default=None)

    def seal(self) -> int | None:
        """The first seal from `durable_below` on, unless a free number comes first."""
        number = self.durable_below
        while number in self.data:
            number += 1
        return number if number in self.seals else None

    def free(self, count: int) -> list[int]:
        """The first free numbers from `durable_below` on."""
        found: list[int] = []
        number = self.durable_below
        while len(found) < count:
            if number not in self.data and number not in self.seals:
                found.append(number)
            number += 1
        return found


async def seal_stream(store: ObjectStore, stream: StreamId, *, cluster_id: str, rng: Rng) -> int:
    """Seals the stream, unless it is sealed already, and returns the seal's number. Waits out a store that is down; the
    caller cancels.

    Data objects at and above it count for nothing; those below it are all there, or were deleted by their owner.
    Whoever calls this gets the same number, until the stream is dropped. Raises FormatError where an object of the
    stream cannot be read.
    """
    trouble = TroubleLog(f"seal {stream.prefix}")
    surveyor = _Surveyor(store, stream, rng=rng, trouble=trouble)
    backoff = Backoff(rng)
    ahead = 1
    known: frozenset[int] = frozenset()
    before: tuple[int, int | None] | None = None
    """The seal and the newest data object that the look before has shown."""
    while True:
        survey = await surveyor.survey()
        seal = survey.seal()
        if seal is not None and survey.seals <= known:
            shown = (seal, survey.newest)
            # Right below the seal the newest data object is proof enough: had the owner deleted the seal's number, that
            # one went before.
            if survey.newest == seal - 1 or shown == before:
                return seal
            before = shown
            continue
        known |= survey.seals
        before = None
        if seal is not None:
            continue
        numbers = survey.free(ahead)
        outcomes = await together(_create_seal(store, stream, n, cluster_id=cluster_id, rng=rng) for n in numbers)
        known |= {number for number, outcome in zip(numbers, outcomes, strict=True) if outcome is None}
        ahead = min(ahead * 4, SEALS_AHEAD_MAX)
        # A create that succeeded may have fallen into the deleted past: only a listing tells whether a seal counts.
        failed = [outcome for outcome in outcomes if isinstance(outcome, NotApplied | UnknownOutcome)]
        if len(failed) == len(outcomes):
            trouble(failed[0])
            await backoff.wait()


class Kept(NamedTuple):
    """What a stream's owner has left of it: all from `first` on up to the seal, and `below` it, ascending, what it was
    about to delete.
    """

    first: int
    below: tuple[int, ...]


async def kept_of(store: ObjectStore, stream: StreamId, *, rng: Rng) -> Kept:
    """Where reading the stream begins: no object from there up to the seal was deleted when this looked. 0 where
    nothing was ever written.

    The owner deletes from below, several at once, and only what manifests or later objects cover: so everything below a
    missing number is covered. What is there of it and is not proves that the missing one was lost. Raises FormatError.
    """
    survey = await _Surveyor(store, stream, rng=rng, trouble=TroubleLog(f"look at {stream.prefix}")).survey()
    number = survey.durable_below
    while number - 1 in survey.data:  # a seal below durable_below is in the deleted past
        number -= 1
    below = tuple(sorted(each for each in survey.data if each < number))
    if stranded := [each for each in below if each < number - OWNER_DELETES_AT_ONCE]:
        # Its owner would have deleted these before it. Whether the missing one held what no manifest covers, nothing in
        # the store tells.
        _log.error(
            "object of the WAL is missing above others: lost, unless those are late copies",
            stream=stream.prefix,
            number=number - 1,
            others=len(stranded),
        )
    return Kept(number, below)


async def list_stream(
    store: ObjectStore, stream: StreamId, *, at_least: int, rng: Rng, trouble: Trouble
) -> list[tuple[int, ObjectMeta]]:
    """The stream's objects from the number `at_least` on, ascending. Waits out a store that is down."""

    async def listing() -> list[tuple[int, ObjectMeta]]:
        listed = store.list(stream.prefix, after=just_before(stream.prefix, at_least))
        return [
            (n, meta)
            async for meta in listed
            if (n := number_of(stream.prefix, meta.key)) is not None and n >= at_least
        ]

    return await when_available(listing, rng=rng, trouble=trouble)


def is_seal(meta: ObjectMeta) -> bool:
    """What a listing tells: a seal is shorter than the header of any data object."""
    return meta.size_bytes < WAL_HEADER_SIZE_BYTES


async def read_head(
    store: ObjectStore, stream: StreamId, number: int, *, rng: Rng, trouble: Trouble
) -> WalHeader | Seal:
    """What stands at a number. Raises ObjectMissing, FormatError."""
    key = wal_key(stream, number)
    first_bytes = await when_available(lambda: store.get(key, length=WAL_HEADER_SIZE_BYTES), rng=rng, trouble=trouble)
    try:
        head = decode_head(first_bytes)
    except FormatTooNew as error:
        raise FormatTooNew(f"{key}: {error}") from error
    except FormatError as error:
        raise Corrupt(
            f"{key}: {error}; restore it from a backup, or stop the cluster and run `bmq store check --repair`, "
            "which says what would be lost"
        ) from error
    check_place(head, stream, number)
    return head


def check_place(head: WalHeader | Seal, stream: StreamId, number: int) -> None:
    """Raises Corrupt where the object says that it belongs elsewhere."""
    if head.stream != stream or head.number != number:
        raise Corrupt(f"{wal_key(stream, number)} holds object {head.number} of {head.stream.prefix}")


class _Surveyor:
    """Looks at a stream, again and again, each time from where the last look found `durable_below`."""

    def __init__(self, store: ObjectStore, stream: StreamId, *, rng: Rng, trouble: Trouble) -> None:
        self._store = store
        self._stream = stream
        self._rng = rng
        self._trouble = trouble
        self._durable_below = 0

    async def survey(self) -> _Survey:
        """What a listing shows, and the header of the newest data object in it, read after it: where that one is gone
        the listing counts for nothing.

        Which numbers are seals is what the listing says. A number may be data in the listing and, deleted since, a seal
        in the deleted past when it is read.
        """
        while True:
            listed = await list_stream(
                self._store, self._stream, at_least=self._durable_below, rng=self._rng, trouble=self._trouble
            )
            seals = frozenset(number for number, meta in listed if is_seal(meta))
            data = frozenset(number for number, _ in listed) - seals
            if data:
                newest = await self._data_header(max(data))
                if newest is None:
                    continue  # deleted since: there is a newer one
                self._durable_below = max(self._durable_below, newest.durable_below)
            return _Survey(self._durable_below, data, seals)

    async def _data_header(self, number: int) -> WalHeader | None:
        try:
            head = await read_head(self._store, self._stream, number, rng=self._rng, trouble=self._trouble)
        except ObjectMissing:
            return None
        return head if isinstance(head, WalHeader) else None


async def _create_seal(
    store: ObjectStore, stream: StreamId, number: int, *, cluster_id: str, rng: Rng
) -> StoreError | None:
    """None: the seal is there. Otherwise Conflict, NotApplied or UnknownOutcome."""
    seal = Seal(
        cluster_id=cluster_id,
        node_id=stream.node_id,
        broker_epoch=stream.broker_epoch,
        number=number,
        nonce=rng.nonce(),
    )
    try:
        await store.create(wal_key(stream, number), encode_seal(seal))
    except (Conflict, NotApplied, UnknownOutcome) as error:
        return error
    return None
