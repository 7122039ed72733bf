"""What a scrape of a node's metrics says."""

from collections.abc import Iterator
from typing import NamedTuple
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from up_nodes import UpNodes


class Series(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def scraped(text: str) -> Iterator[Series]:
    """Every sample of a scrape."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield Series(sample.name, dict(sample.labels), sample.value)


def metrics_of(cluster: UpNodes, node_id: int) -> list[Series]:
    """A node's, asked for by way of the leader."""
    with urlopen(f"http://{cluster.admin}/v1/nodes/{node_id}/metrics", timeout=30) as answer:
        return list(scraped(answer.read().decode()))
