"""ParquetSink: several topics of a Cluster as tables, one beside the other."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bmq.names import TOPIC_NAME_LENGTH_MAX
from bmq.resources.base import AGE, Column, Naming, Resource, Status, condition_columns, rule, rules
from bmq.resources.references import ClusterRef
from bmq.resources.tables import Table, TableStatus

TOPICS_MAX = 64


class ParquetSinkSpec(
    Table,
    json_schema_extra=rules(
        *Table.model_config["json_schema_extra"]["x-kubernetes-validations"],
        rule("self.topics.size() > 0", "topics is empty: name one or more"),
        rule("self.topics.size() <= 1 || !has(self.iceberg)", "iceberg is a table of one topic: write a ParquetSink for each topic"),
    ),
):
    """Which topics go where."""

    cluster_ref: ClusterRef = Field(default=ClusterRef(), description="The Cluster that has the topics.")
    topics: list[Annotated[str, Field(max_length=TOPIC_NAME_LENGTH_MAX, pattern=r"^[a-zA-Z0-9._-]+$")]] = Field(
        default=[],
        max_length=TOPICS_MAX,
        description="The topics, by the names that Kafka clients know. Each has a table of its own, called after it, below `output`.",
        json_schema_extra=rules(
            rule("self.all(one, self.exists_one(other, other == one))", "topics: one stands there twice: leave one of the two out"),
        ),
    )


class ParquetSinkStatus(Status):
    """What has become of it."""

    table: TableStatus = Field(default=TableStatus(), description="The runs that write the tables.")


class ParquetSink(Resource):
    """Topics as Parquet tables."""

    naming: ClassVar[Naming] = Naming(
        plural="parquetsinks",
        short_names=("bmqp",),
        columns=(
            Column(name="Cluster", json_path=".spec.clusterRef.name", description="The Cluster that has the topics."),
            Column(name="State", json_path=".status.table.state", description="What the Spark Operator says of the run."),
            Column(name="Success", json_path=".status.table.lastSuccess", type="date", description="When a run ended well last."),
            Column(name="Output", json_path=".spec.output", priority=1, description="Where the tables are."),
            *condition_columns(),
            AGE,
        ),
        spec_required=True,
    )

    kind: Literal["ParquetSink"] = "ParquetSink"
    spec: ParquetSinkSpec = Field(default=ParquetSinkSpec(), description="Which topics go where.")
    status: ParquetSinkStatus = Field(default=ParquetSinkStatus(), description="What has become of it.")
