"""Parts of specs that end up in Spark's driver and executors: what they may use, and how Spark is set."""

from typing import Final

from pydantic import Field

from bmq_resources.base import Part

MEMORY_PATTERN: Final = r"^([1-9][0-9]{0,6}[mg])?$"
CORES_PATTERN: Final = r"^([0-9]{1,6}m?|[0-9]{1,3}\.[0-9]{1,3})?$"


class SparkPod(Part):
    """CPU and memory of the driver."""

    cores: int = Field(
        default=0,
        ge=0,
        le=128,
        description="Tasks at a time. 0: the chart's `spark.driver.cores`, or `spark.executor.cores`.",
    )
    core_request: str = Field(
        default="",
        max_length=16,
        pattern=CORES_PATTERN,
        description="CPU that is set aside, for example 500m. Empty: the chart's, else `cores`.",
    )
    core_limit: str = Field(
        default="",
        max_length=16,
        pattern=CORES_PATTERN,
        description="CPU that it may use at most. Empty: the chart's, else as much as there is.",
    )
    memory: str = Field(
        default="",
        max_length=16,
        pattern=MEMORY_PATTERN,
        description="Java's memory, for example 512m or 2g. Empty: the chart's `memory`.",
    )
    memory_overhead: str = Field(
        default="",
        max_length=16,
        pattern=MEMORY_PATTERN,
        description="What it may use beside Java's memory: Python, Arrow, threads. The pod has both together. "
        "Empty: the chart's, else 40 % of `memory` and at least 384m.",
    )


class SparkExecutors(SparkPod):
    """Number, CPU and memory of the executors."""

    instances: int = Field(default=0, ge=0, le=1000, description="How many. 0: the chart's `spark.executor.instances`.")


class SparkResources(Part):
    """What a run may use."""

    driver: SparkPod = Field(default=SparkPod(), description="The driver: one pod that plans and commits.")
    executor: SparkExecutors = Field(default=SparkExecutors(), description="The executors: pods that read and write.")
