"""The affinity of pods as Kubernetes has it. An API server that did not know its fields would keep whatever is written,
and no schema of Kubernetes can say how much there may be of it as a whole.
"""

from typing import Annotated, Any, Final

from pydantic import GetCoreSchemaHandler, ValidationInfo, ValidatorFunctionWrapHandler, WithJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

PARTS_MAX: Final = 2_000
CHARS_MAX: Final = 65_536
DEPTH_MAX: Final = 32

_TERMS_MAX: Final = 64
_VALUES_MAX: Final = 1_024
_NAMES_MAX: Final = 256


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "nullable": True, "properties": properties}


def _list(items: dict[str, Any], most: int = _TERMS_MAX) -> dict[str, Any]:
    return {"type": "array", "nullable": True, "maxItems": most, "items": items}


def _weighted(name: str, part: dict[str, Any]) -> dict[str, Any]:
    return _list(_object(weight={"type": "integer", "format": "int32"}, **{name: part}))


_TEXT: Final[dict[str, Any]] = {"type": "string", "maxLength": 320}
_EXPRESSIONS: Final = _list(_object(key=_TEXT, operator=_TEXT, values=_list(_TEXT, _VALUES_MAX)))
_LABELS: Final[dict[str, Any]] = {
    "type": "object",
    "nullable": True,
    "maxProperties": _NAMES_MAX,
    "additionalProperties": _TEXT,
}
_SELECTOR: Final = _object(matchLabels=_LABELS, matchExpressions=_EXPRESSIONS)
_NODES: Final = _object(matchExpressions=_EXPRESSIONS, matchFields=_EXPRESSIONS)
_PODS: Final = _object(
    labelSelector=_SELECTOR,
    namespaceSelector=_SELECTOR,
    namespaces=_list(_TEXT, _NAMES_MAX),
    topologyKey=_TEXT,
    matchLabelKeys=_list(_TEXT, _NAMES_MAX),
    mismatchLabelKeys=_list(_TEXT, _NAMES_MAX),
)
_TO_PODS: Final = _object(
    requiredDuringSchedulingIgnoredDuringExecution=_list(_PODS),
    preferredDuringSchedulingIgnoredDuringExecution=_weighted("podAffinityTerm", _PODS),
)
_WHOLE: Final = _object(
    nodeAffinity=_object(
        requiredDuringSchedulingIgnoredDuringExecution=_object(nodeSelectorTerms=_list(_NODES)),
        preferredDuringSchedulingIgnoredDuringExecution=_weighted("preference", _NODES),
    ),
    podAffinity=_TO_PODS,
    podAntiAffinity=_TO_PODS,
)
AFFINITY: Final[dict[str, Any]] = {"type": "object", "properties": _WHOLE["properties"]}
"""A structural schema."""


def _validator(schema: dict[str, Any]) -> CoreSchema:
    """What pydantic validates as the API server validates a structural schema."""
    found: CoreSchema
    match schema:
        case {"type": "string"}:
            found = core_schema.str_schema(max_length=schema["maxLength"])
        case {"type": "integer"}:
            found = core_schema.int_schema(ge=-(1 << 31), le=(1 << 31) - 1)
        case {"items": items}:
            found = core_schema.list_schema(_validator(items), max_length=schema["maxItems"])
        case {"additionalProperties": one}:
            found = core_schema.dict_schema(
                core_schema.str_schema(), _validator(one), max_length=schema["maxProperties"]
            )
        case _:
            fields = {
                name: core_schema.typed_dict_field(_validator(part), required=False)
                for name, part in schema["properties"].items()
            }
            found = core_schema.typed_dict_schema(fields, extra_behavior="forbid")
    return core_schema.nullable_schema(found) if schema.get("nullable") else found


def _bounded(value: Any) -> Any:
    """Looks at no more than may be there."""
    left: list[tuple[Any, int]] = [(value, 1)]
    parts = chars = 0
    while left:
        one, depth = left.pop()
        inner = [*one.keys(), *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else ()
        parts += len(inner)
        chars += len(one) if isinstance(one, str) else 0
        if parts > PARTS_MAX or chars > CHARS_MAX or depth > DEPTH_MAX:
            raise PydanticCustomError("affinity", "it is too large")
        left += ((part, depth + 1) for part in inner)
    return value


_MARK: Final = "x-kubernetes-affinity"
"""Which objects of unknown fields are affinities; it stands in no CRD."""
AS_KUBERNETES: Final = {"affinity": "as Kubernetes"}
"""The context in which a model is validated that refuses what the API server would."""


class _Checks:
    """Its size always: what is already there is the API server's to refuse. In the context AS_KUBERNETES all of it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic asks for it."""
        return core_schema.chain_schema(
            [
                handler(source),
                core_schema.no_info_plain_validator_function(_bounded),
                core_schema.with_info_wrap_validator_function(_as_kubernetes, _validator(AFFINITY)),
            ]
        )


def _as_kubernetes(value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    return validate(value) if info.context is AS_KUBERNETES else value


Affinity = Annotated[
    dict[str, Any],
    _Checks(),
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True, _MARK: True}),
]
"""As it is written. What is said of the models does not list its fields."""


def with_affinity(schema: Any) -> Any:
    """A structural schema with the fields of each affinity, in place of anything at all."""
    if isinstance(schema, list):
        return [with_affinity(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get(_MARK):
        about = {name: schema[name] for name in ("description", "default") if name in schema}
        return {"type": "object"} | about | AFFINITY
    return {name: with_affinity(part) for name, part in schema.items()}
