"""Resources that break one bound of a CRD's schema each, made from the schema itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
NONE_OF_THEM = "NoneOfThese"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A spec with one value that the schema does not allow."""

    path: str
    """As the API server names the field."""
    bound: str
    spec: dict[str, Any]


def broken(schema: Schema) -> list[Broken]:
    """One for each bound of a spec's schema."""
    return list(_below(schema, ()))


def with_null(schema: Schema, whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A spec with a null for each field, item and key of a spec's schema, beside what makes it `whole`."""
    for path in _paths(schema, ()):
        yield _merged(whole, _set(path, None))


def _paths(schema: Schema, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    for name, part in schema.get("properties", {}).items():
        yield from _paths(part, (*path, name))
    for name, below in (("[0]", schema.get("items")), ("key", schema.get("additionalProperties"))):
        if isinstance(below, dict):
            yield from _paths(below, (*path, name))


def _merged(whole: Any, part: Any) -> Any:
    """`part` over `whole`, field by field."""
    if not isinstance(whole, dict) or not isinstance(part, dict):
        return part
    return whole | {name: _merged(whole.get(name), one) for name, one in part.items()}


def _below(schema: Schema, path: tuple[str, ...]) -> Iterator[Broken]:
    for bound, value in _beyond(schema):
        yield Broken(path=_named(path), bound=bound, spec=_set(path, value))
    for name, part in schema.get("properties", {}).items():
        yield from _below(part, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from _below(schema["items"], (*path, "[0]"))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _below(schema["additionalProperties"], (*path, "key"))


def _beyond(schema: Schema) -> Iterator[tuple[str, Any]]:
    if "minimum" in schema:
        yield "minimum", schema["minimum"] - 1
    if "maximum" in schema:
        yield "maximum", schema["maximum"] + 1
    if "enum" in schema:
        yield "enum", NONE_OF_THEM
    if "pattern" in schema:
        yield "pattern", "!? "
    if schema.get("minLength"):
        yield "minLength", ""
    if "maxLength" in schema:
        yield "maxLength", "a" * (schema["maxLength"] + 1)
    if "maxItems" in schema:
        yield "maxItems", [_item(schema["items"], n) for n in range(schema["maxItems"] + 1)]
    if "maxProperties" in schema:
        yield "maxProperties", {f"BMQ_{n}": "1" for n in range(schema["maxProperties"] + 1)}


def _item(schema: Schema, number: int) -> Any:
    """One of many, each with another name."""
    if schema["type"] != "object":
        return f"n{number}"
    return {name: f"n{number}" for name in ("name", "key") if name in schema["properties"]}


def _set(path: tuple[str, ...], value: Any) -> Any:
    for step in reversed(path):
        value = [value] if step == "[0]" else {step: value}
    return value


def _named(path: tuple[str, ...]) -> str:
    return "spec" + "".join(step if step == "[0]" else f".{step}" for step in path)


def messages(schema: Schema) -> set[str]:
    """Of all rules in CEL."""
    found = {rule["message"] for rule in schema.get("x-kubernetes-validations", ())}
    parts = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return found.union(*(messages(part) for part in parts if isinstance(part, dict)))
