"""A Protobuf message type, as a decoder reads messages of it: from bytes to messages that fit, and to their columns."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from bmq_spark.values.decoded import Unfit
from bmq_spark.values.made_values import are_narrow, may_be_many, require_few
from bmq_spark.values.protobuf_columns import Build, columns_of_message
from bmq_spark.values.protobuf_counting import Shape, made_by_bytes, made_by_message, shape_of, widest_part
from bmq_spark.values.protobuf_fitting import Check, check_of


@dataclass(frozen=True, eq=False)
class MessageType:
    """The message of that full name in the descriptors."""

    descriptors: FileDescriptorSet
    message: str

    def read(self, value: bytes, start: int) -> tuple[Any, int]:
        """The message that begins there, and how many values its lists and maps become.

        Raises Unfit, and what Protobuf's parser does: DecodeError, ValueError, RecursionError.
        """
        shape = self._shape
        if shape and may_be_many(self._widest, len(value)):
            self._require_few(value, start)
        message = self._class.FromString(value[start:] if start else value)
        self._check(message)
        return message, made_by_message(message, shape) if shape else 0

    @property
    def descriptor(self) -> Descriptor:
        """Raises what Protobuf does where the descriptors do not hold together: TypeError, ValueError, KeyError."""
        found: Descriptor = self._class.DESCRIPTOR
        return found

    @cached_property
    def columns(self) -> tuple[pa.DataType, Build]:
        """The message's fields as a struct, and what builds it. Raises ValueError, RecursionError."""
        return columns_of_message(self.descriptor)

    def _require_few(self, value: bytes, start: int) -> None:
        """Raises Unfit, before the parser takes room for what is in the message."""
        try:
            values = made_by_bytes(value, start, self._shape)
        except IndexError as error:
            raise Unfit(f"not a Protobuf message {self.message}: it is cut off, or its parts are") from error
        require_few(values, len(value))

    @cached_property
    def _class(self) -> Any:
        pool = DescriptorPool()
        for file in self.descriptors.file:
            pool.Add(file)
        return GetMessageClass(pool.FindMessageTypeByName(self.message))

    @cached_property
    def _shape(self) -> Shape:
        """Empty where items are so narrow that they never become too many."""
        shape = shape_of(self.descriptor, self.columns[0], self.descriptors)
        return {} if are_narrow(widest_part(shape)) else shape

    @cached_property
    def _widest(self) -> int:
        return widest_part(self._shape)

    @cached_property
    def _check(self) -> Check:
        return check_of(self.descriptor)


def that_hold_together(descriptors: FileDescriptorSet) -> FileDescriptorSet:
    """The same, where two names that are one in JSON are no reason to refuse them: protoc takes those of proto2."""
    made = FileDescriptorSet.FromString(descriptors.SerializeToString())
    for file in made.file:
        left: list[DescriptorProto] = list(file.message_type)
        while left:
            message = left.pop()
            message.options.deprecated_legacy_json_field_conflicts = True
            left += message.nested_type
    return made
