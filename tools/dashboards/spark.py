"""The Spark jobs that write tables: how far behind, how their batches go, what drivers and executors use."""

from tools.dashboards.cluster import stat
from tools.dashboards.model import CLUSTER, Dashboard, Panel, Variable, cluster_variables

TABLE_GROUPS = "(parquet|iceberg)-.*"
"""The names that jobs give to the consumer groups by which their lag is seen, unless a table has another."""
_GROUP = f'{CLUSTER},group=~"{TABLE_GROUPS}",group=~"$group"'
_RECORDS = f"sum by (lane, group) (bmq_group_lag_records{{{_GROUP}}})"
_SECONDS = f"max by (lane, group) (bmq_group_lag_seconds{{{_GROUP}}})"
_RUN = f'{CLUSTER},application=~"$application"'
_DRIVER = "metrics_table_driver"
"""Spark's names have spark.metrics.namespace in them, which the operator sets to table."""


def _of_stream(figure: str) -> str:
    """Spark has the query's id in the name of the metric."""
    return f'{{__name__=~"{_DRIVER}_spark_streaming_.+_{figure}_Value",{_RUN}}}'


def _by_executor(figure: str) -> str:
    return f"sum by (application, executor_id) (rate(metrics_executor_{figure}{{{_RUN}}}[$__rate_interval]))"


def _increase(metric: str, by: str, window: str) -> str:
    return f"sum by ({by}) (increase({metric}{{{_RUN}}}[{window}]))"


SPARK = Dashboard(
    uid="bmq-spark",
    title="bmq / Spark jobs",
    about="Topics as tables: lag of each table, batches of its job, and what the job's driver and executors use.",
    variables=[
        *cluster_variables()[:2],
        Variable(
            name="group",
            label="Group",
            query=f'label_values(bmq_group_lag_records{{{CLUSTER},group=~"{TABLE_GROUPS}"}}, group)',
        ),
        Variable(name="application", label="Application", query=f"label_values(spark_info{{{CLUSTER}}}, application)"),
    ],
    rows=[
        (
            "Now",
            [
                stat(
                    "Largest lag",
                    "How long the oldest record that is in no table has been there.",
                    f"max({_SECONDS})",
                    unit="s",
                ),
                stat("Records behind", "Records that are in no table yet, of the groups chosen.", f"sum({_RECORDS})"),
                stat(
                    "Jobs that run",
                    "Drivers that answer: streams, and scheduled runs under way.",
                    f"count(spark_info{{{_RUN}}}) or vector(0)",
                ),
                stat(
                    "Executors",
                    "Executors at work, drivers not counted.",
                    f'count(metrics_executor_maxTasks{{{_RUN},executor_id!="driver"}}) or vector(0)',
                ),
                stat(
                    "Failed tasks",
                    "In an hour. Spark repeats a task up to four times; a lost executor costs a few.",
                    f"sum(increase(metrics_executor_failedTasks_total{{{_RUN}}}[1h])) or vector(0)",
                ),
                stat(
                    "Failed Spark jobs",
                    "In an hour. A batch that fails ends its run; the Spark Operator begins a new one.",
                    f"sum(increase({_DRIVER}_appStatus_jobs_failedJobs_Count{{{_RUN}}}[1h])) or vector(0)",
                    red_from=1,
                ),
            ],
        ),
        (
            "Lag of the tables",
            [
                Panel(
                    title="Lag in seconds",
                    about="How long the oldest record that a table lacks has been there. Between two runs of a "
                    "schedule it grows with the time.",
                    unit="s",
                    queries=[(f"topk(20, {_SECONDS})", "{{lane}} {{group}}")],
                ),
                Panel(
                    title="Lag in records",
                    about="Records that a table lacks, of all partitions.",
                    unit="short",
                    queries=[(f"topk(20, {_RECORDS})", "{{lane}} {{group}}")],
                ),
            ],
        ),
        (
            "Batches",
            [
                Panel(
                    title="Records into batches",
                    about="Records a second that came in since the last batch, and that the last batch worked off: "
                    "the second has to be more.",
                    unit="cps",
                    queries=[
                        (f"sum by (application) ({_of_stream('inputRate_total')})", "{{application}} come in"),
                        (f"sum by (application) ({_of_stream('processingRate_total')})", "{{application}} worked off"),
                    ],
                ),
                Panel(
                    title="Time of a batch",
                    about="Of the last one: planning, reading, writing, commit. Above the trigger, batches follow "
                    "each other without a pause.",
                    unit="ms",
                    queries=[(f"max by (application) ({_of_stream('latency')})", "{{application}}")],
                ),
                Panel(
                    title="Tasks",
                    about="Tasks that ended, by executor.",
                    unit="ops",
                    queries=[
                        (_by_executor("completedTasks_total"), "{{application}} {{executor_id}}"),
                    ],
                ),
                Panel(
                    title="Failures",
                    about="Of tasks and of Spark jobs, in ten minutes.",
                    unit="short",
                    queries=[
                        (
                            _increase("metrics_executor_failedTasks_total", "application", "10m"),
                            "{{application}} tasks",
                        ),
                        (
                            _increase(f"{_DRIVER}_appStatus_jobs_failedJobs_Count", "application", "10m"),
                            "{{application}} jobs",
                        ),
                    ],
                ),
            ],
        ),
        (
            "Drivers and executors",
            [
                Panel(
                    title="Java heap",
                    about="The most that each had, driver and executors.",
                    unit="bytes",
                    queries=[
                        (
                            f"max by (application, executor_id) (metrics_executor_JVMHeapMemory_bytes{{{_RUN}}})",
                            "{{application}} {{executor_id}}",
                        )
                    ],
                ),
                Panel(
                    title="Memory of Python",
                    about="The most that Python workers had, beside Java: what memoryOverhead is for.",
                    unit="bytes",
                    queries=[
                        (
                            "max by (application, executor_id) "
                            f"(metrics_executor_ProcessTreePythonRSSMemory_bytes{{{_RUN}}})",
                            "{{application}} {{executor_id}}",
                        )
                    ],
                ),
                Panel(
                    title="Time in garbage collection",
                    about="As a share of the tasks' time. Above a tenth an executor wants more memory.",
                    unit="percentunit",
                    queries=[
                        (
                            f"{_by_executor('totalGCTime_seconds_total')} / "
                            f"({_by_executor('totalDuration_seconds_total')} > 0) or vector(0)",
                            "{{application}} {{executor_id}}",
                        )
                    ],
                ),
                Panel(
                    title="CPU of drivers",
                    about="Cores that each driver's Java uses.",
                    unit="short",
                    queries=[
                        (
                            f"rate({_DRIVER}_JVMCPU_jvmCpuTime_Value{{{_RUN}}}[$__rate_interval]) / 1e9",
                            "{{application}}",
                        )
                    ],
                ),
            ],
        ),
    ],
)
