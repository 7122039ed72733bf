"""The pages of the API that a cluster is run by: what each takes, and which document it answers. Pure."""

from collections.abc import Mapping
from typing import Final

from bmq_admin.documents import (
    Channel,
    Clock,
    Cluster,
    Configs,
    Group,
    Lane,
    Node,
    Partition,
    Store,
    Topic,
    TopicSummary,
)
from bmq_admin.requests import Listing, Request, request_for

Values = Mapping[str, object]
"""Configuration keys and their values; None: back to the default."""
NODES_AT_ONCE: Final = 250
"""Each tells its listeners and what ails it, which may be kilobytes."""
_DRY_RUN = {"validate_only": True}


def cluster() -> Request[Cluster]:
    """The cluster, as any node knows it."""
    return request_for("GET", ("cluster",), document=Cluster)


def clock() -> Request[Clock]:
    """The time by which the cluster deletes lanes."""
    return request_for("GET", ("clock",), document=Clock)


def store() -> Request[Store]:
    """Whether the store answers the node that is asked."""
    return request_for("GET", ("debug", "store"), document=Store)


def nodes() -> Listing[Node]:
    """All nodes, as the leader sees them."""
    return Listing(path=("nodes",), query={"limit": NODES_AT_ONCE}, item=Node)


def node(node_id: int) -> Request[Node]:
    """One node."""
    return request_for("GET", ("nodes", node_id), document=Node)


def drain(node_id: int) -> Request[Node]:
    """Begins to move a broker's partitions to others."""
    return request_for("POST", ("nodes", node_id, "drain"), document=Node)


def cordon(node_id: int) -> Request[Node]:
    """Gives a node no new partitions."""
    return request_for("POST", ("nodes", node_id, "cordon"), document=Node)


def uncordon(node_id: int) -> Request[Node]:
    """Gives a node partitions again."""
    return request_for("POST", ("nodes", node_id, "uncordon"), document=Node)


def topics() -> Listing[TopicSummary]:
    """All topics."""
    return Listing(path=("topics",), item=TopicSummary)


def topic(name: str) -> Request[Topic]:
    """One topic."""
    return request_for("GET", ("topics", name), document=Topic)


def partitions(topic: str) -> Listing[Partition]:
    """A topic's partitions."""
    return Listing(path=("topics", topic, "partitions"), item=Partition)


def create_topic(
    name: str, *, partitions: int, configs: Values, lane: str = "", dry_run: bool = False
) -> Request[Topic]:
    """A new topic, of a lane's where one is named. `dry_run`: whether it could be made, and nothing more; as in all of
    these.
    """
    body = {"name": name, "partitions": partitions, "configs": dict(configs)} | ({"lane": lane} if lane else {})
    return request_for("POST", ("topics",), body=body, query=_DRY_RUN if dry_run else None, document=Topic)


def grow_topic(name: str, *, total: int, version: str, dry_run: bool = False) -> Request[Topic]:
    """More partitions. `version`: of this one alone, as in all of these."""
    return request_for(
        "POST",
        ("topics", name, "partitions"),
        body={"total": total},
        version=version,
        query=_DRY_RUN if dry_run else None,
        document=Topic,
    )


def change_topic(name: str, changes: Values, *, version: str, dry_run: bool = False) -> Request[Configs]:
    """Some keys of a topic's configuration."""
    return request_for(
        "PATCH",
        ("topics", name, "configs"),
        body=changes,
        version=version,
        query=_DRY_RUN if dry_run else None,
        document=Configs,
    )


def configs() -> Request[Configs]:
    """The cluster's configuration."""
    return request_for("GET", ("configs",), document=Configs)


def change_configs(changes: Values, *, version: str, dry_run: bool = False) -> Request[Configs]:
    """Some keys of it."""
    return request_for(
        "PATCH", ("configs",), body=changes, version=version, query=_DRY_RUN if dry_run else None, document=Configs
    )


def delete_topic(name: str, *, version: str) -> Request[None]:
    """A topic with its records."""
    return request_for("DELETE", ("topics", name), version=version)


def lane(name: str) -> Request[Lane]:
    """One lane."""
    return request_for("GET", ("lanes", name), document=Lane)


def create_lane(wanted: Values) -> Request[Lane]:
    """A new lane; what is wanted has its name, too."""
    return request_for("POST", ("lanes",), body=wanted, document=Lane)


def change_lane(name: str, wanted: Values, *, version: str) -> Request[Lane]:
    """What a lane is to be, all of it."""
    return request_for("PUT", ("lanes", name), body=wanted, version=version, document=Lane)


def delete_lane(name: str, *, version: str | None = None) -> Request[None]:
    """A lane with its topics and groups."""
    return request_for("DELETE", ("lanes", name), version=version)


def watched_channels(after: str, *, wait_s: float) -> Request[bytes]:
    """What changed of channels since the version `after`, as it is; an answer comes after `wait_s` at the latest."""
    query = {"after": after, "wait_seconds": f"{wait_s:.3f}"}
    return request_for("GET", ("watch", "channels"), query=query, raw=True)


def channels() -> Listing[Channel]:
    """All channels."""
    return Listing(path=("channels",), item=Channel)


def channel(name: str) -> Request[Channel]:
    """One channel."""
    return request_for("GET", ("channels", name), document=Channel)


def create_channel(name: str, spec: Values, *, dry_run: bool = False) -> Request[Channel]:
    """A new channel."""
    body = {"name": name, "spec": dict(spec)}
    return request_for("POST", ("channels",), body=body, query=_DRY_RUN if dry_run else None, document=Channel)


def change_channel(name: str, spec: Values, *, version: str | None, dry_run: bool = False) -> Request[Channel]:
    """What a channel is to be, all of it. `version` None: whichever it is."""
    query = _DRY_RUN if dry_run else None
    return request_for(
        "PUT", ("channels", name), body={"spec": dict(spec)}, version=version, query=query, document=Channel
    )


def delete_channel(name: str, *, version: str | None = None) -> Request[None]:
    """A channel; its topic stays."""
    return request_for("DELETE", ("channels", name), version=version)


def group(group_id: str) -> Request[Group]:
    """A consumer group, as the cluster calls it."""
    return request_for("GET", ("groups", group_id), document=Group)
