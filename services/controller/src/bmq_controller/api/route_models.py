"""What the API answers about where messages of a topic go. Ages in seconds."""

from pydantic import BaseModel, Field

from bmq_controller.machine.routes import Handler, Reason


class TurnsView(BaseModel):
    """How many partitions are whose."""

    lane: int = Field(description="The lane's")
    base: int = Field(description="The base's: what is in them goes on to it")
    closing: int = Field(description="The base's until it has said how far it got, then the lane's")
    stay: int = Field(description="Those of the lane's that can be nobody else's: the base has no such partition")


class ConsumersView(BaseModel):
    """Who consumes the topic there."""

    groups: list[str] = Field(
        description="Groups with members, as their clients call them; not all where they are many"
    )
    group_count: int = Field(description="How many there are")
    known: bool = Field(description="Whether all coordinators answered: otherwise there may be more")
    consumed_s_ago: float | None = Field(
        description="When the leading controller was last told of a consumer, of lanes that fall back; null: not since "
        "it leads"
    )


class WaitingView(BaseModel):
    """What waits to go on to the base in the partitions that were asked, which are the base's: in a list the first few
    of each lane, of one lane those on the page.
    """

    partitions: int = Field(description="How many were asked")
    unknown: int = Field(description="Of how many of them it is not known now")
    records: int = Field(description="How many messages wait in the others")
    seconds: float | None = Field(description="For how long the oldest of them has been there; null: not known now")


class RouteView(BaseModel):
    """Who handles what is written to a topic now."""

    lane: str = Field(description="Where it is written; empty: in the base")
    topic: str = Field(description="As clients call it")
    handled_by: Handler = Field(
        description="lane, base, parent (the lane that it is nested in gets it: ask for the route there), closing "
        "(nobody for a moment: the base says how far it got) or mixed (partitions differ)"
    )
    reason: Reason = Field(description="Why, for programs")
    why: str = Field(description="Why, for people")
    fallback: str = Field(description="The lane's: none or base; empty for the base")
    parent: str = Field(
        description="The lane that it is nested in, which is meant wherever else it says base; empty: none"
    )
    partitions: int | None = Field(description="Of the topic that is written to; null: it is made by the first write")
    base_partitions: int | None = Field(
        description="Of the topic of that name beneath, the base's or that of the lane that it is nested in; null: "
        "there is none"
    )
    turns: TurnsView
    consumers: ConsumersView
    waiting: WaitingView


class PartitionRouteView(BaseModel):
    """Who handles what is written to a partition now. Offsets are the lane's partition's, null while an owner does not
    answer.
    """

    partition: int
    handled_by: Handler
    reason: Reason
    since_offset: int = Field(description="Where the turn of who handles it began")
    turn: int = Field(description="How many turns there were before")
    end_offset: int | None = None
    base_next_offset: int | None = Field(
        default=None, description="What the base gets next, while it is its turn or that closes"
    )
    waiting_records: int | None = Field(default=None, description="How many messages wait to go on to the base")
    waiting_seconds: float | None = Field(default=None, description="For how long the oldest of them has been there")


class LaneRouteView(RouteView):
    """Who handles what is written to a topic in a lane now, with a page of its partitions."""

    items: list[PartitionRouteView] = Field(description="Empty where the topic is not made yet")
    next_token: str | None = Field(
        default=None,
        serialization_alias="continue",
        description="Give it as `continue` for the partitions that follow; null: these were the last",
    )
