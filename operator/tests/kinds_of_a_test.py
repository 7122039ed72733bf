"""What each kind's spec becomes: all objects, and what its cluster is asked for, for the tests that write and take away
each of its fields.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kube_of_a_test import TRIAL
from pydantic import BaseModel

from bmq_operator.clusters.desired import desired as objects_of_cluster
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.kube import Manifest
from bmq_operator.lanes.desired import desired as objects_of_lane
from bmq_operator.spark_settings import SparkSettings
from bmq_operator.tables.desired import desired as objects_of_table
from bmq_operator.tables.jobs import jobs_of_sink, jobs_of_topic
from bmq_resources.channel import Channel, DeclaredChannelSpec
from bmq_resources.cluster import Cluster, ClusterSpec
from bmq_resources.differences import lane_body
from bmq_resources.lane import Lane, LaneSpec
from bmq_resources.parquet_sink import ParquetSink, ParquetSinkSpec
from bmq_resources.topic import Topic, TopicSpec

INPUTS: Final = Inputs(
    default_image="bmq:1",
    cluster_secret="c" * 32,
    admin_token="a" * 32,
    minio_user="bmq",
    minio_password="m" * 32,
    keys_name="bmq-keys-1",
)
NOT_IN_OBJECTS: Final = "it is acted on when the resource is looked at, and in no object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a spec comes to. `asked`: of the cluster's own API."""

    objects: list[Manifest]
    asked: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfATest:
    """`bases`: what has to be in a spec for the fields below a path to mean anything. `elsewhere`: fields that no
    object shows, and why.
    """

    name: str
    spec: type[BaseModel]
    made: Callable[[dict[str, Any], str], Made]
    """Of a spec, in a namespace."""
    bases: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def base(self, path: str) -> dict[str, Any]:
        """Of the longest path above this one."""
        above = max((one for one in self.bases if f"{path}.".startswith(f"{one}.") or not one), key=len, default=None)
        return {} if above is None else dict(self.bases[above])


def _cluster(spec: dict[str, Any], namespace: str) -> Made:
    meta = {"name": "bmq", "namespace": namespace, "uid": "uid-bmq"}
    return Made(objects=objects_of_cluster(Cluster.model_validate({"metadata": meta, "spec": spec}), INPUTS))


def _lane(spec: dict[str, Any], namespace: str) -> Made:
    cluster = Cluster.model_validate({"metadata": {"name": "bmq", "namespace": namespace, "uid": "uid-bmq"}})
    lane = Lane.model_validate({"metadata": {"name": "dev", "namespace": namespace, "uid": "uid-dev"}, "spec": spec})
    base = next(one for one in objects_of_cluster(cluster, INPUTS) if one["metadata"]["name"] == "bmq-proxy")
    brokers = lane.spec.brokers.replicas > 0
    objects = objects_of_lane(lane, cluster, base, node_ids_from=20_000, with_brokers=brokers)
    return Made(objects=objects, asked=lane_body(lane.spec, own_brokers=brokers))


def _sink(spec: dict[str, Any], namespace: str) -> Made:
    meta = {"name": "lake", "namespace": namespace, "uid": "uid-lake"}
    sink = ParquetSink.model_validate({"metadata": meta, "spec": {"topics": ["orders"], **spec}})
    cluster = Cluster.model_validate(
        {"metadata": {"name": sink.spec.cluster_ref.name, "namespace": namespace, "uid": "uid-bmq"}}
    )
    return Made(objects=[one for job in jobs_of_sink(sink, cluster) for one in objects_of_table(job, SparkSettings())])


def _topic(spec: dict[str, Any], namespace: str) -> Made:
    topic = Topic.model_validate(
        {"metadata": {"name": "orders", "namespace": namespace, "uid": "uid-orders"}, "spec": spec}
    )
    cluster = Cluster.model_validate(
        {"metadata": {"name": topic.spec.cluster_ref.name, "namespace": namespace, "uid": "uid-bmq"}}
    )
    objects = [one for job in jobs_of_topic(topic, cluster) for one in objects_of_table(job, SparkSettings())]
    return Made(objects=objects, asked=(topic.topic_name, topic.spec.partitions, topic.spec.config))


def _channel(spec: dict[str, Any], namespace: str) -> Made:
    meta = {"name": "clicks", "namespace": namespace, "uid": "uid-clicks"}
    channel = Channel.model_validate({"metadata": meta, "spec": spec})
    return Made(objects=[], asked=(channel.channel_name, channel.spec.said()))


_STREAM: Final[dict[str, Any]] = {
    "output": "s3a://warehouse/t",
    "continuous": {"trigger": "1m"},
    "store": {"secretName": "keys"},
}
_ICEBERG: Final[dict[str, Any]] = {
    "iceberg": {"table": "a.b.c", "warehouse": "s3a://w/x"},
    "continuous": {},
    "store": {"secretName": "keys"},
}
_AVRO: Final[dict[str, Any]] = _STREAM | {"format": "avro", "registry": "http://registry:8081"}
_TABLES: Final[dict[str, dict[str, Any]]] = {
    "": _STREAM,
    "continuous": {name: value for name, value in _STREAM.items() if name != "continuous"} | {"schedule": "0 * * * *"},
    "schedule": {name: value for name, value in _STREAM.items() if name != "continuous"},
    "iceberg": _ICEBERG,
    "schema": _STREAM | {"format": "json"},
    "message": _AVRO | {"format": "protobuf"},
    "registry": _STREAM | {"format": "avro"},
}
_NOT_OF_TABLES: Final = {
    "compact.mode": "Auto is Always of a stream, and Never of a schedule (test_tables_desired)",
    "clusterRef.namespace": "a Cluster elsewhere is found when the resource is looked at; its address is in the "
    "arguments",
}

KINDS: Final = (
    KindOfATest(
        name="Cluster",
        spec=ClusterSpec,
        made=_cluster,
        bases={
            "": TRIAL,
            "store.url": {"store": {"url": "s3://bucket"}},
            "store.credentials": {"store": {"url": "s3://bucket", "credentials": {"secretName": "keys"}}},
            "store.minio": TRIAL,
            "proxies.autoscaling": TRIAL | {"proxies": {"autoscaling": {"enabled": True}}},
            "proxies.autoscaling.enabled": TRIAL,
            "probe": TRIAL | {"probe": {"enabled": True}},
            "probe.enabled": TRIAL,
        },
        elsewhere={
            "deletionPolicy": "the volume goes once its annotation confirms it, too (test_operator_desired)",
            "paused": NOT_IN_OBJECTS,
            "rollout.settleSeconds": NOT_IN_OBJECTS,
            "topicsFrom.namespaces": NOT_IN_OBJECTS,
            "store.minio.embedded": "it cannot be changed",
            "listeners/advertisedHost": "it is in the file of addresses (test_operator_clusters)",
            "listeners/sourceRanges": "of LoadBalancer alone (test_operator_desired)",
        },
    ),
    KindOfATest(
        name="Lane",
        spec=LaneSpec,
        made=_lane,
        bases={
            "brokers": {"brokers": {"replicas": 1}},
            "brokers.replicas": {},
            "reads": {"reads": {"base": {"enabled": True}}},
            "reads.base.enabled": {},
        },
        elsewhere={
            "clusterRef.name": "it cannot be changed",
            "clusterRef.namespace": "it cannot be changed",
            "existing": NOT_IN_OBJECTS,
        },
    ),
    KindOfATest(
        name="Channel",
        spec=DeclaredChannelSpec,
        made=_channel,
        bases={
            "key.whenMissing": {"key": {"constant": "k"}},
            "rate.burstSeconds": {"rate": {"messagesPerSecond": 1.0}},
            "sampling.by": {"sampling": {"percent": 50.0}},
            "redact.text": {"redact": {"remove": ["$.a"]}},
            "targets/bootstrapServers": {},
        },
        elsewhere=dict.fromkeys(("existing", "clusterRef.name", "clusterRef.namespace"), NOT_IN_OBJECTS),
    ),
    KindOfATest(
        name="ParquetSink",
        spec=ParquetSinkSpec,
        made=_sink,
        bases=_TABLES,
        elsewhere=_NOT_OF_TABLES,
    ),
    KindOfATest(
        name="Topic",
        spec=TopicSpec,
        made=_topic,
        bases={f"parquet.{path}".rstrip("."): {"parquet": base} for path, base in _TABLES.items()},
        elsewhere=_NOT_OF_TABLES
        | {"parquet.compact.mode": _NOT_OF_TABLES["compact.mode"]}
        | dict.fromkeys(("existing", "managed", "deletionPolicy", "clusterRef.name"), NOT_IN_OBJECTS),
    ),
)
