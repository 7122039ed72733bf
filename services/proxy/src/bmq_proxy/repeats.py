"""What a request names more than once: answered once, or refused once, whichever Kafka does. Pure.

A table with a line for each API that has an array; a test walks the schemas and finds an API without one. Elements of
an array that name the same thing become one, which has the parts of all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bmq.wire.apis import ApiKey
from bmq.wire.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An array. `by`: the fields that say what an element names; none: it is the element itself.

    `refused`: who names a thing twice says two things of it: one element is left, with `repeated` set. `empty_is_all`:
    as null is.
    """

    by: tuple[str, ...] = ()
    inside: Mapping[str, "Named"] = field(default_factory=dict)
    refused: bool = False
    empty_is_all: bool = False


_ITSELF: Final = Named()


def _topics(partitions: str, by: tuple[str, ...] = ("name",), *, of: Named = _ITSELF) -> Named:
    return Named(by=by, inside={partitions: of})


_FETCHED_OFFSETS: Final = _topics("partition_indexes", ("name", "topic_id"))

ONCE: Final[Mapping[int, Mapping[str, Named]]] = {
    ApiKey.LIST_OFFSETS: {"topics": _topics("partitions", of=Named(by=("partition_index",), refused=True))},
    ApiKey.METADATA: {"topics": Named(by=("topic_id", "name"))},
    ApiKey.OFFSET_FETCH: {
        "topics": _FETCHED_OFFSETS,
        "groups": Named(by=("group_id",), inside={"topics": _FETCHED_OFFSETS}),
    },
    ApiKey.FIND_COORDINATOR: {"coordinator_keys": _ITSELF},
    ApiKey.DESCRIBE_GROUPS: {"groups": _ITSELF},
    ApiKey.LIST_GROUPS: {"states_filter": _ITSELF, "types_filter": _ITSELF},
    ApiKey.DELETE_TOPICS: {"topics": Named(by=("topic_id", "name")), "topic_names": _ITSELF},
    ApiKey.DELETE_RECORDS: {"topics": _topics("partitions", of=Named(by=("partition_index",), refused=True))},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": _topics("partitions", ("topic",), of=Named(by=("partition",)))},
    ApiKey.DESCRIBE_CONFIGS: {
        "resources": Named(
            by=("resource_type", "resource_name"), inside={"configuration_keys": Named(empty_is_all=True)}
        )
    },
    ApiKey.ALTER_CONFIGS: {"resources": Named(by=("resource_type", "resource_name"), refused=True)},
    ApiKey.DESCRIBE_LOG_DIRS: {"topics": _topics("partitions", ("topic",))},
    ApiKey.DELETE_GROUPS: {"groups_names": _ITSELF},
    ApiKey.ELECT_LEADERS: {"topic_partitions": _topics("partitions", ("topic",))},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": Named(by=("resource_type", "resource_name"), refused=True)},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": _topics("partition_indexes")},
    ApiKey.OFFSET_DELETE: {"topics": _topics("partitions", of=Named(by=("partition_index",)))},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": Named(by=("name",))},
}
"""By API key, the arrays of its request."""

ELSEWHERE: Final[Mapping[int, str]] = {
    ApiKey.PRODUCE: "each batch is its bytes; the handler refuses a partition that comes twice",
    ApiKey.FETCH: "the session's table has each partition once",
    ApiKey.OFFSET_COMMIT: "the last one counts, and the answer has as many elements as the request",
    ApiKey.JOIN_GROUP: "protocols are an ordered choice of one member",
    ApiKey.SYNC_GROUP: "assignments are stored as they are, and answered to nobody else",
    ApiKey.LEAVE_GROUP: "the answer has as many elements as the request",
    ApiKey.CREATE_TOPICS: "the handler refuses a name that comes twice, with its reason",
    ApiKey.CREATE_PARTITIONS: "the handler refuses a name that comes twice, with its reason",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "the handler answers each partition once",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "the handler refuses a partition that comes twice, with its reason",
}
"""Whose arrays need no line above, and why."""


def once(api_key: int, request: Message) -> Message:
    """The request with each thing named once. Changes it."""
    for name, named in ONCE.get(api_key, {}).items():
        _unite(request, name, named)
    return request


def is_repeated(element: Message) -> bool:
    """Whether the request said more than one thing of what it names."""
    return "repeated" in element.__dict__


def _unite(owner: Message, name: str, named: Named) -> None:
    values: list[Any] | None = owner.__dict__.get(name)
    if not values:
        return
    if not named.by:
        if len(values) > 1:
            owner.__dict__[name] = list(dict.fromkeys(values))
        return
    first: dict[Any, Message] = {}
    for element in values:
        fields = element.__dict__
        key = tuple([fields.get(one) for one in named.by])
        kept = first.setdefault(key, element)
        if kept is not element:
            if named.refused:
                kept.__dict__["repeated"] = True
            for inner, inner_named in named.inside.items():
                _join(kept, element, inner, inner_named)
    owner.__dict__[name] = list(first.values())
    for inner, inner_named in named.inside.items():
        for element in first.values():
            _unite(element, inner, inner_named)


def _join(kept: Message, other: Message, name: str, named: Named) -> None:
    """Null, and an array that is empty where that means all, stand for all."""
    mine, more = kept.__dict__.get(name), other.__dict__.get(name)
    if mine is None or more is None:
        kept.__dict__[name] = None
    elif named.empty_is_all and not (mine and more):
        kept.__dict__[name] = []
    else:
        mine.extend(more)
