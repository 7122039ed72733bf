"""From a pydantic model to the structural schema that Kubernetes asks of a CRD.

References are put in place, titles left out, null becomes `nullable`. What Kubernetes would refuse later (a field
without type or description) is refused here, by name.
"""

from typing import Any, Final

from pydantic import BaseModel

from bmq_resources.base import REQUIRED

_KEPT: Final = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
    "required",
)


class Unstructural(Exception):
    """A model that no structural schema can say."""


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """The model's OpenAPI v3 schema, structural as apiextensions.k8s.io/v1 wants it. Raises Unstructural."""
    schema = model.model_json_schema(by_alias=True, mode="serialization")
    return _node(schema, schema.get("$defs", {}), model.__name__)


def structural_part(kind: type[BaseModel], name: str) -> dict[str, Any]:
    """What a resource has in its field `name`, a model of its own."""
    model = kind.model_fields[name].annotation
    assert isinstance(model, type) and issubclass(model, BaseModel)
    return structural(model)


def _node(schema: dict[str, Any], definitions: dict[str, Any], path: str) -> dict[str, Any]:
    schema = _resolved(schema, definitions, path)
    found: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    found |= {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    if "exclusiveMinimum" in schema:  # a number in JSON Schema, a word about the minimum in a CRD
        found |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    if "x-kubernetes-int-or-string" in schema:
        return found | {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    if "type" not in found:
        raise Unstructural(f"{path} has no type")
    if schema.get("nullable"):
        found["nullable"] = True
    if "properties" in schema:
        found["properties"] = {
            name: _field(part, definitions, f"{path}.{name}") for name, part in schema["properties"].items()
        }
        found.pop("required", None)
        told = [
            *schema.get("required", ()),
            *(name for name, part in schema["properties"].items() if part.get(REQUIRED)),
        ]
        if required := [name for name in told if "default" not in found["properties"].get(name, {})]:
            found["required"] = required
    elif isinstance(more := schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _node(more, definitions, f"{path}[*]")
    if "items" in schema:
        found["items"] = _node(schema["items"], definitions, f"{path}[]")
    return found


def _field(schema: dict[str, Any], definitions: dict[str, Any], path: str) -> dict[str, Any]:
    found = _node(schema, definitions, path)
    if schema.get(REQUIRED):
        del found["default"]
    if "description" not in found:
        raise Unstructural(f"{path} has no description")
    return found


def _resolved(schema: dict[str, Any], definitions: dict[str, Any], path: str) -> dict[str, Any]:
    """With references and null alternatives put in place; what stands beside a reference goes before it, and rules of
    both hold.
    """
    if "x-kubernetes-int-or-string" in schema:
        return schema
    if reference := schema.get("$ref"):
        target = definitions[reference.removeprefix("#/$defs/")]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        both = _resolved(target, definitions, path) | beside
        rules = [*target.get("x-kubernetes-validations", []), *beside.get("x-kubernetes-validations", [])]
        return both | {"x-kubernetes-validations": rules} if rules else both
    alternatives = schema.get("anyOf") or schema.get("allOf")
    if not alternatives:
        return schema
    beside = {key: value for key, value in schema.items() if key not in ("anyOf", "allOf")}
    real = [one for one in alternatives if one.get("type") != "null"]
    if len(real) != 1:
        raise Unstructural(f"{path} is one of several types")
    only = _resolved(real[0], definitions, path) | {
        key: value for key, value in beside.items() if not (key == "default" and value is None)
    }
    # A null that is not allowed is left out by Kubernetes: of a part that is what it says, and so rules in CEL may ask
    # `has`.
    nullable = len(real) < len(alternatives) and "properties" not in only
    return only | ({"nullable": True} if nullable else {})
