"""Clients of lanes and of the base, as librdkafka makes them, and the lanes' pages of the admin API."""

import json
from collections.abc import Sequence
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

BASE = ""


def client_id(lane: str) -> str:
    """What a client of a lane calls itself."""
    return f"service,lane={lane}" if lane else "service"


def producer(servers: str, lane: str = BASE, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": servers,
            "client.id": client_id(lane),
            "linger.ms": 1,
            "message.timeout.ms": 20_000,
            **more,
        }
    )


def write(servers: str, lane: str, topic: str, values: Sequence[str], **more: Any) -> None:
    """Returns when all are acknowledged."""
    client = producer(servers, lane, **more)
    errors: list[KafkaError] = []
    for value in values:
        client.produce(topic, value.encode(), on_delivery=lambda error, _: errors.append(error) if error else None)
    assert client.flush(30) == 0
    assert not errors, errors


def consumer(servers: str, lane: str = BASE, group: str = "g", **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "client.id": client_id(lane),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            "session.timeout.ms": 6_000,
            **more,
        }
    )


def poll_values(client: Consumer, count: int, *, timeout_s: float = 30) -> list[str]:
    """The next `count` values; fewer where the time is up."""
    found: list[str] = []
    deadline = monotonic() + timeout_s
    while len(found) < count and monotonic() < deadline:
        message = client.poll(0.1)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append(value.decode())
    return found


def read(
    servers: str, lane: str, topic: str, count: int, *, group: str = "g", quiet_s: float = 1.0, **more: Any
) -> list[str]:
    """What a new member of the group reads: at least `count` values, and what else comes within `quiet_s`; commits
    them.
    """
    client = consumer(servers, lane, group, **more)
    try:
        client.subscribe([topic])
        found = poll_values(client, count)
        found += poll_values(client, 1_000_000, timeout_s=quiet_s)
        if found:
            client.commit(asynchronous=False)
        return found
    finally:
        client.close()


def topics_seen(servers: str, lane: str) -> dict[str, str | None]:
    """{topic: error} of a list of all topics."""
    found = admin(servers, lane).list_topics(timeout=20).topics
    return {name: str(topic.error) if topic.error else None for name, topic in found.items()}


def admin(servers: str, lane: str = BASE) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "client.id": client_id(lane)})


def groups_seen(servers: str, lane: str) -> set[str]:
    client = admin(servers, lane)  # it has to outlive its answer
    listed = client.list_consumer_groups(request_timeout=20).result()
    assert not listed.errors, listed.errors
    return {one.group_id for one in listed.valid}


def committed(servers: str, lane: str, topic: str, group: str = "g") -> int:
    client = consumer(servers, lane, group)
    try:
        [found] = client.committed([TopicPartition(topic, 0)], timeout=20)
        assert found.error is None, found.error
        return int(found.offset)
    finally:
        client.close()


def rest(address: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """(status, body) of the admin API."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://{address}{path}", data=data, method=method, headers={"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=20) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except HTTPError as error:
        return error.code, json.loads(error.read())


def make_lane(address: str, name: str, **wanted: Any) -> None:
    status, made = rest(address, "POST", "/v1/lanes", {"name": name, **wanted})
    assert status == 201, made


def own_topics(address: str, lane: str) -> list[str]:
    status, found = rest(address, "GET", f"/v1/topics?lane={lane}")
    assert status == 200, found
    return [one["name"] for one in found["items"] if not one["internal"]]
