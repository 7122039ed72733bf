"""What no page can use, whatever it takes: looked for in every body before a page sees it. Pure.

JSON can spell what nothing behind it can store or send: half a character, numbers of any length, nesting without end.
"""

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from bmq.metadata.storable import fields_of, unstorable_text

DEPTH_MAX: Final = 256
"""How many lists and objects may stand within each other. Whoever reads a body gives up somewhere between that and a
thousand, by how deep it stands itself.
"""
BODY_ELEMENTS_MAX: Final = 5_000
"""Commas in a body, and brackets that open: each element may become an error of its own."""
_TOO_DEEP: Final = "its body is nested too deeply", "send fewer lists and objects within each other"


class Unusable(NamedTuple):
    """Why a body cannot be used, and what to do."""

    why: str
    remedy: str


def has_too_many(body: bytes) -> bool:
    """Whether it has more elements, or more lists and objects, than BODY_ELEMENTS_MAX. To be asked before it is taken
    apart: a MiB of brackets takes the loop a second.
    """
    return body.count(b",") > BODY_ELEMENTS_MAX or body.count(b"[") + body.count(b"{") > BODY_ELEMENTS_MAX


def unusable(body: bytes) -> Unusable | None:
    """None: it can be used, as far as is known here.

    What is no JSON is refused here too: a page's framework would keep such a body in a cycle of its error until the
    garbage collector comes.
    """
    if not body:
        return None
    try:
        document = json.loads(body)
    except RecursionError:
        return Unusable(*_TOO_DEEP)
    except json.JSONDecodeError as error:
        return Unusable(
            f"its body is no JSON: {error.msg[:1].lower()}{error.msg[1:]} at character {error.pos}", "send JSON"
        )
    except UnicodeDecodeError:
        return Unusable("its body is no JSON: it is not UTF-8", "send JSON")
    except ValueError as error:
        return Unusable(f"its body holds a number that is too long ({error})", "send a shorter number")
    if _is_deep(document):
        return Unusable(*_TOO_DEEP)
    for way, value in fields_of(document):
        if isinstance(value, str) and (why := unstorable_text(value)) is not None:
            return Unusable(f"{'its body' if way is None else way.said} {why}", "leave that character out")
    return None


def _is_deep(document: object) -> bool:
    """Without recursion."""
    level = _lists_and_objects((document,))
    for _ in range(DEPTH_MAX):
        level = [below for one in level for below in _lists_and_objects(one.values() if isinstance(one, dict) else one)]
        if not level:
            return False
    return True


def _lists_and_objects(values: Iterable[object]) -> list[dict[str, object] | list[object]]:
    return [one for one in values if isinstance(one, (dict, list))]
