"""How records lie in a ring's file, and what its table says of them (docs/formats/ring.md). Pure."""

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from crc32c import crc32c
from typing_extensions import Buffer

BLOCK_BYTES: Final = 4096
"""A record begins at a multiple of it and has whole ones. Enough for every disk's blocks."""
ID_BYTES: Final = 16
KEY_BYTES_MAX: Final = 96
VERSION: Final = 1
_CRC: Final = struct.Struct("<I")

_FILE_MAGIC: Final = b"bmq ring"
_FILE: Final = struct.Struct(f"<8sHxx{ID_BYTES}sQ")

MAGIC: Final = b"bmqR"
_HEAD: Final = struct.Struct(f"<4sBxHIQQ{ID_BYTES}sI")

_COPY_BYTES: Final = 160
_MARK: Final = struct.Struct("<QIxxxx")
_ENTRY: Final = struct.Struct("<160xQ24x")
ENTRY_BYTES: Final = _ENTRY.size
"""What the table has of each block; of the first one it has what follows."""
_CHANGES: Final = struct.Struct("<Q")
_LIFE: Final = struct.Struct(f"<{ID_BYTES}s?")
CHANGES_AT, LIFE_AT = 0, 64


class FileHead(NamedTuple):
    """What a file begins with: its id, which nobody else knows, and its size."""

    ring_id: bytes
    size_bytes: int


class Head(NamedTuple):
    """What a record begins with. `generation`: a later record has a higher one. `made_ms`: since 1970."""

    key: str
    size_bytes: int
    generation: int
    made_ms: int
    crc: int

    def is_of(self, data: Buffer) -> bool:
        """Whether these are the object's bytes."""
        return memoryview(data).nbytes == self.size_bytes and crc32c(data) == self.crc


class Life(NamedTuple):
    """What is said of the process that wrote a table: the machine's start that it lived after, and whether it came to
    its end. While that start is the last one, or it came to its end, the table has all that was ever written to it.
    """

    boot_id: bytes
    is_over: bool


class UnreadableRing(Exception):
    """A file of a ring that cannot be read: it is of a newer version, or damaged. What it has would be missing."""


def encode_file(head: FileHead) -> bytes:
    """One block."""
    body = _FILE.pack(_FILE_MAGIC, VERSION, head.ring_id, head.size_bytes)
    return (body + _CRC.pack(crc32c(body))).ljust(BLOCK_BYTES, b"\0")


def decode_file(block: Buffer) -> FileHead:
    """Raises UnreadableRing."""
    view = memoryview(block)
    if len(view) < _FILE.size + _CRC.size:
        raise UnreadableRing("it ends within its head")
    magic, version, ring_id, size_bytes = _FILE.unpack_from(view)
    if magic != _FILE_MAGIC or _CRC.unpack_from(view, _FILE.size)[0] != crc32c(view[: _FILE.size]):
        raise UnreadableRing("its head is damaged")
    if version > VERSION:
        raise UnreadableRing(f"it has version {version}, and this bmq knows {VERSION}: use the newer one")
    return FileHead(ring_id, size_bytes)


def head_bytes(key: str) -> int:
    """How many bytes of a record come before its object's."""
    return _HEAD.size + len(key) + _CRC.size


def blocks_of(key: str, size_bytes: int) -> int:
    """How many blocks the record takes."""
    return -(-(head_bytes(key) + size_bytes) // BLOCK_BYTES)


def encode_head(head: Head, *, ring_id: bytes) -> bytes:
    """What comes before the object's bytes."""
    key = head.key.encode("ascii")
    assert len(key) <= KEY_BYTES_MAX, head.key
    body = _HEAD.pack(MAGIC, VERSION, len(key), head.size_bytes, head.generation, head.made_ms, ring_id, head.crc) + key
    return body + _CRC.pack(crc32c(body))


def decode_head(block: Buffer, *, ring_id: bytes) -> Head | None:
    """None: no record of that file begins there. Whether its bytes are whole is another question."""
    view = memoryview(block)
    if bytes(view[:4]) != MAGIC or len(view) < _HEAD.size + _CRC.size:
        return None
    _, version, key_bytes, size_bytes, generation, made_ms, found_id, crc = _HEAD.unpack_from(view)
    end = _HEAD.size + key_bytes
    if version != VERSION or found_id != ring_id or key_bytes > KEY_BYTES_MAX or end + _CRC.size > len(view):
        return None
    if _CRC.unpack_from(view, end)[0] != crc32c(view[:end]):
        return None
    return Head(bytes(view[_HEAD.size : end]).decode("ascii"), size_bytes, generation, made_ms, crc)


def copy_at(block: int) -> int:
    """Where the table has the head of the record at the block, a second time."""
    return block * ENTRY_BYTES


def encode_copy(head: Head, *, ring_id: bytes) -> bytes:
    """The head, with nothing left of an earlier one."""
    return encode_head(head, ring_id=ring_id).ljust(_COPY_BYTES, b"\0")


def copies(
    table: Buffer, *, ring_id: bytes, known: Mapping[int, bytes] = MappingProxyType({})
) -> Iterator[tuple[int, Head]]:
    """The heads that the table has, with their blocks, but for those that are as known."""
    data = bytes(table)
    for block in range(1, len(data) // ENTRY_BYTES):
        at = copy_at(block)
        if data[at] != MAGIC[0] or (block in known and data[at : at + _COPY_BYTES] == known[block]):
            continue
        if (head := decode_head(data[at : at + _COPY_BYTES], ring_id=ring_id)) is not None:
            yield block, head


def mark_at(block: int) -> int:
    """Where the table has the mark of the record at the block."""
    return block * ENTRY_BYTES + _COPY_BYTES


def encode_mark(block: int, generation: int, *, ring_id: bytes) -> bytes:
    """That the record at the block is dead, and all that were there before it."""
    return _MARK.pack(generation, _mark_crc(block, generation, ring_id))


def decode_mark(table: Buffer, block: int, *, ring_id: bytes) -> int:
    """The newest generation that is dead at the block; 0: none is, as far as is known."""
    at = mark_at(block)
    if at + _MARK.size > len(memoryview(table)):
        return 0
    generation, crc = _MARK.unpack_from(table, at)
    assert isinstance(generation, int)
    return generation if generation and crc == _mark_crc(block, generation, ring_id) else 0


def newest_mark(table: Buffer, *, ring_id: bytes) -> int:
    """The highest generation that any of them names; 0: there is none. A record that comes later has a higher one: a
    mark may outlive the record that it was made for.
    """
    view = memoryview(table)[: len(memoryview(table)) // ENTRY_BYTES * ENTRY_BYTES]
    named: list[tuple[int, int]] = [
        (generation, block) for block, (generation,) in enumerate(_ENTRY.iter_unpack(view)) if block and generation
    ]
    for generation, block in sorted(named, reverse=True):
        if decode_mark(table, block, ring_id=ring_id) == generation:
            return generation
    return 0


def encode_changes(changes: int) -> bytes:
    """How many changes of names there were, in the first file's table; odd: one is being made."""
    return _CHANGES.pack(changes)


def decode_changes(table: Buffer) -> int:
    """See `encode_changes`."""
    changes = _CHANGES.unpack_from(table, CHANGES_AT)[0]
    assert isinstance(changes, int)
    return changes


def encode_life(life: Life) -> bytes:
    """What the table says of the process that wrote it."""
    body = _LIFE.pack(life.boot_id, life.is_over)
    return body + _CRC.pack(crc32c(body))


def decode_life(table: Buffer) -> Life | None:
    """None: nothing is known."""
    view = memoryview(table)[LIFE_AT : LIFE_AT + _LIFE.size + _CRC.size]
    if len(view) < _LIFE.size + _CRC.size or _CRC.unpack_from(view, _LIFE.size)[0] != crc32c(view[: _LIFE.size]):
        return None
    boot_id, is_over = _LIFE.unpack_from(view)
    return Life(boot_id, bool(is_over))


def has_all(table: Buffer, *, boot_id: bytes) -> bool:
    """Whether the table has all that was ever written to it, for who lives after that start of the machine: no power
    was cut since.
    """
    life = decode_life(table)
    return life is not None and (life.is_over or life.boot_id == boot_id)


def _mark_crc(block: int, generation: int, ring_id: bytes) -> int:
    return crc32c(ring_id + block.to_bytes(8, "little") + generation.to_bytes(8, "little"))
