"""`/v1/cluster`: what every node knows of the cluster, with or without a leader."""

from fastapi import FastAPI

from bmq_controller.api.models import ClusterView, MemberNode
from bmq_controller.api.sources import ApiSources
from bmq_controller.machine.balance_model import NOBODY


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """See the module."""

    @app.get("/v1/cluster", tags=["cluster"])
    async def get_cluster() -> ClusterView:
        """The cluster's id, nodes and size, as the node that is asked knows it. Answered without a leader, too."""
        image = sources.image
        return ClusterView(
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            controller_epoch=image.controller_epoch,
            metadata_position=image.position,
            answered_by=sources.node_id,
            nodes=[
                MemberNode(node_id=node.node_id, roles=list(node.roles), host=node.host, port=node.port, rack=node.rack)
                for _, node in sorted(image.nodes.items())
            ],
            topics=len(image.topics),
            partitions=sum(image.owned_counts.values()),
            partitions_unowned=max(0, image.owned_counts.get(NOBODY, 0)),
            partitions_moving=len(image.moving),
            cordoned=sorted(image.cordoned),
            features=dict(image.features),
        )
