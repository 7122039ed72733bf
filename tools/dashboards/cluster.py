"""The cluster at a glance."""

from tools.dashboards.model import CLUSTER, NODE, Dashboard, Panel, cluster_variables, led, quantiles, rate

_SERVER_ERRORS = 'error!~"Conflict|ObjectMissing"'


def stat(title: str, about: str, query: str, *, unit: str = "short", width: int = 4, **more: float | None) -> Panel:
    """A figure."""
    return Panel(title=title, about=about, unit=unit, queries=[(query, "")], kind="stat", width=width, height=4, **more)  # type: ignore[arg-type]


CLUSTER_OVERVIEW = Dashboard(
    uid="bmq-cluster",
    title="bmq / Cluster",
    about="Whether a cluster is well, what goes through it, and what clients see of it.",
    variables=cluster_variables(),
    rows=[
        (
            "Health",
            [
                stat(
                    "Leading controllers",
                    "One controller leads. With none, topics, moves and the detection of dead nodes wait; produce "
                    "and fetch go on.",
                    f"sum(bmq_controller_leading{{{CLUSTER}}})",
                    green_from=1,
                ),
                stat("Nodes", "Nodes that are registered with the controller.", f"max{led('bmq_nodes')}"),
                stat(
                    "Partitions", "Partitions of all topics, internal ones too.", f"sum{led('bmq_cluster_partitions')}"
                ),
                stat(
                    "Partitions without an owner",
                    "Nothing is written to them or read from their tail until a broker has them.",
                    "max" + led("bmq_cluster_partitions", ',owned="no"'),
                    red_from=1,
                ),
                stat(
                    "Partitions that move",
                    "Under a planned move: drains, rolling restarts, the balancer. Should be back at 0 in seconds.",
                    f"max{led('bmq_partitions_moving')}",
                ),
                stat(
                    "Clocks off",
                    "Brokers whose clock and the store's are more than 60 s apart. They delete nothing by age.",
                    f"count(bmq_clock_trusted{{{CLUSTER}}} == 0) or vector(0)",
                    red_from=1,
                ),
                Panel(
                    title="Nodes by role",
                    about="Processes that are scraped, by what they do.",
                    unit="short",
                    queries=[(f"sum by (role) (bmq_node_role{{{CLUSTER}}})", "{{role}}")],
                ),
                Panel(
                    title="Versions",
                    about="How many processes run which version. During an upgrade there are two.",
                    unit="short",
                    queries=[(f"count by (version) (bmq_build_info{{{CLUSTER}}})", "{{version}}")],
                ),
            ],
        ),
        (
            "Traffic",
            [
                Panel(
                    title="Bytes written and read",
                    about="Record batches that got offsets, and record batches given to consumers by the proxies.",
                    unit="Bps",
                    queries=[
                        rate("bmq_appended_bytes_total", CLUSTER, legend="written"),
                        rate("bmq_proxy_fetched_bytes_total", CLUSTER, legend="read"),
                    ],
                ),
                Panel(
                    title="Records written",
                    about="Records that got offsets, by broker.",
                    unit="cps",
                    queries=[rate("bmq_appended_records_total", NODE, by="instance")],
                    stacked=True,
                ),
                Panel(
                    title="Produce latency",
                    about="From a Produce request's arrival at a proxy until it is durable and answered.",
                    unit="s",
                    queries=quantiles("bmq_proxy_produce_seconds", CLUSTER),
                ),
                Panel(
                    title="Produce requests that failed",
                    about="Answers to Produce whose first error is not none, by that error; 0 where there are none.",
                    unit="reqps",
                    queries=[
                        (
                            f'sum by (error) (rate(bmq_proxy_requests_total{{{CLUSTER},api="Produce",error!="none"}}'
                            "[$__rate_interval]))"
                            " or vector(0)",
                            "{{error}}",
                        )
                    ],
                ),
            ],
        ),
        (
            "What clients see",
            [
                Panel(
                    title="Probe: produce to consume",
                    about="How long a record of bmq probe takes from a producer to a consumer. Empty without a probe.",
                    unit="s",
                    queries=quantiles("bmq_probe_latency_seconds", CLUSTER),
                ),
                Panel(
                    title="Probe: failures",
                    about="Records of the probe that failed, by reason. More than 0 means that clients have waited "
                    "or failed, too.",
                    unit="cps",
                    queries=[rate("bmq_probe_failures_total", CLUSTER, by="reason")],
                ),
                Panel(
                    title="Largest lag of a group",
                    about="How long the oldest record that a consumer group has not committed has been there; the "
                    "five groups with the most.",
                    unit="s",
                    queries=[
                        (f"topk(5, max by (lane, group) (bmq_group_lag_seconds{{{CLUSTER}}}))", "{{lane}} {{group}}")
                    ],
                ),
                Panel(
                    title="Errors of the store",
                    about="Operations on the object store that failed. Conflicts and missing objects are answers "
                    "that the protocol counts on.",
                    unit="ops",
                    queries=[
                        (
                            "sum by (verb, error) "
                            f"(rate(bmq_store_errors_total{{{CLUSTER},{_SERVER_ERRORS}}}[$__rate_interval])) or "
                            "vector(0)",
                            "{{verb}} {{error}}",
                        )
                    ],
                ),
            ],
        ),
        (
            "Controllers",
            [
                Panel(
                    title="Who leads",
                    about="1 for the controller that leads.",
                    unit="short",
                    queries=[(f"bmq_controller_leading{{{CLUSTER}}}", "{{instance}}")],
                ),
                Panel(
                    title="Fencings, takeovers, depositions",
                    about="Brokers that were silent for longer than their lease, and changes of leader, an hour.",
                    unit="short",
                    queries=[
                        (f"sum(increase(bmq_controller_fencings_total{{{CLUSTER}}}[1h])) or vector(0)", "fenced"),
                        (f"sum(increase(bmq_controller_takeovers_total{{{CLUSTER}}}[1h])) or vector(0)", "takeovers"),
                        (f"sum(increase(bmq_controller_deposed_total{{{CLUSTER}}}[1h]))", "deposed"),
                    ],
                ),
                Panel(
                    title="Metadata commits",
                    about="How long the leader takes to make an entry of the metadata log durable.",
                    unit="s",
                    queries=quantiles("bmq_metadata_commit_seconds", CLUSTER),
                ),
                Panel(
                    title="Operations on the metadata",
                    about="What the leading controller was asked for, by kind and outcome.",
                    unit="ops",
                    queries=[
                        (
                            "sum by (operation, outcome) "
                            f"(rate(bmq_controller_operations_total{{{CLUSTER}}}[$__rate_interval]))",
                            "{{operation}} {{outcome}}",
                        )
                    ],
                ),
            ],
        ),
        (
            "Processes",
            [
                Panel(
                    title="CPU",
                    about="Cores that each process uses. One process uses one core and a little.",
                    unit="short",
                    queries=[
                        (
                            f"sum by (instance) (rate(process_cpu_seconds_total{{{NODE}}}[$__rate_interval]))",
                            "{{instance}}",
                        )
                    ],
                ),
                Panel(
                    title="Memory",
                    about="Resident memory of each process.",
                    unit="bytes",
                    queries=[(f"process_resident_memory_bytes{{{NODE}}}", "{{instance}}")],
                ),
                Panel(
                    title="Event loop lag",
                    about="How much later than asked the event loop wakes, p99. Above 50 ms a process has too "
                    "little CPU.",
                    unit="s",
                    queries=[quantiles("bmq_event_loop_lag_seconds", NODE, "instance")[1]],
                ),
                Panel(
                    title="Open files",
                    about="Connections and files of each process.",
                    unit="short",
                    queries=[(f"process_open_fds{{{NODE}}}", "{{instance}}")],
                ),
            ],
        ),
    ],
)
