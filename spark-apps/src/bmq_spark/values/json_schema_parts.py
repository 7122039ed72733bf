"""A part of a JSON Schema as all that holds for it at once: its own words, what its `$ref` and its `allOf` lead to, and
the choices that it leaves (oneOf, anyOf, if with then and else, dependentSchemas). Pure; what the words mean as columns
says `json_schema_types`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from bmq_spark.values.schema_files import SchemaFile

REMEDY: Final = "write Spark's DDL (id bigint, name string), Spark's schema as JSON, or a JSON Schema of an object"
_FORMS: Final[dict[str, tuple[type, str]]] = {
    "$ref": (str, "a text"),
    "allOf": (list, "a list of schemas"),
    "oneOf": (list, "a list of schemas"),
    "anyOf": (list, "a list of schemas"),
    "properties": (dict, "an object"),
    "patternProperties": (dict, "an object"),
    "dependentSchemas": (dict, "an object"),
    "dependencies": (dict, "an object"),
    "prefixItems": (list, "a list of schemas"),
    "required": (list, "a list of names"),
    "format": (str, "a text"),
}
"""The words that are followed, each with the form that it has to have and what messages call that."""
_REF_ALONE: Final = re.compile(r"/draft-0[3-7]/")
"""The versions of JSON Schema, as `$schema` names them, in which nothing beside a `$ref` counts."""

Schemas: TypeAlias = tuple[Any, ...]
"""Schemas that hold together, as a file has them: objects, or true and false."""


class Untyped(Exception):
    """A part is of no one type. `what` and `remedy` are for where that is no way out: the whole schema."""

    def __init__(self, what: str, remedy: str = REMEDY) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


class NoValue(Untyped):
    """Nothing but null can be of the part, as a choice it adds nothing."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What one word leaves open: one of these holds."""

    word: str
    each: tuple[Schemas, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """`words` hold all, in the order in which they are read; `references` led to them."""

    words: tuple[dict[str, Any], ...]
    choices: tuple[Choices, ...]
    references: frozenset[str]

    def said(self, word: str) -> Schemas:
        """What is said by this word, wherever it is."""
        return tuple(words[word] for words in self.words if word in words)

    def with_choice(self, chosen: "Part") -> "Part":
        """This part, where that one holds too; of choices are left those of the chosen one."""
        return Part(
            words=self.words + chosen.words,
            choices=chosen.choices,
            references=self.references | chosen.references,
        )


class JsonSchemaDocument:
    """One document, by whose references parts are found."""

    def __init__(self, source: SchemaFile, root: dict[str, Any]) -> None:
        self.source = source
        self.root = root
        self._ref_alone = bool(_REF_ALONE.search(str(root.get("$schema", ""))))

    def part(self, schemas: Schemas, path: str, opened: frozenset[str]) -> Part:
        """What all these say. `opened`: the references that led here, by which nothing may lead here again.

        Raises Untyped, ConfigurationError.
        """
        words: list[dict[str, Any]] = []
        references: set[str] = set()
        seen: set[int] = set()
        waiting = [*reversed(schemas)]
        while waiting:
            schema = waiting.pop()
            if schema is True or id(schema) in seen:
                continue
            if schema is False:
                raise NoValue(f"{path}: false, of which there is no value")
            if not isinstance(schema, dict):
                raise self.source.broken(f"{path}: {json.dumps(schema)[:80]} is not a schema", REMEDY)
            seen.add(id(schema))
            self._require_forms(schema, path)
            targets = self._targets(schema, path)
            if not opened.isdisjoint(targets):
                raise Untyped(f"{path}: $ref {schema['$ref']} is within itself")
            references |= targets.keys()
            if targets and self._ref_alone:
                waiting.extend(targets.values())
                continue
            words.append(schema)
            waiting.extend(reversed([*targets.values(), *schema.get("allOf", ())]))
        return Part(
            words=tuple(words),
            choices=tuple(each for schema in words for each in _choices(schema)),
            references=frozenset(references),
        )

    def _targets(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        """What the `$ref` refers to, by the reference; nothing without one."""
        if (reference := schema.get("$ref")) is None:
            return {}
        try:
            return {reference: self._target(reference)}
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise self.source.broken(
                f"{path}: $ref {reference} is not in this file", "put what it refers to under $defs"
            ) from error

    def _target(self, reference: str) -> Any:
        """Raises KeyError, TypeError, ValueError, IndexError."""
        target: Any = self.root
        if not reference.startswith("#"):
            raise KeyError(reference)
        for part in reference.lstrip("#/").split("/"):
            if isinstance(target, list):
                target = target[int(part)]
            elif part:
                target = target[part.replace("~1", "/").replace("~0", "~")]
        return target

    def _require_forms(self, schema: dict[str, Any], path: str) -> None:
        """Raises ConfigurationError where what is followed is not of the form that JSON Schema gives it."""
        for word, (form, called) in _FORMS.items():
            if word in schema and not (
                isinstance(schema[word], form)
                and (word != "required" or all(isinstance(name, str) for name in schema[word]))
            ):
                raise self.source.broken(f'{path}: "{word}" is {json.dumps(schema[word])[:80]}, not {called}', REMEDY)
        for kind in kinds_said(schema.get("type")):
            if not isinstance(kind, str):
                raise self.source.broken(f"{path}: type {json.dumps(kind)[:80]} is not known", REMEDY)


def kinds_said(written: Any) -> Sequence[Any]:
    """The kinds that a `type` lists; none without it."""
    if written is None:
        return ()
    return written if isinstance(written, list) else [written]


def _choices(schema: dict[str, Any]) -> Iterator[Choices]:
    for word in ("oneOf", "anyOf"):
        if word in schema:
            yield Choices(word, tuple((each,) for each in schema[word]))
    if "if" in schema and ("then" in schema or "else" in schema):
        yield Choices("if", ((schema["if"], schema.get("then", True)), (schema.get("else", True),)))
    for word in ("dependentSchemas", "dependencies"):
        for each in schema.get(word, {}).values():
            if not isinstance(each, list):
                yield Choices(word, ((each,), (True,)))
