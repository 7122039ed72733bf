"""The resources that users write: Cluster, Topic, Lane and ParquetSink, defined once.

From these models come the CRDs in `crds/` (`bmq.resources.crd`), what `bmq apply -f` accepts and the operator's types.
They say what may be written and what is shown, and know nothing of how it is done.
"""

from typing import Final

from bmq.resources.cluster import Cluster
from bmq.resources.lane import Lane
from bmq.resources.parquet_sink import ParquetSink
from bmq.resources.topic import Topic

KINDS: Final[tuple[type[Cluster | Topic | Lane | ParquetSink], ...]] = (Cluster, Topic, Lane, ParquetSink)
