"""Lanes: what their clients do, and the proxies and brokers that are a lane's own."""

from tools.dashboards.cluster import stat
from tools.dashboards.model import CLUSTER, Dashboard, Panel, Variable, cluster_variables, led, rate

_LANE = f'{CLUSTER},lane=~"$lane"'

LANES = Dashboard(
    uid="bmq-lanes",
    title="bmq / Lanes",
    about="The traffic of each lane's clients, what goes on to the base, and the lane's own proxies and brokers. "
    "An empty lane is the base.",
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
                    title="Waiting for the quota, by lane",
                    about="How many requests of the lane wait at a time, on average, because its clients write or read "
                    "more than its quota says.",
                    unit="short",
                    queries=[
                        (
                            "sum by (lane, direction) "
                            f"(rate(bmq_proxy_lane_throttled_seconds_total{{{_LANE}}}[$__rate_interval]))",
                            "lane {{lane}}, {{direction}}",
                        )
                    ],
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
            "What goes on to the base",
            [
                Panel(
                    title="Records that went on, by lane",
                    about="Records of lanes that fall back, written to the base as nobody in the lane consumes them.",
                    unit="mps",
                    queries=[rate("bmq_proxy_handed_over_records_total", _LANE, by="lane", legend="lane {{lane}}")],
                    stacked=True,
                ),
                Panel(
                    title="Partitions, by lane and whose turn it is",
                    about="Of lanes that fall back. Those that close wait for the base to say how far it got: moments.",
                    unit="short",
                    queries=[
                        (
                            "max by (lane, turn) " + led("bmq_controller_lane_partitions", ',lane=~"$lane"'),
                            "lane {{lane}}: {{turn}}",
                        )
                    ],
                ),
                Panel(
                    title="Records that wait to go on, by lane",
                    about="As the proxy that looks after the lane saw them last.",
                    unit="short",
                    queries=[(f"max by (lane) (bmq_proxy_lane_waiting_records{{{_LANE}}})", "lane {{lane}}")],
                ),
                Panel(
                    title="For how long some wait, by lane",
                    about="How long there were always records that wait, or it could not be told whether there are.",
                    unit="s",
                    queries=[(f"max by (lane) (bmq_proxy_lane_waiting_seconds{{{_LANE}}})", "lane {{lane}}")],
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
