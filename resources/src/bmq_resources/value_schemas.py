"""The JSON Schemas that a sidecar serves: what each keeps to, and how much memory it may take. Pure.

The same for a file, for what a cluster is told to keep, and for what a control plane says. A pattern's text says little
of what it is compiled into (`\\p{L}{22}` comes to a MiB), so each is compiled here, within bounds, and let go again.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import jsonschema_rs

SCHEMA_BYTES_MAX: Final = 256 << 10
PARTS_MAX: Final = 10_000
"""A schema has so many, with what it refers to in the places of the references."""
PATTERNS_MAX: Final = 256
PATTERN_CHARS_MAX: Final = 8_192
"""All patterns of a schema have so many: 2 µs each to read…"""
CASELESS_CHARS_MAX: Final = 512
"""…and those that ignore case so many, which take 25."""
PATTERN_BYTES_MAX: Final = 1 << 20
"""What one is compiled into."""
PATTERNS_BYTES_MAX: Final = 4 << 20
"""What all of one schema are compiled into; and what they keep while they are matched, in all."""
PART_BYTES: Final = 1 << 10
"""A part takes up to so much, once it is compiled."""
_STEPS_BYTES: Final = tuple(4 << 10 << 2 * step for step in range(5))
"""A pattern counts as the first of these that it fits into."""
_CACHE_BYTES_MIN: Final = 16 << 10
_TEXT_CHARS_MAX: Final = 60
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are no schemas."""
_ELSEWHERE: Final = frozenset({"$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})
_CASELESS: Final = re.compile(r"\(\?[a-zA-Z]*i")


class BadSchema(Exception):
    """It is no schema, or one that is not served: what, why, and the remedy."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """One that is served, as JSON: two that are the same are equal."""

    text: str
    size_bytes: int = field(compare=False)
    """What it takes at most of a sidecar's memory."""
    cache_bytes: int = field(compare=False)
    """What each of its patterns keeps while it is matched."""

    @classmethod
    def of(cls, schema: dict[str, Any]) -> "JsonSchema":
        """Takes up to some 0.2 s. Raises BadSchema."""
        try:
            text = json.dumps(schema, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadSchema(f"it is no JSON: {error}: write a JSON Schema") from None
        if len(text) > SCHEMA_BYTES_MAX:
            raise BadSchema(f"it has {len(text)} bytes, and {SCHEMA_BYTES_MAX} are the most: leave some out")
        root = json.loads(text)
        looked = _Looked(root)
        looked.count(root, ())
        patterns_bytes, cache_bytes = _sizes(looked.patterns)
        size_bytes = patterns_bytes + len(looked.patterns) * cache_bytes + looked.parts * PART_BYTES
        found = cls(text, size_bytes, cache_bytes)
        found.compiled()
        return found

    def compiled(self) -> "jsonschema_rs.Validator":
        """What values are held against. Raises BadSchema."""
        import jsonschema_rs  # 4 MiB, for which who has no schemas has no use

        try:
            return jsonschema_rs.validator_for(
                json.loads(self.text),
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(
                    size_limit=PATTERN_BYTES_MAX, dfa_size_limit=self.cache_bytes
                ),
            )
        except (jsonschema_rs.ValidationError, ValueError) as error:
            why = getattr(error, "message", None) or str(error)
            raise BadSchema(f"{str(why).splitlines()[0][:200]}: write a JSON Schema") from None


class _Looked:
    """What a schema has in it."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._seen: set[int] = set()
        self.parts = 0
        self.patterns: list[str] = []
        """Those of each part once, wherever it is referred to; of `patternProperties` twice, as they are compiled."""

    def count(self, part: Any, within: tuple[str, ...]) -> None:
        """Raises BadSchema."""
        if not isinstance(part, (dict, list)):
            return
        self.parts += 1
        if self.parts > PARTS_MAX:
            raise BadSchema(f"it has more than {PARTS_MAX} parts, those that it refers to among them: make it smaller")
        if isinstance(part, list):
            for one in part:
                self.count(one, within)
            return
        if elsewhere := _ELSEWHERE & part.keys():
            raise BadSchema(f"{min(elsewhere)} is not served: refer by $ref to #/$defs/NAME")
        if id(part) not in self._seen:
            self._seen.add(id(part))
            self.patterns += _patterns_of(part)
        for name, one in part.items():
            if name == "$ref" and isinstance(one, str):
                if one in within:
                    raise BadSchema(
                        f"$ref {one} leads back to itself, and how long a value takes would have no bound: write out "
                        "as many levels as there are"
                    )
                self.count(_referred(self._root, one), (*within, one))
            elif name not in _DATA:
                self.count(one, within)


def _patterns_of(part: dict[str, Any]) -> list[str]:
    found = [pattern] if isinstance(pattern := part.get("pattern"), str) else []
    names = part.get("patternProperties")
    return found + 2 * list(names) if isinstance(names, dict) else found


def _sizes(patterns: list[str]) -> tuple[int, int]:
    """What all are compiled into, and what each may keep while it is matched. Raises BadSchema."""
    if len(patterns) > PATTERNS_MAX:
        raise BadSchema(f"it has {len(patterns)} patterns, and {PATTERNS_MAX} are the most: leave some out")
    chars = sum(map(len, patterns))
    if chars > PATTERN_CHARS_MAX:
        raise BadSchema(
            f"its patterns have {chars} characters, and {PATTERN_CHARS_MAX} are the most: shorten them, or leave some "
            "out"
        )
    caseless_chars = sum(len(pattern) for pattern in patterns if _CASELESS.search(pattern))
    if caseless_chars > CASELESS_CHARS_MAX:
        raise BadSchema(
            f"its patterns that ignore case, by (?i), have {caseless_chars} characters, and {CASELESS_CHARS_MAX} are "
            "the most: write [Aa], or shorten them"
        )
    known: dict[str, int] = {}
    total_bytes = 0
    for pattern in patterns:
        if pattern not in known:
            known[pattern] = _compiled_bytes(pattern)
        total_bytes += known[pattern]
        if total_bytes > PATTERNS_BYTES_MAX:
            raise BadSchema(
                f"its patterns are compiled into more than {PATTERNS_BYTES_MAX >> 20} MiB, of which "
                f"{pattern[:_TEXT_CHARS_MAX]!r} takes up to {known[pattern] >> 10} KiB: lower its repetitions, or "
                r"write a smaller class than \p{…}"
            )
    largest_bytes = max(known.values(), default=0)
    each_bytes = PATTERNS_BYTES_MAX // max(1, len(patterns))
    return total_bytes, max(_CACHE_BYTES_MIN, min(2 * largest_bytes, each_bytes, PATTERN_BYTES_MAX))


def _compiled_bytes(pattern: str) -> int:
    """Up to so many. Raises BadSchema."""
    import jsonschema_rs

    for size_bytes in _STEPS_BYTES:
        options = jsonschema_rs.RegexOptions(size_limit=size_bytes, dfa_size_limit=_CACHE_BYTES_MIN)
        try:
            jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)
        except (jsonschema_rs.ValidationError, ValueError):
            continue
        return size_bytes
    raise BadSchema(
        f"pattern {pattern[:_TEXT_CHARS_MAX]!r} is none, has look-around or back-references, or is compiled into more "
        f"than {PATTERN_BYTES_MAX >> 20} MiB: mend it, or lower its repetitions"
    )


def _referred(root: Any, reference: str) -> Any:
    if reference != "#" and not reference.startswith("#/"):
        raise BadSchema(f"$ref {reference[:_TEXT_CHARS_MAX]}: nothing is fetched; refer to #/$defs/NAME")
    found = root
    for step in _steps(reference):
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isascii() and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            raise BadSchema(f"$ref {reference[:_TEXT_CHARS_MAX]} leads nowhere: refer to #/$defs/NAME")
    return found


def _steps(reference: str) -> Iterator[str]:
    for step in reference.split("/")[1:]:
        yield step.replace("~1", "/").replace("~0", "~")
