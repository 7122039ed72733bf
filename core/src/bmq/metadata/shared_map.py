"""A mapping of which the next version shares all but what changes, so that neither making one nor telling two apart
costs a look at everything. Pure.

The entries lie in leaves, small dicts, by the hash of their keys; a version is a tuple of leaves, which nobody changes.
A small mapping is one leaf and keeps the order in which its entries came, as a dict does; a larger one has no order to
rely on, and of texts another one in each process.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from itertools import chain, islice
from operator import is_
from typing import Any, Final, Generic, TypeVar, overload

LEAF_MAX: Final = 1_024
"""How many entries leaves have on an average before there are more of them."""
LEAF_GROWN: Final = 256
"""How many they have then, at most."""
LEAF_MIN: Final = 32
"""How few they have before there are fewer of them."""

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class SharedMap(Mapping[K, V]):
    """One version, which never changes."""

    __slots__ = ("__weakref__", "_leaves", "_mask", "_size")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        """Has a copy of `entries`."""
        first = {} if entries is None else dict(entries)
        self._take([first], len(first))

    @classmethod
    def of(cls, entries: Mapping[K, V]) -> "SharedMap[K, V]":
        """`entries` themselves where they are such a mapping, a copy of others."""
        return entries if isinstance(entries, cls) else cls(entries)

    def _take(self, leaves: Sequence[dict[K, V]], size: int) -> None:
        self._size = size
        count = _leaf_count(size, len(leaves))
        self._leaves = tuple(leaves) if count == len(leaves) else _spread(leaves, count)
        self._mask = count - 1

    def __getitem__(self, key: K) -> V:
        return self._leaves[hash(key) & self._mask][key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        """What the key has; `default` where there is no such key."""
        return self._leaves[hash(key) & self._mask].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._leaves[hash(key) & self._mask]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._leaves)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"SharedMap({dict(self.items())!r})"

    def items(self) -> ItemsView[K, V]:
        """All of them, in no order to rely on unless it is a small mapping."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """In the order of the keys."""
        return _Values(self)


class Successor(Generic[K, V]):
    """What a mapping's next version is to be. Its leaves are copied as they are written to."""

    __slots__ = ("_copied", "_leaves", "_mask", "_size")

    def __init__(self, base: SharedMap[K, V]) -> None:
        self._leaves = list(base._leaves)
        self._mask = base._mask
        self._size = len(base)
        self._copied: set[int] = set()

    def _leaf(self, key: K) -> dict[K, V]:
        """That of the key, to be changed."""
        place = hash(key) & self._mask
        if place not in self._copied:
            self._leaves[place] = dict(self._leaves[place])
            self._copied.add(place)
        return self._leaves[place]

    def __getitem__(self, key: K) -> V:
        return self._leaves[hash(key) & self._mask][key]

    def __contains__(self, key: K) -> bool:
        return key in self._leaves[hash(key) & self._mask]

    def get(self, key: K) -> V | None:
        """None: there is no such key."""
        return self._leaves[hash(key) & self._mask].get(key)

    def __setitem__(self, key: K, value: V) -> None:
        leaf = self._leaf(key)
        self._size += key not in leaf
        leaf[key] = value

    def pop(self, key: K) -> V | None:
        """What the key had, and has no more."""
        if key not in self:
            return None
        self._size -= 1
        return self._leaf(key).pop(key)

    def version(self) -> SharedMap[K, V]:
        """It is done: nothing may be changed any more."""
        made: SharedMap[K, V] = SharedMap.__new__(SharedMap)
        made._take(self._leaves, self._size)
        return made


def changed(base: SharedMap[K, V], changes: Iterable[tuple[K, V | None]]) -> SharedMap[K, V]:
    """The version after the changes, one after the other; None takes a key out. The same object if there are none."""
    after: Successor[K, V] | None = None
    for key, value in changes:
        if after is None:
            after = Successor(base)
        if value is None:
            after.pop(key)
        else:
            after[key] = value
    return base if after is None else after.version()


@dataclass(frozen=True, slots=True)
class Differences(Generic[K, V]):
    """How two versions differ: values are compared by what they are, not by what they are equal to."""

    changed: Sequence[tuple[K, V | None, V]]
    """Keys that are new or have another value: (key, value before, None where there was none, value now)."""
    gone: Sequence[tuple[K, V]]
    """Keys that are no more, with the value that they had."""


def differences(old: Mapping[K, V], new: Mapping[K, V]) -> Differences[K, V]:
    """What is different in `new`. O(leaves + what changed) of two versions of one mapping, O(both) of any others."""
    changed: list[tuple[K, V | None, V]] = []
    gone: list[tuple[K, V]] = []
    for was, now in _unlike(old, new):
        if len(was) <= len(now) and all(map(is_, was, now)):
            # The keys that were there are still there, in order: so none has to be looked for.
            here = zip(was.items(), now.values(), strict=False)
            changed += [(key, before, value) for (key, before), value in here if before is not value]
            changed += [(key, None, value) for key, value in islice(now.items(), len(was), None)]
        else:
            changed += [(key, before, value) for key, value in now.items() if (before := was.get(key)) is not value]
            gone += [(key, value) for key, value in was.items() if key not in now]
    return Differences(changed, gone)


def _unlike(old: Mapping[K, V], new: Mapping[K, V]) -> list[tuple[Mapping[K, V], Mapping[K, V]]]:
    """The parts that may differ, in pairs."""
    if old is new:
        return []
    if isinstance(old, SharedMap) and isinstance(new, SharedMap):
        before, after = old._leaves, new._leaves
        if len(before) == len(after):
            return [pair for pair in zip(before, after, strict=True) if pair[0] is not pair[1]]
    return [(old, new)]


class _Items(ItemsView[K, V]):
    _mapping: SharedMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable([leaf.items() for leaf in self._mapping._leaves])


class _Values(ValuesView[V]):
    _mapping: SharedMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable([leaf.values() for leaf in self._mapping._leaves])


def _leaf_count(size: int, leaves: int) -> int:
    """How many leaves so many entries are to have, which have `leaves`: a power of two."""
    if size <= LEAF_MAX * leaves and (leaves == 1 or size >= LEAF_MIN * leaves):
        return leaves
    return 1 if size <= LEAF_MAX else 1 << ((size - 1) // LEAF_GROWN).bit_length()


def _spread(leaves: Sequence[dict[K, V]], count: int) -> tuple[dict[K, V], ...]:
    spread: tuple[dict[K, V], ...] = tuple({} for _ in range(count))
    for key, value in chain.from_iterable([leaf.items() for leaf in leaves]):
        spread[hash(key) & (count - 1)][key] = value
    return spread
