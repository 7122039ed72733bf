"""The table's places as a consumer group's offsets, so that its lag is seen where lags are.

It is for people: nothing reads it back, and its failure stops nothing.
"""

from bmq_spark.batches.places import Places
from bmq_spark.ending import say
from bmq_spark.errors import BmqError
from bmq_spark.jobs.cluster import Cluster


class Progress:
    """What one group was told; a place that it has is not told again."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._told: dict[tuple[str, int], int] = {}

    def tell(self, places: Places) -> bool:
        """After the table's commit. Says in a line where it does not succeed, and is tried again with the next."""
        news: dict[str, dict[int, int]] = {}
        for topic, found in places.items():
            for partition, offset in found.items():
                if self._told.get((topic, partition)) != offset:
                    news.setdefault(topic, {})[partition] = offset
        if not news:
            return True
        try:
            self._cluster.commit(self._group, news)
        except BmqError as error:
            say(
                f"warning: {error}: the table is committed, but `bmq groups describe {self._group}` shows an older "
                "place until the next batch"
            )
            return False
        self._told.update(
            {(topic, partition): offset for topic, found in news.items() for partition, offset in found.items()}
        )
        return True
