"""How the operator finds a Cluster and its admin REST API."""

from pydantic import ValidationError

from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminError, AdminUnreachable, NotBmq
from bmq_operator.clusters.existing import owner_of
from bmq_operator.clusters.keys import ADMIN_TOKEN, reference, texts_of
from bmq_operator.clusters.names import Names
from bmq_operator.context import Context
from bmq_operator.kube import Kube, Manifest
from bmq_operator.understood import understood, which, why_not_understood
from bmq_resources.cluster import Cluster


class NotUnderstood(Exception):
    """A Cluster that this operator cannot read: of another version, or written before its CRD was changed."""


async def find_cluster(context: Context, namespace: str, name: str) -> Cluster | None:
    """The Cluster, or None where there is none. Raises KubeError, NotUnderstood."""
    manifest = await context.kube.get("Cluster", namespace, name)
    if manifest is None:
        return None
    try:
        found = understood(Cluster, manifest)
    except ValidationError as error:
        raise NotUnderstood(why_not_understood(Cluster, manifest, error)) from None
    return found.model_copy(update={"metadata": which(found.metadata)})


def why_unanswered(error: AdminError, *, namespace: str, name: str) -> str:
    """What asking a Cluster came to; where the answer was none of bmq's, with what may be wrong."""
    if not isinstance(error, NotBmq):
        return str(error)
    service = Names(name, namespace).admin
    return (
        f"{error}. See which pods Service {namespace}/{service} leads to: each is to be a controller of the Cluster, "
        "of a version that the operator knows; delete others that have the labels of its controllers"
    )


async def admin_of(context: Context, cluster: Cluster) -> AdminClient:
    """The client of its admin REST API. Raises KubeError, and AdminUnreachable while its Secret or Service is not there
    yet, or is another's.
    """
    meta = cluster.metadata
    template = context.settings.admin_url_template
    service = await context.kube.get("Service", meta.namespace, Names.of(cluster).admin)
    _is_its_own(service, Names.of(cluster), uid=meta.uid)
    address = _cluster_ip(service, cluster) if "{cluster_ip}" in template else ""
    token = await admin_token_of(context.kube, Names.of(cluster), uid=meta.uid)
    return context.admin(template.format(name=meta.name, namespace=meta.namespace, cluster_ip=address), token)


async def admin_token_of(kube: Kube, names: Names, *, uid: str) -> str:
    """What controllers of the Cluster of this uid are to take: while a token is replaced, all that run take the one
    which they are to present (clusters/keys.py). Raises KubeError, AdminUnreachable.
    """
    controllers = await kube.get("StatefulSet", names.namespace, names.role("controller"))
    _is_its_own(controllers, names, uid=uid)
    name, key = reference(controllers["spec"]["template"]["spec"]) if controllers is not None else ("", "")
    secret = await kube.get("Secret", names.namespace, name or names.auth)
    if secret is None:
        raise AdminUnreachable(f"Cluster {names.namespace}/{names.cluster} has no Secret {name or names.auth}")
    return texts_of(secret).get(key or ADMIN_TOKEN, "")


def _is_its_own(there: Manifest | None, names: Names, *, uid: str) -> None:
    """Raises AdminUnreachable where somebody else has made it: they would be told the token, or choose which Secret is
    read for one.
    """
    if there is not None and owner_of(there) != uid:
        what = f"{there['kind']} {there['metadata']['name']}"
        raise AdminUnreachable(
            f"{what} is not that of Cluster {names.namespace}/{names.cluster}: delete it, the Cluster makes its own"
        )


def _cluster_ip(service: Manifest | None, cluster: Cluster) -> str:
    meta = cluster.metadata
    if service is None:
        raise AdminUnreachable(f"Cluster {meta.namespace}/{meta.name} has no Service {meta.name}-admin yet")
    return str(service["spec"]["clusterIP"])
