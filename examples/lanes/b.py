"""Service B of docs/tutorial-lanes.md: takes orders, and asks for a payment for each. In the lane that LANE names, else
in the base.
"""

import os

from confluent_kafka import Consumer, Producer

LANE = os.environ.get("LANE", "")
CLIENT = {
    "bootstrap.servers": os.environ.get("BMQ_BOOTSTRAP_SERVER", "127.0.0.1:9092"),
    "client.id": f"b,lane={LANE}" if LANE else "b",
}

consumer = Consumer({**CLIENT, "group.id": "b", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
producer = Producer({**CLIENT, "linger.ms": 5})
while True:
    message = consumer.poll(1)
    if message is None or message.error() is not None:
        continue
    order = (message.value() or b"").decode()
    came_from = dict(message.headers() or []).get("bmq-lane", b"").decode()
    from_lane = f" from lane {came_from}" if came_from else ""
    print(f"B of {LANE or 'the base'} takes {order}{from_lane}", flush=True)
    producer.produce("payments", f"payment for {order}".encode())
    producer.poll(0)
