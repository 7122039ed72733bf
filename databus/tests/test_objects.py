"""JSON objects one after another are cut as they stand, wherever the parts of a body end."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_databus.errors import EndlessLine, NoObjects
from bmq_databus.messages.objects import Objects

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab"\\{}[] \u00e4\n'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"\\}{'), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(alphabet='ab"]'), VALUES, max_size=3), max_size=5)


def cut(body: bytes, step: int, *, most: int = 1 << 20) -> list[bytes]:
    objects = Objects(object_bytes_max=most, silent_bytes_max=1_000)
    found = [one for at in range(0, len(body), step) for one in objects.feed(body[at : at + step])]
    return found + list(objects.end())


@given(OBJECTS, st.sampled_from(["", "\n", " \r\n\t"]), st.integers(1, 40), st.sampled_from([None, 2]), st.booleans())
def test_what_was_put_together_is_taken_apart(
    objects: list[dict[str, Any]], between: str, step: int, indent: int | None, ascii_only: bool
) -> None:
    texts = [json.dumps(one, indent=indent, ensure_ascii=ascii_only) for one in objects]
    found = cut(between.join([*texts, ""]).encode(), step)
    assert [one.decode() for one in found] == texts


@pytest.mark.parametrize("body", [b"[1]", b'{"a": 1}, {"b": 2}', b"null", b"{}x", b"}"])
def test_a_body_of_anything_else_is_refused_there(body: bytes) -> None:
    with pytest.raises(NoObjects, match="begins none"):
        cut(body, 3)


@pytest.mark.parametrize("body", [b"{", b'{"a": "', b'{"a": "\\', b'{"a": [}', b"{} {"])
def test_a_body_that_ends_within_one_is_refused(body: bytes) -> None:
    with pytest.raises(NoObjects, match="ends within a record"):
        cut(body, 4)


def test_what_is_kept_is_bounded() -> None:
    with pytest.raises(EndlessLine, match="1000 bytes at most"):
        cut(b'{"a": "' + b"x" * 2_000, 100, most=1_000)
    with pytest.raises(EndlessLine, match="have no record"):
        cut(b" " * 2_000, 100)
    assert cut((b"{}" + b" " * 900) * 3, 100) == [b"{}"] * 3
