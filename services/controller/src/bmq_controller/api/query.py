"""What a request asks for behind the `?`: nothing that its page does not know, nothing twice, and not so much that it
takes others' time to find that. Pure; knows no framework.

A misspelt `validate_only` that was passed over would make what was only to be looked at.
"""

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import parse_qsl

from bmq_controller.api.asgi import PARAMETERS_MAX, TARGET_BYTES_MAX

NAMED_MAX = 5
"""So many parameters are named in a refusal…"""
NAME_CHARS_MAX = 100
"""…and so much of each."""


@dataclass(frozen=True, slots=True)
class Misread:
    """Why a query cannot be used, and the remedy."""

    why: str
    remedy: str


def too_long(path: str, query: str) -> Misread | None:
    """None where a request for these is short enough to be looked into."""
    if len(path) + len(query) > TARGET_BYTES_MAX:
        return Misread(f"its path and query have more than {TARGET_BYTES_MAX} bytes", "ask for less")
    if query.count("&") >= PARAMETERS_MAX:
        return Misread(f"its query has more than {PARAMETERS_MAX} parameters", "/docs shows those that there are")
    return None


def misread(query: str, known: Collection[str]) -> Misread | None:
    """None where each of its parameters is one of `known` and there once."""
    given = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
    takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
    if unknown := [name for name in dict.fromkeys(given) if name not in known]:
        return Misread(f"it has no parameter {_named(unknown)}", f"{takes}; /docs shows what each of them means")
    if len(set(given)) < len(given):
        return Misread(
            f"it is given several times: {_named([name for name in known if given.count(name) > 1])}",
            "give each parameter once",
        )
    return None


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(ascii(name[:NAME_CHARS_MAX]) for name in names[:NAMED_MAX]) + more
