"""Cluster: controllers, brokers and proxies over one store."""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from bmq_resources.base import (
    AGE,
    IMMUTABLE,
    OBJECT_NAME_OR_NONE,
    REQUIRED,
    Column,
    Naming,
    Part,
    Resource,
    Scale,
    Status,
    condition_columns,
    rule,
    rules,
)
from bmq_resources.pods import OPERATORS_OWN_ENV, OPERATORS_OWN_ENV_TEXT, Image, Placement, Quantity, Resources
from bmq_resources.references import DeletionPolicy
from bmq_resources.texts import NAMESPACE_CHARS_MAX, RANGE_CHARS_MAX, NotesMap, SettingsMap


class Credentials(Part):
    """Keys to the store, in a Secret of the Cluster's namespace."""

    secret_name: str = Field(
        default="",
        max_length=253,
        pattern=OBJECT_NAME_OR_NONE,
        description="The Secret; it has the label bmq.io/use: allowed, or the chart allows its name. Empty: the "
        "pods' own identity (workload identity, instance roles) is what the store knows. Of gs:// it "
        "has the key GOOGLE_SERVICE_ACCOUNT_KEY (a service account's JSON), of az:// "
        "AZURE_STORAGE_ACCOUNT_KEY.",
    )
    access_key_id_key: str = Field(
        default="AWS_ACCESS_KEY_ID", max_length=253, description="Of s3://: under which key the access key's id is."
    )
    secret_access_key_key: str = Field(
        default="AWS_SECRET_ACCESS_KEY", max_length=253, description="Of s3://: under which key the secret key is."
    )


class EmbeddedMinio(Part):
    """A MinIO of one pod with a volume, for trials: it is as durable as its volume."""

    embedded: bool = Field(default=False, description="true: run one.")
    image: str = Field(default="minio/minio:latest", max_length=500, description="Its image.")
    bucket: str = Field(
        default="bmq",
        min_length=3,
        max_length=63,
        pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$",
        description="The bucket; it is made.",
        json_schema_extra=rules(
            rule(IMMUTABLE, "store.minio.bucket cannot be changed: what was written would be out of reach")
        ),
    )
    storage: Quantity = Field(default="10Gi", description="The size of its volume.")
    storage_class_name: str = Field(
        default="",
        max_length=253,
        pattern=OBJECT_NAME_OR_NONE,
        description="The volume's StorageClass, one that the chart allows. Empty: the default one.",
    )
    resources: Resources = Field(
        default=Resources(requests={"cpu": "100m", "memory": "256Mi"}), description="Its CPU and memory."
    )


class Store(
    Part,
    json_schema_extra=rules(
        rule(
            "(self.url != '') != self.minio.embedded",
            "store needs either url or minio.embedded: true, and not both: set one, and leave the other out",
        ),
        rule(
            "self.minio.embedded == oldSelf.minio.embedded",
            "store.minio.embedded cannot be changed: what was written would be out of reach",
        ),
    ),
):
    """Where everything is kept."""

    url: str = Field(
        default="",
        max_length=2048,
        description="The store's URL, for example s3://bucket/prefix?region=eu-west-1. A Cluster needs one of its "
        "own: no two may share a URL.",
        json_schema_extra=rules(
            rule(
                "self == '' || self.matches('^(s3|gs|az)://[^/?]+')",
                "store.url has to be s3://BUCKET, gs://BUCKET or az://CONTAINER, with ?endpoint= where it is not "
                "the cloud's own",
            ),
            rule(
                IMMUTABLE, "store.url cannot be changed: what was written would be out of reach; create another Cluster"
            ),
        ),
    )
    credentials: Credentials = Field(default=Credentials(), description="Keys to the store.")
    minio: EmbeddedMinio = Field(default=EmbeddedMinio(), description="A MinIO of its own, for trials.")


class Controllers(Part):
    """They own the metadata: one leads, the others stand by."""

    replicas: int = Field(
        default=2,
        ge=1,
        le=9,
        description="How many. 1 is enough where a pause of produce-independent work (creating topics, take-overs) "
        "is acceptable.",
    )
    resources: Resources = Field(
        default=Resources(requests={"cpu": "200m", "memory": "256Mi"}), description="Their CPU and memory."
    )
    placement: Placement = Field(default=Placement(), description="Where they run.")


class Brokers(Part):
    """They own the partitions. They have no volumes."""

    replicas: int = Field(
        default=3, ge=1, le=1000, description="How many. A change moves partitions and copies no data."
    )
    resources: Resources = Field(
        default=Resources(requests={"cpu": "500m", "memory": "1Gi"}), description="Their CPU and memory."
    )
    placement: Placement = Field(default=Placement(), description="Where they run.")


class Autoscaling(
    Part,
    json_schema_extra=rules(
        rule(
            "self.minReplicas <= self.maxReplicas",
            "proxies.autoscaling.minReplicas is above maxReplicas: lower one or raise the other",
        )
    ),
):
    """A HorizontalPodAutoscaler of the proxies."""

    enabled: bool = Field(
        default=False,
        description="true: their number follows their CPU, between the bounds below, and `replicas` is only the "
        "beginning.",
    )
    min_replicas: int = Field(default=2, ge=1, le=1000, description="At least so many.")
    max_replicas: int = Field(default=10, ge=1, le=1000, description="At most so many.")
    target_cpu_percent: int = Field(
        default=70, ge=1, le=100, description="How much of the CPU that they request they are to use on average."
    )


class Proxies(Part):
    """The Kafka endpoint. They keep nothing."""

    replicas: int = Field(default=2, ge=1, le=1000, description="How many.")
    autoscaling: Autoscaling = Field(default=Autoscaling(), description="Their number by their CPU.")
    resources: Resources = Field(
        default=Resources(requests={"cpu": "500m", "memory": "512Mi"}), description="Their CPU and memory."
    )
    placement: Placement = Field(default=Placement(), description="Where they run.")


HOST_TOLD_RULE: Final = (
    "self == '' || self.matches('^([a-zA-Z0-9._:-]|[{]ordinal[}]|[{]hostname[}])+$') && !(self in ['0.0.0.0', '::'])"
)
"""What proxies take. They read it while they run, and one that they do not take would be met only by the next of them
that starts."""


class Listener(
    Part,
    json_schema_extra=rules(
        rule(
            "self.name != 'internal'",
            "listeners: the name internal is taken by the listener that is always there: choose another one",
        ),
        rule(
            "self.type == 'NodePort' || self.nodePort == 0",
            "listeners: nodePort is for the type NodePort alone: leave it out",
        ),
    ),
):
    """An address for Kafka clients outside the Kubernetes cluster. The one inside, called internal, is always there, at
    port 9092.
    """

    name: str = Field(
        default="external",
        min_length=1,
        max_length=15,
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        description="Its name, another one for each; neither lane nor one that begins with lane-.",
    )
    type: Literal["NodePort", "LoadBalancer"] = Field(
        default="NodePort",
        description="NodePort: a port of every node for each proxy. LoadBalancer: an address for each proxy, from "
        "the cloud.",
    )
    port: int = Field(
        default=9094,
        ge=1024,
        le=65535,
        description="The proxies' port for it, other than 9080, 9092 and 9190, another one for each listener.",
    )
    advertised_host: str = Field(
        default="",
        max_length=253,
        description="The host that clients are told; {ordinal} in it stands for the proxy's number. Empty: "
        "NodePort tells an address of the node that the proxy is on, LoadBalancer the address that the "
        "cloud gave.",
        json_schema_extra=rules(
            rule(
                HOST_TOLD_RULE,
                "listeners: advertisedHost is no host that clients can be told: write a name or an address alone, "
                "such as kafka-{ordinal}.example.com",
            )
        ),
    )
    node_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="NodePort: the port of the bootstrap Service; proxy N has this plus 1 plus N. 0: Kubernetes "
        "chooses all of them.",
    )
    annotations: NotesMap = Field(
        default={},
        max_length=32,
        description="Annotations of its Services, for the cloud's load balancers, of those that the chart allows; up "
        "to 8,192 characters in all.",
    )
    source_ranges: list[Annotated[str, Field(max_length=RANGE_CHARS_MAX)]] = Field(
        default=[], max_length=64, description="LoadBalancer: address ranges that may connect. Empty: all."
    )


class Network(Part):
    """Who may reach the pods."""

    policies: bool = Field(
        default=True,
        description="Whether NetworkPolicies keep strangers from the addresses that only bmq's own pods need.",
    )
    admin_from_namespaces: list[Annotated[str, Field(max_length=NAMESPACE_CHARS_MAX)]] = Field(
        default=[],
        max_length=32,
        description="Namespaces whose pods may reach the admin address (metrics, REST API), besides the Cluster's "
        "and the operator's. Empty: all.",
    )


class TopicsFrom(Part):
    """Where Topics and Lanes of this Cluster may be."""

    namespaces: list[Annotated[str, Field(max_length=NAMESPACE_CHARS_MAX)]] = Field(
        default=[],
        max_length=256,
        description='Namespaces whose Topics and Lanes are accepted, besides the Cluster\'s own. "*": all of them.',
    )


class Settings(Part):
    """How the nodes work. Changing one restarts them, one after the other."""

    linger_ms: int = Field(
        default=5,
        ge=0,
        le=10_000,
        description="How long a batch may wait for company before it is made durable; 100 to 250 is cheap on S3.",
    )
    lease_ms: int = Field(
        default=6000,
        ge=2000,
        le=600_000,
        description="How long a node may be silent before its partitions go to others.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least that is logged."
    )
    env: SettingsMap = Field(
        default={},
        max_length=64,
        description="Further keys of `bmq server` by their variables, for example BMQ_FLUSH_BYTES: 8MiB "
        "(docs/server-configuration.md); up to 32,768 characters in all.",
        json_schema_extra=rules(
            rule(
                "self.all(name, name.startsWith('BMQ_'))",
                "settings.env: names begin with BMQ_; other variables go under placement.env",
            ),
            rule(
                f"!self.exists(name, name in {list(OPERATORS_OWN_ENV)})",
                f"settings.env: {OPERATORS_OWN_ENV_TEXT}",
            ),
        ),
    )


class Rollout(Part):
    """How changes reach the nodes: one after the other, those of lanes after the base's."""

    settle_seconds: int = Field(
        default=20,
        ge=0,
        le=600,
        description="How long a node that was replaced has to work before the next one is, so that a setting that "
        "breaks nodes breaks one. One that ended meanwhile has to work twice as long for each time. Where "
        "something is missing, nodes with settings that the cluster was never whole with get corrected ones all the "
        "same, after three times as long (10 s at least).",
    )


class Probe(Part):
    """A producer and consumer that measures, end to end, what clients see."""

    enabled: bool = Field(default=False, description="true: one runs, and its latencies are metrics.")
    interval_ms: int = Field(default=1000, ge=100, le=3_600_000, description="How often it sends a record.")


class ClusterSpec(Part):
    """What the cluster is to be."""

    image: Image = Field(default=Image(), description="Which image its pods run.")
    cluster_id: str = Field(
        default="",
        max_length=64,
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_-]{0,63})?$",
        description="The id that Kafka clients see; over the store of another id nothing starts. Empty: "
        "NAMESPACE-NAME of the resource.",
        json_schema_extra=rules(rule(IMMUTABLE, "clusterId cannot be changed: the store has it")),
    )
    store: Store = Field(
        default=Store(),
        description="Where everything is kept. It has to be written: either `url`, or `minio.embedded: true`.",
        json_schema_extra={REQUIRED: True},
    )
    controllers: Controllers = Field(default=Controllers(), description="They own the metadata.")
    brokers: Brokers = Field(default=Brokers(), description="They own the partitions.")
    proxies: Proxies = Field(default=Proxies(), description="They are the Kafka endpoint.")
    listeners: list[Listener] = Field(
        default=[],
        max_length=8,
        description="Addresses for Kafka clients outside the Kubernetes cluster.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            **rules(
                rule(
                    "self.all(one, self.exists_one(other, other.port == one.port))",
                    "listeners: two have one port: give each a port of its own",
                ),
                rule(
                    "self.all(one, !(one.port in [9080, 9092, 9190]))",
                    "listeners: ports 9080, 9092 and 9190 are taken: choose another one",
                ),
            ),
        },
    )
    config: SettingsMap = Field(
        default={},
        max_length=64,
        description='Settings of the whole cluster by Kafka\'s names, for example num.partitions: "3"; up to 32,768 '
        "characters in all.",
    )
    settings: Settings = Field(default=Settings(), description="How the nodes work.")
    network: Network = Field(default=Network(), description="Who may reach the pods.")
    topics_from: TopicsFrom = Field(default=TopicsFrom(), description="Where Topics and Lanes of this Cluster may be.")
    rollout: Rollout = Field(default=Rollout(), description="How changes reach the nodes.")
    probe: Probe = Field(default=Probe(), description="End-to-end latency as a metric.")
    paused: bool = Field(
        default=False,
        description="true: the operator changes nothing of it until this is false again, and deletes no data with "
        "it; the status is kept up to date.",
    )
    deletion_policy: DeletionPolicy = Field(
        default="Retain",
        description="What happens to the data when the resource is deleted. Retain: the bucket's objects, or the "
        "embedded MinIO's volume, stay. Delete: they go, once the resource has the annotation "
        'bmq.io/delete-data: "true". A namespace that is deleted never waits for it.',
    )


class RoleStatus(Part):
    """Pods of one role."""

    desired: int = Field(default=0, ge=0, description="How many there are to be.")
    replicas: int = Field(default=0, ge=0, description="How many there are.")
    ready: int = Field(default=0, ge=0, description="How many are ready.")
    updated: int = Field(default=0, ge=0, description="How many have the newest settings and image.")


class ListenerStatus(Part):
    """How clients outside reach a listener."""

    name: str = Field(default="", description="The listener's name.")
    bootstrap_servers: str = Field(default="", description="What clients are given; empty: not known yet.")


StoreUse: TypeAlias = Literal["", "Begun", "Reached"]


class ClusterStatus(Status):
    """What the cluster is."""

    cluster_id: str = Field(default="", description="The id that Kafka clients see.")
    store: str = Field(
        default="",
        description="The store's URL that its nodes were first made with: deletionPolicy Delete erases no other.",
    )
    store_use: StoreUse = Field(
        default="",
        description="Reached: a controller of its own was ready, which takes that it has read and written there: "
        "the store is this Cluster's. Begun: it has, or had, nodes, and none got there. Empty with a "
        "store: an older operator noted it, which counts as Reached.",
    )
    version: str = Field(default="", description="The version that all nodes run.")
    bootstrap_servers: str = Field(
        default="", description="What Kafka clients inside the Kubernetes cluster are given."
    )
    admin_url: str = Field(default="", description="The admin REST API.")
    listeners: list[ListenerStatus] = Field(default=[], max_length=8, description="How clients outside reach it.")
    controllers: RoleStatus = Field(default=RoleStatus(), description="Controllers.")
    brokers: RoleStatus = Field(default=RoleStatus(), description="Brokers.")
    proxies: RoleStatus = Field(default=RoleStatus(), description="Proxies.")
    lanes: RoleStatus = Field(default=RoleStatus(), description="Proxies and brokers of all lanes.")
    selector: str = Field(default="", description="The labels of the brokers' pods.")


class Cluster(Resource):
    """A bmq cluster."""

    naming: ClassVar[Naming] = Naming(
        plural="clusters",
        spec_required=True,
        short_names=("bmqc",),
        columns=(
            Column(
                name="Brokers", json_path=".status.brokers.ready", type="integer", description="Brokers that are ready."
            ),
            Column(
                name="Proxies", json_path=".status.proxies.ready", type="integer", description="Proxies that are ready."
            ),
            Column(
                name="Version", json_path=".status.version", priority=1, description="The version that all nodes run."
            ),
            Column(
                name="Bootstrap",
                json_path=".status.bootstrapServers",
                priority=1,
                description="What clients inside are given.",
            ),
            *condition_columns(),
            AGE,
        ),
        scale=Scale(
            spec_replicas_path=".spec.brokers.replicas",
            status_replicas_path=".status.brokers.replicas",
            label_selector_path=".status.selector",
        ),
    )

    kind: Literal["Cluster"] = "Cluster"
    spec: ClusterSpec = Field(default=ClusterSpec(), description="What the cluster is to be.")
    status: ClusterStatus = Field(default=ClusterStatus(), description="What the cluster is.")

    @property
    def cluster_id(self) -> str:
        """The id that Kafka clients see."""
        return self.spec.cluster_id or f"{self.metadata.namespace}-{self.metadata.name}"
