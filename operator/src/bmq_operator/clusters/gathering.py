"""Gathers what the desired objects depend on: secrets that are there or have to be made, keys to the store, numbers that others scale."""

import base64
import hashlib
import hmac

from bmq.resources.cluster import Cluster
from bmq.resources.references import CONFIRM_DELETION
from bmq_operator.clusters.configuration import store_url
from bmq_operator.clusters.existing import Existing
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.names import Names, why_unusable
from bmq_operator.clusters.store_keys import store_keys
from bmq_operator.conditions import Finding
from bmq_operator.context import Context
from bmq_operator.kube import FIELD_MANAGER, Manifest

SECRET_BYTES = 24


class NotToBe(Exception):
    """The Cluster cannot be as its spec says. `finding` says why and what helps; nothing of it is changed."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


async def gather(context: Context, cluster: Cluster, existing: Existing, *, advertised: str) -> Inputs:
    """Raises KubeError, NotToBe."""
    if why := why_unusable(cluster):
        raise _not_to_be("NameUnusable", why)
    await _nobody_shares_the_store(context, cluster)
    names = Names.of(cluster)
    auth = _texts(await context.kube.get("Secret", names.namespace, names.auth))
    minio = _texts(await context.kube.get("Secret", names.namespace, names.minio)) if cluster.spec.store.minio.embedded else {}
    cluster_secret = auth.get("cluster-secret") or _random(context)
    keys = await _keys_to_store(context, cluster)
    sets = existing.stateful_sets()
    return Inputs(
        default_image=context.settings.image,
        cluster_secret=cluster_secret,
        admin_token=auth.get("admin-token") or _random(context),
        minio_user=minio.get("user") or "bmq",
        minio_password=minio.get("password") or _random(context),
        broker_replicas=_replicas(sets.get("broker")),
        proxy_replicas=_proxies(cluster, sets.get("proxy")),
        credentials_digest=hmac.new(cluster_secret.encode(), keys.encode(), hashlib.sha256).hexdigest(),
        minio_claim_templates=sets.get("minio", {}).get("spec", {}).get("volumeClaimTemplates", []),
        data_may_go=data_may_go(cluster),
        ipv6=_ipv6(existing.get("Service", names.nodes)),
        operator_namespace=context.settings.namespace,
        advertised=advertised,
    )


def data_may_go(cluster: Cluster) -> bool:
    """Whether the records go with the Cluster: its policy says so, and the annotation confirms it."""
    return cluster.spec.deletion_policy == "Delete" and cluster.metadata.annotations.get(CONFIRM_DELETION) == "true"


async def _nobody_shares_the_store(context: Context, cluster: Cluster) -> None:
    """Of two Clusters with one URL the older one has it."""
    url = store_url(cluster)
    for namespace in context.settings.watched_namespaces:
        for manifest in await context.kube.list("Cluster", namespace):
            other = Cluster.model_validate(manifest)
            if other.metadata.uid == cluster.metadata.uid or store_url(other) != url:
                continue
            if (other.metadata.creation_timestamp, other.metadata.uid) < (cluster.metadata.creation_timestamp, cluster.metadata.uid):
                whose = f"{other.metadata.namespace}/{other.metadata.name}"
                raise _not_to_be("StoreShared", f"store.url {url!r} is that of Cluster {whose}: give each a bucket or a prefix of its own")


async def _keys_to_store(context: Context, cluster: Cluster) -> str:
    """The keys, as one text to compare."""
    keys = store_keys(cluster.spec.store)
    if not keys:
        return ""
    name = cluster.spec.store.credentials.secret_name
    secret = await context.kube.get("Secret", cluster.metadata.namespace, name)
    if secret is None:
        text = f"store.credentials.secretName: there is no Secret {name!r} in namespace {cluster.metadata.namespace}: create it, or name another one"
        raise _not_to_be("SecretMissing", text)
    values = _texts(secret)
    for one in keys:
        if not values.get(one.key):
            has = ", ".join(sorted(values)) or "none"
            another = "Secret" if one.field == "secretName" else "key"
            text = f"store.credentials.{one.field}: the Secret {name!r} has no key {one.key!r} (it has: {has}): add it, or name another {another}"
            raise _not_to_be("SecretKeyMissing", text)
    return "\n".join(values[one.key] for one in keys)


def _ipv6(service: Manifest | None) -> bool:
    """What Kubernetes gave the first Service of the Cluster is what it gives its pods."""
    return bool((service or {}).get("spec", {}).get("ipFamilies", ["IPv4"])[0] == "IPv6")


def _replicas(stateful_set: Manifest | None) -> int | None:
    """Brokers leave only once they are drained, so the number that there are is kept here."""
    return None if stateful_set is None else int(stateful_set["spec"].get("replicas", 1))


def _proxies(cluster: Cluster, stateful_set: Manifest | None) -> int | None:
    """None once the autoscaler has set the number itself; before that Kubernetes would take a number that is left out for 1."""
    bounds = cluster.spec.proxies.autoscaling
    if not bounds.enabled:
        return None
    if stateful_set is None:
        return min(max(cluster.spec.proxies.replicas, bounds.min_replicas), bounds.max_replicas)
    others = (one for one in stateful_set["metadata"].get("managedFields", ()) if one.get("manager") != FIELD_MANAGER)
    if any("f:replicas" in one.get("fieldsV1", {}).get("f:spec", {}) for one in others):
        return None
    return int(stateful_set["spec"].get("replicas", bounds.min_replicas))


def _texts(secret: Manifest | None) -> dict[str, str]:
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in ((secret or {}).get("data") or {}).items()}


def _random(context: Context) -> str:
    return (bytes(context.rng.nonce()) + bytes(context.rng.nonce()))[:SECRET_BYTES].hex()


def _not_to_be(reason: str, message: str) -> NotToBe:
    return NotToBe(Finding(status="False", reason=reason, message=message))
