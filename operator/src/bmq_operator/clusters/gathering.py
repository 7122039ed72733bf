"""Gathers what the desired objects depend on: secrets that are there or have to be made, keys to the store, numbers
that others scale.
"""

import hashlib
import hmac
from collections.abc import Mapping, Set

from bmq_operator.borrowed import Own, why_not_allowed
from bmq_operator.clusters.configuration import text_of
from bmq_operator.clusters.existing import Existing, owner_of
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.keys import ADMIN_TOKEN, CLUSTER_SECRET, Keys, keys_of, named, next_list, reference, texts_of
from bmq_operator.clusters.keys import why_unusable as why_unusable_key
from bmq_operator.clusters.listener_ports import reached_by_number
from bmq_operator.clusters.names import CLUSTER_LABEL, ROLES, Names, claim_is_of_minio, minio_selector, why_unusable
from bmq_operator.clusters.nodes import replicas
from bmq_operator.clusters.pods import config_map_of
from bmq_operator.clusters.refused import NotToBe, not_to_be
from bmq_operator.clusters.rolled import pod_management
from bmq_operator.clusters.rotation import known_keys, used_keys
from bmq_operator.clusters.services import why_too_many
from bmq_operator.clusters.store_keys import store_keys
from bmq_operator.clusters.stores import nobody_shares_the_store
from bmq_operator.context import Context
from bmq_operator.kube import FIELD_MANAGER, KubeProblem, Manifest
from bmq_resources.cluster import Cluster
from bmq_resources.references import CONFIRM_DELETION

SECRET_BYTES = 24


async def gather(context: Context, cluster: Cluster, existing: Existing, *, advertised: str) -> Inputs:
    """Raises KubeError, NotToBe."""
    if why := why_too_many(cluster, node_ports=context.settings.allow.node_ports):
        raise not_to_be("NotAllowed", why)
    store = await may_be(context, cluster)
    names = Names.of(cluster)
    minio = (
        texts_of(await context.kube.get("Secret", names.namespace, names.minio))
        if cluster.spec.store.minio.embedded
        else {}
    )
    auth = await context.kube.get("Secret", names.namespace, names.auth)
    sets = existing.stateful_sets()
    if cluster.spec.store.minio.embedded and not minio.get("password") and "minio" in sets:
        raise not_to_be("SecretMissing", _lost_of_minio(names))
    if cluster.spec.store.minio.embedded and "minio" not in sets:
        await _volume_is_its_own(context, names)
    known = known_keys(cluster, existing, auth)
    used = used_keys(names, existing)
    put_back = await _put_back(context, names, used.keys() - known.keys())
    known |= put_back
    of_base = used_keys(names, existing, lanes=False)
    if lost := sorted(of_base.keys() - known.keys()):
        raise not_to_be("SecretMissing", _lost(names, lost[0], of_base[lost[0]]))
    running = {name: known[name] for name in sorted(used) if name in known}
    current = known.get(_current(sets), next(reversed(running.values()), None))
    wanted = Keys(*((value,) for value in _wanted(context, names, auth, current)))
    secrets = next_list(
        wanted.cluster[0], (one.cluster for one in running.values()), current=() if current is None else current.cluster
    )
    tokens = next_list(
        wanted.admin[0], (one.admin for one in running.values()), current=() if current is None else current.admin
    )
    now = Keys(secrets, tokens)
    keys_name = named(now, known, names.keys, taken=used)
    minio_user, minio_password = minio.get("user") or "bmq", minio.get("password") or _random(context)
    if cluster.spec.store.minio.embedded:
        store = f"{minio_user}\n{minio_password}"
    return Inputs(
        default_image=context.settings.image,
        cluster_secret=wanted.cluster[0],
        admin_token=wanted.admin[0],
        keys_name=keys_name,
        keys={name: keys for name, keys in running.items() if name.startswith(names.keys)} | {keys_name: now},
        configs=await _configs(context, names, existing),
        restored=frozenset(put_back) | (frozenset((names.minio,)) if "minio" in sets else frozenset()),
        auth_is_theirs=auth is not None and not owner_of(auth) and keys_of(auth) is not None,
        minio_user=minio_user,
        minio_digest=hmac.new(minio_password.encode(), minio_user.encode(), hashlib.sha256).hexdigest()[:16],
        minio_password=minio_password,
        controller_replicas=_replicas(sets.get("controller")),
        broker_replicas=_replicas(sets.get("broker")),
        proxy_replicas=_proxies(cluster, sets.get("proxy")),
        proxies_there=_replicas(sets.get("proxy")) or 0,
        credentials_digest=hmac.new(secrets[0].encode(), store.encode(), hashlib.sha256).hexdigest(),
        minio_claim_templates=sets.get("minio", {}).get("spec", {}).get("volumeClaimTemplates", []),
        pod_management=pod_management(existing),
        ipv6=is_ipv6(existing.get("Service", names.nodes)),
        operator_namespace=context.settings.namespace,
        reached_by_number=reached_by_number(cluster.spec.listeners, existing.pods),
        advertised=advertised,
    )


async def may_be(context: Context, cluster: Cluster) -> str:
    """What has to hold before anything runs by a Cluster's spec, be it nodes, those of a lane, or the Job that erases;
    its keys to the store, as one text to compare. Raises KubeError, NotToBe."""
    if why := why_unusable(cluster):
        raise not_to_be("NameUnusable", why)
    settings, namespace = context.settings, cluster.metadata.namespace
    own = Own(images=(settings.image,))
    if (
        beyond := await why_not_allowed(context.kube, cluster.spec, namespace=namespace, allow=settings.allow, own=own)
    ) is not None:
        raise NotToBe(beyond)
    keys = await _keys_to_store(context, cluster)
    await nobody_shares_the_store(context, cluster)
    return keys


async def _put_back(context: Context, names: Names, missing: Set[str]) -> dict[str, Keys]:
    """The keys, by name, of those Secrets that nodes use and the Cluster has no more, and that somebody restored by
    what was in them. A name that nodes use is nobody else's, and who may write Secrets here could write the one with
    the next keys as well.
    """
    found = {}
    for name in sorted(one for one in missing if one.startswith(names.keys)):
        secret = await context.kube.get("Secret", names.namespace, name)
        if secret is not None and not owner_of(secret) and (keys := keys_of(secret)) is not None:
            found[name] = keys
    return found


async def _configs(context: Context, names: Names, existing: Existing) -> dict[str, str]:
    """The ConfigMaps of nodes that a template, a pod, or a revision names that Kubernetes keeps of a template, and so
    might make a pod of again.
    """
    there = {
        name: text_of(one)
        for (kind, name), one in existing.objects.items()
        if kind == "ConfigMap" and names.is_config(name)
    }
    templates = [
        one["spec"]["template"]["spec"] for (kind, _), one in existing.objects.items() if kind == "StatefulSet"
    ]
    newest = [config_map_of(one["spec"]["template"]["spec"]) for one in existing.stateful_sets().values()]
    used = [
        *newest,
        *(
            config_map_of(spec)
            for spec in (*templates, *(pod.get("spec", {}) for pod in (*existing.pods, *existing.strangers)))
        ),
    ]
    if there.keys() - set(used):
        known = {name: name for name in there}
        try:
            revisions = await context.kube.each(
                "ControllerRevision",
                names.namespace,
                keep=lambda one: known.get(_config_of_revision(one)),
                labels={CLUSTER_LABEL: names.cluster},
            )
        except KubeProblem as problem:
            if problem.status != 403:
                raise
            # the chart is older than this operator, and gives it no right to look: none is known to be of no use
            used += there
        else:
            used += revisions
    return {name: there[name] for name in dict.fromkeys(used) if name in there}


def _config_of_revision(revision: Manifest) -> str:
    return config_map_of((revision.get("data") or {}).get("spec", {}).get("template", {}).get("spec", {}))


def _current(sets: Mapping[str, Manifest]) -> str:
    return reference(sets["controller"]["spec"]["template"]["spec"])[0] if "controller" in sets else ""


def _wanted(context: Context, names: Names, auth: Manifest | None, current: Keys | None) -> tuple[str, str]:
    """The secret and the token as people wrote them. What is not there any more is what nodes have; only where there
    are none it is invented.
    """
    texts = texts_of(auth)
    found = []
    for key, values in (
        (CLUSTER_SECRET, () if current is None else current.cluster),
        (ADMIN_TOKEN, () if current is None else current.admin),
    ):
        value = texts.get(key) or (values[0] if values else _random(context))
        if why := why_unusable_key(names.auth, key, value):
            raise not_to_be("SecretUnusable", why)
        found.append(value)
    return found[0], found[1]


def _lost_of_minio(names: Names) -> str:
    return (
        f"the Secret {names.minio!r}, or its key password, is not there any more, and MinIO and nodes run with "
        f"what was in it: restore it. Where nobody has it, delete the StatefulSet {names.minio}: MinIO begins anew "
        "with new keys over the same volume, and nodes with it"
    )


def _lost(names: Names, secret: str, user: str) -> str:
    sets = ", ".join(names.role(role) for role in ROLES)
    return (
        f"there is no Secret {secret!r} any more, and nodes run with what was in it ({user}): restore it. Where "
        f"nobody has it, delete the StatefulSets {sets}: then all nodes begin anew with new keys, at once, and "
        "those of lanes follow"
    )


def data_may_go(cluster: Cluster) -> bool:
    """Whether the records go with the Cluster: its policy says so, and the annotation confirms it."""
    return cluster.spec.deletion_policy == "Delete" and cluster.metadata.annotations.get(CONFIRM_DELETION) == "true"


async def _volume_is_its_own(context: Context, names: Names) -> None:
    """A StatefulSet mounts whatever claim has the name. One that an earlier Cluster of this name left says by its
    labels that it is of MinIO.
    """
    claim = await context.kube.get("PersistentVolumeClaim", names.namespace, names.minio_claim)
    if claim is not None and not claim_is_of_minio(claim, names):
        labels = ",".join(f"{key}={value}" for key, value in minio_selector(names).items())
        text = (
            f"PersistentVolumeClaim {names.minio_claim} was there before, and MinIO would write into its volume: "
            "delete it, or create the Cluster with another name. Where it has this Cluster's records, give it the "
            f"labels {labels}"
        )
        raise not_to_be("NameTaken", text)


async def _keys_to_store(context: Context, cluster: Cluster) -> str:
    """The keys, as one text to compare."""
    keys = store_keys(cluster.spec.store)
    if not keys:
        return ""
    name = cluster.spec.store.credentials.secret_name
    secret = await context.kube.get("Secret", cluster.metadata.namespace, name)
    if secret is None:
        text = (
            f"store.credentials.secretName: there is no Secret {name!r} in namespace "
            f"{cluster.metadata.namespace}: create it, or name another one"
        )
        raise not_to_be("SecretMissing", text)
    values = texts_of(secret)
    for one in keys:
        if not values.get(one.key):
            has = ", ".join(sorted(values)) or "none"
            another = "Secret" if one.field == "secretName" else "key"
            text = (
                f"store.credentials.{one.field}: the Secret {name!r} has no key {one.key!r} (it has: {has}): "
                f"add it, or name another {another}"
            )
            raise not_to_be("SecretKeyMissing", text)
    return "\n".join(values[one.key] for one in keys)


def is_ipv6(service: Manifest | None) -> bool:
    """What Kubernetes gave the first Service of the Cluster is what it gives its pods."""
    return bool((service or {}).get("spec", {}).get("ipFamilies", ["IPv4"])[0] == "IPv6")


def _replicas(stateful_set: Manifest | None) -> int | None:
    """Brokers leave only once they are drained, and others once those that stay work: so the number that there are is
    kept here.
    """
    return None if stateful_set is None else replicas(stateful_set)


def _proxies(cluster: Cluster, stateful_set: Manifest | None) -> int | None:
    """How many there are, but None once the autoscaler has set the number itself; before that Kubernetes would take a
    number that is left out for 1.
    """
    bounds = cluster.spec.proxies.autoscaling
    if not bounds.enabled:
        return _replicas(stateful_set)
    if stateful_set is None:
        return min(max(cluster.spec.proxies.replicas, bounds.min_replicas), bounds.max_replicas)
    if not replicas(stateful_set):
        return bounds.min_replicas  # somebody wrote 0, and an autoscaler leaves what has none alone
    others = (one for one in stateful_set["metadata"].get("managedFields", ()) if one.get("manager") != FIELD_MANAGER)
    if any("f:replicas" in one.get("fieldsV1", {}).get("f:spec", {}) for one in others):
        return None
    return int(stateful_set["spec"].get("replicas", bounds.min_replicas))


def _random(context: Context) -> str:
    return (bytes(context.rng.nonce()) + bytes(context.rng.nonce()))[:SECRET_BYTES].hex()
