"""A producer that goes on while something happens to the Cluster; then what was acknowledged has to be there once, in
order.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from e2e_kubectl import Kubectl
from e2e_release import client_pod
from e2e_running import Running

TOPIC = "load"
PARTITIONS = 6
SCRIPT = """
import json, os, sys, time
from confluent_kafka import Consumer, Producer, TopicPartition
where, topic = {"bootstrap.servers": os.environ["BMQ_BOOTSTRAP_SERVER"]}, sys.argv[1]
acked, errors, gaps, last = {}, [], [0.0], [time.monotonic()]

def told(error, message):
    if error is not None:
        errors.append(str(error))
        return
    acked[(message.partition(), message.offset())] = message.value()
    gaps.append(time.monotonic() - last[0])
    last[0] = time.monotonic()

producer = Producer({**where, "enable.idempotence": True, "linger.ms": 5})
count = 0
print("started", flush=True)
while not os.path.exists("/tmp/stop"):
    producer.produce(topic, b"%d %s" % (count, b"x" * 200), partition=count % int(sys.argv[2]), on_delivery=told)
    count += 1
    producer.poll(0)
    if count % 100 == 0:
        with open("/tmp/acked.new", "w") as file:
            file.write(str(len(acked)))
        os.rename("/tmp/acked.new", "/tmp/acked")
    time.sleep(0.004)
unsent = producer.flush(60)
consumer = Consumer({**where, "group.id": "reckoning", "enable.auto.commit": False})
read, order = {}, []
for partition in range(int(sys.argv[2])):
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    consumer.assign([TopicPartition(topic, partition, low)])
    numbers, position = [], low
    while position < high:
        for message in consumer.consume(min(500, high - position), timeout=5):
            assert message.error() is None, message.error()
            read[(partition, message.offset())] = message.value()
            numbers.append(int(message.value().split()[0]))
            position = message.offset() + 1
    order.append(numbers == sorted(set(numbers)))
lost = [key for key, value in acked.items() if read.get(key) != value]
print(json.dumps({"sent": count, "acked": len(acked), "unsent": unsent, "errors": errors[:5], "lost": lost[:5],
                  "read": len(read), "in_order_once": all(order), "longest_gap_s": round(max(gaps), 2)}), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Load:
    """A producer at work; `result` is there once it was stopped."""

    kubectl: Kubectl
    result: dict[str, Any]

    def acked(self) -> int:
        """How many records were acknowledged by now, about."""
        return int(self.kubectl.exec("load", "sh", "-c", "cat /tmp/acked 2>/dev/null || echo 0"))

    def goes_on(self) -> None:
        """Waits until more records were acknowledged than now."""
        before = self.acked()
        self.kubectl.until("records are acknowledged", lambda: self.acked() > before + 100, timeout_s=90)


@contextmanager
def load(running: Running) -> Iterator[Load]:
    """Runs one while the body does; then reads everything, and asserts that nothing was lost, refused, repeated or out
    of order.
    """
    kubectl = running.with_client()
    kubectl.exec("client", "bmq", "topics", "create", TOPIC, "--partitions", str(PARTITIONS))
    pod = client_pod(running.release.images)
    pod["metadata"]["name"] = "load"
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["containers"][0] |= {"command": ["python3", "-c", SCRIPT, TOPIC, str(PARTITIONS)]}
    kubectl.apply(pod)
    started = Load(kubectl, {})
    kubectl.until("the producer began", lambda: started.acked() > 100)
    yield started
    started.goes_on()
    kubectl.exec("load", "touch", "/tmp/stop")
    kubectl.until(
        "the reckoning", lambda: kubectl.json("get", "pod", "load")["status"]["phase"] in ("Succeeded", "Failed")
    )
    lines = kubectl("logs", "load").splitlines()
    assert lines and lines[-1].startswith("{"), "\n".join(lines)
    started.result.update(json.loads(lines[-1]))
    print(started.result)
    kubectl("delete", "pod", "load", "--wait=true")
    kubectl.exec("client", "bmq", "topics", "delete", TOPIC, "--yes")
    result = started.result
    assert (result["errors"], result["lost"], result["unsent"]) == ([], [], 0), result
    assert result["in_order_once"], result
    assert result["acked"] == result["sent"] == result["read"], result
