"""Makes `schemas.json` out of kio's classes and `schema_additions`: `python -m bmq.wire.schema_generation FILE`.
Nothing at run time imports this.

Names are kio's; where kio's type carries the unit (a timedelta, a datetime), the unit comes back into the name:
`timeout_ms`.
"""

import dataclasses
import datetime
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final
from uuid import UUID

import msgspec
from kio.schema.index import api_key_map, schema_name_map
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveTupleField,
    classify_field,
    get_field_tag,
    is_optional,
)
from kio.static.constants import EntityType
from kio.static.constants import uuid_zero as no_uuid

from bmq.wire.schema_additions import extended
from bmq.wire.schemas import ApiSchema, Default, Field, FieldType

KEYS: Final = (
    *(
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        17,
        18,
        19,
        20,
        21,
        22,
        23,
        24,
        25,
        26,
        27,
        28,
        29,
        30,
        31,
        32,
        33,
        34,
        35,
        36,
        37,
    ),
    *(
        38,
        39,
        40,
        41,
        42,
        43,
        44,
        45,
        46,
        47,
        48,
        49,
        50,
        51,
        55,
        57,
        60,
        61,
        65,
        66,
        68,
        69,
        71,
        72,
        74,
        75,
        76,
        77,
        78,
        79,
        90,
        91,
        92,
    ),
)
"""What clients of today use (Kafka 4.x without what only its own brokers say to each other)."""

_TYPES: Final[dict[str, FieldType]] = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "records": "bytes",
}
_WITH_UNIT: Final = {"timedelta_i32", "timedelta_i64", "datetime_i64"}


def generate() -> bytes:
    """The content of `schemas.json`."""
    apis = {key: extended(_api(key)) for key in KEYS}
    lines = [f'"{key}": {msgspec.json.encode(api).decode()}' for key, api in apis.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _api(key: int) -> ApiSchema:
    by_version = schema_name_map[api_key_map[key]]
    versions = sorted(by_version)
    requests = {version: resolve_name(by_version[version][EntityType.request]) for version in versions}
    responses = {version: resolve_name(by_version[version][EntityType.response]) for version in versions}
    newest = requests[versions[-1]]
    flexible = [version for version in versions if requests[version].__flexible__]
    return ApiSchema(
        key=key,
        name=newest.__name__.removesuffix("Request"),
        versions=_range(versions),
        flexible_from=min(flexible, default=versions[-1] + 1),
        request=_fields(requests),
        response=_fields(responses),
    )


def _fields(classes: dict[int, type[Any]]) -> tuple[Field, ...]:
    """The fields of one struct in all its versions, in an order that is every version's."""
    by_name: dict[str, dict[int, dataclasses.Field[Any]]] = {}
    for version, entity in classes.items():
        for field in dataclasses.fields(entity):
            by_name.setdefault(field.name, {})[version] = field
    orders = [[field.name for field in dataclasses.fields(entity)] for entity in classes.values()]
    return tuple(_field(name, by_name[name]) for name in _merged(orders))


def _merged(orders: list[list[str]]) -> list[str]:
    left = [list(order) for order in orders]
    merged = []
    while any(left):
        heads = [order[0] for order in left if order]
        head = next(name for name in heads if not any(name in order[1:] for order in left))
        merged.append(head)
        left = [order[1:] if order and order[0] == head else order for order in left]
    return merged


def _field(name: str, by_version: dict[int, dataclasses.Field[Any]]) -> Field:
    versions = sorted(by_version)
    field = by_version[versions[-1]]
    shape = classify_field(field)
    nullable = [version for version in versions if _is_nullable(by_version[version])]
    children: tuple[Field, ...] = ()
    kind: FieldType = "struct"
    unit = ""
    if isinstance(shape, EntityField | EntityTupleField):
        children = _fields({version: classify_field(by_version[version]).type_ for version in versions})
    else:
        kafka_type = field.metadata["kafka_type"]
        kind = _TYPES.get(kafka_type, kafka_type)
        unit = "_ms" if kafka_type in _WITH_UNIT else ""
    has_default, default = _default(field)
    array = isinstance(shape, EntityTupleField | PrimitiveTupleField)
    return Field(
        name=name + unit,
        type=kind,
        versions=_range(versions),
        array=array,
        nullable=_range(nullable) if nullable and kind not in {"uuid", "int64"} else None,
        tag=get_field_tag(field),
        has_default=has_default and not (array and default is not None) and kind != "struct",
        default=None if array or kind == "struct" else default,
        fields=children,
    )


def _is_nullable(field: dataclasses.Field[Any]) -> bool:
    return is_optional(field) or type(None) in getattr(field.type, "__args__", ())


def _default(field: dataclasses.Field[Any]) -> tuple[bool, Default]:
    value = field.default
    if value is dataclasses.MISSING:
        assert field.default_factory is dataclasses.MISSING
        return False, None
    match value:
        case datetime.timedelta():
            return True, round(value.total_seconds() * 1000)
        case None if field.metadata.get("kafka_type") == "datetime_i64":
            return True, -1
        case datetime.datetime():
            return True, round(value.timestamp() * 1000)
        case UUID():
            assert value == no_uuid
            return True, None
        case bool() | None:
            return True, value
        case int():
            return True, int(value)
        case float() | str():
            return True, value
        case ():
            return True, ""
        case _:
            assert dataclasses.is_dataclass(value), (field.name, value)
            return True, None


def _range(versions: list[int]) -> tuple[int, int]:
    assert versions == list(range(versions[0], versions[-1] + 1)), versions
    return versions[0], versions[-1]


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(generate())
