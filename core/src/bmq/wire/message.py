"""The version-agnostic message: one shape per API, with every field that any version has."""

from collections.abc import Mapping
from typing import Any


class Message:
    """Fields as attributes. Names are kio's (snake case), with `_ms` where kio's type carries the unit.

    Integers, booleans and strings are plain; error codes are int; a UUID is None where it is zero; arrays are lists;
    nested entities are Messages. A field that the version lacks has its schema default, or else 0, False, [] or None. A
    struct that may be left out (tagged or nullable) is None where it was.
    """

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        # Only for type checkers and a readable error: what is there never comes here.
        raise AttributeError(f"no field {name!r}; there are {', '.join(sorted(self.__dict__))}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


Fields = Message | Mapping[str, Any]
"""What encoders take: a Message, or a mapping of the same names; nested, both in any mixture."""
