"""Proxies and their clients."""

from tools.dashboards.model import CLUSTER, NODE, Dashboard, Panel, cluster_variables, quantiles, rate


def _against(metric: str, key: str) -> list[tuple[str, str]]:
    return [(f"{metric}{{{NODE}}}", "{{instance}}"), (f'max(bmq_limit{{{NODE},key="{key}"}})', f"limit ({key})")]


PROXIES = Dashboard(
    uid="bmq-proxy",
    title="bmq / Proxies and clients",
    about="Connections, requests, errors, latencies, caches and memory of the Kafka endpoint.",
    variables=cluster_variables(instance="bmq_proxy_connections"),
    rows=[
        (
            "Clients",
            [
                Panel(
                    title="Connections",
                    about="Open connections of clients; further ones than the limit are closed at once.",
                    unit="short",
                    queries=_against("bmq_proxy_connections", "connections_max"),
                ),
                Panel(
                    title="Connections by client software",
                    about="New connections whose client said what it is, by the name that it gave.",
                    unit="cps",
                    queries=[rate("bmq_proxy_clients_total", NODE, by="software")],
                ),
                Panel(
                    title="Connections refused or broken",
                    about="Closed because there were too many, or because what came over them is not the protocol.",
                    unit="cps",
                    queries=[
                        rate("bmq_proxy_connections_refused_total", NODE, legend="refused"),
                        rate("bmq_proxy_connections_broken_total", NODE, legend="broken"),
                    ],
                ),
                Panel(
                    title="Requests in flight",
                    about="Read and not answered yet; fetches that wait for records count, too.",
                    unit="short",
                    queries=[(f"bmq_proxy_requests_in_flight{{{NODE}}}", "{{instance}}")],
                ),
            ],
        ),
        (
            "Requests",
            [
                Panel(
                    title="Requests by API",
                    about="Requests answered.",
                    unit="reqps",
                    queries=[rate("bmq_proxy_requests_total", NODE, by="api")],
                    stacked=True,
                ),
                Panel(
                    title="Errors by API",
                    about="Answers whose first error is not none. Some are normal: members join a group in two "
                    "steps, clients close while they wait.",
                    unit="reqps",
                    queries=[
                        (
                            "sum by (api, error) "
                            f'(rate(bmq_proxy_requests_total{{{NODE},error!="none"}}[$__rate_interval]))',
                            "{{api}} {{error}}",
                        )
                    ],
                ),
                Panel(
                    title="Produce latency",
                    about="From a Produce request's arrival until it is durable and answered.",
                    unit="s",
                    queries=quantiles("bmq_proxy_produce_seconds", NODE),
                ),
                Panel(
                    title="Fetch time",
                    about="From a Fetch request's start to its answer, the wait for records included.",
                    unit="s",
                    queries=quantiles("bmq_proxy_fetch_seconds", NODE),
                ),
                Panel(
                    title="Handler failures",
                    about="Requests that failed by a bug of bmq; the log has the traceback. Should be 0 always.",
                    unit="short",
                    queries=[
                        (
                            f"sum by (instance) (increase(bmq_proxy_handler_failures_total{{{NODE}}}[1h]))",
                            "{{instance}}",
                        )
                    ],
                ),
                Panel(
                    title="Event loop lag (p99)",
                    about="How much later than asked the event loop wakes. Above 50 ms a proxy has too little CPU: "
                    "add proxies.",
                    unit="s",
                    queries=[quantiles("bmq_event_loop_lag_seconds", NODE, "instance")[1]],
                ),
            ],
        ),
        (
            "Bytes",
            [
                Panel(
                    title="Bytes in and out",
                    about="Request and response frames.",
                    unit="Bps",
                    queries=[
                        rate("bmq_proxy_bytes_in_total", NODE, legend="in"),
                        rate("bmq_proxy_bytes_out_total", NODE, legend="out"),
                    ],
                ),
                Panel(
                    title="Bytes fetched, by where they came from",
                    about="The owner's memory for readers at the end, segments for readers behind it.",
                    unit="Bps",
                    queries=[rate("bmq_proxy_fetched_bytes_total", NODE, by="source")],
                    stacked=True,
                ),
                Panel(
                    title="Bytes produced, by proxy",
                    about="Record batches taken in. Very uneven: clients sit on few connections.",
                    unit="Bps",
                    queries=[rate("bmq_proxy_produced_bytes_total", NODE, by="instance")],
                    stacked=True,
                ),
                Panel(
                    title="Reads from the store per GiB fetched",
                    about="GETs of the proxies for each GiB that consumers got. Groups that read the same share them.",
                    unit="short",
                    queries=[
                        (
                            f'sum(rate(bmq_store_operations_total{{{CLUSTER},verb="get"}}[$__rate_interval])'
                            f" and on (namespace, cluster, instance) bmq_proxy_connections{{{CLUSTER}}})"
                            f" / (sum(rate(bmq_proxy_fetched_bytes_total{{{CLUSTER}}}[$__rate_interval])) / 2^30)",
                            "GETs",
                        )
                    ],
                ),
            ],
        ),
        (
            "Memory and caches",
            [
                Panel(
                    title="Request memory",
                    about="Request frames held. At the limit nothing is read from any connection: brokers or store "
                    "are behind.",
                    unit="bytes",
                    queries=_against("bmq_proxy_request_memory_bytes", "request_memory_bytes"),
                ),
                Panel(
                    title="Fetch memory",
                    about="Records on their way to consumers.",
                    unit="bytes",
                    queries=_against("bmq_proxy_fetch_memory_bytes", "fetch_memory_bytes"),
                ),
                Panel(
                    title="Cache hits",
                    about="Share of looks for segment blocks that found one. Tail: readers near the end of a log; "
                    "catch_up: far behind.",
                    unit="percentunit",
                    queries=[
                        (
                            f'sum by (pool) (rate(bmq_proxy_cache_total{{{NODE},outcome="hit"}}[$__rate_interval]))'
                            f" / (sum by (pool) (rate(bmq_proxy_cache_total{{{NODE}}}[$__rate_interval])) > 0)",
                            "{{pool}}",
                        )
                    ],
                ),
                Panel(
                    title="Cache size",
                    about="Bytes of segment blocks held.",
                    unit="bytes",
                    queries=[(f"sum by (pool) (bmq_proxy_cache_held_bytes{{{NODE}}})", "{{pool}}")],
                ),
                Panel(
                    title="What the greedy may have under way",
                    about="Shares left to those who write or read much, while there are others to protect.",
                    unit="bytes",
                    queries=[
                        (f"min(bmq_proxy_produce_window_bytes{{{NODE}}})", "produce"),
                        (f"min(bmq_proxy_fetch_window_bytes{{{NODE}}})", "fetch from segments"),
                        (f"max(bmq_proxy_produce_greedy_bytes{{{NODE}}})", "produce under way"),
                    ],
                ),
            ],
        ),
    ],
)
