"""What differs between what is written and what is there. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field. None: it is not there, or is not to be."""

    field: str
    before: str | int | None
    after: str | int | None


def config_differences(written: Mapping[str, str], present: Mapping[str, str]) -> list[Difference]:
    """By key. A key that is present and not written goes back to its default: the text is all there is to know."""
    return [
        Difference(field=name, before=present.get(name), after=written.get(name))
        for name in sorted({*written, *present})
        if written.get(name) != present.get(name)
    ]


def as_changes(differences: Sequence[Difference]) -> dict[str, str | int | None]:
    """What a PATCH of a configuration takes: keys and their new values, null for the default."""
    return {one.field: one.after for one in differences}
