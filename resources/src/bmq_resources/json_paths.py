"""Places in a JSON value, as channels name them: RFC 9535's singular queries without escapes and without indexes from
the end. Pure.

`$.customer.id`, `$['first name']`, `$.items[0].price`. One place has one such path, so two paths can be compared.
"""

import re
from typing import Final

PATH_CHARS_MAX: Final = 512
STEPS_MAX: Final = 16
INDEX_MAX: Final = 1_000_000
_STEP: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_\u0080-\ud7ff\ue000-\U0010ffff][0-9A-Za-z_\u0080-\ud7ff\ue000-\U0010ffff]*)
    |\['(?P<single>[^'\\\x00-\x1f]*)'\]
    |\["(?P<double>[^"\\\x00-\x1f]*)"\]
    |\[(?P<index>0|[1-9][0-9]{0,6})\]""",
    re.VERBOSE,
)

Path = tuple[str | int, ...]
"""A member's name, or an element's index, for each step from the value's root on."""


def path_of(text: str) -> Path:
    """The steps of a path. Raises ValueError: what is wrong with it, and what is right."""
    if len(text) > PATH_CHARS_MAX:
        raise ValueError(f"a path has {PATH_CHARS_MAX} characters at most")
    if not text.startswith("$"):
        raise ValueError("a path begins with $: write for example $.customer.id")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(
                f"{text[at : at + 20]!r} is no step of a path: a step is .name, ['any name'] or [0], without "
                "wildcards, slices, filters, escapes and indexes from the end"
            )
        at = found.end()
        if (index := found["index"]) is not None:
            if int(index) > INDEX_MAX:
                raise ValueError(f"an index is {INDEX_MAX} at most")
            steps.append(int(index))
        else:
            steps.append(next(one for one in (found["name"], found["single"], found["double"]) if one is not None))
    if not steps:
        raise ValueError("a path names a place within the value: write for example $.customer.id")
    if len(steps) > STEPS_MAX:
        raise ValueError(f"a path has {STEPS_MAX} steps at most")
    return tuple(steps)


def is_within(path: Path, outer: Path) -> bool:
    """Whether what is at `path` is what is at `outer`, or a part of it."""
    return path[: len(outer)] == outer
