"""Free text in specs: how long it may be, and maps of it that are bounded as a whole, which no schema of Kubernetes can
say. What has no bound would be rendered, compared and hashed again and again by an operator that looks after others'
resources, too.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

SETTINGS_CHARS_MAX: Final = 32_768
"""What nodes, topics and jobs are set to may be so long in all: hundreds of times what anybody writes."""
NOTES_CHARS_MAX: Final = 8_192
"""Annotations may be so long in all: each of up to hundreds of Services has them."""
RESOURCE_NAME_CHARS_MAX: Final = 317
"""PREFIX/NAME, as Kubernetes has it."""
QUANTITY_CHARS_MAX: Final = 64
NAMESPACE_CHARS_MAX: Final = 63
RANGE_CHARS_MAX: Final = 64
"""ADDRESS/BITS, with room for spaces."""


def chars_of(value: Mapping[str, str]) -> int:
    """What counts: names and values."""
    return sum(len(name) + len(text) for name, text in value.items())


def _whole(value: dict[str, str], chars_max: int) -> dict[str, str]:
    if chars_of(value) > chars_max:
        raise PydanticCustomError("texts", "it is too large", {"max_length": chars_max})
    return value


SettingsMap = Annotated[
    dict[str, Annotated[str, Field(max_length=SETTINGS_CHARS_MAX)]],
    AfterValidator(partial(_whole, chars_max=SETTINGS_CHARS_MAX)),
]
NotesMap = Annotated[
    dict[str, Annotated[str, Field(max_length=NOTES_CHARS_MAX)]],
    AfterValidator(partial(_whole, chars_max=NOTES_CHARS_MAX)),
]

RESOURCE_NAMES_RULE: Final = f"self.all(name, size(name) <= {RESOURCE_NAME_CHARS_MAX})"
RESOURCE_NAMES_TEXT: Final = f"a name has more than {RESOURCE_NAME_CHARS_MAX} characters: shorten it"
