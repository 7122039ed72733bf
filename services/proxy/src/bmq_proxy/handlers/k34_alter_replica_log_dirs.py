"""AlterReplicaLogDirs, key 34, versions 1 and 2. The one "log directory" is the object store (see k35): what is to be
there is there already.

`kafka-reassign-partitions.sh` asks for it when what it printed of the present assignment is written back.
"""

from functools import partial

from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import code_for
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import find_partition


def route(proxy: Proxy) -> Route:
    """Serves AlterReplicaLogDirs, which moves nothing: there is one "log directory"."""
    return plain(proxy, ApiKey.ALTER_REPLICA_LOG_DIRS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Nothing is moved; another directory than the one that DescribeLogDirs names is none."""
    codes: dict[str, dict[int, int]] = {}
    pace = proxy.bulk.pace(call)
    for one in request.dirs:
        for topic in one.topics:
            known = codes.setdefault(topic.name, {})
            is_the_store = one.path == proxy.log_dir
            for index in topic.partitions:
                await pace.step()
                known[index] = _code(proxy.image, topic.name, index, is_the_store=is_the_store)
    return {
        "results": [
            {
                "topic_name": name,
                "partitions": [{"partition_index": index, "error_code": code} for index, code in of_topic.items()],
            }
            for name, of_topic in codes.items()
        ]
    }


def _code(image: Image, topic: str, index: int, *, is_the_store: bool) -> int:
    try:
        find_partition(image, topic, index)
    except BmqError as error:
        return int(code_for(error))
    return int(ErrorCode.none if is_the_store else ErrorCode.log_dir_not_found)
