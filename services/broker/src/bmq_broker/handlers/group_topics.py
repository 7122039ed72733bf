"""How requests about groups name a topic: by name, by id (newer versions), or both (a proxy that has looked up the
other one).

Where name and id disagree, one of two images is behind: the topic was deleted and made again. Nothing is stored or told
by the name then, because it would be of another topic. Who asked by id hears UNKNOWN_TOPIC_ID; who asked by name knows
nothing of ids, and is told to try again.
"""

from typing import Any, Final, NamedTuple

from bmq.roles.owner import Caller
from bmq.values import TopicId
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.service import TopicNames
from bmq_broker.handlers.group_errors import is_at_least

BY_ID_VERSION: Final = 10
"""The version of OffsetCommit and OffsetFetch from which on clients name topics by id."""


class AskedTopic(NamedTuple):
    """`name` None: no topic has this id. `topic_id` None: no topic has this name. `partitions`: how many it has here, 0
    where it is not known here.

    `disagrees`: this is another topic of that name.
    """

    name: str | None
    topic_id: TopicId | None
    partitions: int
    disagrees: bool = False

    def has(self, partition: int) -> bool:
        """Whether the topic is known here and has this partition."""
        return self.name is not None and 0 <= partition < self.partitions

    def fields(self, asked: Message) -> dict[str, Any]:
        """What a reply calls it: as it was asked for, completed as far as it is known."""
        return {"name": asked_name(asked) or self.name or "", "topic_id": asked_id(asked) or self.topic_id}


def look_up(names: TopicNames, asked: Message) -> AskedTopic:
    """By its name where it has one, else by its id."""
    name, topic_id = asked_name(asked), asked_id(asked)
    if not name:
        name_here = None if topic_id is None else names.name_of(topic_id)
        return AskedTopic(name_here, topic_id, 0 if topic_id is None else names.partitions_of(topic_id))
    here = names.id_of(name)
    if here is None:
        return AskedTopic(name, topic_id, 0)
    return AskedTopic(
        name, topic_id or here, names.partitions_of(here), disagrees=topic_id is not None and topic_id != here
    )


def disagreement(caller: Caller) -> ErrorCode:
    """What is said of a topic whose name and id disagree."""
    return ErrorCode.unknown_topic_id if is_at_least(caller, BY_ID_VERSION) else ErrorCode.coordinator_load_in_progress


def asked_name(asked: Message) -> str:
    """ "" where the request has none."""
    name: str = vars(asked).get("name", "")
    return name


def asked_id(asked: Message) -> TopicId | None:
    """None where the request has none."""
    topic_id: TopicId | None = vars(asked).get("topic_id")
    return topic_id
