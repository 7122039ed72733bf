"""How the operator has tables written: the image of Spark, its account, and what runs may use where a resource says
nothing.

The chart's values `spark` as JSON in BMQ_OPERATOR_SPARK.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class DriverDefaults(_Part):
    """What a driver may use where a resource says nothing; empty: Spark's own."""

    cores: int = Field(default=1, ge=1)
    core_request: str = ""
    core_limit: str = ""
    memory: str = "1g"
    memory_overhead: str = ""


class ExecutorDefaults(DriverDefaults):
    """What executors may use where a resource says nothing, and how many of them there are."""

    instances: int = Field(default=1, ge=1)


class SparkSettings(_Part):
    """The values of the chart that the operator needs."""

    enabled: bool = True
    """false: the operator neither asks for Spark's applications nor watches them."""
    image: str = "bmq-spark:latest"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    service_account: str = "bmq-spark"
    """The account of drivers, in the namespace of each table's resource."""
    version: str = "4.1.2"
    """The version of the Spark in the image."""
    driver: DriverDefaults = DriverDefaults()
    executor: ExecutorDefaults = ExecutorDefaults()
    conf: dict[str, str] = {}
    """Spark's settings for all tables."""
    event_log: str = ""
    """A folder in a bucket for Spark's event logs; empty: none are kept."""
    metrics: bool = True
    """Whether drivers tell Prometheus how they do."""
