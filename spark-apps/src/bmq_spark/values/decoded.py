"""What decoding gives, and how a format's records become one array: in slices, each at once, and one by one only where
a slice does not hold.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from bmq_spark.values.times import beyond_calendar

SLICE_BYTES: Final = 4 << 20
"""Python's objects of a slice take about ten times its bytes."""
SLICE_BYTES_MIN: Final = 64 << 10
SLICE_RECORDS: Final = 8192
REASON_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Two arrays as long as what was decoded, in its order.

    `values` has the decoder's `arrow_type`. `reasons` (string) says why a value does not fit, and is null where it fits
    or there is none; where there is a reason the value is null.
    """

    values: pa.Array
    reasons: pa.Array


class Decoder(Protocol):
    """A format with its schema. It can be pickled: it is made once, on the driver, and used by every worker."""

    @property
    def arrow_type(self) -> pa.DataType:
        """binary, string, or a struct of nullable fields."""

    def decode(self, values: pa.Array) -> Decoded:
        """Takes binary values; null (a tombstone) stays null. Raises only for what no record is to blame for: a
        registry out of reach.
        """


class Unfit(Exception):
    """This record does not fit; the message says why. It never leaves this package."""


class RecordDecoder(ABC):
    """Formats that are parsed record by record into Python's objects, from which Arrow builds the columns of a slice at
    once.
    """

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The type of what is decoded, which Arrow builds from the objects that `parse` gives."""

    @abstractmethod
    def parse(self, values: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
        """What pa.array takes for `arrow_type`, one for each value, None for null and for those that do not fit: their
        positions with reasons.

        It may stop before the end where it has made much, but not before the first: the rest comes again.
        """

    def decode(self, values: pa.Array) -> Decoded:
        """Parses binary values and builds their columns slice by slice; null (a tombstone) stays null. Raises only for
        what no record is to blame for: a registry out of reach.
        """
        arrays, reasons = [], []
        for piece in slices(values, size_bytes_max=slice_bytes(self.arrow_type)):
            left = piece.to_pylist()
            while left:
                objects, unfit = self.parse(left)
                arrays.append(self._build(objects, unfit))
                reasons.append(reasons_of(len(objects), unfit))
                left = left[len(objects) :]
        return Decoded(values=joined(arrays, self.arrow_type), reasons=joined(reasons, pa.string()))

    def array(self, objects: list[Any]) -> pa.Array:
        """The objects as an array. Raises what ARROW_REFUSES names."""
        return pa.array(objects, type=self.arrow_type)

    def refused(self, objects: list[Any]) -> Iterator[tuple[int, Exception]]:
        """The positions of objects that Arrow refuses, and why: each column is built by itself, and only one that is
        refused is looked at. What the columns do not tell is found by halves of the objects.
        """
        for field, build in self.parts():
            for position, error in refused_by(build, objects):
                yield position, _culprit(field.type, objects[position].get(field.name), f"$.{field.name}") or error

    def parts(self) -> "Sequence[tuple[pa.Field, Build]]":
        """The columns, and what builds each from objects that are dicts, or None."""
        return [(field, partial(_column, field)) for field in self.arrow_type]

    def _build(self, objects: list[Any], unfit: dict[int, str]) -> pa.Array:
        """Where Arrow refuses the objects, those are left out which it refuses: a decimal with too many digits. So are
        those with times that no calendar has.
        """
        try:
            array = self.array(objects)
        except ARROW_REFUSES:
            for position, error in self.refused(objects):
                unfit.setdefault(position, reason(error))
            array = self._halved([None if at in unfit else each for at, each in enumerate(objects)], unfit, 0)
        return _within_calendar(array, unfit)

    def _halved(self, objects: list[Any], unfit: dict[int, str], first: int) -> pa.Array:
        try:
            return self.array(objects)
        except ARROW_REFUSES as error:
            if len(objects) == 1:
                unfit[first] = reason(_culprit(self.arrow_type, objects[0], "$") or error)
                return pa.nulls(1, type=self.arrow_type)
            middle = len(objects) // 2
            return pa.concat_arrays(
                [self._halved(objects[:middle], unfit, first), self._halved(objects[middle:], unfit, first + middle)]
            )


Build = Callable[[Any], pa.Array]
"""From records, a list or an array, to one of the columns. Raises what ARROW_REFUSES names."""


def _column(field: pa.Field, objects: list[Any]) -> pa.Array:
    return pa.array([None if found is None else found.get(field.name) for found in objects], type=field.type)


def refused_by(build: Build, records: Any, first: int = 0) -> Iterator[tuple[int, Exception]]:
    """The positions of the records (a list or an array) of which the column cannot be built, and why."""
    try:
        build(records)
    except ARROW_REFUSES as error:
        if len(records) == 1:
            yield first, error
            return
        middle = len(records) // 2
        yield from refused_by(build, records[:middle], first)
        yield from refused_by(build, records[middle:], first + middle)


def _within_calendar(array: pa.Array, unfit: dict[int, str]) -> pa.Array:
    """Null, with a reason, where a time is of no year that a calendar of SQL has."""
    found = beyond_calendar(array)
    if not found:
        return array
    unfit.update(found)
    kept = [None if position in found else position for position in range(len(array))]
    return array.take(pa.array(kept, type=pa.int64()))


ARROW_REFUSES: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError, KeyError)


def _culprit(arrow_type: pa.DataType, value: Any, path: str) -> Exception | None:
    """What Arrow says of the innermost part that it refuses, with the part's path; None where it takes the value, or
    where that is a message.
    """
    if path == "$" and not isinstance(value, dict):
        return None
    try:
        pa.array([value], type=arrow_type)
    except ARROW_REFUSES as error:
        if pa.types.is_struct(arrow_type) and isinstance(value, dict):
            parts = [(field.type, value.get(field.name), f"{path}.{field.name}") for field in arrow_type]
        elif (pa.types.is_list(arrow_type)) and isinstance(value, list):
            parts = [(arrow_type.value_type, element, f"{path}[{index}]") for index, element in enumerate(value)]
        else:
            parts = []
        inner = (_culprit(*part) for part in parts)
        return next((found for found in inner if found is not None), Unfit(f"{error} - at `{path}` ({arrow_type})"))
    return None


def slice_bytes(arrow_type: pa.DataType) -> int:
    """SLICE_BYTES, or less where elements of lists and maps have many columns: two bytes may be an element, and all of
    its columns are made.
    """
    return max(SLICE_BYTES_MIN, SLICE_BYTES // max(1, _widest_element(arrow_type)))


def _widest_element(arrow_type: pa.DataType, *, within: bool = False) -> int:
    if pa.types.is_struct(arrow_type):
        parts = [_widest_element(field.type, within=within) for field in arrow_type]
        return sum(parts) if within else max(parts, default=0)
    if pa.types.is_list(arrow_type):
        return _widest_element(arrow_type.value_type, within=True)
    if pa.types.is_map(arrow_type):
        return _widest_element(arrow_type.item_type, within=True)
    return int(within)


def slices(values: pa.Array, *, size_bytes_max: int = SLICE_BYTES) -> Iterator[pa.Array]:
    """Pieces of at most SLICE_RECORDS and, unless a single record is larger, of so many bytes."""
    if len(values) <= SLICE_RECORDS and values.nbytes <= size_bytes_max:
        if len(values):
            yield values
        return
    lengths = pc.fill_null(pc.binary_length(values), 0).to_pylist()
    start, size_bytes = 0, 0
    for position, length in enumerate(lengths):
        if position > start and (size_bytes + length > size_bytes_max or position - start == SLICE_RECORDS):
            yield values.slice(start, position - start)
            start, size_bytes = position, 0
        size_bytes += length
    yield values.slice(start)


def reasons_of(count: int, unfit: dict[int, str]) -> pa.Array:
    """The array of reasons."""
    if not unfit:
        return pa.nulls(count, type=pa.string())
    return pa.array([unfit.get(position) for position in range(count)], type=pa.string())


def joined(arrays: Sequence[pa.Array], arrow_type: pa.DataType) -> pa.Array:
    """One array of all, also of none."""
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays(arrays) if arrays else pa.nulls(0, type=arrow_type)


def reason(error: Exception) -> str:
    """One bounded line: values come from outside, and so may what an error quotes of them."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 1] + "…"
