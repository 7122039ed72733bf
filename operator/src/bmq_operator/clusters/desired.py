"""All objects of a Cluster, as they are to be: a pure function of the Cluster and what has to be kept."""

from bmq_operator.clusters.configuration import config_hash, config_name, configuration, server_yaml
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.minio import minio
from bmq_operator.clusters.policies import policies
from bmq_operator.clusters.probe import probe
from bmq_operator.clusters.services import services
from bmq_operator.clusters.workloads import workloads
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster


def desired(cluster: Cluster, inputs: Inputs) -> list[Manifest]:
    """In the order in which they are made. Each has the Cluster's namespace and is owned by it: it goes when the
    Cluster does.
    """
    text = server_yaml(cluster)
    config_map = config_name(cluster, inputs, text)
    found = [
        *configuration(cluster, inputs, text),
        *policies(cluster, inputs),
        *services(cluster, inputs),
        *minio(cluster, inputs),
        *workloads(cluster, inputs, config_hash=config_hash(text, inputs), config_map=config_map),
        *probe(cluster, inputs),
    ]
    return [owned(cluster, manifest) for manifest in found]


def owned(cluster: Cluster, manifest: Manifest) -> Manifest:
    """The same object in the Cluster's namespace, owned by it."""
    owner = {
        "apiVersion": cluster.api_version,
        "kind": cluster.kind,
        "name": cluster.metadata.name,
        "uid": cluster.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return manifest | {
        "metadata": manifest["metadata"] | {"namespace": cluster.metadata.namespace, "ownerReferences": [owner]}
    }
