"""What the desired objects depend on besides the Cluster itself. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bmq_operator.clusters.keys import Keys
from bmq_operator.kube import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What is there already and has to be kept, and what the operator knows."""

    default_image: str
    """REPOSITORY:TAG, perhaps with a digest, of a Cluster that names none."""
    cluster_secret: str
    """What nodes are to prove in the end."""
    admin_token: str
    """What the admin API is to take in the end."""
    keys_name: str = ""
    """The Secret from which nodes take what they present and accept now."""
    keys: Mapping[str, Keys] = field(default_factory=dict)
    """The Secrets that nodes use, that one among them, by name."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """The ConfigMaps with `server.yaml` that nodes use, or would if one were brought back to what it was, by name: what
    each says. First the one that the newest nodes use."""
    restored: frozenset[str] = frozenset()
    """Secrets of the Cluster's own that somebody put back where they were missing, without an owner: they are taken as
    they are."""
    auth_is_theirs: bool = False
    """Whether somebody else made the Secret with `cluster_secret` and `admin_token`: it is read, and left alone."""
    minio_user: str = ""
    minio_password: str = ""
    minio_digest: str = ""
    """Changes with both, so that MinIO starts anew with them."""
    broker_replicas: int | None = None
    """More than the spec says while the brokers above it are being drained."""
    controller_replicas: int | None = None
    proxy_replicas: int | None = None
    """More than the spec says while those that would stay do not work. With an autoscaler: how many proxies there are
    now; None: the autoscaler alone says it."""
    proxies_there: int = 0
    """How many proxies there are to be so far, whoever said it."""
    credentials_digest: str = ""
    """Changes with the keys to the store, so that the nodes start anew with them."""
    minio_claim_templates: list[Manifest] = field(default_factory=list)
    """Those that the StatefulSet of MinIO was made with: Kubernetes does not let them change."""
    pod_management: Mapping[str, str] = field(default_factory=dict)
    """How the StatefulSets that Kubernetes rolls replace their pods, by component: it does not let that change
    either."""
    ipv6: bool = False
    """Whether addresses of pods are those of IPv6."""
    operator_namespace: str = ""
    reached_by_number: frozenset[str] = frozenset()
    """Listeners whose ports some proxies have under no name, or another one."""
    advertised: str = ""
    """The file with the addresses of listeners."""
