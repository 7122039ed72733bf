"""Topic names and ids as the node's image has them."""

from bmq.roles.controller import Metadata
from bmq.values import TopicId


class ImageTopics:
    """Implements TopicNames over the image of the moment."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def id_of(self, name: str) -> TopicId | None:
        """None: there is no such topic."""
        return self._metadata.image.topic_ids.get(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        """None: it was deleted."""
        topic = self._metadata.image.topics.get(topic_id)
        return None if topic is None else topic.name
