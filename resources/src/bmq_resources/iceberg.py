"""An Iceberg table in a spec, as `spark-apps/iceberg.py` takes it: what that refuses is refused here."""

from typing import Final, Literal

from pydantic import Field

from bmq_resources.base import Part, rule, rules
from bmq_resources.uris import URI_LENGTH_MAX, folder

_PART: Final = "[A-Za-z_][A-Za-z0-9_]{0,127}"


class Iceberg(
    Part,
    json_schema_extra=rules(
        rule(
            "self.catalogType == 'rest' || self.warehouse != ''",
            "iceberg of catalogType hadoop and sql needs a warehouse: write iceberg.warehouse",
        ),
        rule(
            "self.catalogType != 'rest' || self.catalogUri.matches('^https?://[^/?#]+')",
            "iceberg of catalogType rest needs its server's address: write iceberg.catalogUri as http://HOST:8181",
        ),
        rule(
            "self.catalogType != 'sql' || self.catalogUri.startsWith('jdbc:')",
            "iceberg of catalogType sql needs its database: write iceberg.catalogUri as "
            "jdbc:postgresql://HOST/DATABASE",
        ),
        rule(
            "self.catalogType != 'hadoop' || self.catalogUri == ''",
            "iceberg of catalogType hadoop has no catalogUri, as the warehouse is the catalog: leave it out, or "
            "write catalogType: rest or sql",
        ),
    ),
):
    """An Iceberg table in place of plain Parquet."""

    table: str = Field(
        default="bmq.default.records",
        max_length=512,
        pattern=rf"^{_PART}(\.{_PART}){{2,}}$",
        description="CATALOG.DATABASE.NAME, where CATALOG is a name of your choice; of letters, digits and "
        "underscores.",
        json_schema_extra=rules(
            rule(
                "!self.startsWith('spark_catalog.')",
                "iceberg.table: spark_catalog is Spark's own: write another name for the catalog",
            )
        ),
    )
    catalog_type: Literal["hadoop", "rest", "sql"] = Field(
        default="hadoop", description="What keeps the list of tables."
    )
    catalog_uri: str = Field(
        default="",
        max_length=URI_LENGTH_MAX,
        description="Of rest: http://HOST:PORT. Of sql: the database, for example jdbc:postgresql://HOST/DATABASE, "
        "by a driver and with parameters that the chart allows.",
    )
    warehouse: str = Field(
        default="",
        max_length=URI_LENGTH_MAX,
        description="Where tables are kept, for example s3a://bucket/warehouse. hadoop and sql need it.",
        json_schema_extra=folder("iceberg.warehouse"),
    )
    upsert_key: str = Field(
        default="",
        max_length=249,
        description="One row for each key, as in a compacted topic: `key`, or a field of the value. Empty: all "
        "records.",
    )
    maintain: bool = Field(default=True, description="Whether runs also merge small files and let old snapshots go.")
