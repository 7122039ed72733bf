"""Metadata, key 3, versions 0 to 13. Missing: authorized operations (there is no authorizer).

Names the proxies as the brokers, and one of them as the leader of each partition (`spreading`). Makes topics that are
asked for where the settings allow it. Encoded answers are kept until the image changes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final
from weakref import ref

from typing_extensions import Buffer

from bmq.errors import BmqError, InvalidTopicName
from bmq.metadata.image import Image, Topic
from bmq.naming.listeners import DEFAULT_LISTENER
from bmq.naming.names import CONSUMER_OFFSETS, check_topic_name, is_internal
from bmq.roles.controller import NewTopic
from bmq.values import TopicId
from bmq.wire import messages
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.chosen_codes import code_for, controller_code
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.messages import Encoded
from bmq_proxy.api import Reply, Route, decoded, encoded, error_name
from bmq_proxy.authorized import NOT_ASKED, ON_CLUSTER, ON_TOPIC
from bmq_proxy.bulk import TURN_ELEMENTS, Bulk
from bmq_proxy.calls import Answer, Call, Pending
from bmq_proxy.images import image_with
from bmq_proxy.led import in_turn
from bmq_proxy.proxy import Proxy
from bmq_proxy.spreading import zone_of
from bmq_proxy.topics import controller_among, described_partition, described_topic, find_topic, proxies_of

CREATED_AT_ONCE_MAX = 100
_BY_ID_FROM = 10
_EMPTY_IS_ALL_UP_TO = 0
_PARTITION_COUNTS = 3
"""Described and encoded, a partition takes as long as so many elements of other answers."""
_KEPT_TOPIC_BYTES = 300
"""What it costs to keep a topic's answer, beside its bytes."""


Viewer = tuple[str | None, str]
"""The client's zone where a node is in it, and the listener by which it came: as many as there are, whatever clients
call themselves."""
_ANYBODY: Final[Viewer] = (None, DEFAULT_LISTENER)


class KeptTopics:
    """Topics as they stand in answers, encoded: as long as neither the topic nor the nodes change. Emptied where it is
    full.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._nodes: object = None
        self._kept: dict[tuple[TopicId, int, Viewer], tuple[Topic, Encoded]] = {}

    def find(self, image: Image, topic: Topic, version: int, viewer: Viewer) -> Encoded | None:
        """What was kept of this very topic, among these very nodes."""
        if image.nodes is not self._nodes:
            return None
        found = self._kept.get((topic.topic_id, version, viewer))
        return found[1] if found is not None and found[0] is topic else None

    def keep(self, image: Image, topic: Topic, version: int, viewer: Viewer, encoded: Encoded) -> None:
        """Remembers it."""
        if image.nodes is not self._nodes or self.held_bytes > self._limit_bytes:
            self.clear()
            self._nodes = image.nodes
        self._kept[topic.topic_id, version, viewer] = topic, encoded
        self.held_bytes += len(encoded) + _KEPT_TOPIC_BYTES

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()
        self.held_bytes = 0


class AnswerCache:
    """Encoded answers for the topics and nodes of one image, the least recently used one going first.

    A leader's sign of life makes a new image each second, which shares them with the one before.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._topics: Callable[[], object] = _nothing
        self._nodes: object = None
        self._cluster_id = ""
        self._answers: OrderedDict[tuple[int, bytes, Viewer], Answer] = OrderedDict()

    def find(self, image: Image, version: int, body: bytes, viewer: Viewer = _ANYBODY) -> Answer | None:
        """The answer to the same request of the same viewer under the same image."""
        if not self._is_of(image):
            self._topics, self._nodes, self._cluster_id = _reference(image.topics), image.nodes, image.cluster_id
            self.clear()
            return None
        key = (version, body, viewer)
        answer = self._answers.get(key)
        if answer is not None:
            self._answers.move_to_end(key)
        return answer

    def keep(self, image: Image, version: int, body: bytes, answer: Answer, viewer: Viewer = _ANYBODY) -> None:
        """Remembers an answer that was made from `image`."""
        cost, key = answer.size_bytes + len(body), (version, body, viewer)
        if not self._is_of(image) or cost > self._limit_bytes // 4 or key in self._answers:
            return
        self._answers[key] = answer
        self.held_bytes += cost
        while self.held_bytes > self._limit_bytes:
            (_, old_body, _), old = self._answers.popitem(last=False)
            self.held_bytes -= old.size_bytes + len(old_body)

    def clear(self) -> None:
        """Forgets all."""
        self._answers.clear()
        self.held_bytes = 0

    def _is_of(self, image: Image) -> bool:
        """Whether answers under `image` are those that are kept. Maps that did not change are the same objects."""
        return image.topics is self._topics() and image.nodes is self._nodes and image.cluster_id == self._cluster_id


def _nothing() -> None:
    return None


def _reference(topics: Mapping[TopicId, Topic]) -> Callable[[], object]:
    """A lane's are not held: each lane that nobody asks any more would hold all topics of when it was asked last."""
    return (lambda: topics) if isinstance(topics, dict) else ref(topics)


class AllPartitions:
    """How many partitions all topics have, counted once for each image that has others."""

    def __init__(self) -> None:
        self._topics: Callable[[], object] = _nothing
        self._count = 0

    def of(self, image: Image) -> int:
        """In that image."""
        if image.topics is not self._topics():
            self._count = _elements(list(image.topics.values()))
            self._topics = _reference(image.topics)
        return self._count


class Viewers:
    """Who is told the same. A zone without nodes is as good as none: what is kept for it would be each time
    another's.
    """

    def __init__(self) -> None:
        self._nodes: object = None
        self._zones: frozenset[str] = frozenset()

    def of(self, image: Image, call: Call) -> Viewer:
        """Among whom the client is."""
        zone = zone_of(call.client_id)
        if zone is None:
            return None, call.listener
        if image.nodes is not self._nodes:
            self._nodes, self._zones = image.nodes, frozenset(node.rack for node in image.nodes.values() if node.rack)
        return zone if zone in self._zones else None, call.listener


def route(proxy: Proxy) -> Route:
    """Answers at once what it has answered before."""
    cache = AnswerCache(proxy.settings.metadata_cache_bytes)
    kept = KeptTopics(proxy.settings.metadata_cache_bytes)
    viewers, all_partitions = Viewers(), AllPartitions()
    bulk = proxy.bulk

    async def run(call: Call, raw: bytes) -> Answer:
        async with bulk.request(call, len(raw), partial(decoded, bulk, call, raw)) as request:
            return await answered(call, raw, request)

    async def answered(call: Call, raw: bytes, request: Message) -> Answer:
        await _auto_create(proxy, call, request)
        image = proxy.image
        # Who waits to be told of all topics has no list of them: it would be larger than anything else that it holds.
        asked = None if _is_for_all(call, request) else await _asked(bulk, image, call, request)
        async with bulk.building(call, all_partitions.of(image) if asked is None else _elements(asked)):
            if asked is None:
                image = proxy.image
                asked = [topic async for topic in bulk.paced(call, image.topics.values())]
            elif image.topics is not proxy.image.topics:  # it may have waited
                image = proxy.image
                asked = await _asked(bulk, image, call, request)
            operations = ON_TOPIC if request.include_topic_authorized_operations else NOT_ASKED
            viewer = viewers.of(image, call)
            topics, error = await _topics(proxy, kept, image, call, asked, viewer=viewer, operations=operations)
            reply = _reply(
                proxy,
                image,
                call,
                topics,
                operations=ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED,
            )
            answer = await encoded(bulk, call, reply)
        answer.error = error
        if error == "none":
            cache.keep(image, call.version, raw, replace(answer, flushed=None), viewer)
        proxy.caches.used(kept)
        proxy.caches.used(cache)
        return answer

    def begin(call: Call, body: Buffer) -> Pending:
        raw = bytes(body)
        image = proxy.image
        found = cache.find(image, call.version, raw, viewers.of(image, call))
        if found is not None:
            proxy.caches.used(cache)
        return found or asyncio.get_running_loop().create_task(run(call, raw), name="Metadata")

    return Route(api=SERVED[ApiKey.METADATA], begin=begin, ends_with_client=True)


def _is_for_all(call: Call, request: Any) -> bool:
    asked = request.topics
    return asked is None or (not asked and call.version <= _EMPTY_IS_ALL_UP_TO)


async def _asked(bulk: Bulk, image: Image, call: Call, request: Any) -> list[Topic | Message]:
    """What is asked for by name or id, as far as it is known the topics themselves."""
    return [_known(image, call, one) async for one in bulk.paced(call, request.topics)]


def _known(image: Image, call: Call, asked: Any) -> Topic | Message:
    key = _key(call, asked)
    try:
        if isinstance(key, str):
            check_topic_name(key)
        return find_topic(image, key)
    except BmqError:
        found: Message = asked
        return found


def _key(call: Call, asked: Any) -> object:
    return asked.topic_id if call.version >= _BY_ID_FROM and asked.topic_id is not None else asked.name


def _elements(asked: Sequence[Topic | Message]) -> int:
    return sum([len(one.partitions) if isinstance(one, Topic) else 1 for one in asked])


async def _topics(
    proxy: Proxy,
    kept: KeptTopics,
    image: Image,
    call: Call,
    asked: Sequence[Topic | Message],
    *,
    viewer: Viewer,
    operations: int,
) -> tuple[list[Encoded], str]:
    """Each topic encoded, and the name of the first error. Those with `operations`, which few ask for, are not kept."""
    bulk, version = proxy.bulk, call.version
    proxies = proxies_of(proxy, image, call)
    topics: list[Encoded] = []
    error = "none"
    pace = bulk.pace(call)
    for one in asked:
        await pace.step()
        if not isinstance(one, Topic):
            unknown = _unknown(one, _why_unknown(call, one))
            error = error_name(unknown["error_code"]) if error == "none" else error
            topics.append(messages.encode_element(ApiKey.METADATA, version, "topics", unknown))
            continue
        encoded_topic = kept.find(image, one, version, viewer) if operations == NOT_ASKED else None
        if encoded_topic is None:
            described = described_topic(one, operations=operations)
            described["partitions"] = partitions = []
            for index in range(len(one.partitions)):
                partitions.append(described_partition(proxies, one, index))
                await pace.step(_PARTITION_COUNTS)
            encode = partial(messages.encode_element, ApiKey.METADATA, version, "topics", described)
            encoded_topic = await bulk.apart(call, encode) if len(partitions) > TURN_ELEMENTS else encode()
            if proxies.by_id and operations == NOT_ASKED:
                kept.keep(image, one, version, viewer, encoded_topic)
        topics.append(encoded_topic)
    return topics, error


def _reply(proxy: Proxy, image: Image, call: Call, topics: Sequence[Encoded], *, operations: int) -> Reply:
    proxies = proxies_of(proxy, image, call)
    return {
        "brokers": [one.described() for one in proxies.by_id.values()],
        "cluster_id": image.cluster_id,
        "controller_id": controller_among(proxy, proxies),
        "topics": topics,
        "cluster_authorized_operations": operations,
    }


def _why_unknown(call: Call, asked: Any) -> int:
    key = _key(call, asked)
    if key is None:
        return int(ErrorCode.invalid_request)
    if not isinstance(key, str):
        return int(ErrorCode.unknown_topic_id)
    try:
        check_topic_name(key)
    except BmqError as error:
        return int(code_for(error))
    return int(ErrorCode.unknown_topic_or_partition)


def _unknown(asked: Any, code: int) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": asked.name,
        "topic_id": asked.topic_id,
        "is_internal": asked.name is not None and is_internal(asked.name),
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED,
    }


async def _auto_create(proxy: Proxy, call: Call, request: Any) -> None:
    """Makes the topics that are asked for by name and do not exist. What fails is answered as unknown, and clients ask
    again.
    """
    if not request.topics or not request.allow_auto_topic_creation or not proxy.auto_creates_topics:
        return
    image = proxy.image
    missing = [
        one.name for one in request.topics if one.topic_id is None and one.name and image.topic(one.name) is None
    ]
    names = list(islice((name for name in dict.fromkeys(missing) if _may_be_created(name)), CREATED_AT_ONCE_MAX))
    if CONSUMER_OFFSETS in missing:
        try:
            await proxy.coordinators.offsets_topic(call)
        except BmqError as error:
            proxy.tell(
                "internal topic not created", topic=CONSUMER_OFFSETS, error=str(error), code=controller_code(error)
            )
    if names:
        try:
            proxy.quota.take(call.client_host, len(names) * proxy.default_partitions, proxy.loop.time())
        except BmqError as error:
            left_out = proxy.complaints.due(("quota", call.client_host), now=proxy.loop.time())
            if left_out is not None:
                proxy.log.warning("topics not created", peer=call.client_host, reason=str(error), left_out=left_out)
            return
        await _create(proxy, call, names)


async def _create(proxy: Proxy, call: Call, names: Sequence[str]) -> None:
    try:
        create = partial(proxy.controller.create_topics, [NewTopic(name=name) for name in names])
        results = await proxy.patience.answered(call, lambda: in_turn(proxy, call, create))
    except BmqError as error:
        proxy.tell("topics not created", topics=names[0], error=str(error))
        return
    for result in results:
        if result.error is not None:
            proxy.tell("topic not created", topic=result.name, error=str(result.error))
        elif result.topic_id is not None:
            await image_with(proxy.metadata, partial(_topic_of, result.topic_id))


def _topic_of(topic_id: TopicId, image: Image) -> Topic | None:
    return image.topics.get(topic_id)


def _may_be_created(name: str) -> bool:
    if is_internal(name):
        return False
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True
