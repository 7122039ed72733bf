"""How one resource names another, and what happens to what it stands for when it is deleted."""

from typing import Final, Literal

from pydantic import Field

from bmq_resources.base import IMMUTABLE, OBJECT_NAME, Part, rule, rules

DeletionPolicy = Literal["Retain", "Delete"]

CONFIRM_DELETION: Final = "bmq.io/delete-data"
"""The annotation that says that a topic's or a cluster's records may go with it: its value is `"true"`."""


class ClusterRef(
    Part,
    json_schema_extra=rules(rule(IMMUTABLE, "clusterRef cannot be changed: delete the resource and create it anew")),
):
    """The Cluster that a Topic, a Lane or a Channel is in."""

    name: str = Field(default="bmq", min_length=1, max_length=253, pattern=OBJECT_NAME, description="Its name.")
    namespace: str = Field(
        default="",
        max_length=63,
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        description="Its namespace. Empty: the same one.",
    )
