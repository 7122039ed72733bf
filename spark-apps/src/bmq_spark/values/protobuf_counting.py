"""How many values the lists and maps of a Protobuf message become: by its bytes before they are parsed, and by the
parsed message.

Protobuf's parser takes room for all fields of a message, however few are set: two bytes may be a message of a thousand.
So the bytes are counted first where they may become too many. Extensions that the schema declares are parsed, though
they are no columns, and so is what an Any holds that becomes text.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from bmq_spark.values.made_values import width
from bmq_spark.values.message_methods import has_field

_ANY: Final = "google.protobuf.Any"
_TYPE_URL, _VALUE = 1, 2
_ITEM, _MESSAGE = 1, 3
"""A message set's items are groups of this number, each with its message as that field."""


class Part(NamedTuple):
    """A field of a message that is messages, or holds such."""

    name: str
    """Empty: it is an extension."""
    is_map: bool
    is_repeated: bool
    each: int
    """What each of it becomes, or the room that the parser takes for it, without what is counted for itself."""
    becomes: int
    """What each item becomes as columns; 0 where there is one at most, or where it becomes text."""
    inner: "Shape"
    held: "Held | SetItem | None" = None
    """It is an Any that becomes text, or what an item of a message set holds."""


Shape = Mapping[int, Part]
"""By the field's number; a map's values are as a list's. One that is within itself holds itself."""


class Held:
    """What an Any that becomes text may hold: messages of the schema's types, in room of as many fields as `widest` of
    them has at most. (Protobuf's own types, which it may hold beside, are narrow.)
    """

    def __init__(self, message: Descriptor, descriptors: FileDescriptorSet) -> None:
        self._pool = message.file.pool
        self._texts: dict[str, Shape] = {}
        left: list[DescriptorProto] = [each for file in descriptors.file for each in file.message_type]
        self.widest = 0
        while left:
            each = left.pop()
            self.widest = max(self.widest, 1 + len(each.field))
            left += each.nested_type

    def made_by_bytes(self, data: bytes, at: int, end: int) -> int:
        """What the Any there takes. Raises IndexError where it is none, or what it holds is no message."""
        url, start, stop = b"", end, end
        while at < end:
            tag, begin = _varint(data, at)
            at = _behind(data, begin, end, tag & 7)
            if tag & 7 == 2:
                size, begin = _varint(data, begin)
                if tag >> 3 == _TYPE_URL:
                    url = data[begin : begin + size]
                elif tag >> 3 == _VALUE:
                    start, stop = begin, begin + size
        name = url.rpartition(b"/")[2].decode(errors="replace")
        if name == _ANY:
            return self.made_by_bytes(data, start, stop)
        try:
            message = self._pool.FindMessageTypeByName(name)
        except KeyError:
            return 0
        return 1 + len(message.fields) + _walk(data, start, stop, _shape(message, pa.string(), self._texts, self))[0]


class SetItem:
    """What an item of a message set holds: one of these messages, and as much as the one of them would be that takes
    most.
    """

    def __init__(self, messages: list[Descriptor], texts: dict[str, Shape], held: Held) -> None:
        self._parts = [(1 + len(each.fields), _shape(each, pa.string(), texts, held)) for each in messages]
        self.widest = max((max(room, widest_part(shape)) for room, shape in self._parts), default=0)

    def made_by_bytes(self, data: bytes, at: int, end: int) -> int:
        """The most that a message there takes, of any of them."""
        return max((room + self._made(shape, data, at, end) for room, shape in self._parts), default=0)

    def _made(self, shape: Shape, data: bytes, at: int, end: int) -> int:
        try:
            return _walk(data, at, end, shape)[0]
        except IndexError:  # it is another one
            return 0


def shape_of(message: Descriptor, arrow_type: pa.DataType, descriptors: FileDescriptorSet) -> Shape:
    """The shape of messages that become this struct. `descriptors`: of all types of the schema."""
    return _shape(message, arrow_type, {}, Held(message, descriptors))


def widest_part(shape: Shape) -> int:
    """The greatest room of one part, wherever it is."""
    seen: dict[int, Shape] = {}
    left = [shape]
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            left += [part.inner for part in each.values()]
    parts = [part for each in seen.values() for part in each.values()]
    return max((max(part.each, part.held.widest if part.held else 0) for part in parts), default=0)


def _shape(message: Descriptor, arrow_type: pa.DataType, texts: dict[str, Shape], held: Held) -> Shape:
    """`texts`: of messages that become text, by name."""
    is_text = not pa.types.is_struct(arrow_type)
    if is_text and message.full_name in texts:
        return texts[message.full_name]
    found: dict[int, Part] = {}
    if is_text:
        texts[message.full_name] = found
    extensions = message.file.pool.FindAllExtensions(message)
    if message.GetOptions().message_set_wire_format:
        items = SetItem([each.message_type for each in extensions], texts, held)
        found[_ITEM] = Part("", False, True, 1, 0, {_MESSAGE: Part("", False, False, 0, 0, {}, items)})
        return found
    for field in (*message.fields, *extensions):
        inner = field.message_type
        if inner is None:
            continue
        becomes_text = is_text or field.is_extension
        kind = pa.string() if becomes_text else arrow_type.field(field.name).type
        is_map, item = inner.GetOptions().map_entry, kind
        if is_map:
            inner = inner.fields_by_name["value"].message_type
            item = kind if becomes_text else kind.item_type
        elif field.is_repeated:
            item = kind if becomes_text else kind.value_type
        within = {} if inner is None else _shape(inner, item, texts, held)
        becomes = width(item) + is_map if field.is_repeated and not becomes_text else 0
        room = 0 if inner is None or (pa.types.is_struct(item) and not field.is_repeated) else 1 + len(inner.fields)
        holds = held if is_text and inner is not None and inner.full_name == _ANY else None
        if max(becomes, room) or within:
            name = "" if field.is_extension else field.name
            found[field.number] = Part(name, is_map, field.is_repeated, max(becomes, room), becomes, within, holds)
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
        elif part.name and not part.is_repeated and part.inner and has_field(message, part.name):
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
        if kind == 4:
            return made, at
        if kind == 3 and part is not None:
            within, at = _walk(data, at, end, part.inner)
            made += within + part.each
            continue
        begin, at = at, _behind(data, at, end, kind)
        if kind == 2 and part is not None:
            made += part.each + _within(data, _varint(data, begin)[1], at, part)
    return made, at


def _behind(data: bytes, at: int, end: int, kind: int) -> int:
    """Where a field of that wire type ends."""
    if kind == 2:
        size, at = _varint(data, at)
        if at + size > end:
            raise IndexError("cut off")
        return at + size
    if kind == 0:
        return _varint(data, at)[1]
    if kind in (1, 5):
        return at + (8 if kind == 1 else 4)
    if kind == 3:
        return _walk(data, at, end, {})[1]
    raise IndexError(f"wire type {kind}")


def _within(data: bytes, at: int, end: int, part: Part) -> int:
    if not part.inner and part.held is None:
        return 0
    if part.is_map:  # an entry is a message whose second field is the value
        return _walk(data, at, end, {2: Part("value", False, False, 0, 0, part.inner, part.held)})[0]
    return _walk(data, at, end, part.inner)[0] if part.held is None else part.held.made_by_bytes(data, at, end)


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
