"""Service C of docs/tutorial-lanes.md: takes payments. In the lane that LANE names, else in the base."""

import os

from confluent_kafka import Consumer

LANE = os.environ.get("LANE", "")

consumer = Consumer(
    {
        "bootstrap.servers": os.environ.get("BMQ_BOOTSTRAP_SERVER", "127.0.0.1:9092"),
        "client.id": f"c,lane={LANE}" if LANE else "c",
        "group.id": "c",
        "auto.offset.reset": "earliest",
    }
)
consumer.subscribe(["payments"])
while True:
    message = consumer.poll(1)
    if message is None or message.error() is not None:
        continue
    came_from = dict(message.headers() or []).get("bmq-lane", b"").decode()
    from_lane = f" from lane {came_from}" if came_from else ""
    print(f"C of {LANE or 'the base'} takes {(message.value() or b'').decode()}{from_lane}", flush=True)
