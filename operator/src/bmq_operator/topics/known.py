"""A cluster's topics as they were a few seconds ago: five hundred Topics do not list five hundred times.

Reads only. The list is used by whoever asks soon after; a topic's configuration for as long as the list tells the same
version of it.
"""

from dataclasses import dataclass
from typing import Final

from bmq_admin import pages
from bmq_admin.client import AdminClient
from bmq_admin.documents import Topic
from bmq_admin.errors import AdminProblem
from bmq_operator.known import CLUSTERS_MAX, Known
from bmq_operator.sharing import Shared
from bmq_operator.topics.situation import Present

_NO_TOPIC: Final = "UnknownTopic"


@dataclass(slots=True)
class _Summary:
    topic_id: str
    version: str


def topics_of(known: Known, client: AdminClient) -> "TopicsOfCluster":
    """What is known of a cluster's topics, by all who ask it through this client."""
    found: TopicsOfCluster | None = known.topics.get(client.url)
    if found is None or found.client is not client:
        if len(known.topics) >= CLUSTERS_MAX:
            known.topics.clear()
        found = known.topics[client.url] = TopicsOfCluster(client)
    return found


class TopicsOfCluster:
    """One cluster's topics."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        self._lists: Shared[dict[str, _Summary]] = Shared(most=1, waits=True)
        self._views: dict[str, Present] = {}

    async def present(self, name: str) -> Present | None:
        """The topic, as it was within the last seconds. Raises AdminError."""
        summaries = await self._lists.get("topics", self._list)
        summary = summaries.get(name)
        if summary is None:
            self._views.pop(name, None)
            return None
        view = self._views.get(name)
        if view is not None and view.version == summary.version:
            return view
        return await self.present_now(name)

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
        summaries = await self._lists.get("topics", self._list)
        if found is None:
            summaries.pop(name, None)
            self._views.pop(name, None)
        else:
            summaries[name] = _Summary(found.topic_id, found.version)
            self._views[name] = found

    def forget(self) -> None:
        """What is known is old."""
        self._lists.forget("topics")

    async def _list(self) -> dict[str, _Summary]:
        found = {
            one["name"]: _Summary(one["topic_id"], one["version"]) async for one in self.client.all(pages.topics())
        }
        self._views = {name: view for name, view in self._views.items() if name in found}
        return found


def view_of(topic: Topic) -> Present:
    """The topic that the API tells of."""
    return Present(
        topic_id=topic["topic_id"], partitions=topic["partitions"], version=topic["version"], configs=topic["configs"]
    )
