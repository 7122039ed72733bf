"""Tables of a cluster that answers: a Topic with one is looked after whatever becomes of it, and how far a table lags
is asked for.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from kube_of_a_test import CLUSTER, auth_secret, context_of
from real_bmq import TOKEN, bmq_with_token
from tables_of_a_test import HOURLY, STREAM, cluster
from tables_of_a_test import sink as sink_of
from tables_world import ACCOUNT, KEYS, SparkKube, closed, ready
from tests.started_bmq import StartedBmq

from bmq_admin.client import AdminClient
from bmq_operator.outcome import Outcome
from bmq_operator.tables.jobs import jobs_of_sink
from bmq_operator.tables.lag import lag_of
from bmq_operator.tables.reconcile import reconcile_topic
from bmq_resources.topic import Topic

LOOKS_MAX = 10


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq")) as started:
        yield started


def topic(status: dict[str, Any], **spec: Any) -> Topic:
    meta = {
        "name": "orders",
        "namespace": "shop",
        "uid": "uid-orders",
        "generation": 1,
        "creationTimestamp": "2001-09-09T01:46:40Z",
    }
    return Topic.model_validate(
        {"apiVersion": "bmq.io/v1alpha1", "kind": "Topic", "metadata": meta, "spec": spec, "status": status}
    )


def test_a_topic_is_looked_after_whatever_is_the_matter_with_its_table(bmq: StartedBmq) -> None:
    async def main() -> None:
        clients: dict[tuple[str, str], AdminClient] = {}
        kube = SparkKube(CLUSTER, auth_secret(TOKEN), ACCOUNT, KEYS)
        context = context_of(kube, bmq.admin, clients)
        status: dict[str, Any] = {}

        async def look(**spec: Any) -> Outcome:
            nonlocal status
            outcome = await reconcile_topic(context, topic(status, **spec))
            assert outcome.status is not None
            status = outcome.status.written()
            return outcome

        kube.spark = False
        waiting = await look(parquet=HOURLY)
        assert ready(waiting, "ParquetReady").reason == "TopicNotReady", "the table waits for its topic"
        for _ in range(LOOKS_MAX):
            made = await look(parquet=HOURLY)
            if ready(made).reason != "Creating":
                break
        assert (ready(made).reason, ready(made, "ParquetReady").reason) == ("AsWritten", "SparkOperatorMissing")
        kube.spark = True
        kube.refuses = {"orders-topic"}
        grown = await look(partitions=3, parquet=HOURLY)
        assert (ready(grown).reason, ready(grown, "ParquetReady").reason) == ("AsWritten", "Refused")
        assert (await context.admin(bmq.admin, TOKEN).get("topics", "orders"))["partitions"] == 3
        kube.refuses = set()
        await look(partitions=3, parquet=HOURLY)
        kube.says(
            "ScheduledSparkApplication", "orders-topic", scheduleState="Scheduled", nextRun="2099-01-01T00:00:00Z"
        )
        well = await look(partitions=3, parquet=HOURLY)
        assert (ready(well, "ParquetReady").reason, status["table"]["application"]) == ("Scheduled", "orders-topic")
        assert status["table"]["lag"] == -1, "nobody has committed yet"
        without = await look(partitions=3)
        assert kube.names("ScheduledSparkApplication") == set()
        assert without.status is not None
        assert [one.type for one in without.status.conditions] == ["Ready"]
        await closed(clients)

    asyncio.run(main())


def test_a_tables_lag_is_that_of_the_lane_which_it_reads(bmq: StartedBmq) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    async def main() -> None:
        clients: dict[tuple[str, str], AdminClient] = {}
        context = context_of(SparkKube(CLUSTER, auth_secret(TOKEN), ACCOUNT, KEYS), bmq.admin, clients)
        client = context.admin(bmq.admin, TOKEN)
        await client.post("topics", body={"name": "paid", "partitions": 1})
        await client.post("lanes", body={"name": "dev"})
        for client_id, records, committed in (("base", 5, 1), ("lane=dev", 9, 2)):
            settings = {"bootstrap.servers": bmq.kafka, "client.id": client_id}
            producer = Producer(settings)
            for _ in range(records):
                producer.produce("paid", b"x", partition=0)
            assert await asyncio.to_thread(producer.flush, 30) == 0
            consumer = Consumer({**settings, "group.id": "parquet-paid"})
            await asyncio.to_thread(consumer.commit, offsets=[TopicPartition("paid", 0, committed)], asynchronous=False)
            consumer.close()
        found = {}
        for lane in ("", "dev", "gone"):
            [job] = jobs_of_sink(sink_of(topics=["paid"], **STREAM, lane=lane), cluster())
            context.known.lags.clear()
            found[lane] = await lag_of(context, job, client)
        assert found == {"": 4, "dev": 7, "gone": -1}
        await closed(clients)

    asyncio.run(main())
