"""What goes through the cluster whose metrics are looked at: writers, a group that keeps up, one that lags, a reader
far behind, a probe.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from lane_clients import client_id

TOPIC = "orders"
PARTITIONS = 6
LAGGING, KEEPING_UP, OF_THE_LANE = "billing", "shipping", "reports"


@contextmanager
def under_load(*addresses: str, lane: str, falling: str) -> Iterator[None]:
    """Half a megabyte a second by way of each address, and by way of a lane that is there, until the end; a little by
    way of another one, whose messages nobody consumes there and which go on to the base.
    """
    servers = ",".join(addresses)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)], request_timeout=30)[TOPIC].result(60)
    stop = Event()
    threads = [Thread(target=_write, args=(address, stop)) for address in addresses]
    threads += [
        Thread(target=_write, args=(servers, stop, lane)),
        Thread(target=_write, args=(servers, stop, falling), kwargs={"every_s": 1.0}),
        Thread(target=_read, args=(servers, OF_THE_LANE, stop), kwargs={"lane": lane}),
    ]
    threads += [
        Thread(target=_read, args=(servers, LAGGING, stop), kwargs={"count_max": 200}),
        Thread(target=_read, args=(servers, KEEPING_UP, stop)),
        Thread(target=_read_again, args=(servers, stop)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _write(servers: str, stop: Event, lane: str = "", *, every_s: float = 0.1) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "client.id": client_id(lane)})
    while not stop.wait(every_s):
        for _ in range(50):
            producer.produce(TOPIC, b"x" * 1000)
        producer.poll(0)
    producer.flush(10)


def _read(servers: str, group: str, stop: Event, *, count_max: int | None = None, lane: str = "") -> None:
    """Commits what it has read; after `count_max` records it reads no more, and stays a member."""
    settings = {
        "client.id": client_id(lane),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.subscribe([TOPIC])
    count = 0
    while not stop.is_set():
        messages = consumer.consume(100, 0.2) if count_max is None or count < count_max else []
        good = [one for one in messages if one.error() is None]
        if good:
            consumer.commit(asynchronous=False)
            count += len(good)
        elif count_max is not None and count >= count_max:
            consumer.pause(consumer.assignment())
            consumer.poll(0.2)
    consumer.close()


def _read_again(servers: str, stop: Event) -> None:
    """From the beginning, over and over: out of segments."""
    while not stop.is_set():
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "audit",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC])
        for _ in range(20):
            if stop.is_set():
                break
            consumer.consume(500, 0.2)
        consumer.close()
