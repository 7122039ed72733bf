"""How many values the lists and maps of a Protobuf message become: by its bytes before they are parsed, and by the
parsed message.

Protobuf's parser takes room for all fields of a message, however few are set: two bytes may be a message of a thousand.
So the bytes are counted first where they may become too many.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from bmq_spark.values.made_values import width
from bmq_spark.values.message_methods import has_field


class Part(NamedTuple):
    """A field of a message that is messages, or holds such."""

    name: str
    is_map: bool
    is_repeated: bool
    each: int
    """What each of it becomes, or the room that the parser takes for it, without what is counted for itself."""
    becomes: int
    """What each item becomes as columns; 0 where there is one at most, or where it becomes text."""
    inner: "Shape"


Shape = Mapping[int, Part]
"""By the field's number; a map's values are as a list's. One that is within itself holds itself."""


def shape_of(message: Descriptor, arrow_type: pa.DataType) -> Shape:
    """The shape of messages that become this struct."""
    return _shape(message, arrow_type, {})


def widest_part(shape: Shape) -> int:
    """The greatest room of one part, wherever it is."""
    seen: dict[int, Shape] = {}
    left = [shape]
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            left += [part.inner for part in each.values()]
    return max((part.each for each in seen.values() for part in each.values()), default=0)


def _shape(message: Descriptor, arrow_type: pa.DataType, texts: dict[str, Shape]) -> Shape:
    """`texts`: of messages that become text, by name."""
    is_text = not pa.types.is_struct(arrow_type)
    if is_text and message.full_name in texts:
        return texts[message.full_name]
    found: dict[int, Part] = {}
    if is_text:
        texts[message.full_name] = found
    for field in message.fields:
        inner = field.message_type
        if inner is None:
            continue
        kind = pa.string() if is_text else arrow_type.field(field.name).type
        is_map, item = inner.GetOptions().map_entry, kind
        if is_map:
            inner = inner.fields_by_name["value"].message_type
            item = kind if is_text else kind.item_type
        elif field.is_repeated:
            item = kind if is_text else kind.value_type
        within = {} if inner is None else _shape(inner, item, texts)
        becomes = width(item) + is_map if field.is_repeated and not is_text else 0
        room = 0 if inner is None or (pa.types.is_struct(item) and not field.is_repeated) else 1 + len(inner.fields)
        if max(becomes, room) or within:
            found[field.number] = Part(field.name, is_map, field.is_repeated, max(becomes, room), becomes, within)
    return found


def made_by_message(message: Any, shape: Shape) -> int:
    """The columns of a parsed message's items."""
    made = 0
    for part in shape.values():
        if part.is_repeated and part.becomes:
            items = getattr(message, part.name)
            made += part.becomes * len(items)
            if any(within.becomes or within.inner for within in part.inner.values()):
                made += sum(made_by_message(item, part.inner) for item in (items.values() if part.is_map else items))
        elif not part.is_repeated and part.inner and has_field(message, part.name):
            made += made_by_message(getattr(message, part.name), part.inner)
    return made


def made_by_bytes(data: bytes, start: int, shape: Shape) -> int:
    """How many values the lists and maps in bytes that may be a message become. Raises IndexError where they are no
    message.
    """
    made, at = _walk(data, start, len(data), shape)
    if at != len(data):
        raise IndexError("a group ends that has not begun")
    return made


def _walk(data: bytes, at: int, end: int, shape: Shape) -> tuple[int, int]:
    """Up to the end, or behind the end of the group."""
    made = 0
    while at < end:
        tag, at = _varint(data, at)
        part, kind = shape.get(tag >> 3), tag & 7
        if kind == 2:
            size, at = _varint(data, at)
            if at + size > end:
                raise IndexError("cut off")
            if part is not None:
                made += part.each + _within(data, at, at + size, part)
            at += size
        elif kind == 0:
            at = _varint(data, at)[1]
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 3:
            within, at = _walk(data, at, end, {} if part is None else part.inner)
            made += within + (0 if part is None else part.each)
        elif kind == 4:
            return made, at
        else:
            raise IndexError(f"wire type {kind}")
    return made, at


def _within(data: bytes, at: int, end: int, part: Part) -> int:
    if not part.inner:
        return 0
    # An entry of a map is a message whose second field is the value.
    return _walk(data, at, end, {2: Part("value", False, False, 0, 0, part.inner)} if part.is_map else part.inner)[0]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise IndexError("a number of more than 10 bytes")
