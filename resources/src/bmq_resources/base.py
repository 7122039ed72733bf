"""What all resources share: the API group, field names as Kubernetes writes them, metadata, conditions and rules
(CEL).
"""

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP: Final = "bmq.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
OBJECT_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""What Kubernetes calls objects. A field without it would let a path stand for a name."""
OBJECT_NAME_OR_NONE: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"


def rule(expression: str, message: str, *, reason: str = "FieldValueInvalid") -> dict[str, str]:
    """A validation rule in CEL, checked by the API server. `message` names the field and the remedy."""
    return {"rule": expression, "message": message, "reason": reason}


def rules(*all_rules: dict[str, str]) -> dict[str, Any]:
    """The rules of a model or field, for `json_schema_extra`."""
    return {"x-kubernetes-validations": list(all_rules)}


REQUIRED: Final = "x-bmq-required"
"""Marks a field that has to be written, as its default is one that its rules refuse: Kubernetes takes no such
default."""
IMMUTABLE: Final = "self == oldSelf"


class Part(BaseModel):
    """A part of a resource. Fields are written in camelCase; those that nobody knows are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    def written(self) -> dict[str, Any]:
        """As it stands in a file: JSON values, camelCase, without what is null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Condition(Part):
    """One aspect of the state, as in all Kubernetes APIs."""

    type: str = Field(default="Ready", description="Ready, or a further aspect of the state.")
    status: Literal["True", "False", "Unknown"] = Field(default="Unknown", description="Whether it is so.")
    reason: str = Field(default="Pending", description="One word for programs.")
    message: str = Field(default="", description="What is the case, why, and what helps.")
    last_transition_time: str = Field(
        default="1970-01-01T00:00:00Z", description="When the status changed last (RFC 3339)."
    )
    observed_generation: int = Field(
        default=0, ge=0, description="The generation of the resource that this was found for."
    )


class Status(Part):
    """What every resource shows."""

    observed_generation: int = Field(
        default=0, ge=0, description="The generation of the resource that was acted on last."
    )
    conditions: Annotated[
        list[Condition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = Field(default=[], description="What is the case; Ready sums it up.", max_length=16)


class ObjectMeta(BaseModel):
    """What bmq reads of a resource's metadata. Kubernetes owns the rest."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    name: str = Field(min_length=1, max_length=253, pattern=OBJECT_NAME)
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []


class Column(Part):
    """A column of `kubectl get`."""

    name: str
    json_path: str
    type: Literal["string", "integer", "boolean", "date"] = "string"
    priority: int = 0
    description: str = ""


class Scale(Part):
    """Where `kubectl scale` and autoscalers find a resource's number of replicas."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str


class Naming(Part):
    """How kubectl calls a kind, and what it shows of it."""

    plural: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: Scale | None = None
    spec_required: bool = False
    """Whether a resource without a spec is refused: its defaults alone say too little."""


AGE: Final = Column(
    name="Age", json_path=".metadata.creationTimestamp", type="date", description="Since when it exists."
)


def condition_columns() -> tuple[Column, ...]:
    """Ready, and with `-o wide` why it is or is not."""
    ready = ".status.conditions[?(@.type=='Ready')]"
    return (
        Column(name="Ready", json_path=f"{ready}.status", description="Whether it is as it was asked for."),
        Column(name="Reason", json_path=f"{ready}.reason", description="Why it is or is not."),
        Column(
            name="Message",
            json_path=f"{ready}.message",
            priority=1,
            description="What is the case, why, and what helps.",
        ),
    )


class Resource(BaseModel):
    """A resource as it is written: apiVersion, kind, metadata and spec; Kubernetes adds the status."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    naming: ClassVar[Naming]

    api_version: Literal["bmq.io/v1alpha1"] = "bmq.io/v1alpha1"
    metadata: ObjectMeta
