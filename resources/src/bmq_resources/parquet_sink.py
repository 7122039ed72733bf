"""ParquetSink: several topics of a Cluster as tables, one beside the other."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bmq.naming.names import TOPIC_NAME_LENGTH_MAX
from bmq_resources.base import AGE, Column, Naming, Resource, Status, condition_columns, rule, rules
from bmq_resources.references import ClusterRef
from bmq_resources.tables import Table, TableStatus

TOPICS_MAX = 64


class ParquetSinkSpec(
    Table,
    json_schema_extra=rules(
        *Table.model_config["json_schema_extra"]["x-kubernetes-validations"],
        rule("self.topics.size() > 0", "topics is empty: name one or more"),
        rule(
            "self.topics.size() <= 1 || !has(self.iceberg) || self.oneTable",
            "iceberg names one table: write oneTable: true, or a ParquetSink for each topic",
        ),
    ),
):
    """Which topics go where."""

    cluster_ref: ClusterRef = Field(default=ClusterRef(), description="The Cluster that has the topics.")
    topics: list[Annotated[str, Field(max_length=TOPIC_NAME_LENGTH_MAX, pattern=r"^[a-zA-Z0-9._-]+$")]] = Field(
        default=[],
        max_length=TOPICS_MAX,
        description="The topics, by the names that Kafka clients know.",
        json_schema_extra=rules(
            rule(
                "self.all(one, self.exists_one(other, other == one))",
                "topics: one stands there twice: leave one of the two out",
            ),
        ),
    )
    one_table: bool = Field(
        default=False,
        description="false: each topic has a table and runs of its own, the table called after it, below `output`. "
        "true: all are one table at `output`, written by one run.",
    )


class ParquetSinkStatus(Status):
    """What has become of it."""

    desired: int = Field(default=0, ge=0, description="How many tables there are to be.")
    ready: int = Field(default=0, ge=0, description="How many are written as they should be.")
    tables: list[TableStatus] = Field(default=[], max_length=TOPICS_MAX, description="The runs of each table.")


class ParquetSink(Resource):
    """Topics as Parquet tables."""

    naming: ClassVar[Naming] = Naming(
        plural="parquetsinks",
        short_names=("bmqp",),
        columns=(
            Column(name="Cluster", json_path=".spec.clusterRef.name", description="The Cluster that has the topics."),
            Column(
                name="Tables",
                json_path=".status.desired",
                type="integer",
                description="How many tables there are to be.",
            ),
            Column(
                name="Written",
                json_path=".status.ready",
                type="integer",
                description="How many are written as they should be.",
            ),
            Column(name="Output", json_path=".spec.output", priority=1, description="Where the tables are."),
            *condition_columns(),
            AGE,
        ),
        spec_required=True,
    )

    kind: Literal["ParquetSink"] = "ParquetSink"
    spec: ParquetSinkSpec = Field(default=ParquetSinkSpec(), description="Which topics go where.")
    status: ParquetSinkStatus = Field(default=ParquetSinkStatus(), description="What has become of it.")
