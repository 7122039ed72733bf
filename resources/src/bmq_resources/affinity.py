"""The affinity of pods as Kubernetes has it, for CRDs: the API server leaves out, or refuses, what is none of its
fields, where else it would keep whatever is written.
"""

from typing import Any, Final

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
AFFINITY: Final = _object(
    nodeAffinity=_object(
        requiredDuringSchedulingIgnoredDuringExecution=_object(nodeSelectorTerms=_list(_NODES)),
        preferredDuringSchedulingIgnoredDuringExecution=_weighted("preference", _NODES),
    ),
    podAffinity=_TO_PODS,
    podAntiAffinity=_TO_PODS,
)
"""A structural schema."""
