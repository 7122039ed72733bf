"""The reference page of the resources, as generated: `python -m bmq_resources.reference >docs/resources.md` (`make
generated` does).
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from bmq_resources import KINDS
from bmq_resources.base import API_VERSION, Resource
from bmq_resources.crd import crd, default_text, said_by_fields

_HEAD: Final = f"""# Resources

<!-- Written by `make generated` from resources/src/bmq_resources: change the models, not this page. -->

`apiVersion: {API_VERSION}`. Every field but a Cluster's `store` may be left out; what it is then stands beside it. Fields that
nobody knows are refused, and so is what breaks a rule: the answer names field and remedy. `kubectl get bmq` shows all kinds, and
`kubectl explain clusters.spec.store --api-version={API_VERSION}` what stands here.

The same files work without Kubernetes: `bmq apply -f topic.yaml`.
"""
_WIDTH_MAX: Final = 60


def page() -> str:
    """The page."""
    return _HEAD + "".join(_kind(kind) for kind in KINDS)


def _kind(kind: type[Resource]) -> str:
    version = crd(kind)["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    names = ", ".join(f"`{name}`" for name in (kind.naming.plural, *kind.naming.short_names))
    text = f"\n## {kind.__name__}\n\n{kind.__doc__} kubectl knows it as {names}."
    if kind.naming.scale is not None:
        text += f" `kubectl scale` changes `{kind.naming.scale.spec_replicas_path.removeprefix('.')}`."
    for part in ("spec", "status"):
        text += f"\n\n### {kind.__name__} {part}\n\n| field | type | default | meaning |\n| --- | --- | --- | --- |\n"
        text += "".join(_row(path, field, shown=part == "spec") for path, field in _fields(schema[part], ""))
    if found := list(_rules(schema["spec"], "spec")):
        text += f"\n### What a {kind.__name__} refuses\n\n" + "".join(
            f"- `{path}`: {message}\n" for path, message in found
        )
    return text.rstrip("\n") + "\n"


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}{name}"
        yield here, field
        yield from _fields(field, f"{here}.")
        yield from _fields(field.get("items", {}), f"{here}[].")


def _rules(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for one in schema.get("x-kubernetes-validations", ()):
        yield path, one["message"]
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}")
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")


def _row(path: str, field: dict[str, Any], *, shown: bool) -> str:
    default = "" if not shown else _default(field) if "default" in field or field.get("nullable") else "required"
    description = field["description"].removesuffix(f" Default: {default_text(field)}.")
    return f"| `{path}` | {_type(field)} | {default} | {description.replace('|', chr(92) + '|')} |\n"


def _default(field: dict[str, Any]) -> str:
    text = json.dumps(field.get("default"), ensure_ascii=False)
    if field.get("default") == "":
        return "empty"
    return "as its fields say" if len(text) > _WIDTH_MAX and said_by_fields(field) else f"`{text}`"


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{one}`" if one else "empty" for one in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}"
    bounds = [str(field[name]) if name in field else "" for name in ("minimum", "maximum")]
    return f"{field['type']}, {' to '.join(bounds)}".replace(", ,", ",") if all(bounds) else str(field["type"])


def main() -> int:
    """Prints the page."""
    sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
