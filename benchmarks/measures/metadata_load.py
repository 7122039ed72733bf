"""How long a process takes to start over the metadata of 200,000 partitions: each role, from the command to the line
that says that it serves.
"""

from collections import defaultdict
from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.nodes import Cluster
from benchmarks.plan import Plan
from benchmarks.rows import Row
from bmq_node.configuration.values import Role

MIB = 1 << 20
TOPIC_PARTITIONS = 1000
TOPICS_AT_ONCE = 10


class Start(NamedTuple):
    """Of one process: how long it took, and its memory then."""

    took_s: float
    rss_bytes: int


def measure(plan: Plan) -> Iterator[Row]:
    """A row for each role."""
    empty = _starts(plan, partitions=0)
    full = _starts(plan, partitions=plan.metadata_partitions)
    for role in (Role.CONTROLLER, Role.PROXY, Role.BROKER):
        yield Row(
            topic="metadata-load",
            measure=f"start of a {role} over the metadata of {plan.metadata_partitions:,} partitions",
            setting=f"topics of {TOPIC_PARTITIONS:,} partitions, over a folder"
            + (", all of them this broker's" if role is Role.BROKER else ""),
            unit="s",
            bmq=[one.took_s for one in full[role]],
            peer_name="of none",
            peer=[one.took_s for one in empty[role]],
            target=5,
            target_of="bmq",
            at_least=False,
            beside=f"{_rss_mib(full[role]):.0f} MiB resident, with none {_rss_mib(empty[role]):.0f}",
            quick=plan.quick,
        )


def _rss_mib(starts: list[Start]) -> float:
    return max(one.rss_bytes for one in starts) / MIB


def _starts(plan: Plan, *, partitions: int) -> dict[Role, list[Start]]:
    found: dict[Role, list[Start]] = defaultdict(list)
    with Cluster(plan.folder("bmq"), "1c1b1p") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.address})
        began_s = perf_counter()
        for first in range(0, partitions // TOPIC_PARTITIONS, TOPICS_AT_ONCE):
            names = [
                f"topic-{number}"
                for number in range(first, min(first + TOPICS_AT_ONCE, partitions // TOPIC_PARTITIONS))
            ]
            made = admin.create_topics(
                [NewTopic(name, num_partitions=TOPIC_PARTITIONS, replication_factor=1) for name in names]
            )
            for future in made.values():
                future.result(60)
        plan.say(f"metadata-load: {partitions:,} partitions made in {perf_counter() - began_s:.1f} s")
        del admin  # it would look for the nodes that are about to go
        for turn in range(plan.rounds):
            cluster.stop_cleanly()
            for role in (Role.CONTROLLER, Role.BROKER, Role.PROXY):
                began_s = perf_counter()
                cluster.start_again(cluster.of(role)[0].plan.node_id)
                took_s = perf_counter() - began_s
                found[role].append(Start(took_s, cluster.of(role)[0].rss_bytes))
            plan.say(
                f"  round {turn + 1}: "
                + ", ".join(f"{role} {values[-1].took_s:.2f} s" for role, values in found.items())
            )
    return found
