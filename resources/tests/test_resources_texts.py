"""Nothing that a spec says has no bound: neither a text, nor a name in a map, nor a map as a whole."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from pydantic import BaseModel, ValidationError
from test_resources_checks import document, only

from bmq_resources import KINDS, Channel, Cluster, Lane, ParquetSink, Topic
from bmq_resources.affinity import with_affinity
from bmq_resources.base import Resource
from bmq_resources.checks import check
from bmq_resources.schema import structural_part

LONG: Final = "x" * 70_000
"""More than any text, and any map, may have."""
STORE: Final = {"store": {"url": "s3://bucket"}}
TABLE: Final = {"output": "s3a://bucket/table", "schedule": "@hourly"}


def maps(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """With their places; * stands for an item."""
    if "additionalProperties" in schema:
        yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from maps(part, (*path, name))
    if "items" in schema:
        yield from maps(schema["items"], (*path, "*"))


def spec(path: tuple[str, ...], value: Any) -> Any:
    for step in reversed(path):
        value = [value] if step == "*" else {step: value}
    return value


def understood(kind: type[BaseModel], written: Any) -> bool:
    """By the operator, which takes what the API server has."""
    try:
        kind.model_validate({"metadata": {"name": "a"}, "spec": written})
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_no_map_of_a_spec_takes_a_name_or_texts_of_any_length(kind: type[Resource]) -> None:
    found = list(maps(with_affinity(structural_part(kind, "spec"))))
    assert len(found) > 5 or kind is Channel
    for path, schema in found:
        value = "1" if "x-kubernetes-int-or-string" in schema["additionalProperties"] else "x"
        assert understood(kind, spec(path, {"a": value})), path
        assert not understood(kind, spec(path, {LONG: value})), path
        if value == "1":
            continue
        many = schema["maxProperties"]
        written = {f"a{number}": LONG[: len(LONG) // many] for number in range(many)}
        assert not understood(kind, spec(path, written)), path


@pytest.mark.parametrize(
    ("kind", "rest", "path", "most"),
    [
        (Cluster, STORE, "config", 32_768),
        (Cluster, STORE, "settings.env", 32_768),
        (Cluster, STORE, "listeners.*.annotations", 8_192),
        (Topic, {}, "config", 32_768),
        (Topic, {}, "parquet.sparkConf", 32_768),
        (ParquetSink, TABLE | {"topics": ["orders"]}, "consumerConfig", 32_768),
    ],
)
def test_settings_have_a_size_in_all(kind: type[Resource], rest: dict[str, Any], path: str, most: int) -> None:
    names = [("spark." if "spark" in path else "BMQ_") + letter for letter in "ab"]
    half = most // 2 - len(names[0])

    def written(length: int) -> dict[str, Any]:
        found = rest | spec(tuple(path.split(".")), {names[0]: "x" * half, names[1]: "ü" * length})
        return found | ({"parquet": TABLE | found["parquet"]} if "parquet" in found else {})

    assert isinstance(check(kind, document(kind, written(half))), kind)
    found = only(check(kind, document(kind, written(half + 1))))
    assert found.field == f"spec.{path}".replace(".*", "[0]")
    assert found.value == ""
    assert found.why == f"its names and values have more than {most} characters in all"
    assert found.remedy == "shorten them, or leave some out"


def test_what_is_refused_of_a_long_name_is_no_longer_than_a_line() -> None:
    for written in ({LONG: 1}, {"proxies": {"resources": {"requests": {LONG: "1"}}}}):
        found = only(check(Lane, document(Lane, written)))
        assert len(str(found)) < 400, str(found)[:400]
        assert "xxx…" in found.field and found.remedy
