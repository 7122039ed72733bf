import pytest

from bmq_spark.batches.explaining import cause, explained
from bmq_spark.batches.places import Range
from bmq_spark.errors import ConfigurationError, JobStopped

RANGES = [Range(topic="orders", partition=0, start=100, end=200), Range(topic="orders", partition=1, start=7, end=9)]
CORRUPT = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
org.apache.kafka.common.KafkaException: Received exception when fetching the next record from orders-0. If needed, please seek past the record.
\tat org.apache.kafka.clients.consumer.internals.CompletedFetch.fetchRecords(CompletedFetch.java:273)
Caused by: org.apache.kafka.common.errors.CorruptRecordException: Record batch for partition orders-0 at offset 120 is invalid
"""


def test_an_unreadable_batch_is_told_by_topic_partition_and_place() -> None:
    line = str(explained(Exception(CORRUPT), servers="h:1", ranges=RANGES))
    assert line.startswith("topic orders partition 0, offset 120: a batch cannot be read: CorruptRecordException")
    assert "bmq store check" in line
    assert "\n" not in line


def test_too_little_memory_is_told_with_how_to_have_more_or_take_less() -> None:
    text = "Job aborted due to stage failure\nCaused by: java.lang.OutOfMemoryError: Java heap space"
    line = str(explained(Exception(text), servers="h:1", ranges=RANGES))
    assert line.startswith("topic orders partition 0, within offsets 100 to 199 or topic orders partition 1, within")
    assert "out of memory: OutOfMemoryError: Java heap space: the place is kept; " in line
    assert "SPARK_DRIVER_MEMORY" in line and "--max-records-per-batch" in line


@pytest.mark.parametrize(
    ("source", "job"),
    [
        ("to read on behind it begin at a later offset", "delete records up to the offset behind it (DeleteRecords)"),
        ("to read on behind this segment begin at offset 7", "delete records up to offset 7 (DeleteRecords)"),
    ],
)
def test_what_the_source_cannot_read_has_a_remedy_that_a_job_has(source: str, job: str) -> None:
    said = f"Traceback\nbmq_spark.source.failures.SegmentBroken: topic t, partition 0, offset 3: a record: {source}\n"
    line = str(explained(Exception(said), servers="h:1", ranges=RANGES))
    assert (
        line == f"topic t, partition 0, offset 3: a record: to go on behind it {job}, and run once with --accept-loss"
    )


def test_an_unknown_codec_is_told_by_what_was_being_read() -> None:
    line = str(
        explained(
            Exception("x\nCaused by: java.lang.IllegalArgumentException: Unknown compression type id: 6"),
            servers="h:1",
            ranges=RANGES,
        )
    )
    assert line.startswith(
        "topic orders partition 0, within offsets 100 to 199 or topic orders partition 1, within offsets 7 to 8: a "
        "batch cannot be"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "x\nCaused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node "
            "assignment. Call: describeTopics",
            "brokers h:1: no answer",
        ),
        (
            "x\nCaused by: java.nio.file.AccessDeniedException: s3a://b/t: Access Denied",
            "the bucket refuses: AccessDeniedException: s3a://b/t: Access Denied",
        ),
        (
            "Job aborted\nCaused by: java.lang.ArithmeticException: long overflow\n\tat "
            "java.base/java.lang.Math.multiplyExact(Math.java:1032)",
            "a topic: a record has a timestamp that Spark's Kafka connector cannot hold (nanoseconds, by the look "
            "of it): read it with --source bmq",
        ),
        (
            "[STREAM_FAILED] Query terminated: Something new",
            "Spark: Query terminated: Something new: the place is kept",
        ),
    ],
)
def test_what_is_known_has_a_remedy_and_what_is_not_is_quoted(text: str, line: str) -> None:
    assert str(explained(Exception(text), servers="h:1")).startswith(line)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Writing Object on {name}", "Writing Object on {name}"),
        ("copyFile({name}, orders/_bmq/checkpoint/0001/commits/0) on {name}", "copyFile on {name}"),
        ("something new with " + "x" * 400, ""),
    ],
)
def test_a_bucket_that_refuses_spark_is_told_with_what_was_done_to_which_object(said: str, told: str) -> None:
    name, checkpoint = "orders/_bmq/checkpoint/0001/commits/.0.tmp", "s3a://tables/orders/_bmq/checkpoint/0001"
    text = (
        f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {name}: {said.format(name=name)}: "
        "software.amazon.awssdk.services.s3.model.S3Exception: Access Denied. (Service: S3, Status Code: "
        "403):AccessDenied\n=== Query ==="
    )
    line = str(explained(Exception(text), servers="h:1", checkpoint=checkpoint))
    assert line.startswith("the bucket refuses: AccessDenied: " + told.format(name=name))
    assert f" (checkpoint {checkpoint}): check AWS_" in line


def test_an_error_of_a_worker_is_told_as_it_is() -> None:
    text = (
        'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "x", line '
        "1\nbmq.errors.StoreUnusable: bucket b: no"
    )
    assert str(explained(Exception(text), servers="h:1")) == "bucket b: no"
    refused = explained(Exception("Traceback\nbmq.errors.ConfigurationError: option x: no"), servers="h:1")
    assert isinstance(refused, ConfigurationError)
    assert isinstance(explained(Exception("Traceback\nbmq_spark.errors.TableBroken: t"), servers="h:1"), JobStopped)


def test_a_cause_is_one_bounded_line() -> None:
    assert cause("a" * 1000) == "a" * 300
    assert cause("") == "it gave no reason"
