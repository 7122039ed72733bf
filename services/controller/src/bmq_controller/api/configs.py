"""`/v1/configs` and `/v1/topics/{name}/configs`: the cluster's configuration and topics', by Kafka's names."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from fastapi import Body, FastAPI, Response

from bmq.config.cluster_config import describe_cluster
from bmq.config.config_keys import ConfigSource, DescribedConfig
from bmq.config.topic_config import describe_topic, pinned
from bmq.errors import UnknownTopic
from bmq.metadata.image import Image
from bmq.roles.controller import ConfigChange, ConfigResource
from bmq_controller.api.models import ConfigsView, ConfigValue, ConfigValues, ConfigView
from bmq_controller.api.parameters import CHANGED, MISSING, IfMatch, ValidateOnly
from bmq_controller.api.problems import Refused
from bmq_controller.api.sources import ApiSources
from bmq_controller.api.versions import config_version, etag, holds, topic_version

_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC: "topic",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "cluster",
    ConfigSource.STATIC_BROKER: "static",
    ConfigSource.DEFAULT: "default",
}
_CLUSTER: Final = ConfigResource(kind="broker", name="")

Changes = Annotated[
    ConfigValues,
    Body(description="Keys and their new values; null: back to the default. Others stay as they are."),
]


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that show and change the configurations of the cluster and of topics."""

    @app.get("/v1/configs", tags=["configurations"])
    async def get_cluster_configs(response: Response) -> ConfigsView:
        """All keys of the cluster with their values."""
        return _of_cluster(sources, response)

    @app.patch("/v1/configs", tags=["configurations"])
    async def change_cluster_configs(
        changes: Changes, response: Response, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> ConfigsView:
        """Changes keys of the cluster."""
        leader = sources.leader().when(holds(if_match, config_version))
        await leader.alter_configs(_CLUSTER, _changes(changes), validate_only=validate_only)
        return _of_cluster(sources, response)

    @app.get("/v1/topics/{name}/configs", tags=["configurations"], responses=MISSING)
    async def get_topic_configs(name: str, response: Response) -> ConfigsView:
        """All keys of a topic with their values."""
        return _of_topic(sources, name, response)

    @app.patch("/v1/topics/{name}/configs", tags=["configurations"], responses=CHANGED)
    async def change_topic_configs(
        name: str, changes: Changes, response: Response, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> ConfigsView:
        """Changes keys of a topic."""
        leader = sources.leader().when(holds(if_match, lambda image: _topic_version(image, name)))
        await leader.alter_configs(
            ConfigResource(kind="topic", name=name), _changes(changes), validate_only=validate_only
        )
        return _of_topic(sources, name, response)


def config_text(value: ConfigValue) -> str | None:
    """As Kafka writes it: true, 5, text."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def _changes(changes: Mapping[str, ConfigValue]) -> list[ConfigChange]:
    if not changes:
        raise Refused(
            "InvalidRequest",
            "it changes nothing",
            'send an object of keys and values, for example {"retention.ms": "3600000"}',
        )
    return [
        ConfigChange(name=name, operation="delete")
        if value is None
        else ConfigChange(name=name, operation="set", value=config_text(value))
        for name, value in changes.items()
    ]


def _of_cluster(sources: ApiSources, response: Response) -> ConfigsView:
    image = sources.image
    rows = describe_cluster(dynamic=image.configs.get(("broker", ""), {}), static=sources.static_configs)
    return _view(rows, config_version(image), response)


def _of_topic(sources: ApiSources, name: str, response: Response) -> ConfigsView:
    image = sources.image
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopic("there is no such topic: list the topics")
    rows = describe_topic(
        pinned(topic.name, topic.configs),
        dynamic_defaults=image.configs.get(("broker", ""), {}),
        static_defaults=sources.static_configs,
    )
    return _view(rows, topic_version(topic), response)


def _view(rows: Sequence[DescribedConfig], version: str, response: Response) -> ConfigsView:
    response.headers["ETag"] = etag(version)
    return ConfigsView(
        version=version,
        configs=[
            ConfigView(
                name=row.name,
                value=row.value,
                source=_SOURCES[row.source],
                read_only=row.read_only,
                documentation=row.documentation,
            )
            for row in rows
            if not row.sensitive
        ],
    )


def _topic_version(image: Image, name: str) -> str | None:
    topic = image.topic(name)
    return None if topic is None else topic_version(topic)
