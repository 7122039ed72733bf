"""The resources that users write: Cluster, Topic, Lane, Channel and ParquetSink, defined once.

From these models come the CRDs in `crds/` (`bmq_resources.crd`), what `bmq apply -f` accepts and the operator's types.
They say what may be written and what is shown, and know nothing of how it is done.
"""

from typing import Final

from bmq_resources.channel import Channel
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.topic import Topic

KINDS: Final[tuple[type[Cluster | Topic | Lane | Channel | ParquetSink], ...]] = (
    Cluster,
    Topic,
    Lane,
    Channel,
    ParquetSink,
)
