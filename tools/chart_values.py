"""`python tools/chart_values.py >docs/chart-values.md`: the page from the chart's values.yaml (defaults, comments) and
values.schema.json (types).
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[1] / "charts" / "bmq"
HEAD = """# Values of the chart bmq

<!-- Written by `make generated` from charts/bmq/values.yaml and values.schema.json: change those, not this page. -->

`helm install bmq charts/bmq --set KEY=VALUE`, or a file with `--values`. Keys that nobody knows, and values of another type, are refused.

| value | type | default | meaning |
| --- | --- | --- | --- |
"""


class Undocumented(Exception):
    """A value without a comment, or one that the schema does not know, or the other way round."""


def page(values: str, schema: dict[str, Any]) -> str:
    """The page. Raises Undocumented."""
    root = yaml.compose(values)
    assert isinstance(root, yaml.MappingNode)
    return HEAD + "".join(_rows(root, schema, values.splitlines(), ""))


def _rows(node: yaml.MappingNode, schema: dict[str, Any], lines: list[str], path: str) -> list[str]:
    rows = []
    known = schema["properties"]
    written = {str(key.value) for key, _ in node.value}
    if missing := {name for name in known if name != "global"} - written:
        raise Undocumented(f"values.yaml has no {path}{sorted(missing)[0]}, which the schema knows")
    for key, value in node.value:
        name = f"{path}{key.value}"
        if key.value not in known:
            raise Undocumented(f"values.schema.json does not know {name}")
        part = known[key.value]
        if (
            part.get("additionalProperties") is False
            and isinstance(value, yaml.MappingNode)
            and "resources" not in name
        ):
            rows += _rows(value, part, lines, f"{name}.")
            continue
        meaning = _comment(lines, key.start_mark.line)
        if not meaning:
            raise Undocumented(f"{name} has no comment above it in values.yaml")
        default = json.dumps(yaml.safe_load(yaml.serialize(value)))
        rows.append(f"| `{name}` | {_type(part)} | `{default}` | {meaning} |\n")
    return rows


def _comment(lines: list[str], line: int) -> str:
    found: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#").strip())
    return " ".join(found).replace("|", "\\|")


def _type(part: dict[str, Any]) -> str:
    if "enum" in part:
        return ", ".join(f"`{one}`" for one in part["enum"])
    if part["type"] == "integer":
        return f"{part['minimum']} to {part['maximum']}"
    return {"object": "map", "array": "list"}.get(str(part["type"]), str(part["type"]))


if __name__ == "__main__":
    sys.stdout.write(page((CHART / "values.yaml").read_text(), json.loads((CHART / "values.schema.json").read_text())))
