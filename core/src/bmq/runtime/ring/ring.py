"""Objects as records of a ring's files. For any thread.

A create is one write, durable when it returns, to blocks that nothing living has. A delete is a mark, which a power cut
may take back, and the blocks are free at once. What a living record has is never written to.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, Protocol, TypeVar

import structlog
from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import Conflict, ObjectMissing, StoreUnavailable, UnknownOutcome
from bmq.ports import ObjectMeta
from bmq.runtime.ring.blocks import Blocks
from bmq.runtime.ring.format import (
    BLOCK_BYTES,
    CHANGES_AT,
    KEY_BYTES_MAX,
    LIFE_AT,
    Head,
    Life,
    blocks_of,
    copies,
    copy_at,
    decode_changes,
    decode_mark,
    encode_changes,
    encode_copy,
    encode_head,
    encode_life,
    encode_mark,
    head_bytes,
    mark_at,
)
from bmq.runtime.ring.names import Names
from bmq.runtime.ring.scan import Living, Readable, State, living

FILE_BYTES: Final = (16 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20)
"""How large the files are, one after the other as they are needed: 256 MiB, four rolls' worth of WAL objects."""
RECORD_BYTES_MAX: Final = 1 << 20
"""What is larger costs its bytes: a file of its own is as good."""

log = structlog.get_logger()
T = TypeVar("T")


class File(Readable, Protocol):
    """One of a ring's files."""

    @property
    def name(self) -> str:
        """For people."""

    def write(self, at: int, parts: Sequence[Buffer]) -> None:
        """From a block's first byte on, whole blocks; durable when it returns. Raises OSError."""

    def note(self, at: int, said: bytes) -> None:
        """In the table. The process may die then, the machine may not. Raises OSError."""

    def sync_table(self) -> None:
        """All that was noted is durable. Raises OSError."""

    @property
    def has_copy(self) -> bool:
        """Whether somebody made a copy by links, which would change with it."""

    def sync(self) -> None:
        """What is read of it is durable. Raises OSError."""

    def remove(self) -> None:
        """It is not there any more. Raises OSError."""

    def close(self) -> None:
        """Nobody uses it any more."""


class Folder(Protocol):
    """Where a ring's files are."""

    def files(self) -> Sequence[File]:
        """Those that are there, in the order in which they were made. Raises OSError, UnreadableRing."""

    def make(self, size_bytes: int) -> File:
        """One more, durable. Raises OSError."""

    def remove(self) -> None:
        """It is not there any more, if no file is in it. Raises OSError."""


class _Placed(NamedTuple):
    """Where a record is."""

    file: "_Used"
    block: int
    blocks: int
    head: Head


class _Used:
    """A file, and what is free of it."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.blocks = Blocks(1, file.blocks)


class Ring:
    """The objects of one process. Raises OSError and UnreadableRing where its files cannot be used."""

    def __init__(
        self, folder: Folder, *, now_ms: Callable[[], int], boot_id: bytes, file_bytes: Sequence[int] = FILE_BYTES
    ) -> None:
        """Reads what there is. `boot_id`: ID_BYTES that tell this start of the machine from all others. `file_bytes`:
        how large the files are, one after the other.
        """
        self._folder = folder
        self._now_ms = now_ms
        self._boot_id = boot_id
        self._file_bytes = file_bytes
        self.gate = threading.Lock()
        """Held where a name comes or goes, here and by whoever keeps others beside these; so who holds it sees all of
        one moment."""
        self._left = threading.Condition(self.gate)
        self._entering: set[str] = set()
        self._grows = threading.Lock()
        self._deletes = threading.Lock()
        """Marks of one block come in the order of its records."""
        self._trouble = ""
        """Why nothing more is written to it; empty: it is."""
        files = [_Used(file) for file in folder.files()]
        self._changes = decode_changes(files[0].file.about()) | 1 if files else 0
        """Odd while a name comes or goes."""
        if files:
            files[0].file.note(CHANGES_AT, encode_changes(self._changes))
        found = living([used.file for used in files], boot_id=boot_id)
        self._generation = found.generation
        self._records: dict[str, _Placed] = {}
        self._names = Names()
        for key, (place, one) in found.records.items():
            count = blocks_of(key, one.head.size_bytes)
            files[place].blocks.reserve(one.block, count)
            self._records[key] = _Placed(files[place], one.block, count, one.head)
            self._names.add(key)
            if one.state is State.DAMAGED:
                name = files[place].file.name
                log.error("an object's record is damaged", key=key, file=name, remedy="see that its disk works")
        for place, one in found.torn:
            log.warning(
                "a record is not whole: its write never returned, or it is damaged",
                key=one.head.key,
                file=files[place].file.name,
            )
        self._files = files
        self._write_tables(found)

    def __len__(self) -> int:
        return len(self._records)

    @contextmanager
    def entering(self, key: str) -> Iterator[None]:
        """Meanwhile nobody else makes an object of that key, here or beside. Raises Conflict: it is here."""
        with self.gate:
            while key in self._entering:
                self._left.wait()
            if key in self._records:
                raise Conflict(key)
            self._entering.add(key)
        try:
            yield
        finally:
            with self.gate:
                self._entering.discard(key)
                self._left.notify_all()

    def create(self, key: str, parts: Sequence[Buffer]) -> bool:
        """Within `entering`. False: there is no room for it. Raises UnknownOutcome."""
        size_bytes = sum(memoryview(part).nbytes for part in parts)
        if len(key) > KEY_BYTES_MAX or head_bytes(key) + size_bytes > RECORD_BYTES_MAX:
            return False
        count = blocks_of(key, size_bytes)
        taken = self._take(count) or self._take_of_more(count)
        if taken is None:
            return False
        used, block, generation = taken
        crc = 0
        for part in parts:
            crc = crc32c(part, crc)
        head = Head(key, size_bytes, generation, self._now_ms(), crc)
        try:
            used.file.write(block * BLOCK_BYTES, [encode_head(head, ring_id=used.file.ring_id), *parts])
        except OSError as error:
            self._failed(used, block, generation, error)
            raise UnknownOutcome(f"create {key}: {error.strerror}") from error
        with self.changing():
            self._records[key] = _Placed(used, block, count, head)
            self._names.add(key)
            self._note(used, copy_at(block), encode_copy(head, ring_id=used.file.ring_id))
        return True

    def read(self, key: str, *, start: int, length: int | None) -> bytes | None:
        """None: it is not here. Raises ObjectMissing, where it is deleted meanwhile, and StoreUnavailable."""
        placed = self._records.get(key)
        if placed is None:
            return None
        left = max(0, placed.head.size_bytes - start)
        wanted = left if length is None else min(left, length)
        try:
            data = placed.file.file.read(placed.block * BLOCK_BYTES + head_bytes(key) + start, wanted)
        except OSError as error:
            raise StoreUnavailable(f"get {key}: {error.strerror}") from error
        if self._records.get(key) is not placed:  # its blocks may have been written anew
            raise ObjectMissing(key)
        if len(data) != wanted:
            raise StoreUnavailable(f"get {key}: its file ends before it does: it was cut")
        return data

    def meta(self, key: str) -> ObjectMeta | None:
        """None: it is not here."""
        placed = self._records.get(key)
        return None if placed is None else _meta(placed.head)

    def delete(self, key: str) -> bool:
        """False: it was not here. Raises StoreUnavailable."""
        with self._deletes:
            placed = self._records.get(key)
            if placed is None:
                return False
            with self.changing():
                has_copy = placed.file.file.has_copy
                try:
                    if not has_copy:  # else it is here again after the next start, as it was
                        _mark(placed.file.file, placed.block, placed.head.generation)
                except OSError as error:
                    raise StoreUnavailable(f"delete {key}: {error.strerror}") from error
                del self._records[key]
                self._names.discard(key)
                if not has_copy:
                    placed.file.blocks.give(placed.block, placed.blocks)
            return True

    def names(self) -> list[str]:
        """All keys of now, in no order."""
        return list(self._records)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """While a name comes or goes, here or beside."""
        with self.gate:
            self._changed()
            try:
                yield
            finally:
                self._changed()

    def together(self, folder: str, others: Callable[[], T]) -> tuple[T, set[str]]:
        """What `others` tells and what is here in the folder, of one moment; the names of folders with their slash."""
        with self.gate:
            return others(), self._names.below(folder)

    def close(self) -> None:
        """Nobody uses it any more. Files of a ring that has nothing go."""
        goes = not self._records
        with suppress(OSError):  # the next process has it
            for used in self._files if goes else ():
                used.file.remove()
            if goes:
                self._folder.remove()
            for used in () if goes or self._trouble else self._files:
                used.file.sync_table()
                used.file.note(LIFE_AT, encode_life(Life(self._boot_id, is_over=True)))
                used.file.sync_table()
        for used in self._files:
            used.file.close()

    def _take(self, count: int) -> tuple[_Used, int, int] | None:
        with self.gate:
            if self._trouble:
                return None
            for used in self._files:
                if used.file.has_copy:
                    self._trouble = "a copy by links was made of it"
                    log.warning("small objects get a file each until the next start", why=self._trouble)
                    return None
                if used.blocks.free >= count and (block := used.blocks.take(count)) is not None:
                    self._generation += 1
                    return used, block, self._generation
        return None

    def _take_of_more(self, count: int) -> tuple[_Used, int, int] | None:
        """Makes one more file for it. While it is made, what comes is kept elsewhere."""
        if self._trouble or not self._grows.acquire(blocking=False):
            return None
        try:
            if len(self._files) >= len(self._file_bytes) or self._file_bytes[len(self._files)] <= count * BLOCK_BYTES:
                return None
            try:
                made = _Used(self._folder.make(self._file_bytes[len(self._files)]))
                made.file.note(LIFE_AT, encode_life(Life(self._boot_id, is_over=False)))
            except OSError as error:
                log.warning("no file for small objects: each gets its own", why=error.strerror or str(error))
                self._file_bytes = self._file_bytes[: len(self._files)]
                return None
            with self.changing():
                self._files.append(made)
        finally:
            self._grows.release()
        return self._take(count)

    def _write_tables(self, found: Living) -> None:
        """They say what was found, and who looks may go by them. Raises OSError."""
        damaged = [(place, one) for place, one in found.torn if one.state is State.DAMAGED]
        for place, one in [*found.over, *damaged, *found.hidden]:  # a torn one has no copy that could speak for it
            _mark(self._files[place].file, one.block, one.head.generation)
        for used in self._files:
            here = [placed for placed in self._records.values() if placed.file is used]
            heads = {placed.block: encode_copy(placed.head, ring_id=used.file.ring_id) for placed in here}
            table = used.file.table()
            for block, head in copies(table, ring_id=used.file.ring_id, known=heads):
                if block not in heads and decode_mark(table, block, ring_id=used.file.ring_id) < head.generation:
                    _mark(used.file, block, head.generation)
            for block, said in heads.items():
                if table[copy_at(block) : copy_at(block) + len(said)] != said:
                    used.file.note(copy_at(block), said)
            used.file.note(LIFE_AT, encode_life(Life(self._boot_id, is_over=False)))
            used.file.sync_table()
            used.file.sync()
        if self._files:
            self._changed()

    def _changed(self) -> None:
        self._changes += 1
        if self._files:
            self._note(self._files[0], CHANGES_AT, encode_changes(self._changes))

    def _note(self, used: _Used, at: int, said: bytes) -> None:
        """Where the disk does not take it, who looks may see what was."""
        try:
            used.file.note(at, said)
        except OSError as error:
            self._trouble = error.strerror or str(error)
            log.error("a table of small objects fails: each gets a file", why=self._trouble, remedy="look at the disk")

    def _failed(self, used: _Used, block: int, generation: int, error: OSError) -> None:
        """Its blocks are nobody's from now on, and the next objects have files of their own."""
        self._trouble = error.strerror or str(error)
        log.error("a file for small objects fails: each gets its own", why=self._trouble, remedy="look at the disk")
        with suppress(OSError):
            _mark(used.file, block, generation)


def _meta(head: Head) -> ObjectMeta:
    return ObjectMeta(key=head.key, size_bytes=head.size_bytes, modified_ms=head.made_ms)


def _mark(file: File, block: int, generation: int) -> None:
    file.note(mark_at(block), encode_mark(block, generation, ring_id=file.ring_id))
