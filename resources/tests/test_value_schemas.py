"""Which JSON Schemas a sidecar serves, and what they may take of it."""

import re
from typing import Any

import pytest

from bmq_resources.value_schemas import (
    CASELESS_CHARS_MAX,
    PART_BYTES,
    PATTERN_BYTES_MAX,
    PATTERN_CHARS_MAX,
    PATTERNS_BYTES_MAX,
    PATTERNS_MAX,
    BadSchema,
    JsonSchema,
)


def with_patterns(*patterns: str) -> dict[str, Any]:
    return {"allOf": [{"pattern": pattern} for pattern in patterns]}


def letters(count: int, repeated: int = 21) -> list[str]:
    return [rf"\p{{L}}{{{repeated}}}{number}" for number in range(count)]


def test_what_is_usual_is_served_and_takes_little() -> None:
    found = JsonSchema.of(
        {
            "properties": {
                "id": {"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
                "at": {"pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$"},
                "mail": {"pattern": r"^[^@\s]+@[^@\s]+\.[^@\s]+$"},
                "name": {"pattern": r"^[\p{L} '-]+$"},
            },
            "patternProperties": {"^x-": {"type": "string"}},
        }
    )
    assert found.size_bytes < 1 << 20


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (with_patterns(*letters(560)), f"560 patterns, and {PATTERNS_MAX} are the most: leave some out"),
        (with_patterns(*letters(5)), f"more than {PATTERNS_BYTES_MAX >> 20} MiB, of which"),
        ({"patternProperties": {key: {} for key in letters(3)}, "additionalProperties": False}, "more than 4 MiB"),
        (with_patterns(*letters(1, 40)), f"more than {PATTERN_BYTES_MAX >> 20} MiB: mend it"),
        (with_patterns("(a"), "'(a' is none"),
        (with_patterns("(?=a)b"), "look-around"),
        (with_patterns("a" * (PATTERN_CHARS_MAX + 1)), f"{PATTERN_CHARS_MAX} are the most"),
        (with_patterns(*["(?i:[^a]{0})" * 40] * 2), f"{CASELESS_CHARS_MAX} are the most"),
        ({"type": "nonsense"}, "nonsense"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "leads back to itself"),
    ],
)
def test_what_is_not_served_is_told_with_the_remedy(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSchema, match=re.escape(says)) as told:
        JsonSchema.of(schema)
    assert ": " in str(told.value)


def test_a_pattern_counts_once_wherever_it_is_referred_to_and_parts_count_each_time() -> None:
    schema = {"$defs": {"a": {"pattern": letters(1)[0]}}, "allOf": [{"$ref": "#/$defs/a"}] * 500}
    found = JsonSchema.of(schema)
    assert 2 * PATTERN_BYTES_MAX + 1_000 * PART_BYTES < found.size_bytes < 4 << 20


def test_what_patterns_keep_while_they_are_matched_is_bounded_with_them() -> None:
    for count in (1, 4):
        found = JsonSchema.of(with_patterns(*letters(count)))
        assert found.cache_bytes == PATTERN_BYTES_MAX
        assert found.size_bytes < 2 * count * PATTERN_BYTES_MAX + 20 * PART_BYTES
    many = JsonSchema.of(with_patterns(*(f"^[a-z]+{number}" for number in range(PATTERNS_MAX))))
    assert many.cache_bytes * PATTERNS_MAX == PATTERNS_BYTES_MAX
