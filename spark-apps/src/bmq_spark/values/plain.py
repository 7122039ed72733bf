"""Values as they are: bytes, and UTF-8 text."""

from dataclasses import dataclass

import pyarrow as pa

from bmq_spark.values.decoded import Decoded, joined, reason, reasons_of

LEAF_RECORDS = 32


@dataclass(frozen=True, slots=True)
class BytesDecoder:
    """Everything fits."""

    @property
    def arrow_type(self) -> pa.DataType:
        """binary."""
        return pa.binary()

    def decode(self, values: pa.Array) -> Decoded:
        """The bytes as they are, null where there are none; there are no reasons."""
        return Decoded(values=values.cast(pa.binary()), reasons=pa.nulls(len(values), type=pa.string()))


@dataclass(frozen=True, slots=True)
class StringDecoder:
    """UTF-8; other bytes do not fit."""

    @property
    def arrow_type(self) -> pa.DataType:
        """string."""
        return pa.string()

    def decode(self, values: pa.Array) -> Decoded:
        """The values as text, null and with a reason where they are no UTF-8. Arrow checks all at once and copies
        nothing; only parts in which it finds something are looked at one by one.
        """
        decoded = _parts(values)
        return Decoded(
            values=joined([part.values for part in decoded], pa.string()),
            reasons=joined([part.reasons for part in decoded], pa.string()),
        )


def _parts(values: pa.Array) -> list[Decoded]:
    try:
        return [Decoded(values=values.cast(pa.string()), reasons=pa.nulls(len(values), type=pa.string()))]
    except pa.ArrowInvalid:
        if len(values) > LEAF_RECORDS:
            middle = len(values) // 2
            return [*_parts(values.slice(0, middle)), *_parts(values.slice(middle))]
        return [_one_by_one(values)]


def _one_by_one(values: pa.Array) -> Decoded:
    texts: list[str | None] = []
    unfit: dict[int, str] = {}
    for position, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode("utf-8"))
        except UnicodeDecodeError as error:
            texts.append(None)
            unfit[position] = "not UTF-8: " + reason(error)
    return Decoded(values=pa.array(texts, type=pa.string()), reasons=reasons_of(len(values), unfit))
