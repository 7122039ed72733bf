"""`/v1/cluster`: what every node knows of the cluster, with or without a leader."""

from fastapi import FastAPI

from bmq_controller.api.models import ClusterView
from bmq_controller.api.own_pages import cluster_document
from bmq_controller.api.sources import ApiSources


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the page of the cluster as the node that is asked knows it."""

    @app.get("/v1/cluster", tags=["cluster"])
    async def get_cluster() -> ClusterView:
        """The cluster's id, nodes and size, as the node that is asked knows it. Answered without a leader, too."""
        return ClusterView.model_validate(cluster_document(sources))
