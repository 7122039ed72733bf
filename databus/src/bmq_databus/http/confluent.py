"""Confluent's REST API, v3, as far as writers need it: `GET /v3/clusters` and `/v3/clusters/{cluster_id}`, and
`POST /v3/clusters/{cluster_id}/topics/{topic_name}/records`, also below `/kafka`.

A topic's name is a channel's. Whose cluster the path names is not looked at, as Confluent's own proxy does not; but it
is told with each record, so that it has no more characters than an id may.
"""

from contextlib import ExitStack
from typing import Any, Final

import msgspec

from bmq_databus.errors import NoSuchChannel, NothingKnown, TurnedOff
from bmq_databus.http.answers import JSON, Reply, document, refusal
from bmq_databus.http.incoming import Incoming
from bmq_databus.http.parameters import media_of
from bmq_databus.http.records import CODES, Records
from bmq_databus.http.streams import Stream
from bmq_databus.http.writes import ChannelWrites
from bmq_databus.producing.writing import Writing
from bmq_databus.requests.admission import Admission, Ending

ROOTS: Final = ("/v3/clusters", "/kafka/v3/clusters")
RELATED: Final = {
    "acls": "acls",
    "brokers": "brokers",
    "broker_configs": "broker-configs",
    "consumer_groups": "consumer-groups",
    "topics": "topics",
    "partition_reassignments": "topics/-/partitions/-/reassignment",
}
"""What else such an API has of a cluster, and is not served."""
CLUSTER_CHARS_MAX: Final = 64
"""More than Kafka's own ids have, which are 22."""
_HOST: Final = "localhost"


def path_of(path: str) -> list[str] | None:
    """The parts of a path of this API behind its root; None: it is none."""
    for root in ROOTS:
        if path == root or path.startswith(f"{root}/"):
            return [part for part in path[len(root) :].split("/") if part]
    return None


def shaped(reply: Reply) -> Reply:
    """A refusal, as clients of this API read one."""
    why: str = msgspec.json.decode(reply.body)["error"]
    body = msgspec.json.encode({"error_code": CODES.get(reply.status, reply.status), "message": why})
    return Reply(status=reply.status, body=body, headers=reply.headers)


class Confluent:
    """That of one sidecar."""

    def __init__(self, writing: Writing, writes: ChannelWrites, admission: Admission) -> None:
        self._writing = writing
        self._writes = writes
        self._admission = admission

    async def answer(self, path: list[str], incoming: Incoming, until_sent: ExitStack) -> Reply | Stream:
        """To one request; `path`: its parts behind the root."""
        method = incoming.scope["method"]
        match path:
            case [] | [_]:
                if method != "GET":
                    return shaped(refusal(405, f"{method} is not served here: use GET", allow="GET"))
                return await self._clusters(path, incoming)
            case [cluster, "topics", _, "records"] if len(cluster) > CLUSTER_CHARS_MAX:
                return shaped(
                    refusal(
                        404,
                        f"there is no cluster {cluster[:CLUSTER_CHARS_MAX]!r}...: an id has {CLUSTER_CHARS_MAX} "
                        "characters at most, not "
                        f"{len(cluster)}; take the one that GET {ROOTS[0]} tells",
                    )
                )
            case [cluster, "topics", topic, "records"]:
                if method != "POST":
                    return shaped(refusal(405, f"{method} is not served here: use POST", allow="POST"))
                return await self._produce(cluster, topic, incoming, until_sent)
        return shaped(
            refusal(
                404, f"{method} {incoming.scope['path'][:200]} is not served: records are written, and clusters told"
            )
        )

    async def _clusters(self, path: list[str], incoming: Incoming) -> Reply:
        try:
            cluster = await self._writing.cluster_id()
        except NothingKnown as error:
            return shaped(refusal(503, error))
        root = next(root for root in ROOTS if incoming.scope["path"].startswith(root))
        base = f"http://{incoming.headers.get('host', _HOST)}{root}"
        if not path:
            told = _cluster(cluster, base)
            return document(200, {"kind": "KafkaClusterList", "metadata": {"self": base, "next": None}, "data": [told]})
        if path[0] != cluster:
            return shaped(refusal(404, f"there is no cluster {path[0][:80]!r} here; there is {cluster}"))
        return document(200, _cluster(cluster, base))

    async def _produce(self, cluster: str, topic: str, incoming: Incoming, until_sent: ExitStack) -> Reply | Stream:
        try:
            channel = await self._admission.named(topic)
        except NothingKnown as error:
            return shaped(refusal(503, error, retry_after="1"))
        except NoSuchChannel as error:
            return shaped(refusal(404, error))
        try:
            self._admission.check(channel)
        except TurnedOff as error:
            return shaped(self._writes.counted(channel, refusal(403, error)))
        except Ending as error:
            return shaped(self._writes.counted(channel, refusal(503, error)))
        if (media := media_of(incoming.headers.get("content-type", ""))) not in ("", JSON):
            why = f"content-type {media[:80]} is not served: records are {JSON}"
            return shaped(self._writes.counted(channel, refusal(415, why)))
        records = Records(cluster, topic)
        if "transfer-encoding" in incoming.headers:
            stream = self._writes.stream(channel, incoming, records)
            return shaped(stream) if isinstance(stream, Reply) else stream
        room = until_sent.enter_context(self._writes.room(channel))
        reply = await self._writes.write(channel, records, incoming, room)
        return reply if reply.content_type == records.content_type else shaped(reply)


def _cluster(cluster: str, base: str) -> dict[str, Any]:
    own = f"{base}/{cluster}"
    related = {name: {"related": f"{own}/{path}"} for name, path in RELATED.items()}
    metadata = {"self": own, "resource_name": f"crn:///kafka={cluster}"}
    return {"kind": "KafkaCluster", "metadata": metadata, "cluster_id": cluster, **related}
