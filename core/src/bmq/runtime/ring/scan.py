"""What a ring's files have, from nothing but their bytes. Pure, but for reading."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from bmq.runtime.ring.format import (
    BLOCK_BYTES,
    MAGIC,
    Head,
    blocks_of,
    copies,
    decode_head,
    decode_mark,
    encode_copy,
    has_all,
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

    def table(self) -> bytes:
        """What is said of all blocks. Raises OSError."""

    def about(self) -> bytes:
        """What the table says of all blocks together: the entry of the first one. Raises OSError."""


class State(enum.Enum):
    """What a record is."""

    LIVING = enum.auto()
    DEAD = enum.auto()
    """It was marked so."""
    TORN = enum.auto()
    """Its bytes are not what its head says: its write never returned, or its blocks have been written anew."""
    DAMAGED = enum.auto()
    """The table says that its write returned, and that it is not dead, but its bytes are not what its head says."""


class Found(NamedTuple):
    """A record, and its first block."""

    block: int
    head: Head
    state: State


def scan(file: Readable, table: bytes) -> Iterator[Found]:
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
            found = _found(file, block, data[at : at + BLOCK_BYTES], table)
            if found is not None:
                yield found
            block += 1


def _found(file: Readable, block: int, data: memoryview, table: bytes) -> Found | None:
    head = decode_head(data, ring_id=file.ring_id)
    if head is None or block + blocks_of(head.key, head.size_bytes) > file.blocks:
        return None
    if decode_mark(table, block, ring_id=file.ring_id) >= head.generation:
        return Found(block, head, State.DEAD)
    found = Found(block, head, State.LIVING)
    return found if head.is_of(raw(file, found)) else found._replace(state=State.TORN)


def with_damaged(records: Iterable[Found], file: Readable, table: bytes) -> list[Found]:
    """The same, and those whose heads the table alone has."""
    found = {one.block: one for one in records}
    living = {
        one.block: encode_copy(one.head, ring_id=file.ring_id) for one in found.values() if one.state is State.LIVING
    }
    for block, head in copies(table, ring_id=file.ring_id, known=living):
        if decode_mark(table, block, ring_id=file.ring_id) >= head.generation:
            continue
        one = found.get(block)
        if one is None or one.head.generation < head.generation or (one.head == head and one.state is State.TORN):
            found[block] = Found(block, head, State.DAMAGED)
    return list(found.values())


def in_table(file: Readable, table: bytes) -> list[Found]:
    """What the table says is living, while somebody keeps it."""
    return [
        Found(block, head, State.LIVING)
        for block, head in copies(table, ring_id=file.ring_id)
        if decode_mark(table, block, ring_id=file.ring_id) < head.generation
    ]


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
    of keys that have younger ones. `torn`: those whose write never returned, or, where a power cut may have come, whose
    bytes are damaged. `hidden`: those that younger ones lie in. `generation`: the highest that a record has or a mark
    names.
    """

    records: dict[str, tuple[int, Found]]
    over: list[tuple[int, Found]]
    torn: list[tuple[int, Found]]
    hidden: list[tuple[int, Found]]
    generation: int


def living(files: Iterable[Readable], *, boot_id: bytes) -> Living:
    """By keys; also damaged ones, where the power was not cut since the table was written: `boot_id` is that of the
    machine's start. Of records with one key the youngest counts, also where that is dead: what it followed came to
    nothing, or was deleted before. Raises OSError.
    """
    newest: dict[str, tuple[int, Found]] = {}
    over: list[tuple[int, Found]] = []
    torn: list[tuple[int, Found]] = []
    hidden: list[tuple[int, Found]] = []
    generation = 0
    for place, file in enumerate(files):
        table = file.table()
        is_exact = has_all(table, boot_id=boot_id)
        records = with_damaged(scan(file, table), file, table)
        generation = max(generation, newest_mark(table, ring_id=file.ring_id))
        generation = max([generation, *(found.head.generation for found in records)])
        counting = apart(records)
        blocks = {found.block for found in counting}
        hidden += [(place, one) for one in records if one.block not in blocks and one.state is not State.DEAD]
        for found in counting:
            if found.state is State.TORN or (found.state is State.DAMAGED and not is_exact):
                torn.append((place, found))
                continue
            one, other = (place, found), newest.get(found.head.key)
            if other is None or found.head.generation > other[1].head.generation:
                newest[found.head.key] = one
            else:
                other = one
            if other is not None and other[1].state is not State.DEAD:
                over.append(other)
    return Living(
        {key: one for key, one in newest.items() if one[1].state is not State.DEAD}, over, torn, hidden, generation
    )


def raw(file: Readable, found: Found) -> bytes:
    """The object's bytes, as they are. Raises OSError."""
    return file.read(found.block * BLOCK_BYTES + head_bytes(found.head.key), found.head.size_bytes)


def whole(file: Readable, found: Found) -> bytes | None:
    """The object's bytes, while others may write to the file; None: another record is there by now, or they are
    damaged. Raises OSError.
    """
    at = found.block * BLOCK_BYTES
    before = decode_head(file.read(at, BLOCK_BYTES), ring_id=file.ring_id)
    data = raw(file, found)
    after = decode_head(file.read(at, BLOCK_BYTES), ring_id=file.ring_id)
    return data if before == after == found.head and found.head.is_of(data) else None
