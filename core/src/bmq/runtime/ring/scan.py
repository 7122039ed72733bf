"""What a ring's files have, from nothing but their bytes. Pure, but for reading."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from bmq.runtime.ring.format import (
    BLOCK_BYTES,
    MAGIC,
    Head,
    blocks_of,
    decode_head,
    decode_mark,
    head_bytes,
    newest_mark,
)

READ_BYTES: Final = 1 << 20
"""So much is read in one go."""


class Readable(Protocol):
    """A file of a ring."""

    @property
    def ring_id(self) -> bytes:
        """Its own."""

    @property
    def blocks(self) -> int:
        """How many it has; the first one is its head."""

    def read(self, at: int, size_bytes: int) -> bytes:
        """Fewer where the file ends. Raises OSError."""

    def marks(self) -> bytes:
        """Those of all blocks, as far as there are any. Raises OSError."""


class State(enum.Enum):
    """What a record is."""

    LIVING = enum.auto()
    DEAD = enum.auto()
    """It was marked so."""
    TORN = enum.auto()
    """Its bytes are not what its head says: its write never returned, or its blocks have been written anew."""


class Found(NamedTuple):
    """A record, and its first block."""

    block: int
    head: Head
    state: State


def scan(file: Readable, marks: bytes) -> Iterator[Found]:
    """All records, upwards; those of one block may lie within another's. Raises OSError."""
    block = 1
    while block < file.blocks:
        data = memoryview(file.read(block * BLOCK_BYTES, READ_BYTES))
        if not data:
            return
        first, here = block, -(-len(data) // BLOCK_BYTES)
        while block < first + here:
            at = (block - first) * BLOCK_BYTES
            if bytes(data[at : at + len(MAGIC)]) != MAGIC:
                block += 1
                continue
            found = _found(file, block, data[at : at + BLOCK_BYTES], marks)
            if found is not None:
                yield found
            block += 1


def _found(file: Readable, block: int, data: memoryview, marks: bytes) -> Found | None:
    head = decode_head(data, ring_id=file.ring_id)
    if head is None or block + blocks_of(head.key, head.size_bytes) > file.blocks:
        return None
    if decode_mark(marks, block, ring_id=file.ring_id) >= head.generation:
        return Found(block, head, State.DEAD)
    whole = file.read(block * BLOCK_BYTES + head_bytes(head.key), head.size_bytes)
    return Found(block, head, State.LIVING if head.is_of(whole) else State.TORN)


def apart(records: Sequence[Found]) -> list[Found]:
    """Those that no younger one lies in, of one file. A younger one was written where an older one was dead by then,
    though its bytes may be as they were: those behind an object say nothing.
    """
    taken: set[int] = set()
    found = []
    for one in sorted(records, key=lambda one: -one.head.generation):
        blocks = range(one.block, one.block + blocks_of(one.head.key, one.head.size_bytes))
        if taken.isdisjoint(blocks):
            found.append(one)
        taken.update(blocks)
    return found


class Living(NamedTuple):
    """What a ring has, by key: the file's place among those that were looked at, and the record. `over`: living records
    of keys that have younger ones. `torn`: those whose write never returned, or whose bytes are damaged. `generation`:
    the highest that a record has or a mark names.
    """

    records: dict[str, tuple[int, Found]]
    over: list[tuple[int, Found]]
    torn: list[tuple[int, Found]]
    generation: int


def living(files: Iterable[Readable]) -> Living:
    """By keys. Of records with one key the youngest counts, also where that is dead: what it followed came to nothing,
    or was deleted before. Raises OSError.
    """
    newest: dict[str, tuple[int, Found]] = {}
    over: list[tuple[int, Found]] = []
    torn: list[tuple[int, Found]] = []
    generation = 0
    for place, file in enumerate(files):
        marks = file.marks()
        records = list(scan(file, marks))
        generation = max(generation, newest_mark(marks, ring_id=file.ring_id))
        generation = max([generation, *(found.head.generation for found in records)])
        for found in apart(records):
            if found.state is State.TORN:
                torn.append((place, found))
                continue
            one, other = (place, found), newest.get(found.head.key)
            if other is None or found.head.generation > other[1].head.generation:
                newest[found.head.key] = one
            else:
                other = one
            if other is not None and other[1].state is State.LIVING:
                over.append(other)
    return Living({key: one for key, one in newest.items() if one[1].state is State.LIVING}, over, torn, generation)
