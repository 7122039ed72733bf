"""How requests about groups name a topic: by name, by id (newer versions), or both (a proxy that has looked up the other one)."""

from typing import Any, NamedTuple

from bmq.values import TopicId
from bmq.wire.message import Message
from bmq_broker.groups.service import TopicNames


class AskedTopic(NamedTuple):
    """`name` None: no topic has this id. `topic_id` None: no topic has this name."""

    name: str | None
    topic_id: TopicId | None

    def fields(self, asked: Message) -> dict[str, Any]:
        """What a reply calls it: as it was asked for, completed as far as it is known."""
        return {"name": asked_name(asked) or self.name or "", "topic_id": asked_id(asked) or self.topic_id}


def look_up(names: TopicNames, asked: Message) -> AskedTopic:
    """The name counts where there is one; else the id."""
    name = asked_name(asked)
    if name:
        return AskedTopic(name, names.id_of(name))
    topic_id = asked_id(asked)
    return AskedTopic(None if topic_id is None else names.name_of(topic_id), topic_id)


def asked_name(asked: Message) -> str:
    """ "" where the request has none."""
    name: str = vars(asked).get("name", "")
    return name


def asked_id(asked: Message) -> TopicId | None:
    """None where the request has none."""
    topic_id: TopicId | None = vars(asked).get("topic_id")
    return topic_id
