"""Errors that cross between nodes: the same class and the same text on the other side.

An error travels with the names of its classes, its own first, so that a node which does not know the newest takes the
nearest that it knows.
"""

from typing import Final

import msgspec
from typing_extensions import Buffer

from bmq import errors
from bmq.errors import BmqError, NotReady, UnknownOutcome, WireError
from bmq.internal.framing.refusals import NO_REFUSAL, Refusal
from bmq.internal.limits import ERROR_TEXT_CHARS_MAX

_KINDS: Final[dict[str, type[BmqError]]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BmqError)
}


class NotSent(NotReady):
    """Nothing of a call was written to the other node: it certainly was not applied."""


class ConnectionLost(UnknownOutcome):
    """A call was written, at least in part, and its answer never came: whether it was applied is not known."""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An error as it travels. `kinds` are names of `bmq.errors`, the most exact one first; never empty in what bmq
    sends.

    `refusal` and `looked_at`: see bmq.internal.framing.refusals; 0 where it is none.
    """

    kinds: tuple[str, ...]
    text: str
    refusal: int = 0
    looked_at: int = 0

    @classmethod
    def of(cls, error: BaseException, refusal: Refusal = NO_REFUSAL) -> "Failure":
        """An error made ready to travel. Where it is not bmq's own only its text crosses, as a BmqError: it is a bug on
        that side.
        """
        text = str(error) if isinstance(error, BmqError) else f"an internal error: {type(error).__name__}: {error}"
        kinds = tuple(kind.__name__ for kind in type(error).__mro__ if _KINDS.get(kind.__name__) is kind)
        return cls(kinds or (BmqError.__name__,), text[:ERROR_TEXT_CHARS_MAX], *refusal)

    def error(self) -> BmqError:
        """The error again."""
        for name in self.kinds:
            kind = _KINDS.get(name)
            if kind is not None:
                return kind(self.text)
        return BmqError(self.text)


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Failure)


def encode_failure(error: BaseException, refusal: Refusal = NO_REFUSAL) -> bytes:
    """The header of an ERROR frame."""
    return _encoder.encode(Failure.of(error, refusal))


def decode_failure(header: Buffer) -> Failure:
    """What an ERROR frame says. Raises WireError where it is none."""
    try:
        return _decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"an error that cannot be read: {error}") from error
