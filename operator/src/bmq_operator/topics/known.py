"""A cluster's topics as they were a few seconds ago: five hundred Topics do not list five hundred times.

Reads only. The list is used by whoever asks soon after; a topic's configuration for as long as the list tells the same
version of it. Of the list that is kept which is of a topic that somebody asked for, and of configurations so much: a
cluster may have any number of topics, and what answers in its place may tell anything of them.
"""

from typing import Final

from bmq_admin import pages
from bmq_admin.client import AdminClient
from bmq_admin.documents import Topic
from bmq_admin.errors import AdminProblem
from bmq_operator.answers import weight_bytes
from bmq_operator.known import CLUSTERS_MAX, Known
from bmq_operator.sharing import Shared
from bmq_operator.topics.situation import Present

KEPT_BYTES_MAX: Final = 32 << 20
"""Twenty thousand topics with a few keys each have room in it, those of all clusters together."""
_NO_TOPIC: Final = "UnknownTopic"


def topics_of(known: Known, client: AdminClient) -> "TopicsOfCluster":
    """What is known of a cluster's topics, by all who ask it through this client."""
    found: TopicsOfCluster | None = known.topics.get(client.url)
    if found is None or found.client is not client:
        if len(known.topics) >= CLUSTERS_MAX:
            known.topics.clear()
        found = known.topics[client.url] = TopicsOfCluster(client)
    clusters: list[TopicsOfCluster] = list(known.topics.values())
    if sum(one.kept_bytes for one in clusters) > KEPT_BYTES_MAX:
        max(clusters, key=lambda one: one.kept_bytes).forget_views()
    return found


class TopicsOfCluster:
    """One cluster's topics."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        self.kept_bytes = 0
        """How much memory its topics take here."""
        self._lists: Shared[dict[str, str]] = Shared(most=1, waits=True)
        """Versions by name."""
        self._views: dict[str, Present] = {}
        self._weights: dict[str, int] = {}

    async def present(self, name: str) -> Present | None:
        """The topic, as it was within the last seconds; None: it was not there, or nobody looked. Raises AdminError."""
        version = (await self._lists.get("topics", self._list)).get(name)
        if version is None:
            self._forget_view(name)
        view = self._views.get(name)
        return view if view is not None and view.version == version else None

    async def present_now(self, name: str) -> Present | None:
        """The topic, read anew. Raises AdminError."""
        try:
            found = view_of(await self.client.ask(pages.topic(name)))
        except AdminProblem as problem:
            if not (problem.missing and problem.code == _NO_TOPIC):
                raise
            found = None
        await self.learn(name, found)
        return found

    async def learn(self, name: str, found: Present | None) -> None:
        """Somebody has seen it just now."""
        versions = await self._lists.get("topics", self._list)
        self._forget_view(name)
        if found is None:
            versions.pop(name, None)
            return
        versions[name] = found.version
        self._views[name] = found
        self._weights[name] = weight_bytes([name, found.topic_id, found.version, dict(found.configs)])
        self.kept_bytes += self._weights[name]

    def forget(self) -> None:
        """What is known is old."""
        self._lists.forget("topics")

    def forget_views(self) -> None:
        """They take too much memory; each is read anew."""
        for name in list(self._views):
            self._forget_view(name)

    def _forget_view(self, name: str) -> None:
        self._views.pop(name, None)
        self.kept_bytes -= self._weights.pop(name, 0)

    async def _list(self) -> dict[str, str]:
        asked = frozenset(self._views)
        found = {
            one["name"]: one["version"] async for one in self.client.all(pages.topics()) if one["name"] in self._views
        }
        for name in asked - found.keys():
            self._forget_view(name)
        return found


def view_of(topic: Topic) -> Present:
    """The topic that the API tells of."""
    return Present(
        topic_id=topic["topic_id"], partitions=topic["partitions"], version=topic["version"], configs=topic["configs"]
    )
