"""A flat log: objects `prefix/<number>` from 1 on, by one writer at a time, each naming its predecessor's nonce.

Owns the entry's bytes (docs/formats/flat-log.md) and the rules of appending, claiming, reading and deleting. The rules
that look simpler lose data: a number that was deleted can be created again by a writer that slept. So a writer's first
entry is a claim, and so is one after a try with an unknown outcome; a claim counts only where a listing shows nothing
above it; claims and the newest entry are never deleted; and a sleeper always runs into a claim.
"""

import asyncio
import struct
from collections import deque
from collections.abc import AsyncGenerator, Container, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import structlog
from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import BmqError, Conflict, Corrupt, Fenced, FormatError, ObjectMissing, StoreUnavailable, UnknownOutcome
from bmq.ports import ObjectStore, Rng
from bmq.storage.binary import CRC_SIZE_BYTES, bytes_view, checked, crc_of, encode_crc
from bmq.storage.durable import Backoff, LatencyWindow, TroubleLog, cancelled, create_once, together, when_available
from bmq.storage.envelope import ENVELOPE_SIZE_BYTES, decode_envelope, encode_envelope
from bmq.storage.numbered import just_before, number_of, numbered_key
from bmq.values import NONCE_SIZE_BYTES, Nonce

FLAT_LOG_MAGIC: Final = b"bmqL"
FORMAT_VERSION: Final = 1
FIRST_NUMBER: Final = 1
NO_PREDECESSOR: Final = Nonce(bytes(NONCE_SIZE_BYTES))
EPOCH_MAX: Final = 2**63 - 1
PAYLOAD_SIZE_BYTES_MAX: Final = 2**30

READS_AHEAD: Final = 8
DELETES_AT_ONCE: Final = 4
UNSETTLED_MAX: Final = 64
CANDIDATES_MAX: Final = 65_536
LOOKS_MAX: Final = 8
"""For an entry that has to be there and that a listing has yet to show."""

_log = structlog.get_logger(__name__)

_CLAIM: Final = 1
# flags, number, epoch, predecessor's nonce, payload length
_HEADER: Final = struct.Struct(">IQQ16sI")
_HEADER_END: Final = ENVELOPE_SIZE_BYTES + _HEADER.size
ENTRY_HEADER_SIZE_BYTES: Final = _HEADER_END + CRC_SIZE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry. `predecessor` is the nonce of the entry that it was built from.

    `claim`: its writer did not know what became of all that it had tried (the first one of an epoch, or of a start of
    its writer, or after an unknown outcome). Only claims are ever found in the deleted past, where they count for
    nothing.
    """

    number: int
    epoch: int
    nonce: Nonce
    predecessor: Nonce
    claim: bool
    payload: bytes


class Overtaken(BmqError):
    """`entry` stands above the base and is not the writer's newest knowledge: read it (and what follows), build again,
    append again.
    """

    def __init__(self, message: str, entry: Entry) -> None:
        super().__init__(message)
        self.entry = entry


class GapFound(BmqError):
    """Entry `number` is missing or does not follow the one before it: the reader starts again from the newest
    snapshot.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


def encode_entry(entry: Entry) -> list[Buffer]:
    """The object's parts; the payload is not copied. Raises ValueError for a payload above 1 GiB."""
    if len(entry.payload) > PAYLOAD_SIZE_BYTES_MAX:
        raise ValueError(f"a flat-log payload of {len(entry.payload)} bytes, above {PAYLOAD_SIZE_BYTES_MAX}")
    assert entry.number >= FIRST_NUMBER, f"an entry with the number {entry.number}"
    assert 0 <= entry.epoch <= EPOCH_MAX, f"entry {entry.number} of the epoch {entry.epoch}"
    flags = _CLAIM if entry.claim else 0
    head = encode_envelope(magic=FLAT_LOG_MAGIC, version=FORMAT_VERSION, nonce=entry.nonce)
    head += _HEADER.pack(flags, entry.number, entry.epoch, entry.predecessor, len(entry.payload))
    head += encode_crc(crc32c(head))
    return [head, entry.payload, encode_crc(crc_of([head, entry.payload]))]


def decode_entry(data: Buffer, *, what: str) -> Entry:
    """A whole entry, every byte checked. Raises Corrupt, FormatTooNew."""
    view = bytes_view(data)
    entry, length = _decode_header(view, what=what)
    whole = checked(view, what=what)
    body = whole[ENTRY_HEADER_SIZE_BYTES:]
    # a header alone ends in a checksum that is right for it
    if len(whole) < ENTRY_HEADER_SIZE_BYTES or len(body) != length:
        raise Corrupt(f"{what}: {len(body)} bytes of payload instead of {length}")
    return Entry(
        number=entry.number,
        epoch=entry.epoch,
        nonce=entry.nonce,
        predecessor=entry.predecessor,
        claim=entry.claim,
        payload=bytes(body),
    )


def decode_entry_header(first_bytes: Buffer, *, what: str) -> Entry:
    """An entry without its payload, from its first ENTRY_HEADER_SIZE_BYTES or more. Raises Corrupt, FormatTooNew."""
    return _decode_header(bytes_view(first_bytes), what=what)[0]


def _decode_header(view: memoryview, *, what: str) -> tuple[Entry, int]:
    """(the entry without its payload, the payload's length)."""
    _, nonce = decode_envelope(view, magic=FLAT_LOG_MAGIC, version_max=FORMAT_VERSION, what=what)
    body = checked(view[:ENTRY_HEADER_SIZE_BYTES], what=f"{what} header")
    if len(body) != _HEADER_END:
        raise Corrupt(f"{what}: {len(view)} bytes are too few for its header")
    flags, number, epoch, predecessor, length = _HEADER.unpack_from(body, ENVELOPE_SIZE_BYTES)
    if flags & ~_CLAIM or number < FIRST_NUMBER or epoch > EPOCH_MAX:
        raise Corrupt(f"{what}: flags {flags:#x}, number {number}, epoch {epoch}")
    claim = bool(flags & _CLAIM)
    return Entry(
        number=number, epoch=epoch, nonce=nonce, predecessor=Nonce(predecessor), claim=claim, payload=b""
    ), length


class FlatLog:
    """One flat log. Several readers may share it; of its writers' methods one at a time."""

    def __init__(
        self, store: ObjectStore, prefix: str, *, rng: Rng, what: str, latency: LatencyWindow | None = None
    ) -> None:
        """`prefix` with or without its final slash; `what` names the log in messages ("metadata log", "manifest of
        ...").
        """
        self._store = store
        self._prefix = prefix if prefix.endswith("/") else prefix + "/"
        self._rng = rng
        self._what = what
        self._latency = latency
        self._trouble = TroubleLog(what)
        self._unsettled: deque[Nonce] = deque(maxlen=UNSETTLED_MAX)
        """Own creates whose outcome is not known."""
        self._settled = False
        """Whether this writer knows what became of everything that it ever tried. Not at first: it may have tried in an
        earlier life."""
        self._tried = 0
        self._newest_seen = 0
        self._candidates: dict[int, bool | None] | None = None
        """Entries that may still be there: whether each is a claim, None where that is not known. None before the first
        listing."""

    @property
    def settled(self) -> bool:
        """Whether this writer knows what became of everything that it ever tried: nothing but the newest entry can come
        to count.
        """
        return self._settled

    @property
    def tried(self) -> int:
        """The newest number at which this writer tried to make an entry, 0 before that: it may be there where nobody
        answered.
        """
        return self._tried

    async def newest(self, at_least: int = FIRST_NUMBER) -> Entry | None:
        """The newest entry at or above the number `at_least`, by a listing from there; None where there is none. Waits
        out a store that is down.

        Raises FormatError.
        """
        while True:
            numbers = await self._list(at_least)
            if not numbers:
                return None
            at_least = numbers[-1]
            try:
                entry = await self.read(at_least)
            except ObjectMissing:  # deleted since, so there is a newer one
                continue
            if await self._still_newest(entry):
                return entry

    async def read(self, number: int) -> Entry:
        """Raises ObjectMissing, FormatError. Waits out a store that is down."""
        key = numbered_key(self._prefix, number)
        data = await when_available(lambda: self._store.get(key), rng=self._rng, trouble=self._trouble)
        entry = decode_entry(data, what=f"{self._what} {key}")
        self._check_number(entry, number)
        self._newest_seen = max(self._newest_seen, number)
        return entry

    async def counts(self, entry: Entry) -> bool:
        """Whether an entry that was read by its number alone is certainly in no deleted past: it is no claim, or a
        claim and the newest entry.
        """
        return await self._still_newest(entry)

    async def read_forward(self, after: Entry | None) -> AsyncGenerator[Entry, None]:
        """Every entry above `after` (None: from the first on) up to the newest at the time of the call, each following
        the one before.

        Raises GapFound, FormatError. An entry is given only when the next one follows it too or it is the newest: a
        sleeper's claim in the deleted past is never seen.
        """
        held: Entry | None = after
        while True:
            expected = held.number + 1 if held is not None else FIRST_NUMBER
            numbers = await self._list(expected)
            async with aclosing(
                self._read_each(numbers, expected, held.nonce if held is not None else NO_PREDECESSOR)
            ) as entries:
                async for entry in entries:
                    if held is not None and held is not after:
                        yield held
                    held = entry
            if held is None or held is after:
                return
            if await self._still_newest(held):
                yield held
                return

    async def append(self, base: Entry, *, epoch: int, payload: bytes) -> Entry:
        """Makes the entry exactly one above `base`, the writer's claim or a later entry of its own. Durable when it
        returns.

        Raises Fenced (an entry of the same or a higher epoch is there), Overtaken (one of a lower epoch is, or an own
        earlier try whose outcome was not known), UnknownOutcome (it may yet appear; whoever appends again meets it as
        Overtaken).
        """
        assert base.epoch == epoch, (
            f"{self._what}: an entry of epoch {epoch} after {base.number} of epoch {base.epoch}: the first one of an "
            "epoch is a claim"
        )
        return await self._create(base, epoch=epoch, payload=payload, claim=False)

    async def claim(self, base: Entry | None, *, epoch: int, payload: bytes) -> Entry:
        """Appends the first entry of `epoch`, and returns it if a listing shows that nothing stands above it.

        Where the base is of this epoch already, `append` goes on. Raises as `append`, and Overtaken with the newest
        entry where the claim fell into the deleted past: it counts for nothing.
        """
        if base is not None and base.epoch >= epoch:
            raise Fenced(f"{self._what}: entry {base.number} has epoch {base.epoch}, this writer has {epoch}")
        return await self._create(base, epoch=epoch, payload=payload, claim=True)

    async def delete_covered(self, below: int, *, protected: Container[int] = ()) -> int:
        """Deletes entries below the number `below`, which a snapshot covers; returns how many. Only after the own claim
        holds.

        Claims, the newest entry and `protected` numbers stay. What cannot be deleted now is left for the next call,
        with all above.
        """
        if self._candidates is None:
            self._candidates = dict.fromkeys(await self._list(FIRST_NUMBER))
        limit = min(below, self._newest_seen)
        numbers = sorted(n for n, claim in self._candidates.items() if n < limit and not claim and n not in protected)
        deleted = 0
        for at in range(0, len(numbers), DELETES_AT_ONCE):
            batch = await together(self._delete(n) for n in numbers[at : at + DELETES_AT_ONCE])
            deleted += sum(outcome is True for outcome in batch)
            if None in batch:
                break
        return deleted

    async def _read_each(
        self, numbers: Sequence[int], expected: int, predecessor: Nonce
    ) -> AsyncGenerator[Entry, None]:
        """The entries of a listing, each following the one before, several read at once. Raises GapFound."""
        loop = asyncio.get_running_loop()
        reading: deque[asyncio.Task[Entry]] = deque()
        try:
            for at, number in enumerate(numbers):
                while len(reading) < min(READS_AHEAD, len(numbers) - at):
                    reading.append(loop.create_task(self.read(numbers[at + len(reading)])))
                if number != expected + at:
                    raise GapFound(f"{self._what}: entry {expected + at} is missing, {number} is there", expected + at)
                entry = await self._take(reading.popleft(), number)
                if entry.predecessor != predecessor:
                    raise GapFound(f"{self._what}: entry {number} does not follow the one before it", number)
                predecessor = entry.nonce
                yield entry
        finally:
            await cancelled(reading)

    async def _still_newest(self, entry: Entry, *, own: bool = False) -> bool:
        """Whether an entry that was created, or read after a listing had shown its number as the newest, is in no
        deleted past.

        Only claims can be; of others nothing is asked. A listing takes time, in which a writer may go on and delete all
        that it would have shown. That the entry below is still there is proof that it did not: entries are deleted from
        below. Elsewhere a second listing has to agree.
        """
        if not entry.claim:
            return True
        if await self._list(entry.number) != [entry.number]:
            return False
        if entry.number == FIRST_NUMBER:
            return True
        try:
            below = await self._header(entry.number - 1)
        except ObjectMissing:
            if own:  # its base: it was deleted when this number was another's
                return False
            below = None
        if below is not None and not below.claim and below.nonce == entry.predecessor:
            return True
        return await self._list(entry.number) == [entry.number]

    async def _beaten_by(self, entry: Entry) -> Entry | None:
        """The newest entry, where a listing has yet to show another than the own one in the deleted past. Raises
        UnknownOutcome.
        """
        backoff = Backoff(self._rng)
        for _ in range(LOOKS_MAX):
            newest = await self.newest(entry.number)
            if newest is None or newest.nonce != entry.nonce:
                return newest
            await backoff.wait()
        raise UnknownOutcome(
            f"{self._what}: entry {entry.number} stands alone above one that is gone; restore {entry.number - 1} "
            "if it was lost"
        )

    async def _header(self, number: int) -> Entry | None:
        """The entry without its payload; None where it is damaged. Raises ObjectMissing. Waits out a store that is
        down.
        """
        key = numbered_key(self._prefix, number)
        first_bytes = await when_available(
            lambda: self._store.get(key, length=ENTRY_HEADER_SIZE_BYTES), rng=self._rng, trouble=self._trouble
        )
        try:
            return decode_entry_header(first_bytes, what=f"{self._what} {key}")
        except FormatError:
            return None

    async def _create(self, base: Entry | None, *, epoch: int, payload: bytes, claim: bool) -> Entry:
        # After a try with an unknown outcome the number may have been taken by it, built upon by an heir, covered and
        # deleted. What is created there then falls into the deleted past as a sleeper's claim does, so it has to be
        # one.
        claim = claim or not self._settled
        entry = Entry(
            number=base.number + 1 if base is not None else FIRST_NUMBER,
            epoch=epoch,
            nonce=self._rng.nonce(),
            predecessor=base.nonce if base is not None else NO_PREDECESSOR,
            claim=claim,
            payload=payload,
        )
        assert base is None or base.epoch <= epoch, (
            f"{self._what}: entry {entry.number} of epoch {epoch} follows one of epoch {base.epoch}"
        )
        key = numbered_key(self._prefix, entry.number)
        self._settled = False
        self._tried = entry.number
        self._unsettled.append(entry.nonce)
        try:
            await create_once(
                self._store,
                key,
                encode_entry(entry),
                nonce=entry.nonce,
                rng=self._rng,
                latency=self._latency,
                trouble=self._trouble,
            )
        except Conflict:
            self._unsettled.remove(entry.nonce)
            standing = await self._standing(entry.number)
            # no writer's entry, then: of those the newest is never deleted
            if standing is None and await self._is_there(base):
                raise UnknownOutcome(
                    f"{self._what}: entry {entry.number} was taken by something that is gone again"
                ) from None
            raise self._beaten(standing, number=entry.number, epoch=epoch) from None
        if not await self._still_newest(entry, own=True):
            newest = await self._beaten_by(entry)
            self._unsettled.remove(entry.nonce)
            raise self._beaten(newest, number=entry.number, epoch=epoch)
        self._unsettled.clear()
        self._settled = True
        self._newest_seen = max(self._newest_seen, entry.number)
        self._remember(entry)
        return entry

    async def _standing(self, number: int) -> Entry | None:
        """What stands at a number where a create conflicted; where it was deleted since, the newest entry."""
        try:
            return await self.read(number)
        except ObjectMissing:
            return await self.newest(number)

    async def _is_there(self, base: Entry | None) -> bool:
        """Whether what a new entry is built from is still in the log."""
        if base is None:
            return True
        try:
            header = await self._header(base.number)
        except ObjectMissing:
            return False
        return header is not None and header.nonce == base.nonce

    def _beaten(self, entry: Entry | None, *, number: int, epoch: int) -> BmqError:
        """Why entry `number` of this writer does not count: `entry` is there instead."""
        if entry is None:
            return Fenced(f"{self._what}: entry {number} was taken and is gone again")
        # and stays there: the caller may fail before it has taken the entry up, and meet it again
        if entry.nonce in self._unsettled:
            self._remember(entry)
            return Overtaken(f"{self._what}: entry {entry.number} is an own earlier try", entry)
        if entry.epoch < epoch:
            return Overtaken(f"{self._what}: epoch {entry.epoch} wrote entry {entry.number} meanwhile", entry)
        return Fenced(
            f"{self._what}: entry {entry.number} has epoch {entry.epoch}, this writer has {epoch}: it was replaced"
        )

    async def _list(self, at_least: int) -> list[int]:
        async def numbers() -> list[int]:
            listed = self._store.list(self._prefix, after=just_before(self._prefix, at_least))
            return [
                n async for meta in listed if (n := number_of(self._prefix, meta.key)) is not None and n >= at_least
            ]

        found = await when_available(numbers, rng=self._rng, trouble=self._trouble)
        if found:
            self._newest_seen = max(self._newest_seen, found[-1])
        return found

    async def _take(self, task: "asyncio.Task[Entry]", number: int) -> Entry:
        try:
            return await task
        except ObjectMissing:
            raise GapFound(f"{self._what}: entry {number} was deleted meanwhile", number) from None

    async def _delete(self, number: int) -> bool | None:
        """Whether it went; None where it is to be tried again."""
        candidates = self._candidates
        assert candidates is not None
        key = numbered_key(self._prefix, number)
        try:
            claim = candidates.get(number)
            if claim is None:
                candidates[number] = claim = await self._is_claim(key, number)
            if claim:
                return False
            await self._store.delete(key)
        except ObjectMissing:
            pass
        except StoreUnavailable as error:
            self._trouble(error)
            return None
        candidates.pop(number, None)
        return True

    async def _is_claim(self, key: str, number: int) -> bool:
        """Whether an entry is one, or may be: one that is damaged stays, and holds up nothing. Raises ObjectMissing,
        StoreUnavailable.
        """
        first_bytes = await self._store.get(key, length=ENTRY_HEADER_SIZE_BYTES)
        try:
            entry = decode_entry_header(first_bytes, what=f"{self._what} {key}")
            self._check_number(entry, number)
        except FormatError as error:
            _log.warning("old entry cannot be read and stays", key=key, error=str(error))
            return True
        return entry.claim

    def _remember(self, entry: Entry) -> None:
        if self._candidates is not None:
            self._candidates[entry.number] = entry.claim
            if len(self._candidates) > CANDIDATES_MAX:
                self._candidates = None

    def _check_number(self, entry: Entry, number: int) -> None:
        if entry.number != number:
            raise Corrupt(f"{self._what}: entry {entry.number} lies under the key of {number}")
