"""A cluster that is away: what takes messages says so, and what does not says why, soon. And traces go through."""

import json
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from compat_server import Bmq
from databus_process import Databus
from test_databus import records
from tests.waiting import until

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def ready(databus: Databus) -> tuple[int, Any]:
    try:
        with urlopen(f"http://{databus.address}/readyz", timeout=30) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_while_the_cluster_is_away_a_durable_message_is_refused_soon_and_told_why_and_a_spool_takes_them(
    bmq: Bmq, databus: Databus
) -> None:
    databus.start()
    until(lambda: "orders" in ready(databus)[1].get("channels", {}), "the sidecar to know it", 30)
    status, told = ready(databus)
    assert (status, told["status"], list(told["channels"])) == (200, "ok", ["orders"])
    assert f"the cluster at {bmq.servers} is not reached" in told["channels"]["orders"]
    began = monotonic()
    status, answer = databus.post("orders", b"x", headers={"idempotency-key": "k"})
    assert monotonic() - began < 20
    assert status == 503
    for part in ("not written", bmq.servers, "is not reached", "see that it runs", "acknowledgement: accepted"):
        assert part in answer["error"]
    began = monotonic()
    status, many = databus.post_many("orders", [{"text": "a"}, {"text": "b"}])
    assert (status, [one["status"] for one in many["results"]]) == (503, [503, 503])
    assert monotonic() - began < 5, "at once, as it has been away for long"
    assert databus.post("clicks", b"y")[0] == 202
    assert databus.value("bmq_databus_channel_takes_messages", channel="orders") == 0
    assert databus.value("bmq_databus_channel_takes_messages", channel="clicks") == 1
    assert databus.value("bmq_databus_channel_takes_messages", channel="closed") == 0
    with urlopen(f"http://{databus.address}/v1/channels", timeout=30) as shown:
        troubles = {one["name"]: one["trouble"] for one in json.load(shown)["channels"]}
    assert ["not reached" in (troubles[name] or "") for name in ("orders", "clicks")] == [True, False]
    bmq.start()
    until(lambda: "channels" not in ready(databus)[1], "the sidecar to find the cluster", 60)
    assert databus.post("orders", b"x", headers={"idempotency-key": "k"})[0] == 200, "nothing was written before"
    assert len(records(bmq, "orders", 1)) == 1
    bmq.kill9()
    until(lambda: "orders" in ready(databus)[1].get("channels", {}), "the sidecar to know it", 60)


def test_messages_carry_on_the_trace_of_their_request(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    trace = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "user=7", "bmq-header-own": "1"}
    assert databus.post("orders", b"one", headers=trace)[0] == 200
    lines = b'{"text": "two"}\n{"text": "three", "headers": {"traceparent": "mine"}}'
    assert databus.post("clicks", lines, media="application/x-ndjson", headers=trace)[0] == 202
    context = [("traceparent", PARENT.encode()), ("tracestate", b"a=1"), ("baggage", b"user=7")]
    assert records(bmq, "orders", 1)[0].headers() == [("own", b"1"), *context]
    assert [one.headers() for one in records(bmq, "clicks-raw", 2)] == [context, [("traceparent", b"mine")]]
