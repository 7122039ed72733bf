"""What is looked for in every body: it costs what the body has, however that is nested and named."""

import json
import tracemalloc
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bmq.metadata.storable import fields_of
from bmq_controller.api.bodies import BODY_ELEMENTS_MAX, DEPTH_MAX, has_too_many, unusable
from bmq_controller.api.models import ConfigValues


def deep(levels: int, name: str, innermost: Any) -> Any:
    for _ in range(levels):
        innermost = {name: innermost}
    return innermost


def test_a_field_is_named_by_the_way_to_it() -> None:
    for body, named in (
        ({"a": [{"b": ["x", "\ud800"]}]}, "a[0].b[1] has half a character (U+D800"),
        ({"a": {"\ud800": 1}}, r"a.\ud800 (its name) has half a character"),
        (["\ud800"], "[0] has half a character"),
        ("\ud800", "its body has half a character"),
    ):
        found = unusable(json.dumps(body).encode())
        assert found is not None
        assert found.why.startswith(named), found.why
    assert unusable(json.dumps({"a": [1, "ü", None]}).encode()) is None


def test_what_names_of_a_deep_body_take_is_what_they_have_themselves() -> None:
    """The ways to all fields would have 250 times as much: half a GiB of a body of 62 KB."""
    body = deep(250, "n" * 100 + "\U0001f600", list(range(4_990)))
    text = json.dumps(body, ensure_ascii=False).encode()
    tracemalloc.start()
    assert unusable(text) is None
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 64 * len(text)
    ways = [way for way, _ in fields_of(body) if way is not None]
    assert len(ways) == 4_990 + 250
    assert max(len(way.said) for way in ways) > 25_000


@pytest.mark.parametrize("body", [b"[" * 6_000, b'{"a":' * 6_000, b"," * 6_000, b"[{" * 3_000])
def test_a_body_of_brackets_or_commas_is_told_before_it_is_taken_apart(body: bytes) -> None:
    assert has_too_many(body)
    assert not has_too_many(body[: BODY_ELEMENTS_MAX // 5])


def test_depth_is_bounded_however_few_elements_there_are() -> None:
    found = unusable(json.dumps(deep(DEPTH_MAX + 1, "a", 1)).encode())
    assert found is not None
    assert "nested too deeply" in found.why
    assert unusable(json.dumps(deep(DEPTH_MAX - 1, "a", 1)).encode()) is None


def test_of_values_of_configs_that_are_none_the_first_is_told() -> None:
    configs: TypeAdapter[dict[str, Any]] = TypeAdapter(ConfigValues)
    right = {"a": 1, "b": "x", "c": True, "d": None, "e": 1.5}
    assert configs.validate_python(right) == right
    with pytest.raises(ValidationError) as refused:
        configs.validate_python({"a": 1, **{f"k{number}": {} for number in range(4_990)}})
    assert [one["msg"] for one in refused.value.errors()] == ["k0: a text, a number, true, false or null is wanted"]
