"""No key reaches what a resource names by writing $(VARIABLE) or ${env:VARIABLE}: neither the kubelet nor Spark puts a
value in its place.
"""

import re
from typing import Any

import pytest
from clusters_world import World, doomed, run
from tables_of_a_test import STREAM, cluster, sink
from tables_world import World as TablesWorld
from tables_world import ready
from tables_world import run as run_tables

from bmq_operator.allowed import Allowed, why_not_settings
from bmq_operator.spark_settings import SparkSettings
from bmq_operator.tables.desired import desired
from bmq_operator.tables.jobs import jobs_of_sink

VARIABLES = {"AWS_ACCESS_KEY_ID": "the-id", "AWS_SECRET_ACCESS_KEY": "the-key"}
TEXTS = ["$(AWS_SECRET_ACCESS_KEY)", "$$(AWS_SECRET_ACCESS_KEY)", "$$$(AWS_SECRET_ACCESS_KEY)", "a$b$", "$$", "$(x"]


def expanded(text: str) -> str:
    """As the kubelet does it with arguments and values of variables: $$ is $, and $(NAME) the variable's value where
    there is one.
    """
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda it: "$" if it[0] == "$$" else VARIABLES.get(it[1], it[0]), text)


@pytest.mark.parametrize("text", TEXTS)
def test_the_arguments_and_variables_of_a_table_reach_its_jobs_as_they_are_written(text: str) -> None:
    spec = {
        **STREAM,
        "format": "avro",
        "registry": f"http://collector.example/{text}",
        "group": text,
        "consumerConfig": {"client.rack": text},
    }
    placement = {"env": [{"name": "TZ", "value": text}]}
    made = [
        one
        for job in jobs_of_sink(sink(**spec, placement=placement), cluster())
        for one in desired(job, SparkSettings())
    ]
    (write,) = (one["spec"] for one in made if one["kind"] == "SparkApplication")
    told = [expanded(one) for one in write["arguments"]]
    assert {
        f"--registry=http://collector.example/{text}",
        f"--group={text}-orders",
        f"--consumer-config=client.rack={text}",
    } <= set(told)
    for part in ("driver", "executor"):
        (main,) = write[part]["template"]["spec"]["containers"]
        assert text in [expanded(one["value"]) for one in main["env"] if one["name"] == "TZ"]


def test_the_job_that_erases_reads_the_stores_address_as_the_nodes_do() -> None:
    url = "s3://b/$(AWS_SECRET_ACCESS_KEY)"
    keys = dict.fromkeys(VARIABLES, "YQ==")
    secret = {
        "kind": "Secret",
        "metadata": {"name": "keys", "namespace": "shop", "labels": {"bmq.io/use": "allowed"}},
        "data": keys,
    }

    async def use(world: World) -> None:
        for _ in range(2):
            await world.look("prod")
            world.pods_are_made()
        await world.look("prod")
        world.begins_deletion("prod")
        for _ in range(4):
            await world.look("prod")
            world.pods_are_made()
        (container,) = world.there("Job", "prod-erase")["spec"]["template"]["spec"]["containers"]
        assert url in [expanded(one) for one in container["args"]]

    run(use, doomed(store={"url": url, "credentials": {"secretName": "keys"}}), secret)


@pytest.mark.parametrize(
    "value", ["${env:AWS_SECRET_ACCESS_KEY}", "1${env:AWS_SECRET_ACCESS_KEY}", "$(AWS_SECRET_ACCESS_KEY)", "${spark.x}"]
)
def test_a_setting_that_spark_would_put_a_value_into_is_refused_whatever_the_chart_allows(value: str) -> None:
    for name in ("spark.sql.session.timeZone", "spark.memory.fraction"):
        for patterns in (Allowed().spark_conf, (name,), ("*",)):
            why = why_not_settings({name: value}, patterns, field="sparkConf", value="allow.sparkConf")
            assert name in why and value not in why


REFUSED: list[dict[str, Any]] = [
    {"sparkConf": {"spark.memory.fraction": "${env:AWS_SECRET_ACCESS_KEY}"}},
    {"consumerConfig": {"client.rack": "${env:AWS_SECRET_ACCESS_KEY}"}},
    {"registry": "http://collector.example/${env.AWS_SECRET_ACCESS_KEY}", "format": "avro"},
    {"output": "s3a://warehouse/${env.AWS_SECRET_ACCESS_KEY}"},
    {"checkpoint": "s3a://warehouse/${env.AWS_SECRET_ACCESS_KEY}"},
    {"store": {"secretName": "keys", "endpoint": "http://collector.example/${env.AWS_SECRET_ACCESS_KEY}"}},
    {"group": "${env:AWS_SECRET_ACCESS_KEY}"},
]


@pytest.mark.parametrize("spec", REFUSED, ids=lambda one: next(iter(one)))
def test_a_table_whose_text_spark_would_put_a_value_into_is_not_written(spec: dict[str, Any]) -> None:
    async def use(world: TablesWorld) -> None:
        keys = {
            "kind": "Secret",
            "metadata": {"name": "keys", "namespace": "shop", "labels": {"bmq.io/use": "allowed"}},
            "data": {},
        }
        world.kube.keep(keys)
        outcome = await world.look({**STREAM, **spec})
        assert ready(outcome).reason == "NotAllowed" and next(iter(spec)) in ready(outcome).message
        assert not world.kube.names("SparkApplication")

    run_tables(use)
