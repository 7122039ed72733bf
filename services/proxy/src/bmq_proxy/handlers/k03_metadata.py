"""Metadata, key 3, versions 0 to 13. Missing: authorized operations (there is no authorizer).

Names the proxies as the brokers, and one of them as the leader of each partition (`spreading`). Makes topics that are asked for where the
settings allow it. Encoded answers are kept until the image changes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from typing_extensions import Buffer

from bmq.errors import BmqError, InvalidTopicName
from bmq.listeners import DEFAULT_LISTENER
from bmq.metadata.image import Image, Topic
from bmq.names import CONSUMER_OFFSETS, check_topic_name, is_internal
from bmq.roles.controller import NewTopic
from bmq.values import TopicId
from bmq.wire import messages
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.error_codes import ErrorCode, code_for
from bmq_proxy.api import Reply, Route, encode
from bmq_proxy.calls import Answer, Call, Pending
from bmq_proxy.failures import controller_code
from bmq_proxy.images import image_with
from bmq_proxy.proxy import Proxy
from bmq_proxy.spreading import Proxies, zone_of
from bmq_proxy.topics import AUTHORIZED_OPERATIONS_UNKNOWN, controller_among, described_partition, described_topic, find_topic, proxies_of

CREATED_AT_ONCE_MAX = 100
SHOWN_WITHIN_S = 5.0
_BY_ID_FROM = 10
_EMPTY_IS_ALL_UP_TO = 0


Viewer = tuple[str | None, str]
"""The client's zone, and the listener by which it came."""
_ANYBODY: Final[Viewer] = (None, DEFAULT_LISTENER)


class AnswerCache:
    """Encoded answers for the topics and nodes of one image, the least recently used one going first.

    A leader's sign of life makes a new image each second, which shares them with the one before.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._image: Image | None = None
        self._answers: OrderedDict[tuple[int, bytes, Viewer], Answer] = OrderedDict()

    def find(self, image: Image, version: int, body: bytes, viewer: Viewer = _ANYBODY) -> Answer | None:
        """The answer to the same request of the same viewer under the same image."""
        if not self._is_of(image):
            self._image, self._held_bytes = image, 0
            self._answers.clear()
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
        self._held_bytes += cost
        while self._held_bytes > self._limit_bytes:
            (_, old_body, _), old = self._answers.popitem(last=False)
            self._held_bytes -= old.size_bytes + len(old_body)

    def _is_of(self, image: Image) -> bool:
        """Whether answers under `image` are those that are kept. Maps that did not change are the same objects."""
        kept = self._image
        return kept is not None and image.topics is kept.topics and image.nodes is kept.nodes and image.cluster_id == kept.cluster_id


def route(proxy: Proxy) -> Route:
    """Answers at once what it has answered before."""
    cache = AnswerCache(proxy.settings.metadata_cache_bytes)

    async def run(call: Call, raw: bytes) -> Answer:
        request = messages.decode_request(call.api_key, call.version, raw)
        await _auto_create(proxy, call, request)
        image = proxy.image
        answer = encode(call, _reply(proxy, image, call, request))
        if answer.error == "none":
            cache.keep(image, call.version, raw, answer, _viewer(call))
        return answer

    def begin(call: Call, body: Buffer) -> Pending:
        raw = bytes(body)
        found = cache.find(proxy.image, call.version, raw, _viewer(call))
        return found or asyncio.get_running_loop().create_task(run(call, raw), name="Metadata")

    return Route(api=SERVED[ApiKey.METADATA], begin=begin)


def _viewer(call: Call) -> Viewer:
    return zone_of(call.client_id), call.listener


def _reply(proxy: Proxy, image: Image, call: Call, request: Any) -> Reply:
    asked = request.topics
    proxies = proxies_of(proxy, image, call)
    if asked is None or (not asked and call.version <= _EMPTY_IS_ALL_UP_TO):
        topics = [_topic(proxies, topic) for topic in image.topics.values()]
    else:
        topics = [_asked_topic(proxies, image, call, one) for one in asked]
    return {
        "brokers": [one.described() for one in proxies.by_id.values()],
        "cluster_id": image.cluster_id,
        "controller_id": controller_among(proxy, proxies),
        "topics": topics,
        "cluster_authorized_operations": AUTHORIZED_OPERATIONS_UNKNOWN,
    }


def _asked_topic(proxies: Proxies, image: Image, call: Call, asked: Any) -> Reply:
    key = asked.topic_id if call.version >= _BY_ID_FROM and asked.topic_id is not None else asked.name
    if key is None:
        return _unknown(asked, ErrorCode.invalid_request)
    try:
        if isinstance(key, str):
            check_topic_name(key)
        return _topic(proxies, find_topic(image, key))
    except BmqError as error:
        return _unknown(asked, code_for(error))


def _topic(proxies: Proxies, topic: Topic) -> Reply:
    described = described_topic(topic)
    described["partitions"] = [described_partition(proxies, topic, index) for index in range(len(topic.partitions))]
    return described


def _unknown(asked: Any, code: int) -> Reply:
    return {
        "error_code": code,
        "name": asked.name,
        "topic_id": asked.topic_id,
        "is_internal": asked.name is not None and is_internal(asked.name),
        "partitions": [],
        "topic_authorized_operations": AUTHORIZED_OPERATIONS_UNKNOWN,
    }


async def _auto_create(proxy: Proxy, call: Call, request: Any) -> None:
    """Makes the topics that are asked for by name and do not exist. What fails is answered as unknown, and clients ask again."""
    if not request.topics or not request.allow_auto_topic_creation or not proxy.auto_creates_topics:
        return
    image = proxy.image
    missing = [one.name for one in request.topics if one.topic_id is None and one.name and image.topic(one.name) is None]
    names = [name for name in dict.fromkeys(missing) if _may_be_created(name)][:CREATED_AT_ONCE_MAX]
    if CONSUMER_OFFSETS in missing:
        try:
            await proxy.coordinators.offsets_topic()
        except BmqError as error:
            proxy.log.info("internal topic not created", topic=CONSUMER_OFFSETS, error=str(error), code=controller_code(error))
    if names:
        await _create(proxy, names)


async def _create(proxy: Proxy, names: Sequence[str]) -> None:
    try:
        results = await proxy.controller.create_topics([NewTopic(name=name) for name in names])
    except BmqError as error:
        proxy.log.info("topics not created", topics=list(names), error=str(error))
        return
    for result in results:
        if result.error is not None:
            proxy.log.info("topic not created", topic=result.name, error=str(result.error))
        elif result.topic_id is not None:
            await image_with(proxy.metadata, partial(_topic_of, result.topic_id), SHOWN_WITHIN_S)


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
