"""JSON values by inferred columns: strings take anything as JSON text, and a field that has no column is a reason, for
it must not get lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec
import pyarrow as pa

from bmq_spark.values.decoded import RecordDecoder, Unfit, reason
from bmq_spark.values.inference import NAME_BYTES, fields_beyond, strict_type
from bmq_spark.values.json_records import JSON_REFUSES, finisher, python_type
from bmq_spark.values.json_schema_types import JSON_TEXT
from bmq_spark.values.made_values import SLICE_VALUES, made_by, may_be_many, require_few, widest_item

PATH_CHARACTERS: Final = 120


@dataclass(frozen=True, eq=False)
class InferredJsonDecoder(RecordDecoder):
    """Most records are of exactly these columns: they are checked and taken. Others are read again with strings as raw
    JSON.
    """

    columns: pa.DataType

    @property
    def arrow_type(self) -> pa.DataType:
        """The columns as inference.settle gave them."""
        return self.columns

    def parse(self, values: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
        """An object of the columns for each value, None for null and for those that do not fit: their positions with
        reasons. It may stop before the end where it has made much.
        """
        check, decode, loosely = self._parsers
        each, count = made_by(self.columns)
        widest = widest_item(self.columns)
        made = 0
        objects: list[Any] = []
        unfit: dict[int, str] = {}
        for position, value in enumerate(values):
            if made > SLICE_VALUES:
                break
            made += each
            if value is None:
                objects.append(None)
                continue
            try:
                # The check makes all fields of an object, whether it has them or not.
                if count is not None and may_be_many(widest, len(value)):
                    require_few(count(msgspec.json.decode(value)), len(value))
                try:
                    check(value)
                    objects.append(decode(value))
                except JSON_REFUSES:
                    objects.append(loosely(value))
                if count is not None:
                    made += count(objects[-1])
            except (Unfit, *JSON_REFUSES) as error:
                objects.append(None)
                unfit[position] = "not the JSON of the columns: " + reason(error)
        return objects, unfit

    @cached_property
    def _parsers(self) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any], Callable[[bytes], Any]]:
        check = msgspec.json.Decoder(strict_type(self.columns)).decode
        decode = _finished(self.columns)
        loose = _finished(_with_json_text(self.columns))

        def loosely(value: bytes) -> Any:
            beyond = fields_beyond(msgspec.json.decode(value), self.columns)
            if beyond is not None:
                raise Unfit(
                    f"{_shortened(beyond)} has no column: its name differs from another's by case alone, or with its "
                    "dots is the path of another, or is written as another in Iceberg's files, or has a quote, a "
                    f"backslash or a control character, or is longer than {NAME_BYTES} bytes, or it is within a map, "
                    "or there are too many columns, or names, or fields in the record: give a schema, and where the "
                    "table has the other name, a new table"
                )
            return loose(value)

        return check, decode, loosely

    def __getstate__(self) -> dict[str, Any]:
        return {"columns": self.columns}


def _shortened(path: str) -> str:
    """So that the reason is read to its end, however long names are."""
    return path if len(path) <= PATH_CHARACTERS else f"{path[: PATH_CHARACTERS - 1]}…"


def _finished(arrow_type: pa.DataType) -> Callable[[bytes], Any]:
    decode, finish = msgspec.json.Decoder(python_type(arrow_type)).decode, finisher(arrow_type)
    return decode if finish is None else lambda value: finish(decode(value))


def _with_json_text(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow_type):
        return pa.struct([pa.field(field.name, _with_json_text(field.type)) for field in arrow_type])
    if pa.types.is_list(arrow_type):
        return pa.list_(_with_json_text(arrow_type.value_type))
    return JSON_TEXT if arrow_type == pa.string() else arrow_type
