"""Sidecars of Databus: what applications write, what waits on disk, and whose channels they follow."""

from tools.dashboards.cluster import stat
from tools.dashboards.model import Dashboard, Panel, Variable, rate

_POD = 'namespace=~"$namespace",instance=~"$instance"'
_CHANNEL = f'{_POD},channel=~"$channel"'
_UNWRITTEN = f'{_CHANNEL},status=~"5.."'
_OF = "bmq_databus_streams"


def _rate_of(messages: str) -> str:
    return f"sum by (channel) (rate(bmq_databus_messages_total{{{messages}}}[$__rate_interval]))"


def _of_channels(metric: str, legend: str) -> tuple[str, str]:
    return f"sum by (channel) (increase({metric}{{{_CHANNEL}}}[1h]))", f"{{{{channel}}}} {legend}"


DATABUS = Dashboard(
    uid="bmq-databus",
    title="bmq / Databus",
    about="Sidecars that take messages by HTTP: what was written, what came of it, spools, whose channels they follow.",
    variables=[
        Variable(name="namespace", label="Namespace", query=f"label_values({_OF}, namespace)"),
        Variable(name="instance", label="Pod", query=f'label_values({_OF}{{namespace=~"$namespace"}}, instance)'),
        Variable(name="channel", label="Channel", query=f"label_values(bmq_databus_messages_total{{{_POD}}}, channel)"),
    ],
    rows=[
        (
            "Messages",
            [
                stat("Sidecars", "Sidecars that are scraped.", f"count({_OF}{{{_POD}}})", width=8),
                stat(
                    "Messages waiting",
                    "Accepted messages that are not in the cluster yet.",
                    f"sum(bmq_databus_spool_messages{{{_CHANNEL}}})",
                    width=8,
                ),
                stat(
                    "Channels in trouble",
                    "Channels that are not what the control plane wants; /readyz of the sidecar says why.",
                    f"sum(bmq_databus_configuration_troubles{{{_POD}}})",
                    width=8,
                    red_from=1,
                ),
                Panel(
                    title="Messages, by channel",
                    about="Messages that applications wrote, whatever came of them.",
                    unit="mps",
                    queries=[rate("bmq_databus_messages_total", _CHANNEL, by="channel")],
                    stacked=True,
                ),
                Panel(
                    title="Messages, by status",
                    about="200: the cluster has it. 202: it is on the sidecar's disk. 422, 429: a rule, or a rate. "
                    "503, 507: neither cluster nor disk took it.",
                    unit="mps",
                    queries=[rate("bmq_databus_messages_total", _CHANNEL, by="status")],
                    stacked=True,
                ),
                Panel(
                    title="Share of messages that were not written",
                    about="Of all that applications wrote: those answered with 5xx, which they may send again.",
                    unit="percentunit",
                    queries=[
                        (
                            f"({_rate_of(_UNWRITTEN)} or {_rate_of(_CHANNEL)} * 0) / ({_rate_of(_CHANNEL)} > 0)",
                            "{{channel}}",
                        )
                    ],
                ),
                Panel(
                    title="Streams",
                    about="Streams of messages that are open.",
                    unit="short",
                    queries=[(f"sum by (instance) ({_OF}{{{_POD}}})", "{{instance}}")],
                ),
            ],
        ),
        (
            "Spools",
            [
                Panel(
                    title="Waiting, by channel",
                    about="Accepted messages that are not in the cluster yet. They grow while the cluster is away.",
                    unit="short",
                    queries=[(f"sum by (channel) (bmq_databus_spool_messages{{{_CHANNEL}}})", "{{channel}}")],
                    stacked=True,
                ),
                Panel(
                    title="On disk, by pod",
                    about="Bytes of spools. Beyond spool.maxBytes of a channel its writers wait, are refused, or the "
                    "oldest messages go.",
                    unit="bytes",
                    queries=[(f"sum by (instance) (bmq_databus_spool_bytes{{{_CHANNEL}}})", "{{instance}}")],
                ),
                Panel(
                    title="Sent, by channel",
                    about="Accepted messages that the cluster has.",
                    unit="mps",
                    queries=[rate("bmq_databus_spool_sent_total", _CHANNEL, by="channel")],
                    stacked=True,
                ),
                Panel(
                    title="Lost, refused and sent twice",
                    about="Within an hour. dropped: given up for space or age; damaged: the disk lost them; refused: "
                    "the cluster takes them never, and they are in the file of refused ones; twice: may be in their "
                    "topic twice.",
                    unit="short",
                    queries=[
                        _of_channels("bmq_databus_spool_dropped_total", "dropped"),
                        _of_channels("bmq_databus_spool_damaged_total", "damaged"),
                        _of_channels("bmq_databus_spool_refused_total", "refused"),
                        _of_channels("bmq_databus_spool_sent_again_total", "twice"),
                    ],
                ),
            ],
        ),
        (
            "Channels that are followed",
            [
                Panel(
                    title="Age of what is known",
                    about="How long ago the control plane said which channels there are. It asks again after 30 s.",
                    unit="s",
                    queries=[(f"max by (instance) (bmq_databus_configuration_age_seconds{{{_POD}}})", "{{instance}}")],
                ),
                Panel(
                    title="Answers that were none",
                    about="Of the control plane, within an hour: something else answers in its place.",
                    unit="short",
                    queries=[
                        (
                            f"sum by (instance) (increase(bmq_databus_configuration_refused_total{{{_POD}}}[1h]))",
                            "{{instance}}",
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
                    about="Cores that a sidecar uses.",
                    unit="short",
                    queries=[
                        (
                            "sum by (instance) "
                            f'(rate(process_cpu_seconds_total{{{_POD},component="sidecar"}}[$__rate_interval]))',
                            "{{instance}}",
                        )
                    ],
                ),
                Panel(
                    title="Memory",
                    about="Resident memory of a sidecar.",
                    unit="bytes",
                    queries=[
                        (
                            f'sum by (instance) (process_resident_memory_bytes{{{_POD},component="sidecar"}})',
                            "{{instance}}",
                        )
                    ],
                ),
            ],
        ),
    ],
)
