"""What a Channel refuses, in words, and by the same rules as the API server's."""

from typing import Any

import pytest
from test_resources_checks import document, only

from bmq_resources.channel import Channel
from bmq_resources.channel_rules import SCHEMA_CHARS_MAX, SCHEMA_PARTS_MAX
from bmq_resources.checks import check
from bmq_resources.crd import crd


@pytest.mark.parametrize(
    ("spec", "field", "remedy"),
    [
        ({"key": {"field": "$.a", "header": "b"}}, "spec.key", "write one of them"),
        ({"key": {}}, "spec.key", "write one of them"),
        ({"key": {"field": "a"}}, "spec.key", ""),
        ({"lane": {}}, "spec.lane", "write one of them"),
        ({"rate": {}}, "spec.rate", "leave rate out"),
        ({"rate": {"messagesPerSecond": 1e-9}}, "spec.rate", "turn the channel off"),
        ({"redact": {}}, "spec.redact", "leave redact out"),
        ({"sampling": {"percent": 0}}, "spec.sampling.percent", "raise it"),
        ({"topic": "a", "targets": [{"topic": "b"}]}, "spec", "leave topic out"),
        ({"targets": [{"topic": "b"}, {"topic": "b"}]}, "spec", "leave one out"),
        ({"topic": "a b"}, "spec.topic", "name another topic"),
        ({"targets": [{"topic": "a b"}]}, "spec.targets[0].topic", "name another topic"),
        ({"existing": "Steal"}, "spec.existing", "write it so"),
    ],
)
def test_what_cannot_be_is_told_with_its_field_and_a_remedy(spec: dict[str, Any], field: str, remedy: str) -> None:
    found = only(check(Channel, document(Channel, spec)))
    assert found.field == field and remedy in found.remedy and "cannot be used" not in found.why, found


def test_a_name_that_is_no_topics_needs_a_topic() -> None:
    name = "a" * 250
    assert only(check(Channel, document(Channel, {}, name=name))).field == "metadata.name"
    assert isinstance(check(Channel, document(Channel, {"topic": "short"}, name=name)), Channel)


@pytest.mark.parametrize(
    "junk",
    [[[]] * SCHEMA_PARTS_MAX, "x" * (SCHEMA_CHARS_MAX + 1), [[[[]] * 3] * 10_000]],
    ids=["many", "long", "many below"],
)
def test_a_schema_of_values_has_a_size(junk: Any) -> None:
    found = only(check(Channel, document(Channel, {"schema": {"json": {"enum": junk}}})))
    assert (found.field, found.value, found.remedy) == ("spec.schema.json", "", "leave some out")


def test_a_schema_of_values_is_not_nested_without_end() -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"not": deep}
    assert "nested" in only(check(Channel, document(Channel, {"schema": {"json": deep}}))).why


def test_a_number_that_has_to_be_more_than_another_one_is_said_as_kubernetes_has_it() -> None:
    spec = crd(Channel)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    percent = spec["properties"]["sampling"]["properties"]["percent"]
    assert (percent["minimum"], percent["exclusiveMinimum"], percent["maximum"]) == (0, True, 100)
