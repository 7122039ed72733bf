"""Brokers and the object store: what is written, what waits, what it costs."""

from tools.dashboards.cluster import stat
from tools.dashboards.model import CLUSTER, NODE, Dashboard, Panel, Variable, cluster_variables, quantiles, rate

_GIB = "2^30"


def _requests(verbs: str, selector: str = CLUSTER) -> str:
    return f'sum(rate(bmq_store_operations_total{{{selector},verb=~"{verbs}"}}[$__rate_interval]))'


_WRITTEN_GIB = f"(sum(rate(bmq_appended_bytes_total{{{CLUSTER}}}[$__rate_interval])) / {_GIB})"
_DOLLARS = f"(({_requests('create|list')}) * $put_price + ({_requests('get|head')}) * $get_price) / 1000"


def _against(metric: str, key: str) -> list[tuple[str, str]]:
    return [(f"{metric}{{{NODE}}}", "{{instance}}"), (f'max(bmq_limit{{{NODE},key="{key}"}})', f"limit ({key})")]


BROKERS_AND_STORE = Dashboard(
    uid="bmq-store",
    title="bmq / Brokers and store",
    about="What brokers write, what waits in their memory, and what the object store is asked for and costs.",
    variables=[
        *cluster_variables(instance="bmq_node_role"),
        Variable(
            name="put_price",
            label="$ per 1000 PUT, LIST",
            text="0.005",
            about="What the store bills for a thousand creates or listings; 0.005 is S3.",
        ),
        Variable(
            name="get_price",
            label="$ per 1000 GET, HEAD",
            text="0.0004",
            about="What the store bills for a thousand reads; 0.0004 is S3.",
        ),
    ],
    rows=[
        (
            "Cost",
            [
                stat(
                    "Requests per GiB written",
                    "Billed requests of all nodes (creates, listings, reads) for each GiB of records written. A "
                    "longer linger lowers it.",
                    f"{_requests('create|list|get|head')} / {_WRITTEN_GIB}",
                    width=6,
                ),
                stat(
                    "Dollars per GiB written",
                    "At the prices chosen above. Storage and traffic are not in it; deletes are free.",
                    f"{_DOLLARS} / {_WRITTEN_GIB}",
                    unit="currencyUSD",
                    width=6,
                ),
                stat(
                    "Dollars a month",
                    "What the requests of this moment's rate cost in 30 days.",
                    f"{_DOLLARS} * 2592000",
                    unit="currencyUSD",
                    width=6,
                ),
                stat(
                    "Requests a second",
                    "All requests to the store, of all nodes.",
                    _requests(".*"),
                    unit="reqps",
                    width=6,
                ),
                Panel(
                    title="Requests by verb",
                    about="Requests to the object store. Creates and listings cost twelve times as much as reads "
                    "on S3.",
                    unit="reqps",
                    queries=[rate("bmq_store_operations_total", NODE, by="verb")],
                    stacked=True,
                ),
                Panel(
                    title="Creates and reads per GiB written",
                    about="Over time. It rises when little is written: WAL objects are then sent by the linger, "
                    "not by their size.",
                    unit="short",
                    queries=[
                        (f"{_requests('create')} / {_WRITTEN_GIB}", "creates"),
                        (f"{_requests('get')} / {_WRITTEN_GIB}", "gets"),
                    ],
                ),
            ],
        ),
        (
            "Store",
            [
                Panel(
                    title="Latency by verb (p99)",
                    about="Time of operations on the store; of a listing until its first page.",
                    unit="s",
                    queries=[quantiles("bmq_store_seconds", NODE, "verb")[1]],
                ),
                Panel(
                    title="Latency by verb (median)",
                    about="The same, in the middle.",
                    unit="s",
                    queries=[quantiles("bmq_store_seconds", NODE, "verb")[0]],
                ),
                Panel(
                    title="Bytes written to and read from the store",
                    about="Each byte produced is written twice: in a WAL object and in a segment.",
                    unit="Bps",
                    queries=[rate("bmq_store_bytes_total", NODE, by="verb")],
                ),
                Panel(
                    title="Operations that did not succeed",
                    about="By verb and error. Conflict and ObjectMissing are answers that the protocol counts on; "
                    "anything else is trouble.",
                    unit="ops",
                    queries=[
                        (
                            f"sum by (verb, error) (rate(bmq_store_errors_total{{{NODE}}}[$__rate_interval]))",
                            "{{verb}} {{error}}",
                        )
                    ],
                ),
            ],
        ),
        (
            "WAL",
            [
                Panel(
                    title="Time to make a WAL object durable",
                    about="What producers wait for, besides the linger.",
                    unit="s",
                    queries=quantiles("bmq_flush_seconds", NODE),
                ),
                Panel(
                    title="Size of WAL objects",
                    about="The mean. Small ones mean many requests for little data.",
                    unit="bytes",
                    queries=[
                        (
                            f"sum by (instance) (rate(bmq_flush_bytes_sum{{{NODE}}}[$__rate_interval]))"
                            f" / (sum by (instance) (rate(bmq_flush_bytes_count{{{NODE}}}[$__rate_interval])) > 0)",
                            "{{instance}}",
                        )
                    ],
                ),
                Panel(
                    title="WAL that segments do not cover",
                    about="What an heir would have to read. Far above its budget something pins it.",
                    unit="bytes",
                    queries=_against("bmq_wal_bytes", "wal_budget_bytes"),
                ),
                Panel(
                    title="Batches that wait to be durable",
                    about="It grows when the store does not keep up; at its limit producers wait.",
                    unit="bytes",
                    queries=_against("bmq_buffered_bytes", "buffer_max_bytes"),
                ),
            ],
        ),
        (
            "Tails and segments",
            [
                Panel(
                    title="Tails in memory",
                    about="Batches that no segment holds yet. At the limit nothing more is made durable until "
                    "segments have caught up.",
                    unit="bytes",
                    queries=_against("bmq_tail_bytes", "tail_limit_bytes"),
                ),
                Panel(
                    title="Partitions by state",
                    about="What each broker's partitions are doing.",
                    unit="short",
                    queries=[(f"sum by (state) (bmq_partitions{{{NODE}}})", "{{state}}")],
                ),
                Panel(
                    title="Segments written, by cause",
                    about="Size and age are the good causes; many by wal or memory mean quiet partitions or a "
                    "small budget.",
                    unit="ops",
                    queries=[rate("bmq_rolls_total", NODE, by="cause")],
                ),
                Panel(
                    title="Bytes rolled, carried, recovered",
                    about="Into segments; written to the WAL once more; read after a crash or a move.",
                    unit="Bps",
                    queries=[
                        rate("bmq_rolled_bytes_total", NODE, legend="rolled"),
                        rate("bmq_carried_bytes_total", NODE, legend="carried"),
                        rate("bmq_recovered_bytes_total", NODE, legend="recovered"),
                    ],
                ),
                Panel(
                    title="Segments merged and deleted",
                    about="Merges of small segments, and deletions by retention, DeleteRecords and merges.",
                    unit="ops",
                    queries=[
                        rate("bmq_merges_total", NODE, legend="merges"),
                        rate("bmq_deleted_segments_total", NODE, legend="deleted"),
                    ],
                ),
                Panel(
                    title="Clock skew against the store",
                    about="How far the store's clock is ahead of each broker's.",
                    unit="s",
                    queries=[(f"bmq_clock_skew_seconds{{{NODE}}}", "{{instance}}")],
                ),
            ],
        ),
    ],
)
