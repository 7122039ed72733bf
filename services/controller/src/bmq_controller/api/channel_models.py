"""What the API takes and answers about channels of Databus. What a channel is to be is the spec of the resource, field
by field as it stands in a file.
"""

from typing import Any

from pydantic import BaseModel, Field

from bmq_controller.api.models import VERSION, Asked
from bmq_resources.channel import ChannelSpec


class ChannelAsked(Asked):
    """What a channel is to be."""

    spec: ChannelSpec = Field(default=ChannelSpec(), description="As the spec of a Channel in a file")


class NewChannelAsked(ChannelAsked):
    """A channel to be created."""

    name: str = Field(max_length=1_000, description="What applications write to")


class ChannelView(BaseModel):
    """A channel."""

    name: str
    version: str = VERSION
    created_ms: int
    spec: dict[str, Any] = Field(description="What it is to be; what is not here is as by default")


class ChangedChannel(BaseModel):
    """A channel that was declared or changed."""

    name: str
    spec: dict[str, Any]
    created_ms: int = Field(
        description="When it was made, in ms since 1970: where a sidecar has no room, the oldest go first"
    )


class ChannelChanges(BaseModel):
    """What a sidecar has to take up."""

    version: str = Field(description="Give it as `after` for what changes next. Of no meaning otherwise")
    complete: bool = Field(description="Whether these are all channels that there are, and not what changed alone")
    channels: list[ChangedChannel]
    deleted: list[str]
