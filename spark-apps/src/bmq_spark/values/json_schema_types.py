"""What the parts of a JSON Schema are as columns: types, `required`, `format` (date-time, date), and what `$ref` within
the file, `allOf` and choices add to a part. Bounds, patterns and enumerations are not checked: whether a record fits is
a question of types here.

No field that the schema declares is left out: a part whose fields are not told by "properties" alone, or whose choices
have different ones, is JSON text, and the whole schema is refused then.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from bmq_spark.values.ddl import DEPTH, UTC_TIMESTAMP
from bmq_spark.values.json_schema_parts import (
    REMEDY,
    Choices,
    JsonSchemaDocument,
    NoValue,
    Part,
    Schemas,
    Untyped,
    kinds_said,
)
from bmq_spark.values.schema_files import SchemaFile

JSON_TEXT: Final = pa.json_()
"""A part without a type of its own: a string column that holds the part's JSON text, strings as they are."""
PARTS_MAX: Final = 100_000
"""Thirty definitions that each refer to the next one twice would be a billion parts."""
_SCALARS: Final[dict[str, pa.DataType]] = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64()}
_FORMATS: Final[dict[str, pa.DataType]] = {"date-time": UTC_TIMESTAMP, "date": pa.date32()}
_MORE_FIELDS: Final = ("additionalProperties", "unevaluatedProperties")
"""What these say of fields that are not among the properties counts where it is more than that there may be some."""
_NOT_FOLLOWED: Final = ("$dynamicRef", "$recursiveRef")


def columns_of_schema(source: SchemaFile, root: dict[str, Any]) -> pa.DataType:
    """The struct of a whole schema; fields that have to be there are not nullable. Raises ConfigurationError."""
    return _Columns(JsonSchemaDocument(source, root)).whole()


class _Columns:
    """The types of one document's parts."""

    def __init__(self, document: JsonSchemaDocument) -> None:
        self._document = document
        self._broken = document.source.broken
        self._looked_at = 0

    def whole(self) -> pa.DataType:
        """Raises ConfigurationError, also where the whole is no object of known fields."""
        try:
            struct = self._told(self._part((self._document.root,), "#", frozenset()), "#", 0, frozenset())
        except Untyped as error:
            raise self._broken(error.what, error.remedy) from error
        if not pa.types.is_struct(struct):
            raise self._broken(_NO_OBJECT, REMEDY)
        return struct

    def _type_of(self, schemas: Schemas, path: str, depth: int, opened: frozenset[str]) -> pa.DataType:
        """The type of a part; what has none, and what is within itself, is JSON text."""
        try:
            return self._told(self._part(schemas, path, opened), path, depth, opened)
        except Untyped:
            return JSON_TEXT

    def _part(self, schemas: Schemas, path: str, opened: frozenset[str]) -> Part:
        """Raises Untyped."""
        self._looked_at += 1
        if self._looked_at > PARTS_MAX:
            raise self._broken(f"{path}: more than {PARTS_MAX} parts, with each where it is referred to", REMEDY)
        return self._document.part(schemas, path, opened)

    def _told(self, part: Part, path: str, depth: int, opened: frozenset[str]) -> pa.DataType:
        """Raises Untyped."""
        if depth > DEPTH:
            raise self._broken(f"{path}: more than {DEPTH} types within one another", REMEDY)
        opened |= part.references
        if not part.choices:
            return self._kind(part, path, depth, opened)
        types = [self._chosen(part, each, path, depth, opened) for each in part.choices]
        if (found := _alike(types, operator.and_)) is None:
            words = " and ".join(sorted({f'"{each.word}"' for each in part.choices}))
            raise _differing(f"{path}: {words}")
        return found

    def _chosen(self, part: Part, choices: Choices, path: str, depth: int, opened: frozenset[str]) -> pa.DataType:
        """What the part is by whichever choice. Raises Untyped."""
        types = []
        for each in choices.each:
            try:
                chosen = part.with_choice(self._part(each, path, opened))
                types.append(self._told(chosen, path, depth + 1, opened))
            except NoValue:
                continue
        if not types:
            raise NoValue(f'{path}: "{choices.word}" leaves no choice')
        if (found := _alike(types, operator.or_)) is None:
            raise _differing(f'{path}: the choices of "{choices.word}"')
        return found

    def _kind(self, part: Part, path: str, depth: int, opened: frozenset[str]) -> pa.DataType:
        kinds = _kinds(part, path)
        if set(kinds) == {"integer", "number"}:
            return pa.float64()
        if len(kinds) != 1:
            raise Untyped(_NO_OBJECT)
        match kinds[0]:
            case "object":
                return self._object(part, path, depth, opened)
            case "array":
                return pa.list_(self._element(part, path, depth, opened))
            case "string" if "base64" in part.said("contentEncoding"):
                return pa.binary()
            case "string":
                formats = {_FORMATS[each] for each in part.said("format") if each in _FORMATS}
                return formats.pop() if len(formats) == 1 else pa.string()
            case scalar if scalar in _SCALARS:
                return _SCALARS[scalar]
        raise self._broken(f"{path}: type {kinds[0]!r} is not known", REMEDY)

    def _object(self, part: Part, path: str, depth: int, opened: frozenset[str]) -> pa.DataType:
        fields: dict[str, Schemas] = {}
        for properties in part.said("properties"):
            for name, schema in properties.items():
                fields[name] = (*fields.get(name, ()), schema)
        if not fields:
            return self._map(part, path, depth, opened)
        if (word := _declaring_more(part)) is not None:
            raise Untyped(
                f'{path}: "{word}" declares fields beside "properties", and they would have no column',
                'name each of them under "properties", or leave the word out if they are to be left out',
            )
        required = {name: None for names in part.said("required") for name in names}
        fields |= {name: (True,) for name in required if name not in fields}
        return pa.struct(
            [
                pa.field(
                    name,
                    self._type_of(schemas, f"{path}/{name}", depth + 1, opened),
                    nullable=name not in required or self._may_be_null(schemas, frozenset()) is True,
                )
                for name, schemas in fields.items()
            ]
        )

    def _map(self, part: Part, path: str, depth: int, opened: frozenset[str]) -> pa.DataType:
        """An object whose keys are data."""
        items = tuple(each for each in part.said("additionalProperties") if isinstance(each, dict))
        if not items:
            raise Untyped(_NO_OBJECT)
        types = [self._type_of(items, f"{path}/*", depth + 1, opened)]
        for patterns in part.said("patternProperties"):
            types += [self._type_of((each,), f"{path}/{name}", depth + 1, opened) for name, each in patterns.items()]
        if (item := _alike(types, operator.or_)) is None:
            raise Untyped(_NO_OBJECT)
        return pa.map_(pa.string(), item)

    def _element(self, part: Part, path: str, depth: int, opened: frozenset[str]) -> pa.DataType:
        """What all elements of an array are, those too that have a place of their own in it."""
        of_all = [each for each in part.said("items") if not isinstance(each, list)]
        by_place = [*part.said("prefixItems"), *(each for each in part.said("items") if isinstance(each, list))]
        if by_place and not of_all:
            of_all = list(part.said("additionalItems"))
        groups = [tuple(of_all) or (True,), *((each,) for places in by_place for each in places)]
        types = [self._type_of(each, f"{path}[]", depth + 1, opened) for each in groups if False not in each]
        return _alike(types, operator.or_) or JSON_TEXT

    def _may_be_null(self, schemas: Schemas, within: frozenset[str]) -> bool | None:
        """Whether null is among what all of these allow; None where they do not say. `within` are the references that
        led there.
        """
        try:
            part = self._part(schemas, "#", within)
        except Untyped:
            return None
        within |= part.references
        said: list[bool | None] = ["null" in kinds_said(kinds) for kinds in part.said("type")]
        for choices in part.choices:
            of_each = [self._may_be_null(each, within) for each in choices.each]
            said.append(True if True in of_each else False if None not in of_each else None)
        return False if False in said else True if True in said else None


_NO_OBJECT: Final = 'the schema is not of an object with "properties"'


def _differing(what: str) -> Untyped:
    return Untyped(
        f"{what} have different fields, or fields of different types",
        'name each field under "properties", and let choices say only which are "required", or write Spark\'s DDL',
    )


def _kinds(part: Part, path: str) -> Sequence[str]:
    """The types that all of the part allows, null left out. Raises Untyped where none says any, NoValue where they
    contradict each other.
    """
    said = part.said("type")
    if not said:
        if not part.said("properties"):
            raise Untyped(_NO_OBJECT)
        return ["object"]
    kinds = reduce(_both, [list(kinds_said(each)) for each in said])
    kinds = [each for each in kinds if each != "null"]
    if not kinds:
        raise NoValue(f"{path}: types that contradict each other, or null alone")
    return kinds


def _both(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Every integer is a number, too."""
    return [
        *(each for each in one if each in other or (each == "integer" and "number" in other)),
        *(each for each in other if each == "integer" and each not in one and "number" in one),
    ]


def _declaring_more(part: Part) -> str | None:
    """A word by which there are fields that "properties" do not name."""
    for words in part.words:
        for word in _MORE_FIELDS:
            if isinstance(words.get(word), dict) and words[word]:
                return word
        if any(schema is not False for schema in words.get("patternProperties", {}).values()):
            return "patternProperties"
        for word in _NOT_FOLLOWED:
            if word in words:
                return word
    return None


def _alike(types: Iterable[pa.DataType], nullable: Callable[[bool, bool], bool]) -> pa.DataType | None:
    """The one type that all are, but for the fields that may be null, which `nullable` decides; None without one."""
    first, *others = types
    for other in others:
        if first is None:
            return None
        first = _one(first, other, nullable)
    return first


def _one(one: pa.DataType, other: pa.DataType, nullable: Callable[[bool, bool], bool]) -> pa.DataType | None:
    if one == other:
        return one
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = _one(one.value_type, other.value_type, nullable)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_map(one) and pa.types.is_map(other):
        inner = _one(one.item_type, other.item_type, nullable)
        return None if inner is None else pa.map_(one.key_type, inner)
    if not (pa.types.is_struct(one) and pa.types.is_struct(other)):
        return None
    others = {field.name: field for field in other}
    if {field.name for field in one} != others.keys():
        return None
    fields = []
    for field in one:
        inner = _one(field.type, others[field.name].type, nullable)
        if inner is None:
            return None
        fields.append(pa.field(field.name, inner, nullable=nullable(field.nullable, others[field.name].nullable)))
    return pa.struct(fields)
