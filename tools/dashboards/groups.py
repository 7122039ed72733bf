"""Consumer groups: how far behind, and whether they catch up."""

from tools.dashboards.cluster import stat
from tools.dashboards.model import CLUSTER, Dashboard, Panel, Variable, cluster_variables

_GROUP = f'{CLUSTER},group=~"$group"'
_RECORDS = f"sum by (lane, group) (bmq_group_lag_records{{{_GROUP}}})"
_SECONDS = f"max by (lane, group) (bmq_group_lag_seconds{{{_GROUP}}})"
_TREND = f"deriv(({_RECORDS})[10m:])"

GROUPS = Dashboard(
    uid="bmq-groups",
    title="bmq / Consumer groups",
    about="Lag of consumer groups in seconds and records, and where it is going. How finely brokers tell it: "
    "lag_metrics (docs/monitoring.md).",
    variables=[
        *cluster_variables()[:2],
        Variable(name="group", label="Group", query=f"label_values(bmq_group_lag_records{{{CLUSTER}}}, group)"),
    ],
    rows=[
        (
            "Now",
            [
                stat("Groups", "Consumer groups of all states.", f"sum(bmq_groups{{{CLUSTER}}})"),
                stat(
                    "Largest lag",
                    "In seconds, of the groups chosen.",
                    f"max(bmq_group_lag_seconds{{{_GROUP}}})",
                    unit="s",
                    width=5,
                ),
                stat("Unread records", "Of all groups chosen.", f"sum(bmq_group_lag_records{{{_GROUP}}})", width=5),
                stat(
                    "Groups that fall behind",
                    "Whose lag in records grew over ten minutes.",
                    f"count(({_TREND}) > 0.1) or vector(0)",
                    width=5,
                ),
                stat(
                    "Offsets not looked at",
                    "Committed offsets beyond the 50,000 of a broker whose lag is looked at.",
                    f"sum(bmq_group_lag_left_out{{{CLUSTER}}})",
                    width=5,
                    red_from=1,
                ),
                Panel(
                    title="Lag by group and topic",
                    about="Of this moment, largest first.",
                    unit="s",
                    kind="table",
                    width=12,
                    queries=[(f"topk(50, max by (lane, group, topic) (bmq_group_lag_seconds{{{_GROUP}}}))", "")],
                ),
                Panel(
                    title="Groups by state",
                    about="Stable: with members that read. Empty: offsets and no members.",
                    unit="short",
                    queries=[(f"sum by (state) (bmq_groups{{{CLUSTER}}})", "{{state}}")],
                ),
            ],
        ),
        (
            "Lag",
            [
                Panel(
                    title="Lag in seconds",
                    about="How long the oldest record that a group has not committed has been there.",
                    unit="s",
                    queries=[(f"topk(20, {_SECONDS})", "{{lane}} {{group}}")],
                ),
                Panel(
                    title="Lag in records",
                    about="Records that a group has not committed, of all its partitions.",
                    unit="short",
                    queries=[(f"topk(20, {_RECORDS})", "{{lane}} {{group}}")],
                ),
            ],
        ),
        (
            "Trend",
            [
                Panel(
                    title="Growth of the lag",
                    about="Records a second over the last ten minutes: above 0 a group falls behind, below it "
                    "catches up.",
                    unit="cps",
                    queries=[(_TREND, "{{lane}} {{group}}")],
                ),
                Panel(
                    title="Time until caught up",
                    about="At the pace of the last ten minutes; only groups that catch up are shown, 0 where there "
                    "is none.",
                    unit="s",
                    queries=[(f"{_RECORDS} / -({_TREND} < 0) or vector(0)", "{{lane}} {{group}}")],
                ),
            ],
        ),
    ],
)
