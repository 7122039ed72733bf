"""Answers of one connection that are too long for one frame, or packed as they are sent: a part at a time, by turns.
No sockets: frames come out.
"""

from collections import OrderedDict
from dataclasses import dataclass

from typing_extensions import Buffer

from bmq.errors import InvalidRequest
from bmq.internal import limits
from bmq.internal.framing.frames import Kind, encode_frame
from bmq.internal.framing.packing import Pieces
from bmq.internal.framing.routes import Outgoing


@dataclass(slots=True)
class _Going:
    """`packed` is what is packed already, of which `sent` bytes have gone out; `pieces` None: all of it is."""

    api_key: int
    outgoing: Outgoing
    pieces: Pieces | None
    packed: bytes
    sent: int = 0
    sent_bytes: int = 0
    """How much of the whole header is on its way."""

    def next_part(self) -> tuple[bytes, bool]:
        """The header's next bytes, and whether they are its last. Raises what packing them raises."""
        if self.sent == len(self.packed) and self.pieces is not None:
            try:
                self.packed, self.sent = next(self.pieces), 0
            except StopIteration as end:
                self.packed, self.sent, self.pieces = end.value, 0, None
        part = self.packed[self.sent : self.sent + limits.PART_BYTES]
        self.sent += len(part)
        self.sent_bytes += len(part)
        return part, self.pieces is None and self.sent == len(self.packed)


class Unsendable(Exception):
    """The rest of an answer cannot be sent, because of `error`."""

    def __init__(self, correlation_id: int, api_key: int, error: Exception) -> None:
        super().__init__(str(error))
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.error = error


class LongAnswers:
    """By correlation id, in the order of their turns."""

    def __init__(self) -> None:
        self._going: OrderedDict[int, _Going] = OrderedDict()
        self.packed_bytes = 0
        """What has yet to go out of answers that were packed before they were added."""

    def __len__(self) -> int:
        return len(self._going)

    def __contains__(self, correlation_id: int) -> bool:
        return correlation_id in self._going

    def add(self, correlation_id: int, api_key: int, outgoing: Outgoing) -> None:
        """An answer goes behind the others that are being sent."""
        header = outgoing.header
        if isinstance(header, bytes):
            self._going[correlation_id] = _Going(api_key, outgoing, None, header)
            self.packed_bytes += len(header)
        else:
            self._going[correlation_id] = _Going(api_key, outgoing, header, b"")

    def next_frame(self) -> list[Buffer]:
        """One part of the answer whose turn it is, which has its next one behind the others. Raises Unsendable."""
        correlation_id, going = next(iter(self._going.items()))
        try:
            part, is_last = going.next_part()
            if going.sent_bytes > limits.ANSWER_BYTES_MAX:
                raise InvalidRequest(
                    f"the answer has more than the {limits.ANSWER_BYTES_MAX} bytes that travel between nodes: ask "
                    "for less"
                )
        except Exception as error:  # whoever sends tells the caller, and the loop if it is a bug
            self.drop(correlation_id)
            raise Unsendable(correlation_id, going.api_key, error) from error
        if isinstance(going.outgoing.header, bytes):
            self.packed_bytes -= len(part)
        if not is_last:
            self._going.move_to_end(correlation_id)
            return encode_frame(Kind.PART, api_key=going.api_key, correlation_id=correlation_id, header=part)
        del self._going[correlation_id]
        going.outgoing.over()
        return encode_frame(
            Kind.REPLY,
            api_key=going.api_key,
            correlation_id=correlation_id,
            header=part,
            attachments=going.outgoing.attachments,
        )

    def drop(self, correlation_id: int) -> None:
        """Nobody wants it any more."""
        going = self._going.pop(correlation_id, None)
        if going is None:
            return
        if isinstance(going.outgoing.header, bytes):
            self.packed_bytes -= len(going.outgoing.header) - going.sent
        going.outgoing.over()

    def clear(self) -> None:
        """The connection is gone."""
        for correlation_id in list(self._going):
            self.drop(correlation_id)
