import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, Field

from bmq_resources import KINDS
from bmq_resources.base import Part
from bmq_resources.checks import check
from bmq_resources.cluster import Cluster
from bmq_resources.crd import crd, crd_files
from bmq_resources.reference import page
from bmq_resources.schema import Unstructural, structural

ROOT = Path(__file__).parents[2]
NEEDED = {"spec.targets[].topic", "spec.sampling.percent", "spec.schema.json"}
"""Fields without which the part that they are in, which may be left out, would mean nothing."""


@pytest.mark.parametrize("folder", ["crds", "charts/bmq/files/crds"])
def test_crds_in_the_tree_are_what_the_models_say(folder: str) -> None:
    there = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / folder).glob("*.yaml")}

    assert there == crd_files(), "run `make generated`"


def test_the_reference_page_in_the_tree_is_what_the_models_say() -> None:
    assert (ROOT / "docs/resources.md").read_text(encoding="utf-8") == page(), "run `make generated`"


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_spec_has_a_default_and_a_description(kind: type) -> None:
    schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]

    lacking = [
        path
        for path, part in _fields(schema["spec"], "spec")
        if "default" not in part and not part.get("nullable") and "properties" not in part
    ]
    lacking = [path for path in lacking if path not in NEEDED]
    silent = [
        path for top in ("spec", "status") for path, part in _fields(schema[top], top) if not part.get("description")
    ]

    assert lacking == []
    assert schema["spec"].get("required", []) == (["store"] if kind is Cluster else [])
    assert silent == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_takes_as_defaults_is_what_the_crd_says(kind: type) -> None:
    resource = kind.model_validate({"metadata": {"name": "bmq"}})
    schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

    written = resource.spec.written()
    assert {name: written[name] for name in written if name not in schema.get("required", [])} == _defaults(schema)


@pytest.mark.parametrize("kind", KINDS)
def test_a_description_ends_with_the_default_as_kubectl_explain_shows_nothing_else_of_it(kind: type) -> None:
    schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    leaves = [
        (path, part)
        for path, part in _fields(schema, "spec")
        if "default" in part and (part["default"] == {} or not isinstance(part["default"], dict))
    ]
    assert len(leaves) > 5
    for path, part in leaves:
        shown = "empty" if part["default"] == "" else json.dumps(part["default"], ensure_ascii=False)
        assert part["description"].endswith(f" Default: {shown}."), path


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_that_the_fields_of_an_object_do_not_say_stands_in_words_and_on_the_page(kind: type) -> None:
    """As where CPU and memory are requested unless something is written: its own fields say that nothing is."""
    schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for path, part in _fields(schema, "spec"):
        said = {name: one.get("default") for name, one in part.get("properties", {}).items()}
        if said and part.get("default") and part["default"] != said:
            text = json.dumps(part["default"], ensure_ascii=False)
            assert part["description"].endswith(f" Default: {text}."), path
            assert f"\n| `{path.removeprefix('spec.')}` | object | `{text}` |" in page(), path


def test_a_cluster_without_a_store_is_refused_with_and_without_kubernetes() -> None:
    schema = crd(Cluster)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["required"] == ["spec"]
    assert schema["properties"]["spec"]["required"] == ["store"]
    for spec in ({}, {"store": {}}, {"brokers": {"replicas": 3}}):
        found = check(
            Cluster, {"apiVersion": "bmq.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "bmq"}, "spec": spec}
        )
        assert isinstance(found, list)
        assert [(one.field, one.remedy) for one in found] == [("spec.store", "set one, and leave the other out")]


def test_a_field_without_a_description_is_refused_by_name() -> None:
    class Silent(Part):
        size: int = 0

    with pytest.raises(Unstructural, match=r"Silent\.size has no description"):
        structural(Silent)


def test_a_field_of_several_types_is_refused_by_name() -> None:
    class Several(BaseModel):
        size: int | str = Field(default=0, description="A size.")

    with pytest.raises(Unstructural, match=r"Several\.size is one of several types"):
        structural(Several)


def _fields(schema: dict, path: str) -> list[tuple[str, dict]]:
    found = []
    for name, part in schema.get("properties", {}).items():
        found += [
            (f"{path}.{name}", part),
            *_fields(part, f"{path}.{name}"),
            *_fields(part.get("items", {}), f"{path}.{name}[]"),
        ]
    return found


def _defaults(schema: dict) -> dict:
    return {name: part["default"] for name, part in schema.get("properties", {}).items() if "default" in part}


def test_a_crd_takes_nothing_that_has_no_bound() -> None:
    """What an API server keeps as it is written may be a megabyte, and thousands of levels deep."""
    for name, text in crd_files().items():
        spec = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        anything = [path for path, part in _parts(spec, "spec") if "x-kubernetes-preserve-unknown-fields" in part]
        # No structural schema says what a JSON Schema is: the model bounds it (test_resources_channels).
        assert anything == (["spec.schema.json"] if name == "channels.yaml" else []), name
        assert text.count("x-kubernetes-preserve-unknown-fields") == len(anything), name
        unbounded = [path for path, part in _parts(spec, "spec") if not _is_bounded(part)]
        assert unbounded == anything, name


def _is_bounded(part: dict[str, Any]) -> bool:
    if "x-kubernetes-int-or-string" in part:
        return "maxLength" in part
    match part.get("type"):
        case "string":
            return "maxLength" in part or "enum" in part
        case "array":
            return "maxItems" in part
        case "object" if "additionalProperties" in part:
            return "maxProperties" in part
        case "object":
            return "properties" in part
        case _:
            return True


def _parts(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from _parts(part, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from _parts(schema[name], f"{path}[]")
