"""Lanes that have proxies or brokers of their own, beside the base lane."""

from tools.dashboards.model import CLUSTER, Dashboard, Panel, Variable, cluster_variables, quantiles, rate

_LANE = f'{CLUSTER},lane=~"$lane"'

LANES = Dashboard(
    uid="bmq-lanes",
    title="bmq / Lanes",
    about="The traffic of each lane's own proxies and brokers; an empty lane is the base lane. "
    "A client that is in a lane by its client.id counts with the proxy that it uses.",
    variables=[*cluster_variables()[:2], Variable(name="lane", label="Lane", query=f"label_values(bmq_build_info{{{CLUSTER}}}, lane)")],
    rows=[
        (
            "Traffic",
            [
                Panel(
                    title="Bytes produced, by lane",
                    about="Record batches that the lane's proxies took in.",
                    unit="Bps",
                    queries=[rate("bmq_proxy_produced_bytes_total", _LANE, by="lane", legend="lane {{lane}}")],
                    stacked=True,
                ),
                Panel(
                    title="Bytes fetched, by lane",
                    about="Record batches that the lane's proxies gave out.",
                    unit="Bps",
                    queries=[rate("bmq_proxy_fetched_bytes_total", _LANE, by="lane", legend="lane {{lane}}")],
                    stacked=True,
                ),
                Panel(
                    title="Requests, by lane",
                    about="Requests answered by the lane's proxies.",
                    unit="reqps",
                    queries=[rate("bmq_proxy_requests_total", _LANE, by="lane", legend="lane {{lane}}")],
                ),
                Panel(
                    title="Produce latency, by lane (p99)",
                    about="From a Produce request's arrival until it is durable and answered.",
                    unit="s",
                    queries=[quantiles("bmq_proxy_produce_seconds", _LANE, "lane")[1]],
                ),
            ],
        ),
        (
            "Processes",
            [
                Panel(
                    title="Processes, by lane and role",
                    about="Proxies and brokers of lanes, and those of the base lane.",
                    unit="short",
                    queries=[(f"sum by (lane, role) (bmq_node_role{{{_LANE}}})", "lane {{lane}} {{role}}")],
                ),
                Panel(
                    title="Connections, by lane",
                    about="Open connections of the lane's proxies.",
                    unit="short",
                    queries=[(f"sum by (lane) (bmq_proxy_connections{{{_LANE}}})", "lane {{lane}}")],
                ),
                Panel(
                    title="CPU, by lane",
                    about="Cores that the lane's processes use.",
                    unit="short",
                    queries=[(f"sum by (lane) (rate(process_cpu_seconds_total{{{_LANE}}}[$__rate_interval]))", "lane {{lane}}")],
                ),
                Panel(
                    title="Memory, by lane",
                    about="Resident memory of the lane's processes.",
                    unit="bytes",
                    queries=[(f"sum by (lane) (process_resident_memory_bytes{{{_LANE}}})", "lane {{lane}}")],
                ),
            ],
        ),
    ],
)
