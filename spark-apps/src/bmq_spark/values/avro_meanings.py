"""From what Avro stores to what Arrow takes, where a logical type says more: decimals, uuids, and times of another unit
than the writer's. Pure.
"""

import decimal
import uuid
from collections.abc import Callable
from typing import Any, Final

from bmq_spark.values.avro_types import logical_of
from bmq_spark.values.decoded import Unfit

_DIGITS: Final = decimal.Context(prec=100)
_DECIMAL_BYTES: Final = 40
"""No decimal of 38 digits is longer, sign bytes of careless writers included; a number of a megabyte would take minutes
to convert."""
_INEXACT: Final = ("float", "double")

Convert = Callable[[Any], Any]


class Unlike(Exception):
    """Values of one cannot be told as values of the other; the message names both."""


def meant(writer: Any, reader: Any, path: str) -> Convert | None:
    """What makes of a value that is stored as the writer says the value that the reader's column holds; None where it
    is that already.

    Both as `spelled` gives them, of types that Avro promotes. Where both have a logical type, it is the writer's that
    says what is stored, and the reader's what is wanted: another scale or unit is converted exactly or the value is
    refused, another kind does not resolve. Where one has none, the number or the bytes are as they are: text for the
    octets of a decimal, and the other way, would be neither. Raises Unlike.
    """
    written, read = logical_of(writer), logical_of(reader)
    if written is not None and read is not None and written.kind != read.kind:
        raise Unlike(f"{writer['logicalType']} is not {reader['logicalType']}")
    crossed = {writer["type"], reader["type"]} == {"bytes", "string"}
    if crossed and any(logical is not None and logical.kind == "decimal" for logical in (written, read)):
        raise Unlike(f"{writer.get('logicalType', writer['type'])} is not {reader.get('logicalType', reader['type'])}")
    have, want = (written.parts, read.parts) if written is not None and read is not None else (1, 1)
    if read is not None and read.kind == "decimal":
        return _decimal(reader.get("scale", 0), have, want, path)
    if read is not None and read.kind == "uuid" and reader["type"] == "fixed":
        return lambda octets: str(uuid.UUID(bytes=octets))
    if have != want:
        return _rescaled(have, want, path)
    return float if reader["type"] in _INEXACT and writer["type"] not in _INEXACT else None


def _rescaled(have: int, want: int, path: str) -> Convert:
    if want > have:
        factor = want // have
        return lambda number: number * factor
    divisor = have // want

    def convert(number: int) -> int:
        whole, left = divmod(number, divisor)
        if left:
            raise Unfit(
                f"{path}: {number} of the writer's unit is no whole number of the reader's, which is {divisor} "
                "times as large"
            )
        return whole

    return convert


def _decimal(scale: int, have: int, want: int, path: str) -> Convert:
    rescaled = None if have == want else _rescaled(have, want, path)

    def convert(octets: bytes) -> decimal.Decimal:
        if len(octets) > _DECIMAL_BYTES:
            raise ValueError(f"{path}: a decimal of {len(octets)} bytes")
        unscaled = int.from_bytes(octets, "big", signed=True)
        return _DIGITS.scaleb(decimal.Decimal(unscaled if rescaled is None else rescaled(unscaled)), -scale)

    return convert
