"""What a ring has, for who only looks while another process may be writing to it.

While one does, its tables say what there is, and a number in them whether that changed meanwhile. While none does, the
files are read, as a process that starts does.
"""

import errno
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from bmq.errors import StoreUnavailable
from bmq.ports import ObjectMeta
from bmq.runtime.ring.files import DiskFile, DiskFolder, closed_at_last
from bmq.runtime.ring.format import UnreadableRing, decode_changes, has_all
from bmq.runtime.ring.names import Names
from bmq.runtime.ring.scan import Found, apart, in_table, living, raw, whole

LOOKS_OF_A_MOMENT: Final = 200
LOOKS_MAX: Final = 2_000
LOOK_AGAIN_S: Final = 0.005
T = TypeVar("T")


class _State(NamedTuple):
    """What tells whether a ring is as it was: its files, whether a process keeps them, and how often names changed."""

    files: tuple[bytes, ...]
    is_kept: bool
    has_all: bool
    changes: int

    @property
    def is_changing(self) -> bool:
        """Whether its tables say nothing for now: a name is just coming or going, or a process starts."""
        return self.is_kept and (bool(self.changes % 2) or not self.has_all)


class RingView:
    """See `ring.Ring`, of which it has what reads."""

    def __init__(self, root: Path, *, boot_id: bytes) -> None:
        self._root = root
        self._boot_id = boot_id
        self._looks = threading.Lock()
        self._state: _State | None = None
        """What it knows is of this one."""
        self._records: dict[str, tuple[bytes, Found]] = {}
        """With the id of the file that each is in."""
        self._names = Names()

    def meta(self, key: str) -> ObjectMeta | None:
        """None: it is not here, as far as was last looked."""
        if (known := self._records.get(key)) is None:
            return None
        head = known[1].head
        return ObjectMeta(key=key, size_bytes=head.size_bytes, modified_ms=head.made_ms)

    def read(self, key: str, *, start: int, length: int | None) -> bytes | None:
        """None: it is not where it was when was last looked. Raises StoreUnavailable."""
        if (known := self._records.get(key)) is None:
            return None
        ring_id, found = known
        try:
            with closed_at_last(self._files()) as files:
                file = next((one for one in files if one.ring_id == ring_id), None)
                data = None if file is None else whole(file, found)
                if data is None and file is not None:
                    data = raw(file, found)
                    self.look()
                    if (still := self._records.get(key)) is None or still[1].head != found.head:
                        data = None  # else it was there all the time, and is damaged
        except OSError as error:
            raise StoreUnavailable(f"get {key}: {error.strerror}") from error
        return None if data is None else data[start : None if length is None else start + length]

    def look(self) -> None:
        """Looks at what there is now. Raises OSError."""
        self.together("", lambda: None)

    def together(self, folder: str, others: Callable[[], T]) -> tuple[T, set[str]]:
        """What `others` tells and what is in the ring's folder, the names of folders with their slash: of one moment,
        or, where names change too often to see one, what was there all the time and some of the rest. Raises OSError.
        """
        with self._looks:
            for turn in range(LOOKS_MAX):
                with closed_at_last(self._files()) as files:
                    state = self._state_of(files)
                    is_known = state == self._state
                    if not state.is_changing or (state.has_all and turn >= LOOKS_OF_A_MOMENT):
                        tables = [b"" if is_known or not state.is_kept else file.table() for file in files]
                        found = self._scanned(files) if not is_known and not state.is_kept else None
                        told = others()
                        if self._state_now() == state or (state.is_kept and turn >= LOOKS_OF_A_MOMENT):
                            if not is_known:
                                self._know(_of_tables(files, tables) if found is None else found, state)
                            return told, self._names.below(folder)
                time.sleep(LOOK_AGAIN_S)
        raise OSError(errno.EBUSY, "its ring is being opened, or comes and goes: try again")

    def _scanned(self, files: Sequence[DiskFile]) -> dict[str, tuple[bytes, Found]]:
        records = living(files, boot_id=self._boot_id).records
        return {key: (files[place].ring_id, one) for key, (place, one) in records.items()}

    def _know(self, found: dict[str, tuple[bytes, Found]], state: _State) -> None:
        names = Names()
        for key in found:
            names.add(key)
        self._names, self._records, self._state = names, found, state

    def _state_now(self) -> _State:
        with closed_at_last(self._files()) as files:
            return self._state_of(files)

    def _files(self) -> Sequence[DiskFile]:
        try:
            return DiskFolder(self._root, nonce=bytes, writes=False).files()
        except UnreadableRing as error:
            raise OSError(errno.EIO, str(error)) from error

    def _state_of(self, files: Sequence[DiskFile]) -> _State:
        if not files:
            return _State((), is_kept=False, has_all=True, changes=0)
        is_kept, about = files[0].is_kept, files[0].about()
        all_there = has_all(about, boot_id=self._boot_id)
        return _State(tuple(file.ring_id for file in files), is_kept, all_there, decode_changes(about))


def _of_tables(files: Sequence[DiskFile], tables: Sequence[bytes]) -> dict[str, tuple[bytes, Found]]:
    return {
        one.head.key: (file.ring_id, one)
        for file, table in zip(files, tables, strict=True)
        for one in apart(in_table(file, table))
    }
