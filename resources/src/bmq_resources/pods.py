"""Parts of specs that end up in pods: where they run, what they may use."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from bmq_resources.affinity import Affinity
from bmq_resources.base import OBJECT_NAME, OBJECT_NAME_OR_NONE, Part, rule, rules
from bmq_resources.texts import (
    QUANTITY_CHARS_MAX,
    RESOURCE_NAME_CHARS_MAX,
    RESOURCE_NAMES_RULE,
    RESOURCE_NAMES_TEXT,
    chars_of,
)

TEXT_CHARS_MAX: Final = 65_536
"""For all that a placement says, besides its affinity: each pod has it, and each revision that Kubernetes keeps of a
template, in the namespace of the Cluster, and a Lane's author may have no other right there."""
QUANTITY_PATTERN: Final = r"^([0-9]+|[0-9]+\.[0-9]+)(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"

OPERATORS_OWN_ENV: Final = (
    "BMQ_ROLES",
    "BMQ_NODE_ID",
    "BMQ_STORE",
    "BMQ_CLUSTER_ID",
    "BMQ_CLUSTER_SECRET",
    "BMQ_ADMIN_TOKEN",
    "BMQ_LISTEN",
    "BMQ_INTERNAL_LISTEN",
    "BMQ_ADMIN",
    "BMQ_POOL",
)
OPERATORS_OWN_ENV_RULE: Final = f"!self.exists(one, one.name in {list(OPERATORS_OWN_ENV)})"
OPERATORS_OWN_ENV_TEXT: Final = (
    "roles, node ids, store, cluster id, secret, token, pool and the addresses that Services go to are the operator's: "
    "leave them out"
)

Quantity = Annotated[
    Annotated[str, Field(max_length=QUANTITY_CHARS_MAX, pattern=QUANTITY_PATTERN)] | int,
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": QUANTITY_CHARS_MAX,
            "pattern": QUANTITY_PATTERN,
        }
    ),
]
ResourceName = Annotated[str, Field(max_length=RESOURCE_NAME_CHARS_MAX)]


class Resources(Part):
    """CPU and memory of a container."""

    requests: dict[ResourceName, Quantity] = Field(
        default={},
        max_length=8,
        description="What is set aside for it, for example cpu: 500m and memory: 1Gi.",
        json_schema_extra=rules(rule(RESOURCE_NAMES_RULE, f"requests: {RESOURCE_NAMES_TEXT}")),
    )
    limits: dict[ResourceName, Quantity] = Field(
        default={},
        max_length=8,
        description="What it may use at most. A memory limit is worth setting, a CPU limit seldom.",
        json_schema_extra=rules(rule(RESOURCE_NAMES_RULE, f"limits: {RESOURCE_NAMES_TEXT}")),
    )


class Toleration(Part):
    """A taint of nodes that pods put up with."""

    key: str = Field(default="", max_length=316, description="The taint's key; empty with Exists: all taints.")
    operator: Literal["Exists", "Equal"] = Field(default="Equal", description="Exists, or Equal to `value`.")
    value: str = Field(default="", max_length=63, description="The taint's value.")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="", description="The taint's effect; empty: all."
    )
    toleration_seconds: int | None = Field(
        default=None, ge=0, description="How long NoExecute is put up with; null: for ever."
    )


class EnvironmentVariable(Part):
    """A variable of the bmq containers."""

    name: str = Field(default="", max_length=253, description="Its name.")
    value: str = Field(default="", max_length=32768, description="Its value.")


PlacementText = Annotated[str, Field(max_length=TEXT_CHARS_MAX)]


class Placement(Part):
    """Where pods run and how they look to the cluster's other parts."""

    node_selector: dict[str, PlacementText] = Field(
        default={}, max_length=32, description="Labels that a node must have."
    )
    tolerations: list[Toleration] = Field(
        default=[], max_length=32, description="Taints that the pods put up with, of those that the chart allows."
    )
    affinity: Affinity = Field(
        default={},
        description="A Kubernetes affinity, in place of bmq's own, which prefers to spread the pods of a role over "
        "nodes. Up to 2,000 names and values, of 65,536 characters.",
    )
    priority_class_name: str = Field(
        default="",
        max_length=253,
        pattern=OBJECT_NAME_OR_NONE,
        description="The pods' PriorityClass, one that the chart allows.",
    )
    annotations: dict[str, PlacementText] = Field(
        default={},
        max_length=64,
        description="Annotations of the pods, of those that the chart allows. With nodeSelector, labels and env up to "
        "65,536 characters in all.",
    )
    labels: dict[str, PlacementText] = Field(
        default={}, max_length=64, description="Further labels of the pods, of those that the chart allows."
    )
    env: list[EnvironmentVariable] = Field(
        default=[],
        max_length=64,
        description="Further variables of the bmq containers, of those that the chart allows. With nodeSelector, "
        "annotations and labels up to 65,536 characters in all.",
        json_schema_extra=rules(rule(OPERATORS_OWN_ENV_RULE, "placement.env: " + OPERATORS_OWN_ENV_TEXT)),
    )

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        """No schema of Kubernetes can say how much there may be of it as a whole."""
        chars = sum(len(one.name) + len(one.value) for one in self.env)
        if chars + sum(map(chars_of, (self.node_selector, self.annotations, self.labels))) > TEXT_CHARS_MAX:
            raise PydanticCustomError("placement", "it is too large")
        return self


class Image(Part):
    """Which image the pods run."""

    repository: str = Field(
        default="",
        max_length=400,
        description="The image without its tag, one that the chart allows. Empty: the operator's.",
    )
    tag: str = Field(
        default="",
        max_length=200,
        pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(@sha256:[a-f0-9]{64})?)?$",
        description="Its tag. Empty: the operator's own version; changing it is a rolling upgrade.",
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When the image is pulled."
    )
    pull_secrets: list[Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]] = Field(
        default=[],
        max_length=8,
        description="Names of Secrets with the registry's credentials; each has the label bmq.io/use: allowed, or "
        "the chart allows its name.",
    )
