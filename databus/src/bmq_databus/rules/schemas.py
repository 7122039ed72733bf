"""Values against a JSON Schema. Pure.

How long a value takes is bounded: patterns are matched in linear time (no look-around, no back-references), references
stay within the schema and never lead back to where they are, and neither schema nor value is large. What is told of a
value that does not fit are places and rules, never what stands there.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from bmq_databus.errors import DatabusError, Unfit
from bmq_databus.rules.places import check
from bmq_resources.json_paths import Path

if TYPE_CHECKING:
    import jsonschema_rs

SCHEMA_BYTES_MAX: Final = 256 << 10
PARTS_MAX: Final = 10_000
"""A schema has so many, with what it refers to in the places of the references."""
PATTERN_BYTES_MAX: Final = 1 << 20
TEXT_CHARS_MAX: Final = 60
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are no schemas."""
_ELSEWHERE: Final = frozenset({"$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})


class BadSchema(DatabusError):
    """It is no schema, or one that is not served."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """As JSON: two that are the same are equal."""

    text: str

    @classmethod
    def of(cls, schema: dict[str, Any]) -> "JsonSchema":
        """Raises BadSchema."""
        try:
            found = cls(json.dumps(schema, sort_keys=True, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise BadSchema(f"it is no JSON: {error}") from None
        SchemaCheck(found)
        return found


class SchemaCheck:
    """One schema's."""

    def __init__(self, schema: JsonSchema) -> None:
        """Raises BadSchema."""
        import jsonschema_rs  # 4 MiB, for which a sidecar without schemas has no use

        if len(schema.text) > SCHEMA_BYTES_MAX:
            raise BadSchema(f"it has {len(schema.text)} bytes: {SCHEMA_BYTES_MAX} are the most")
        self._invalid = jsonschema_rs.ValidationError
        parts = json.loads(schema.text)
        _count(parts, parts, (), 0)
        try:
            self._validator = jsonschema_rs.validator_for(
                parts,
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(
                    size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX
                ),
            )
        except (jsonschema_rs.ValidationError, ValueError) as error:
            why = getattr(error, "message", None) or str(error)
            raise BadSchema(str(why).splitlines()[0][:200]) from None

    def check(self, value: bytes | None, *, hidden: Sequence[Path] = ()) -> None:
        """Raises Unfit: the place and the rule. What is within `hidden` places is told as that place."""
        if value is None:
            return
        check(value)
        try:
            parts = json.loads(value, parse_float=Decimal)
            self._validator.validate(parts)  # up to the first error: a value of a MiB may have hundreds of thousands
        except self._invalid as error:
            raise Unfit(f"it does not fit the channel's schema: {_told(error, hidden)}") from None
        except (RecursionError, ArithmeticError, ValueError):
            raise Unfit("the value is nested too deep, or has a number of too many digits, for a schema") from None


def _told(error: "jsonschema_rs.ValidationError", hidden: Sequence[Path]) -> str:
    path = tuple(error.instance_path)
    outer = next((one for one in hidden if path[: len(one)] == one), None)
    rule = "/".join(map(str, error.schema_path)) or "false"
    of = getattr(error.kind, "property", None) if rule.endswith("required") else None
    missing = "" if of is None else f" ({str(of)[:TEXT_CHARS_MAX]} is missing)"
    return f"{_place(path if outer is None else outer)} breaks {rule}{missing}"


def _place(path: Path) -> str:
    steps = (f"[{one}]" if isinstance(one, int) else f".{one[:TEXT_CHARS_MAX]}" for one in path)
    return "$" + "".join(steps)


def _count(root: Any, part: Any, within: tuple[str, ...], count: int) -> int:
    """How many parts there are, after so many. Raises BadSchema."""
    if not isinstance(part, (dict, list)):
        return count
    count += 1
    if count > PARTS_MAX:
        raise BadSchema(f"it has more than {PARTS_MAX} parts, those that it refers to among them: make it smaller")
    if isinstance(part, list):
        for one in part:
            count = _count(root, one, within, count)
        return count
    if elsewhere := _ELSEWHERE & part.keys():
        raise BadSchema(f"{min(elsewhere)} is not served: refer by $ref to #/$defs/NAME")
    for name, one in part.items():
        if name == "$ref" and isinstance(one, str):
            if one in within:
                raise BadSchema(
                    f"$ref {one} leads back to itself, and how long a value takes would have no bound: write out as "
                    "many levels as there are"
                )
            count = _count(root, _referred(root, one), (*within, one), count)
        elif name not in _DATA:
            count = _count(root, one, within, count)
    return count


def _referred(root: Any, reference: str) -> Any:
    if reference != "#" and not reference.startswith("#/"):
        raise BadSchema(f"$ref {reference[:TEXT_CHARS_MAX]}: nothing is fetched; refer to #/$defs/NAME")
    found = root
    for step in _steps(reference):
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isascii() and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            raise BadSchema(f"$ref {reference[:TEXT_CHARS_MAX]} leads nowhere")
    return found


def _steps(reference: str) -> Iterator[str]:
    for step in reference.split("/")[1:]:
        yield step.replace("~1", "/").replace("~0", "~")
