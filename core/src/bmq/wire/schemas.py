"""The protocol's message schemas: what fields a message has in which versions. Read from `schemas.json`, which is made
from kio.

Kept as one table instead of kio's classes because those take over a second and 35 MiB to import; a test regenerates it
and compares. A field is described once for all versions, so that code above the wire sees one message per API and no
versions.
"""

from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

FieldType = Literal["bool", "int8", "int16", "int32", "int64", "uint16", "float64", "string", "bytes", "uuid", "struct"]
Default = bool | int | float | str | None

RESOURCE: Final = "schemas.json"


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field. `versions` and `nullable` are first and last version, both inclusive.

    `default` is the schema's own; without one it is None where `has_default` is False.
    """

    name: str
    type: FieldType
    versions: tuple[int, int]
    array: bool = False
    nullable: tuple[int, int] | None = None
    tag: int | None = None
    has_default: bool = False
    default: Default = None
    fields: "tuple[Field, ...]" = ()

    def in_version(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def nullable_in(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]

    @property
    def is_empty_list_by_default(self) -> bool:
        return self.array and not self.has_default

    def default_when_absent(self) -> Default:
        """What a version without the field stands for. Arrays without a default of their own are an empty list
        instead.
        """
        if self.has_default:
            return self.default
        match self.type:
            case "struct" | "uuid" | "string" | "bytes":
                return None
            case "bool":
                return False
            case _:
                return 0

    def default_when_written(self, version: int) -> Default:
        """What is written where the code gives no value: like `default_when_absent`, and "" where the version knows no
        null.
        """
        if self.type in {"string", "bytes"} and not self.has_default and not self.nullable_in(version):
            return ""
        return self.default_when_absent()


class ApiSchema(msgspec.Struct, frozen=True):
    """All versions of one API that the schemas cover. From `flexible_from` on, strings are compact and fields may be
    tagged.
    """

    key: int
    name: str
    versions: tuple[int, int]
    flexible_from: int
    request: tuple[Field, ...]
    response: tuple[Field, ...]


_SCHEMA: Final = msgspec.json.Decoder(ApiSchema)
"""Made at the import, in one thread: where two threads were the first to decode one, the interpreter crashed."""


@cache
def _raw() -> dict[int, msgspec.Raw]:
    apis: dict[int, msgspec.Raw] = msgspec.json.decode(
        files("bmq.wire").joinpath(RESOURCE).read_bytes(), type=dict[int, msgspec.Raw]
    )
    return apis


def api_keys() -> list[int]:
    """Every API that has a schema, served or not."""
    return sorted(_raw())


@cache
def api_schema(api_key: int) -> ApiSchema:
    """Raises KeyError for an API without a schema."""
    return _SCHEMA.decode(_raw()[api_key])
