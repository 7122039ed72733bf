"""How pods get a sidecar of Databus: the sidecar's image, and the names of what the chart makes for the webhook.

The chart's values `databus.injection` as JSON in BMQ_OPERATOR_DATABUS.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class DatabusSettings(BaseModel):
    """The values of the chart that the operator needs."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    enabled: bool = False
    """Whether the operator serves the webhook that injects."""
    listen: str = Field(default="0.0.0.0:8443", pattern=r"^[^\s]*:[0-9]{1,5}$")
    """Where it does."""
    name: str = "bmq-databus"
    """The Service and the Secret, in the operator's namespace, through which and with whose certificate it does."""
    webhook: str = "bmq-databus"
    """The MutatingWebhookConfiguration that is told whom to trust."""
    image: str = ""
    """The sidecar's; empty: the operator's own."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    resources: dict[str, Any] = {}
    """The sidecar's requests and limits, as in a container."""
    metrics: bool = True
    """Whether the sidecar serves its metrics and its health, and nothing else, at a port of the pod's address."""
    upgrade_running: bool = True
    """Whether sidecars of pods that run get the image, too."""
