"""What a channel may say of the messages that are written to it: their keys, how many of them, what is taken out."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from bmq.naming.names import TOPIC_NAME_LENGTH_MAX
from bmq_resources.base import Part, rule, rules
from bmq_resources.json_paths import PATH_CHARS_MAX, is_within, path_of

ADDRESSES_OR_NONE: Final = r"^([^\s,:]+:[0-9]{1,5}(,[^\s,:]+:[0-9]{1,5})*)?$"
SCHEMA_PARTS_MAX: Final = 20_000
SCHEMA_CHARS_MAX: Final = 256 << 10
SCHEMA_DEPTH_MAX: Final = 64
HEADER_NAME_OR_NONE: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]*$"
ONE_KEY_RULE: Final = "(self.field != '' ? 1 : 0) + (self.header != '' ? 1 : 0) + (self.constant != '' ? 1 : 0) == 1"
RATE_RULE: Final = "self.messagesPerSecond > 0.0 || self.bytesPerSecond > 0.0"
LEAST_RATE_RULE: Final = "[self.messagesPerSecond, self.bytesPerSecond].all(one, one == 0.0 || one >= 0.001)"
REDACT_RULE: Final = "self.replace.size() + self.remove.size() > 0"
LANE_RULE: Final = "(self.header != '') != (self.baggage != '')"
_ONE_KEY: Final = "a key comes from one of field, header and constant: write one of them"
_RATE: Final = "it bounds nothing: write messagesPerSecond, bytesPerSecond or both, or leave rate out"
_LEAST_RATE: Final = "a rate is 0.001 a second at least: raise it, or turn the channel off to take nothing"
_REDACT: Final = "it names nothing: write replace or remove, or leave redact out"
_LANE: Final = "a lane comes from one of header and baggage: write one of them"

PathText = Annotated[str, Field(max_length=PATH_CHARS_MAX)]


class Key(Part, json_schema_extra=rules(rule(ONE_KEY_RULE, _ONE_KEY))):
    """Where the messages' keys come from: one of field, header and constant."""

    field: str = Field(
        default="",
        max_length=PATH_CHARS_MAX,
        description="The place in the JSON value, as $.customer.id. A text is the key as it is; anything else, but "
        "null, as it stands in the JSON.",
    )
    header: str = Field(default="", max_length=255, description="The message's header of that name.")
    constant: str = Field(default="", max_length=1_024, description="This text, for all messages.")
    when_missing: Literal["keyless", "reject"] = Field(
        default="reject",
        description="What happens to a message that has nothing there, nor a key of its own. keyless: it has no key. "
        "reject: it is refused.",
    )

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if sum(map(bool, (self.field, self.header, self.constant))) != 1:
            raise PydanticCustomError("key", _ONE_KEY)
        if self.field:
            _check_path(self.field)
        return self


class Rate(Part, json_schema_extra=rules(rule(RATE_RULE, _RATE), rule(LEAST_RATE_RULE, _LEAST_RATE))):
    """How much may be written. What is beyond it is refused with 429; a stream waits."""

    messages_per_second: float = Field(
        default=0, ge=0, le=1e9, allow_inf_nan=False, description="Messages, on average. 0: no bound."
    )
    bytes_per_second: float = Field(
        default=0,
        ge=0,
        le=1e12,
        allow_inf_nan=False,
        description="Bytes of keys, values and headers, on average. 0: no bound.",
    )
    burst_seconds: float = Field(
        default=1,
        gt=0,
        le=3_600,
        allow_inf_nan=False,
        description="What was not written in so long may be made up for at once; one message may always.",
    )

    @model_validator(mode="after")
    def _some(self) -> Self:
        rates = (self.messages_per_second, self.bytes_per_second)
        if not any(rates):
            raise PydanticCustomError("rate", _RATE)
        if any(0 < one < 0.001 for one in rates):
            raise PydanticCustomError("rate", _LEAST_RATE)
        return self


class Sampling(Part):
    """Which part of the messages is written. The others are answered as if they were."""

    percent: float = Field(gt=0, le=100, allow_inf_nan=False, description="How many of a hundred are written.")
    by: Literal["key", "random"] = Field(
        default="random",
        description="key: all messages of a key or none of them, by every sidecar and channel the same; those without "
        "a key at random. random: each by itself.",
    )


class Redact(Part, json_schema_extra=rules(rule(REDACT_RULE, _REDACT))):
    """What of the JSON value is written nowhere, by its places, as $.card.number."""

    replace: list[PathText] = Field(default=[], max_length=64, description="In their place stands text.")
    remove: list[PathText] = Field(
        default=[],
        max_length=64,
        description="They are left out; in an array null stands in their place, so that the others keep theirs.",
    )
    text: str = Field(default="[redacted]", max_length=255, description="What replaces what is replaced.")

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if not self.replace and not self.remove:
            raise PydanticCustomError("redact", _REDACT)
        paths = [(text, _check_path(text)) for text in (*self.replace, *self.remove)]
        for at, (text, path) in enumerate(paths):
            for other, (other_text, outer) in enumerate(paths):
                if at != other and is_within(path, outer):
                    raise PydanticCustomError(
                        "redact", "{text} is within {outer} already: leave one out", {"text": text, "outer": other_text}
                    )
        return self


class Batching(Part):
    """How messages become batches."""

    linger_ms: int = Field(
        default=2, ge=0, le=60_000, description="How long a message waits for others to its partition, in ms."
    )
    max_bytes: int = Field(
        default=1_000_000,
        ge=1_000,
        le=16 << 20,
        description="A batch with so many bytes, or one message, waits no more.",
    )


class LaneOf(Part, json_schema_extra=rules(rule(LANE_RULE, _LANE))):
    """Which lane a message is of: by one of header and baggage, of the message or else of its request."""

    header: str = Field(
        default="", max_length=255, pattern=HEADER_NAME_OR_NONE, description="The header that has its name."
    )
    baggage: str = Field(
        default="",
        max_length=255,
        pattern=HEADER_NAME_OR_NONE,
        description="The member of the header baggage (W3C) that has its name.",
    )

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if bool(self.header) == bool(self.baggage):
            raise PydanticCustomError("lane", _LANE)
        return self


class Target(Part):
    """A topic that messages go to, of the sidecar's cluster or of another one."""

    topic: str = Field(min_length=1, max_length=TOPIC_NAME_LENGTH_MAX, description="Its name.")
    bootstrap_servers: str = Field(
        default="",
        max_length=1_000,
        pattern=ADDRESSES_OR_NONE,
        description="HOST:PORT of the cluster, several with commas. Empty: the sidecar's.",
    )


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    """Looks at no more than may be there. No schema of Kubernetes can say how much that is."""
    left: list[tuple[Any, int]] = [(value, 1)]
    parts = chars = 0
    while left:
        one, depth = left.pop()
        inner = [*one.keys(), *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else ()
        parts += len(inner)
        chars += len(one) if isinstance(one, str) else 0
        if parts > SCHEMA_PARTS_MAX or chars > SCHEMA_CHARS_MAX or depth > SCHEMA_DEPTH_MAX:
            raise PydanticCustomError(
                "schema",
                "it has more than {parts} names and values, or {chars} characters, or is nested more than {depth} "
                "deep: leave some out",
                {"parts": SCHEMA_PARTS_MAX, "chars": SCHEMA_CHARS_MAX, "depth": SCHEMA_DEPTH_MAX},
            )
        left += ((part, depth + 1) for part in inner)
    return value


class ValueSchema(Part):
    """What values have to be."""

    json_schema: Annotated[
        dict[str, Any],
        AfterValidator(_bounded),
        WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    ] = Field(
        alias="json",
        description="A JSON Schema, written out here. It refers to nothing outside, nor to itself, and its patterns "
        "have no look-around and no back-references.",
    )


def _check_path(text: str) -> tuple[str | int, ...]:
    try:
        return path_of(text)
    except ValueError as error:
        raise PydanticCustomError("path", "{text}: {why}", {"text": text[:60], "why": str(error)}) from None
