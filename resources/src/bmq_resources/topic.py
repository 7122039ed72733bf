"""Topic: a Kafka topic of a Cluster, kept as it is written."""

from typing import ClassVar, Literal

from pydantic import Field

from bmq.naming.names import TOPIC_NAME_LENGTH_MAX
from bmq_resources.base import AGE, IMMUTABLE, Column, Naming, Part, Resource, Status, condition_columns, rule, rules
from bmq_resources.references import ClusterRef, DeletionPolicy
from bmq_resources.tables import Table, TableStatus
from bmq_resources.texts import SettingsMap

PARTITIONS_MAX = 10_000
CONFIGS_MAX = 64


class TopicSpec(Part):
    """What the topic is to be."""

    cluster_ref: ClusterRef = Field(default=ClusterRef(), description="The Cluster that has the topic.")
    topic_name: str = Field(
        default="",
        max_length=TOPIC_NAME_LENGTH_MAX,
        description="The topic's name for Kafka clients, where it differs from the resource's, which allows "
        "neither capitals nor underscores. Empty: metadata.name. It cannot be changed.",
        json_schema_extra=rules(
            rule(IMMUTABLE, "topicName cannot be changed: create another Topic and delete this one"),
            rule(
                "self.matches('^[a-zA-Z0-9._-]*$') && self != '.' && self != '..'",
                "topicName is one that Kafka refuses: use 1 to 249 of a-z, A-Z, 0-9, dot, _ and -, and neither '.' "
                "nor '..'",
            ),
            rule(
                "!self.startsWith('__')",
                "topicName begins with __, which is kept for internal topics: choose another one",
            ),
        ),
    )
    partitions: int = Field(
        default=1,
        ge=1,
        le=PARTITIONS_MAX,
        description="How many partitions. It can only grow, and where a key's records go changes then.",
        json_schema_extra=rules(
            rule("self >= oldSelf", "partitions can only grow: records would be lost; create another topic with fewer")
        ),
    )
    config: SettingsMap = Field(
        default={},
        max_length=CONFIGS_MAX,
        description='Configuration by Kafka\'s names, for example retention.ms: "86400000". What is not written '
        "has the cluster's value; what somebody sets otherwise is put back. Up to 32,768 characters in all.",
    )
    existing: Literal["Refuse", "Adopt"] = Field(
        default="Refuse",
        description="What happens where the topic was there before the resource. Refuse: nothing, and a condition "
        "says so. Adopt: it is managed from then on, its configuration brought to what is written once "
        "every key that it has is written, and its records are kept.",
    )
    managed: bool = Field(
        default=True, description="false: nothing is changed, and nothing deleted; the status alone is kept up to date."
    )
    deletion_policy: DeletionPolicy = Field(
        default="Retain",
        description="What happens to the topic when the resource is deleted. Retain: it stays. Delete: it goes; one "
        'that holds records goes only once the resource has the annotation bmq.io/delete-data: "true". '
        "A namespace that is deleted never waits for it: the topic stays.",
    )
    parquet: Table | None = Field(
        default=None,
        description="The topic as a table of Parquet files, written by Spark. Its condition is ParquetReady.",
    )


class TopicStatus(Status):
    """What the topic is."""

    topic_name: str = Field(default="", description="Its name for Kafka clients.")
    topic_id: str = Field(default="", description="Its id; a topic that was deleted and created again has another one.")
    partitions: int = Field(default=0, ge=0, description="How many partitions it has.")
    owned: bool = Field(
        default=False, description="Whether this resource stands for the topic: it created or adopted it."
    )
    table: TableStatus = Field(default=TableStatus(), description="The runs that write its table.")


class Topic(Resource):
    """A Kafka topic."""

    naming: ClassVar[Naming] = Naming(
        plural="topics",
        short_names=("bmqt",),
        columns=(
            Column(name="Cluster", json_path=".spec.clusterRef.name", description="The Cluster that has it."),
            Column(name="Topic", json_path=".status.topicName", description="Its name for Kafka clients."),
            Column(name="Partitions", json_path=".status.partitions", type="integer", description="How many it has."),
            *condition_columns(),
            AGE,
        ),
    )

    kind: Literal["Topic"] = "Topic"
    spec: TopicSpec = Field(default=TopicSpec(), description="What the topic is to be.")
    status: TopicStatus = Field(default=TopicStatus(), description="What the topic is.")

    @property
    def topic_name(self) -> str:
        """The topic's name for Kafka clients."""
        return self.spec.topic_name or self.metadata.name
