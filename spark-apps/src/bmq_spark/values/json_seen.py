"""What was seen in JSON values: of each field of what kinds it was, and how many records have it. Pure.

What was seen by one is added to what others saw, in any order and however records were divided among them: kinds are
put together, and records are counted. That has to be bounded, since keys that are data are new in every record: where
it becomes too much, half of the records are forgotten, and half of those that are left, and so on. Which halves a
record is in is told by a digest of its address, and how many are forgotten by what all have seen, so neither depends on
who saw what. A field that many records have is in the half that stays.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from bmq_spark.values.json_records import JSON_REFUSES

COLUMNS: Final = 1000
"""More columns than this are not made of their own accord: objects whose keys are data would make them without end.
A record with more fields tells nothing: it would fit no table."""
LEVELS: Final = 20
"""What is deeper is JSON text."""
SIZE_MAX: Final = 64 * COLUMNS
"""What an observation may have: one for each part, and for each NAME_SIZE characters of its name."""
NAME_SIZE: Final = 100
_DIGEST_BITS: Final = 64

INTEGER, FRACTION, BOOLEAN, TEXT, OBJECT, LIST = (1 << bit for bit in range(6))
_NUMBERS: Final = {INTEGER: pa.int64(), FRACTION: pa.float64(), INTEGER | FRACTION: pa.float64()}
_KINDS: Final = {bool: BOOLEAN, float: FRACTION, str: TEXT}
_Shape: TypeAlias = "int | tuple[tuple[str, ...], tuple[_Shape, ...]] | frozenset[_Shape]"
"""A kind, 0 for null; of an object the names and what they are; of a list what its elements are."""


class Part(msgspec.Struct, array_like=True, gc=False):
    """A value, a field or the elements of a list: `kinds` that it was, a set of bits, and how many records have it.
    null is none of them.
    """

    kinds: int = 0
    records: int = 0
    fields: "dict[str, Part]" = {}
    element: "Part | None" = None

    def scalar(self, among: int = -1) -> pa.DataType:
        """The type without parts that holds the kinds, of those `among`: JSON text where there are several."""
        kinds = self.kinds & among
        return _NUMBERS.get(kinds) or (pa.bool_() if kinds == BOOLEAN else pa.string())


class Observation(msgspec.Struct):
    """What some values have: by how many halves of the records they are in, of those that are in `halved` or more."""

    trees: dict[int, Part] = {}
    halved: int = 0
    size: int = 0

    def add(self, values: Iterable[bytes | None], addresses: Iterable[str]) -> None:
        """Values that are no JSON objects, or have more fields than COLUMNS, tell nothing. An address is what no other
        record has. Shapes are told apart, and each is added once: for no more values than there is memory for.
        """
        shapes: Counter[tuple[int, _Shape]] = Counter()
        for value, address in zip(values, addresses, strict=True):
            if value is not None and (halves := _halves(address)) >= self.halved:
                try:
                    told = msgspec.json.decode(value)
                except JSON_REFUSES:
                    continue
                if isinstance(told, dict):
                    shapes[halves, _shape(told, 0)] += 1
        for (halves, shape), records in shapes.items():
            tree = Part()
            _mark(tree, shape, records)
            if halves >= self.halved and _fields(tree) <= COLUMNS and _size(tree) <= SIZE_MAX // 4:
                self._grow(halves, tree)

    def take(self, other: "Observation") -> None:
        """Adds what the other saw, which stays as it is. Commutative and associative."""
        copied = Observation.unpacked(other.packed())
        self.halved = max(self.halved, copied.halved)
        self._forget()
        for halves, tree in copied.trees.items():
            if halves >= self.halved:
                self._grow(halves, tree)

    def seen(self) -> Part:
        """All of it together."""
        whole = Observation()
        whole.take(self)
        tree = Part()
        for part in whole.trees.values():
            _grow(tree, part)
        return tree

    def packed(self) -> bytes:
        """As bytes, to be sent."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpacked(cls, content: bytes) -> "Observation":
        """What `packed` made bytes of."""
        return msgspec.msgpack.decode(content, type=cls)

    def _grow(self, halves: int, tree: Part) -> None:
        if halves in self.trees:
            self.size += _grow(self.trees[halves], tree)
        else:
            self.trees[halves] = tree
            self.size += _size(tree)
        while self.size > SIZE_MAX:
            self.halved = min(self.trees) + 1
            self._forget()

    def _forget(self) -> None:
        for halves in [halves for halves in self.trees if halves < self.halved]:
            self.size -= _size(self.trees.pop(halves))


def tells(value: Any, level: int = 0) -> bool:
    """Whether a decoded value has anything that could be a column."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return bool(value) and (level == LEVELS or any(tells(part, level + 1) for part in parts))
    return value is not None


def _halves(address: str) -> int:
    """Half of all records are in none, a quarter in one, and so on."""
    digest = int.from_bytes(blake2b(address.encode(), digest_size=_DIGEST_BITS // 8).digest(), "big")
    return _DIGEST_BITS - digest.bit_length()


def _shape(value: Any, level: int) -> _Shape:
    if type(value) is int:
        return INTEGER if -(1 << 63) <= value < 1 << 63 else FRACTION
    if isinstance(value, dict | list) and value and level == LEVELS:
        return TEXT
    inner = level + 1
    if isinstance(value, dict):
        return tuple(value), tuple([_KINDS.get(type(part)) or _shape(part, inner) for part in value.values()])
    if isinstance(value, list):
        return frozenset([_KINDS.get(type(part)) or _shape(part, inner) for part in value])
    return 0 if value is None else _KINDS[type(value)]


def _mark(part: Part, shape: _Shape, records: int) -> None:
    """Adds a value of records that have others there, if any, in a list alone."""
    part.records = records
    if isinstance(shape, int):
        part.kinds |= shape
    elif isinstance(shape, tuple):
        part.kinds |= OBJECT
        for name, inner in zip(*shape, strict=True):
            if inner != 0:
                if name not in part.fields:
                    part.fields[name] = Part()
                _mark(part.fields[name], inner, records)
    else:
        part.kinds |= LIST
        for inner in shape:
            if inner != 0:
                if part.element is None:
                    part.element = Part()
                _mark(part.element, inner, records)


def _grow(one: Part, other: Part) -> int:
    """Adds the other, whose parts become `one`'s own; by how much it grew."""
    one.kinds |= other.kinds
    one.records += other.records
    grown = 0
    for name, part in other.fields.items():
        mine = one.fields.get(name)
        if mine is None:
            one.fields[name] = part
            grown += _size(part, name)
        else:
            grown += _grow(mine, part)
    if other.element is not None:
        if one.element is None:
            one.element = other.element
            return grown + _size(other.element)
        grown += _grow(one.element, other.element)
    return grown


def _size(part: Part, name: str = "") -> int:
    """It never shrinks by what is added: so how much is forgotten does not depend on who saw what."""
    inner = sum(_size(each, name) for name, each in part.fields.items())
    return 1 + len(name) // NAME_SIZE + inner + (0 if part.element is None else _size(part.element))


def _fields(part: Part) -> int:
    """Those without parts."""
    inner = sum(map(_fields, part.fields.values())) + (0 if part.element is None else _fields(part.element))
    return inner or 1
