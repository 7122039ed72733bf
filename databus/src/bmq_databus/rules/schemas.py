"""Values against a JSON Schema. Pure.

How long a value takes is bounded: patterns are matched in linear time (no look-around, no back-references), references
stay within the schema and never lead back to where they are, and neither schema nor value is large. What is told of a
value that does not fit are places and rules, never what stands there.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from bmq_databus.errors import Unfit
from bmq_databus.rules.places import check
from bmq_resources.json_paths import Path
from bmq_resources.value_schemas import JsonSchema

if TYPE_CHECKING:
    import jsonschema_rs

TEXT_CHARS_MAX: Final = 60


class SchemaCheck:
    """One schema's."""

    def __init__(self, schema: JsonSchema) -> None:
        import jsonschema_rs  # 4 MiB, for which a sidecar without schemas has no use

        self._invalid = jsonschema_rs.ValidationError
        self._validator = schema.compiled()

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
