from pathlib import Path

import pytest

from bmq_spark.errors import JobStopped
from bmq_spark.jobs.cluster import Topic
from bmq_spark.jobs.identity import check_identity
from bmq_spark.locations import Location


@pytest.mark.parametrize("name", ["orders", "..", "x" * 249])
def test_a_topic_of_any_name_that_kafka_takes_is_known_again(tmp_path: Path, name: str) -> None:
    location = Location.parse(str(tmp_path))
    one, another = Topic(id="one", partitions=(0,)), Topic(id="another", partitions=(0,))
    check_identity(location, {name: one, "x" * 248 + "y": another}, what="the table")
    check_identity(location, {name: one}, what="the table")
    with pytest.raises(JobStopped, match="its id is another, but the table is of one with id one"):
        check_identity(location, {name: another}, what="the table")
