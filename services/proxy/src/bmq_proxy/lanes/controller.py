"""The controller as clients reach it: to the base's, topics of lanes do not exist; what a lane's clients make and
change is the lane's own, and what is everybody's they cannot change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bmq.errors import BmqError, PolicyViolation, UnknownTopic
from bmq.naming.lanes import BASE, lane_of, overlay_name
from bmq.naming.names import shown
from bmq.roles.controller import ConfigChange, ConfigResource, Controller, NewTopic, Reassignment, TopicResult
from bmq.values import TopicId

TOPIC = "topic"


class BaseController:
    """`Controller` for the base. Topics that come by name must be the base's; ids come from a view that has the base's
    own alone.
    """

    def __init__(self, real: Controller) -> None:
        self.real = real

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
        """Creates topics of the base. No name of a lane's topic is legal."""
        return await self.real.create_topics(topics, validate_only=validate_only)

    async def delete_topics(self, topics: Sequence[TopicId]) -> list[TopicResult]:
        """Deletes topics by their ids, which are the base's."""
        return await self.real.delete_topics(topics)

    async def create_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> TopicResult:
        """Grows a topic of the base. Raises UnknownTopic for a lane's."""
        _check_base(topic)
        return await self.real.create_partitions(topic, total, assignments=assignments, validate_only=validate_only)

    async def alter_configs(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Changes keys of a configuration. Raises UnknownTopic for a lane's topic."""
        if resource.kind == TOPIC:
            _check_base(resource.name)
        await self.real.alter_configs(resource, changes, validate_only=validate_only)

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Replaces a configuration. Raises UnknownTopic for a lane's topic."""
        if resource.kind == TOPIC:
            _check_base(resource.name)
        await self.real.replace_configs(resource, configs, validate_only=validate_only)

    async def allocate_producer_ids(self, count: int) -> range:
        """Takes `count` producer ids that nobody in the base or in a lane was given before."""
        return await self.real.allocate_producer_ids(count)

    async def reassign(self, changes: Sequence[Reassignment]) -> list[BmqError | None]:
        """Begins planned moves of the base's partitions, or takes them back."""
        return await self.real.reassign(changes)


def _check_base(topic: str) -> None:
    if lane_of(topic) != BASE:
        raise UnknownTopic(f"There is no topic {shown(topic)}")


class LaneController:
    """`Controller` for one lane. Topics come by the names that the lane's clients use; ids come from a view that has
    the lane's own alone.
    """

    def __init__(self, real: Controller, lane: str) -> None:
        self._real = real
        self._lane = lane

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
        """Creates topics as the lane's own."""
        return await self._real.create_topics(
            [replace(topic, lane=self._lane) for topic in topics], validate_only=validate_only
        )

    async def delete_topics(self, topics: Sequence[TopicId]) -> list[TopicResult]:
        """Deletes topics by their ids, which are the lane's own."""
        return await self._real.delete_topics(topics)

    async def create_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> TopicResult:
        """Grows a topic of the lane's own; the result has the name that the lane's clients use."""
        stored = overlay_name(self._lane, topic)
        result = await self._real.create_partitions(stored, total, assignments=assignments, validate_only=validate_only)
        return replace(result, name=topic)

    async def alter_configs(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Changes the configuration of a topic of the lane's own. Raises PolicyViolation for what is no topic."""
        await self._real.alter_configs(self._own(resource), changes, validate_only=validate_only)

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Replaces the configuration of a topic of the lane's own. Raises PolicyViolation for what is no topic."""
        await self._real.replace_configs(self._own(resource), configs, validate_only=validate_only)

    async def allocate_producer_ids(self, count: int) -> range:
        """Takes `count` producer ids that nobody in the base or in a lane was given before."""
        return await self._real.allocate_producer_ids(count)

    async def reassign(self, changes: Sequence[Reassignment]) -> list[BmqError | None]:
        """Begins planned moves of the lane's own partitions, or takes them back."""
        return await self._real.reassign(changes)

    def _own(self, resource: ConfigResource) -> ConfigResource:
        if resource.kind != TOPIC:
            raise PolicyViolation(
                f"the configuration of a {resource.kind} is everybody's: change it outside of lane {self._lane}"
            )
        return replace(resource, name=overlay_name(self._lane, resource.name))
