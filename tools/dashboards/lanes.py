"""Lanes: what their clients do, and the proxies and brokers that are a lane's own."""

from tools.dashboards.cluster import stat
from tools.dashboards.model import CLUSTER, Dashboard, Panel, Variable, cluster_variables, led, rate

_LANE = f'{CLUSTER},lane=~"$lane"'

LANES = Dashboard(
    uid="bmq-lanes",
    title="bmq / Lanes",
    about="The traffic of each lane's clients, and the lane's own proxies and brokers. An empty lane is the base.",
    variables=[
        *cluster_variables()[:2],
        Variable(name="lane", label="Lane", query=f"label_values(bmq_proxy_bytes_in_total{{{CLUSTER}}}, lane)"),
    ],
    rows=[
        (
            "Traffic",
            [
                stat("Lanes", "Lanes that there are.", "max" + led("bmq_lanes"), width=12),
                stat(
                    "Topics of lanes",
                    "Topics that lanes have of their own.",
                    "sum" + led("bmq_controller_lane_topics"),
                    width=12,
                ),
                Panel(
                    title="Bytes produced, by lane",
                    about="Record batches taken in from the lane's clients.",
                    unit="Bps",
                    queries=[rate("bmq_proxy_produced_bytes_total", _LANE, by="lane", legend="lane {{lane}}")],
                    stacked=True,
                ),
                Panel(
                    title="Bytes sent to clients, by lane",
                    about="Response frames: mostly records for consumers.",
                    unit="Bps",
                    queries=[rate("bmq_proxy_bytes_out_total", _LANE, by="lane", legend="lane {{lane}}")],
                    stacked=True,
                ),
                Panel(
                    title="Bytes received from clients, by lane",
                    about="Request frames.",
                    unit="Bps",
                    queries=[rate("bmq_proxy_bytes_in_total", _LANE, by="lane", legend="lane {{lane}}")],
                    stacked=True,
                ),
                Panel(
                    title="Share of the base",
                    about="Of the bytes produced. In a test cluster little, in production nearly all.",
                    unit="percentunit",
                    queries=[
                        (
                            f'sum(rate(bmq_proxy_produced_bytes_total{{{CLUSTER},lane=""}}[$__rate_interval]))'
                            f" / (sum(rate(bmq_proxy_produced_bytes_total{{{CLUSTER}}}[$__rate_interval])) > 0)",
                            "base",
                        )
                    ],
                ),
            ],
        ),
        (
            "Topics and groups",
            [
                Panel(
                    title="Topics, by lane",
                    about="Topics that a lane has of its own: made at its first write, deleted with it.",
                    unit="short",
                    width=24,
                    queries=[("max by (lane) " + led("bmq_controller_lane_topics", ',lane=~"$lane"'), "lane {{lane}}")],
                ),
                Panel(
                    title="Lag in seconds, by lane",
                    about="The largest of the lane's consumer groups.",
                    unit="s",
                    queries=[(f"max by (lane) (bmq_group_lag_seconds{{{_LANE}}})", "lane {{lane}}")],
                ),
                Panel(
                    title="Lag in records, by lane",
                    about="Of all of the lane's consumer groups.",
                    unit="short",
                    queries=[(f"sum by (lane) (bmq_group_lag_records{{{_LANE}}})", "lane {{lane}}")],
                ),
            ],
        ),
        (
            "Processes",
            [
                Panel(
                    title="Processes, by lane and role",
                    about="Proxies and brokers of lanes' own, and those of the base.",
                    unit="short",
                    queries=[(f"sum by (lane, role) (bmq_node_role{{{_LANE}}})", "lane {{lane}} {{role}}")],
                ),
                Panel(
                    title="Connections, by the proxies' lane",
                    about="Open connections. A client that is in a lane by its client.id may use a proxy of the base.",
                    unit="short",
                    queries=[(f"sum by (lane) (bmq_proxy_connections{{{_LANE}}})", "lane {{lane}}")],
                ),
                Panel(
                    title="CPU, by the processes' lane",
                    about="Cores that the lane's own processes use.",
                    unit="short",
                    queries=[
                        (
                            f"sum by (lane) (rate(process_cpu_seconds_total{{{_LANE}}}[$__rate_interval]))",
                            "lane {{lane}}",
                        )
                    ],
                ),
                Panel(
                    title="Memory, by the processes' lane",
                    about="Resident memory of the lane's own processes.",
                    unit="bytes",
                    queries=[(f"sum by (lane) (process_resident_memory_bytes{{{_LANE}}})", "lane {{lane}}")],
                ),
            ],
        ),
    ],
)
