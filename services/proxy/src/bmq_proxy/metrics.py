"""The proxy's metrics. Names start with `bmq_proxy_`; sizes in bytes, times in seconds, as Prometheus has it."""

import contextlib
from bisect import bisect_left
from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class HistogramOfMany(Histogram):
    """One that is told of several alike at once: of each by itself takes longer than all else that is done for it."""

    def observe_many(self, amount: float, times: int) -> None:
        """As `observe`, so many times."""
        self._sum.inc(amount * times)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(times)


REQUESTS = Counter(
    "bmq_proxy_requests", "Requests answered, by API and the first error code in the answer.", ["api", "error"]
)
BYTES_IN = Counter("bmq_proxy_bytes_in", "Bytes of request frames, by the client's lane (empty: the base).", ["lane"])
BYTES_OUT = Counter(
    "bmq_proxy_bytes_out", "Bytes of response frames, by the client's lane (empty: the base).", ["lane"]
)
PRODUCED_BYTES = Counter(
    "bmq_proxy_produced_bytes", "Bytes of record batches taken in, by the client's lane (empty: the base).", ["lane"]
)
FETCHED_BYTES = Counter(
    "bmq_proxy_fetched_bytes", "Bytes of record batches given out, by where they came from.", ["source"]
)
OTHER_RUNS = Counter(
    "bmq_proxy_other_runs",
    "Reads refused: the segment that a manifest names has another partition's index, or another run's.",
)
UNREADABLE_BATCHES = Counter(
    "bmq_proxy_unreadable_batches", "Produced batches refused because no reader could have opened them."
)
PRODUCE_SECONDS = HistogramOfMany(
    "bmq_proxy_produce_seconds", "From a Produce request's arrival to its answer.", buckets=_LATENCY_BUCKETS
)
FETCH_SECONDS = Histogram(
    "bmq_proxy_fetch_seconds", "From a Fetch request's start to its answer, waiting included.", buckets=_LATENCY_BUCKETS
)
CACHE = Counter("bmq_proxy_cache", "Look-ups of segment blocks, by pool and outcome.", ["pool", "outcome"])
CACHE_BYTES = Gauge("bmq_proxy_cache_held_bytes", "Bytes held by the block cache, by pool.", ["pool"])
CONNECTIONS = Gauge("bmq_proxy_connections", "Open connections.")
CONNECTIONS_REFUSED = Counter("bmq_proxy_connections_refused", "Connections closed because there were too many.")
CONNECTIONS_BROKEN = Counter("bmq_proxy_connections_broken", "Connections closed for what came over them.")
CLIENTS = Counter("bmq_proxy_clients", "Connections whose client said what it is, by its software.", ["software"])
HANDLER_FAILURES = Counter(
    "bmq_proxy_handler_failures", "Requests whose handler failed by a bug; the log has the traceback."
)
IN_FLIGHT = Gauge("bmq_proxy_requests_in_flight", "Requests read and not answered.")
REQUEST_MEMORY = Gauge("bmq_proxy_request_memory_bytes", "Request frames held.")
FETCH_MEMORY = Gauge("bmq_proxy_fetch_memory_bytes", "Records on their way to consumers.")
PRODUCE_WINDOW = Gauge(
    "bmq_proxy_produce_window_bytes",
    "What greedy producers may have under way together while there are others to protect.",
)
FETCH_WINDOW = Gauge(
    "bmq_proxy_fetch_window_bytes",
    "What those who read much from segments may have under way together while there are others to protect.",
)
GREEDY_BYTES = Gauge("bmq_proxy_produce_greedy_bytes", "What they have under way.")

HANDED_OVER = Counter(
    "bmq_proxy_handed_over_records",
    "Records of a lane that went on to the base by this proxy, as nobody in the lane consumed them.",
    ["lane"],
)

PARTED = Counter(
    "bmq_proxy_parted_records",
    "Records that clients of the base wrote to a lane by a header (bmq.lane.header), through this proxy.",
    ["lane"],
)

LANE_WAITING_RECORDS = Gauge(
    "bmq_proxy_lane_waiting_records",
    "Records of a lane that wait to go on to the base, as the proxy that looks after the lane saw them last.",
    ["lane"],
)
LANE_WAITING_SECONDS = Gauge(
    "bmq_proxy_lane_waiting_seconds",
    "For how long there were always such records, or it could not be told whether there are.",
    ["lane"],
)

LANE_THROTTLED = Counter(
    "bmq_proxy_lane_throttled_seconds",
    "How long requests of a lane waited because of its quota, by direction (write, read).",
    ["lane", "direction"],
)

_SOFTWARE_MAX = 30
_software: set[str] = set()


def client_named(software: str) -> None:
    """Counts a client by what it says of itself, which is anybody's to say: of more than 30 names the later ones are
    `other`.
    """
    if software not in _software:
        if len(_software) >= _SOFTWARE_MAX:
            software = "other"
        _software.add(software)
    CLIENTS.labels(software[:64]).inc()


def forget_handed_over(lane: str) -> None:
    """The lane is gone."""
    with contextlib.suppress(KeyError):
        HANDED_OVER.remove(lane)


def forget_parted(lane: str) -> None:
    """The lane is gone."""
    with contextlib.suppress(KeyError):
        PARTED.remove(lane)


def tell_waits(lane: str, *, records: Callable[[], float], seconds: Callable[[], float]) -> None:
    """This proxy looks after the lane."""
    LANE_WAITING_RECORDS.labels(lane).set_function(records)
    LANE_WAITING_SECONDS.labels(lane).set_function(seconds)


def forget_throttled(lane: str) -> None:
    """The lane is gone."""
    for direction in ("write", "read"):
        with contextlib.suppress(KeyError):
            LANE_THROTTLED.remove(lane, direction)


def forget_waits(lane: str) -> None:
    """It does no more."""
    for metric in (LANE_WAITING_RECORDS, LANE_WAITING_SECONDS):
        with contextlib.suppress(KeyError):
            metric.remove(lane)
