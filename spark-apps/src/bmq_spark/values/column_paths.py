"""By which names Iceberg knows columns: the names from the top with dots between, whatever dots the names have
themselves; and in Parquet files by other names, which have letters, digits and `_` alone. Pure.

Two columns of one such path make a schema that Iceberg refuses: `{"x.y": …}` beside `{"x": {"y": …}}`. It also finds a
field of a list's or map's objects without the step `element` or `value`, and looks there before it adds a column. Paths
that differ by case alone count as one.

Two columns of one name in files, such as `1` and `_1`, make a schema that Iceberg takes, and writes no file of.
"""

import re
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_ESCAPED: Final = re.compile(r"[^A-Za-z0-9_]")
_BMP_END: Final = 1 << 16


def name_in_files(name: str) -> str:
    """By which name Iceberg writes a column in Parquet files (AvroSchemaUtil.makeCompatibleName): `_` comes before a
    digit at the beginning, and `_x` with the number of each UTF-16 unit in place of what is no letter or digit.

    Letters and digits beyond ASCII are replaced here, too, as Java's versions differ in what is one: names that are one
    in files are one here.
    """
    first = name[:1]
    before = "_" if first.isdecimal() and ord(first) < _BMP_END else ""
    return before + _ESCAPED.sub(_escape, name)


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"_x{int.from_bytes(units[at : at + 2]):X}" for at in range(0, len(units), 2))


@dataclass(frozen=True, slots=True)
class Path:
    """Where a column is: its whole path, the one without steps into lists and maps of objects, and the one in files."""

    full: str = ""
    short: str = ""
    in_files: str = ""

    def field(self, name: str) -> "Path":
        """The path of a field of an object there."""
        return Path(_joined(self.full, name), _joined(self.short, name), _joined(self.in_files, name_in_files(name)))

    def element(self, arrow_type: pa.DataType) -> "Path":
        """The path of the elements of a list there; `arrow_type` is the element's."""
        return self._part("element", arrow_type)

    def _part(self, step: str, arrow_type: pa.DataType) -> "Path":
        return Path(
            _joined(self.full, step),
            self.short if pa.types.is_struct(arrow_type) else _joined(self.short, step),
            _joined(self.in_files, step),
        )

    def parts(self, arrow_type: pa.DataType) -> "list[tuple[Path, pa.DataType]]":
        """What a column of that type there consists of."""
        if pa.types.is_struct(arrow_type):
            return [(self.field(part.name), part.type) for part in arrow_type]
        if pa.types.is_list(arrow_type):
            return [(self.element(arrow_type.value_type), arrow_type.value_type)]
        if pa.types.is_map(arrow_type):
            kinds = {"key": arrow_type.key_type, "value": arrow_type.item_type}
            return [(self._part(step, kind), kind) for step, kind in kinds.items()]
        return []


TOP: Final = Path()


class Paths:
    """Those that are taken."""

    def __init__(self) -> None:
        self._full: set[str] = set()
        self._short: set[str] = set()
        self._in_files: set[str] = set()

    @classmethod
    def of(cls, arrow_type: pa.DataType) -> "Paths":
        """Those of all columns in an object."""
        paths = cls()
        waiting = TOP.parts(arrow_type)
        while waiting:
            path, kind = waiting.pop()
            paths.take(path)
            waiting += path.parts(kind)
        return paths

    def free(self, path: Path) -> bool:
        """Whether no column there is in the way of another."""
        full, short = path.full.lower(), path.short.lower()
        return not ({full, short} & self._full or full in self._short or path.in_files in self._in_files)

    def take(self, path: Path) -> None:
        """That there is a column now."""
        self._full.add(path.full.lower())
        self._short.add(path.short.lower())
        self._in_files.add(path.in_files)


Names = tuple[str, ...]
"""The names of a column, from the top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collision:
    """Two columns of an object that are one for Iceberg."""

    one: Names
    """The one that is known, where one is."""
    other: Names
    called: str
    """What Iceberg calls both of them, from the top with dots between."""
    in_files: bool
    """Whether it tells them apart but in Parquet files."""


def collision(arrow_type: pa.DataType, known: pa.DataType | None = None) -> Collision | None:
    """Two columns of an object, or of the columns of a table that is there (`known`) with these, that are one for
    Iceberg, which tells case apart here; None where there are none.

    It has no two of one whole path, nor of one path in files. And where it finds a column by a path without the steps
    into a list's or map's objects, it adds none of that path: for what is not in `known`.
    """
    there = {} if known is None else dict(_columns(known))
    short = {path.short: names for names, path in there.items() if path.short != path.full}
    full: dict[str, Names] = {}
    in_files: dict[str, Names] = {}
    for names, path in (there | dict(_columns(arrow_type))).items():
        one = full.get(path.full) or (short.get(path.full) if known is not None and names not in there else None)
        if one is not None:
            return Collision(one=one, other=names, called=path.full, in_files=False)
        if path.in_files in in_files:
            return Collision(one=in_files[path.in_files], other=names, called=path.in_files, in_files=True)
        full[path.full] = in_files[path.in_files] = names
    return None


def _columns(arrow_type: pa.DataType) -> list[tuple[Names, Path]]:
    """From the outer to the inner."""
    found: list[tuple[Names, Path]] = []
    waiting: list[tuple[Names, Path, pa.DataType]] = [((), TOP, arrow_type)]
    for names, path, kind in waiting:
        steps = (
            [part.name for part in kind]
            if pa.types.is_struct(kind)
            else ["element"]
            if pa.types.is_list(kind)
            else ["key", "value"]
        )
        parts = [((*names, step), *part) for step, part in zip(steps, path.parts(kind), strict=False)]
        found += [(part_names, part_path) for part_names, part_path, _ in parts]
        waiting += parts
    return found


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
