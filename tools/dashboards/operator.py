"""The operator: whether it works, and how quickly."""

from tools.dashboards.cluster import stat
from tools.dashboards.model import Dashboard, Panel, Variable, quantiles

_OPERATOR = 'namespace=~"$namespace",instance=~"$instance"'

OPERATOR = Dashboard(
    uid="bmq-operator",
    title="bmq / Operator",
    about="What the operator does with Clusters, Topics, Lanes and ParquetSinks.",
    variables=[
        Variable(name="namespace", label="Namespace", query="label_values(bmq_operator_leader, namespace)"),
        Variable(
            name="instance",
            label="Instance",
            query='label_values(bmq_operator_leader{namespace=~"$namespace"}, instance)',
        ),
    ],
    rows=[
        (
            "Health",
            [
                stat(
                    "Leading operators",
                    "One leads, by a Lease; with none nothing is reconciled.",
                    f"sum(bmq_operator_leader{{{_OPERATOR}}})",
                    green_from=1,
                ),
                stat(
                    "Queue",
                    "Resources that are due and wait for a worker.",
                    f"sum(bmq_operator_queue_depth{{{_OPERATOR}}})",
                ),
                stat(
                    "Since the API server was heard",
                    "How long ago it told anything at all.",
                    f"max(bmq_operator_last_event_age_seconds{{{_OPERATOR}}})",
                    unit="s",
                ),
                stat(
                    "Change not told by a watch",
                    "For how long a change that a resync found has not been told; above a minute a watch is deaf, "
                    "and the operator starts anew.",
                    f"max(bmq_operator_unheard_seconds{{{_OPERATOR}}})",
                    unit="s",
                    red_from=60,
                ),
                stat(
                    "Resources",
                    "Clusters, Topics, Lanes and ParquetSinks at the last resync.",
                    f"sum(bmq_operator_resources{{{_OPERATOR}}})",
                ),
                stat(
                    "Not ready",
                    "Resources whose condition Ready is not True; their status says why.",
                    f'sum(bmq_operator_resources{{{_OPERATOR},ready!="True"}}) or vector(0)',
                    red_from=1,
                ),
                stat(
                    "Tables not written",
                    "Topics with `parquet` and ParquetSinks whose tables are not as they should be; their status "
                    "says why.",
                    f'sum(bmq_operator_tables{{{_OPERATOR},ready!="True"}}) or vector(0)',
                    red_from=1,
                ),
            ],
        ),
        (
            "Work",
            [
                Panel(
                    title="Resources by kind and readiness",
                    about="At the last resync.",
                    unit="short",
                    queries=[
                        (f"sum by (kind, ready) (bmq_operator_resources{{{_OPERATOR}}})", "{{kind}} ready: {{ready}}")
                    ],
                ),
                Panel(
                    title="Tables by kind and readiness",
                    about="Topics with `parquet`, by ParquetReady, and ParquetSinks, by Ready, at the last resync.",
                    unit="short",
                    queries=[
                        (f"sum by (kind, ready) (bmq_operator_tables{{{_OPERATOR}}})", "{{kind}} ready: {{ready}}")
                    ],
                ),
                Panel(
                    title="Reconciles by result",
                    about="Looks at a resource, by kind and by what they came to.",
                    unit="ops",
                    queries=[
                        (
                            "sum by (kind, result) "
                            f"(rate(bmq_operator_reconciles_total{{{_OPERATOR}}}[$__rate_interval]))",
                            "{{kind}} {{result}}",
                        )
                    ],
                ),
                Panel(
                    title="Time of a reconcile",
                    about="How long one look at a resource took.",
                    unit="s",
                    queries=quantiles("bmq_operator_reconcile_seconds", _OPERATOR, "kind"),
                ),
                Panel(
                    title="Wait for a worker",
                    about="From the moment that a resource was due.",
                    unit="s",
                    queries=quantiles("bmq_operator_wait_seconds", _OPERATOR, "kind"),
                ),
                Panel(
                    title="Watch events and status writes",
                    about="What the API server told, and what was written to it.",
                    unit="ops",
                    queries=[
                        (
                            f"sum by (kind) (rate(bmq_operator_watch_events_total{{{_OPERATOR}}}[$__rate_interval]))",
                            "events {{kind}}",
                        ),
                        (
                            f"sum by (kind) (rate(bmq_operator_status_writes_total{{{_OPERATOR}}}[$__rate_interval]))",
                            "writes {{kind}}",
                        ),
                    ],
                ),
                Panel(
                    title="Memory",
                    about="Resident memory of the operator.",
                    unit="bytes",
                    queries=[
                        (
                            f"process_resident_memory_bytes{{{_OPERATOR}}} and on (namespace, instance) "
                            "bmq_operator_leader",
                            "{{instance}}",
                        )
                    ],
                ),
                Panel(
                    title="CPU",
                    about="Cores that the operator uses.",
                    unit="short",
                    queries=[
                        (
                            f"rate(process_cpu_seconds_total{{{_OPERATOR}}}[$__rate_interval]) and on (namespace, "
                            "instance) bmq_operator_leader",
                            "{{instance}}",
                        )
                    ],
                ),
            ],
        ),
    ],
)
