"""The one table of what a single peer may make a process do: name, default, range, meaning, and what who goes beyond it
is told.

Every limit here is a setting (`limits` of `bmq server`, `--limit` of `bmq up`), and stands on docs/limits.md, which is
written from this table. What the protocol itself bounds, and nobody would set, is in `bmq.wire.limits` and
`bmq.internal.limits`.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

from bmq.errors import ConfigurationError

KIB: Final = 1 << 10
MIB: Final = 1 << 20
_HOUR_MS: Final = 3_600_000


def _limit(default: int, doc: str, *, beyond: str, maximum: int, minimum: int = 1) -> Any:
    assert minimum <= default <= maximum
    return field(
        default=default,
        metadata={"default": default, "doc": doc, "beyond": beyond, "minimum": minimum, "maximum": maximum},
    )


_CLOSED: Final = "The connection is closed, and the log says why."


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was set, or the defaults. Counts, bytes and milliseconds, as the names say."""

    request_elements_max: int = _limit(
        40_000,
        "Names, partitions and other elements of arrays in one request of any API but Produce and Fetch, in all.",
        beyond=_CLOSED,
        maximum=100_000,
        minimum=1_000,
    )
    request_inline_bytes_max: int = _limit(
        16 * KIB,
        "A request above it is a wide one: it is decoded beside the event loop, and only as many are worked on at "
        "a time as the next limit lets.",
        beyond="It waits its turn.",
        maximum=MIB,
        minimum=256,
    )
    wide_requests_bytes: int = _limit(
        4 * MIB,
        "Wide requests that are decoded at a time, all connections together. Here and below, clients at one address "
        "have no more than are free: half, while they are the only ones.",
        beyond="They wait their turn: each address has its own, and each of its connections in those.",
        maximum=64 * MIB,
        minimum=2 * MIB,
    )
    wide_request_elements: int = _limit(
        100_000,
        "Elements of wide requests that are worked on at a time, all connections together, at up to 1 KiB of "
        "memory each with what is answered to them. As many again of Produce requests that are begun in turns, and of "
        "narrow requests of more than 256 bytes, which take turns with wide ones beyond that.",
        beyond="They wait their turn; one that has more than half counts as half.",
        maximum=10_000_000,
        minimum=1_000,
    )
    wide_answer_elements: int = _limit(
        50_000,
        "Elements of wide answers (of more than 1,000) that are put together at a time, all connections together.",
        beyond="They wait their turn; one that has more than half counts as half.",
        maximum=10_000_000,
        minimum=1_000,
    )
    answer_memory_bytes: int = _limit(
        64 * MIB,
        "Answers without records (lists of topics, configurations, offsets) that clients have yet to take, all "
        "connections together.",
        beyond="No further wide answer is begun for an address that has three times what is free; who takes less than "
        "64 KiB/s of its answer for three seconds is disconnected. One answer about configurations has half of it at "
        "most: POLICY_VIOLATION for the resources beyond.",
        maximum=16 * 1024 * MIB,
        minimum=64 * KIB,
    )
    groups_per_partition_max: int = _limit(
        100_000,
        "Consumer groups in one partition of `__consumer_offsets`, those that only have offsets included. Clients at "
        "one address make at most as many as they leave.",
        beyond="Requests of further groups get COORDINATOR_NOT_AVAILABLE.",
        maximum=10_000_000,
    )
    group_name_bytes_max: int = _limit(
        KIB,
        "Bytes of a new group's name. Groups that are there already go on.",
        beyond="INVALID_GROUP_ID.",
        maximum=32_000,
        minimum=16,
    )
    group_protocols_max: int = _limit(
        100,
        "Protocols (assignors) that a member of a group may offer in JoinGroup. Kafka's own clients offer four at "
        "most.",
        beyond="INVALID_REQUEST: offer fewer.",
        maximum=10_000,
    )
    group_members_bytes_max: int = _limit(
        256 * MIB,
        "What members of groups say in JoinGroup and are called, about 200 bytes for each protocol that they offer "
        "and each topic that their group subscribes to, and about 1 KiB for each of them and of their groups, on "
        "one broker. What clients at one address have of it is at most as much as they leave.",
        beyond="Further members get COORDINATOR_NOT_AVAILABLE; those that are in go on. What groups subscribe to "
        "is not remembered: none of their offsets expires or is deleted by itself while they have members "
        "(nor of a group that subscribes to more than 10,000 topics).",
        maximum=16 * 1024 * MIB,
        minimum=64 * KIB,
    )
    groups_stored_bytes_max: int = _limit(
        512 * MIB,
        "Committed offsets (about 400 bytes each, and their metadata) and stored generations of groups, on one "
        "broker. What clients at one address store of it is at most as much as they leave. What is there is loaded "
        "after a restart though it is more, and is nobody's then.",
        beyond="INVALID_COMMIT_OFFSET_SIZE for offsets of further partitions, COORDINATOR_NOT_AVAILABLE for "
        "further generations; offsets that are there are committed as ever.",
        maximum=64 * 1024 * MIB,
        minimum=8 * MIB,
    )
    groups_stored_burst_bytes: int = _limit(
        128 * MIB,
        "The same that clients at one address may add at once, on one broker; what is used up comes back at "
        "groups_stored_bytes_per_minute.",
        beyond="THROTTLING_QUOTA_EXCEEDED for offsets of further partitions, COORDINATOR_NOT_AVAILABLE for further "
        "generations.",
        maximum=64 * 1024 * MIB,
        minimum=8 * MIB,
    )
    groups_stored_bytes_per_minute: int = _limit(
        8 * MIB,
        "How many of these bytes a minute clients at one address may go on to add after a burst, on one broker: "
        "some 20,000 offsets.",
        beyond="As above.",
        maximum=64 * 1024 * MIB,
        minimum=KIB,
    )
    groups_rewritten_burst_bytes: int = _limit(
        64 * MIB,
        "Generations of groups (what each member says and was assigned, and about 400 bytes for each) that clients "
        "at one address may have written at once, on one broker: one for each rebalance, and for each static "
        "member that comes back without its id.",
        beyond="COORDINATOR_NOT_AVAILABLE: clients try again.",
        maximum=64 * 1024 * MIB,
        minimum=8 * MIB,
    )
    groups_rewritten_bytes_per_minute: int = _limit(
        64 * MIB,
        "How many of these bytes a minute clients at one address may go on to have written after a burst, on one "
        "broker.",
        beyond="As above.",
        maximum=64 * 1024 * MIB,
        minimum=MIB,
    )
    described_groups_bytes_max: int = _limit(
        4 * MIB,
        "Names, metadata and assignments of members in one answer to DescribeGroups; the first group comes whole, "
        "unless it has more than this and than a generation that can be stored (1 MiB).",
        beyond="COORDINATOR_LOAD_IN_PROGRESS for the groups that are left: tools ask for those again.",
        maximum=8 * MIB,
        minimum=KIB,
    )
    fetched_offsets_bytes_max: int = _limit(
        4 * MIB,
        "Offsets (some 400 bytes each, and their metadata) in one answer to OffsetFetch about several groups; the "
        "first group comes whole.",
        beyond="COORDINATOR_LOAD_IN_PROGRESS for the groups that are left: tools ask for those again.",
        maximum=64 * MIB,
        minimum=KIB,
    )
    group_metadata_bytes_max: int = _limit(
        8 * MIB,
        "Metadata of all offsets that one group has committed.",
        beyond="OFFSET_METADATA_TOO_LARGE for offsets that would make it more; those without metadata go on.",
        maximum=1024 * MIB,
        minimum=KIB,
    )
    admin_connections_max: int = _limit(
        256,
        "Connections to the admin address, those that ask for health and metrics included.",
        beyond="None is refused: the one that has waited longest for its peer is closed, of the address that has "
        "the most.",
        maximum=100_000,
        minimum=8,
    )
    admin_connections_per_address: int = _limit(
        64,
        "The same of one address.",
        beyond="Likewise, of that address.",
        maximum=100_000,
        minimum=2,
    )
    admin_watches_max: int = _limit(
        10_000,
        "Sidecars that wait at the admin address for channels to change, about 30 KiB each. Their connections do not "
        "count among the others; where a process may open few files, they are a quarter of those at most.",
        beyond="The one that came first of the address that has the most is closed, and asks elsewhere or later; who "
        "is of that address is refused instead (503).",
        maximum=1_000_000,
        minimum=8,
    )
    admin_watches_per_address: int = _limit(
        1_000,
        "The same of one address: more where sidecars come through one proxy, or a node's address.",
        beyond="503 for further ones.",
        maximum=1_000_000,
        minimum=2,
    )
    admin_request_within_ms: int = _limit(
        5_000,
        "How long a request's first lines may take to arrive at the admin address, from the connection's opening "
        "or the last answer.",
        beyond="The connection is closed.",
        maximum=_HOUR_MS,
        minimum=100,
    )
    admin_head_bytes_max: int = _limit(
        64 * KIB,
        "A request's first lines at the admin address: what is asked for, and headers.",
        beyond="The answer is 431, and the connection is closed.",
        maximum=MIB,
        minimum=4 * KIB,
    )
    admin_headers_max: int = _limit(
        100,
        "Headers of a request at the admin address. Nor may its body come in chunks: it is sent with a "
        "Content-Length (411).",
        beyond="The answer is 431, and the connection is closed.",
        maximum=10_000,
        minimum=20,
    )
    admin_turn_requests: int = _limit(
        4,
        "Requests at the admin address that begin in one turn of the event loop, all connections together, a ms or "
        "two.",
        beyond="The next ones begin when others had their turn, by addresses and within an address by connections.",
        maximum=1_000,
    )
    half_sent_within_ms: int = _limit(
        60_000,
        "How long a client's request may arrive at less than 64 KiB/s. While others wait for memory: five seconds, "
        "and one without a byte.",
        beyond=_CLOSED,
        maximum=24 * _HOUR_MS,
        minimum=1_000,
    )
    connections_per_address: int = _limit(
        10_000,
        "Connections of clients at one address to one proxy: some 30 KiB each while they wait for records.",
        beyond="Further ones are closed at once, and the log says so.",
        maximum=1_000_000,
    )
    look_ups_per_address: int = _limit(
        200,
        "Partitions that clients at one address look up at owners at one time (ListOffsets, OffsetForLeaderEpoch), "
        "by a proxy. One by time holds what it reads of a segment at the broker, up to 1 MiB or one batch; a "
        "broker does 32 of those at a time, of one address no more than it leaves to others, and opens two batches "
        "at a time for all of them, and one large one, by turns of addresses.",
        beyond="The others wait their turn, by connections; those of other addresses do not wait for them.",
        maximum=1_000_000,
    )
    false_batches_per_look_up: int = _limit(
        8,
        "Batches that one look-up by time in one partition (ListOffsets) opens and finds no such time in, though "
        "their headers say so, or cannot open: of topics without `bmq.validation=records`, whose producers may say "
        "what they like; each may decompress to 64 MiB.",
        beyond="Headers of batches are believed: the answer is the first offset of the next batch that says so, "
        "which is never above the record that was meant, so that who reads on from there misses nothing. "
        "The broker's log says so.",
        maximum=1_000_000,
    )
    turn_requests: int = _limit(
        50,
        "Requests that are begun in one turn of the event loop, all connections together, some ms. One that neither "
        "writes nor reads records counts as four.",
        beyond="The next ones begin when others had their turn, by addresses and within an address by connections.",
        maximum=10_000,
    )
    turn_bytes: int = _limit(
        16 * KIB,
        "The same in bytes of requests, without Produce and what is a wide one: what is decoded at once, and "
        "answered soon after.",
        beyond="Likewise.",
        maximum=16 * MIB,
        minimum=256,
    )
    produce_turn_partitions: int = _limit(
        200,
        "Partitions of one Produce request that are begun in one turn of the event loop, some ms. A request that "
        "names more is begun in turns.",
        beyond="The rest of it goes on when others had their turn; what its connection sends meanwhile is begun "
        "behind it.",
        maximum=20_000,
    )
    alike_requests_max: int = _limit(
        32,
        "Produce requests of one connection that go on as one, where they came together and differ in what they write "
        "alone: up to 32 KiB of them.",
        beyond="The others go on as the next one.",
        maximum=1_000,
    )
    produce_requests_max: int = _limit(
        20_000,
        "Produce requests under way, all connections together, some 6 KiB each: those without an outcome yet, also "
        "of clients that have gone; one with batches for more partitions counts once more for every four of them. "
        "Clients at one address have no more of them than are free: half, while they are the only ones who have so "
        "many.",
        beyond="The next ones begin when some are over, by addresses and within an address by connections.",
        maximum=1_000_000,
    )
    fetch_partitions_max: int = _limit(
        20_000,
        "Partitions in one Fetch request, forgotten ones included; and in one fetch session, however many requests "
        "it grew by.",
        beyond="The connection is closed, and the log says why; of a session, FETCH_SESSION_ID_NOT_FOUND.",
        maximum=100_000,
        minimum=1_000,
    )
    fetch_partitions_held: int = _limit(
        100_000,
        "Partitions that all Fetch requests under way name together, of those that name more than 1,000 each; and "
        "as many again of those that name 11 to 1,000 each, of which clients at one address have no more than are "
        "free: half, while they are the only ones who have so many.",
        beyond="They wait their turn; none of them waits for records longer than a second.",
        maximum=10_000_000,
        minimum=1_000,
    )
    create_topics_max: int = _limit(
        10_000,
        "Topics that one CreateTopics, CreatePartitions or DeleteTopics request may name.",
        beyond="POLICY_VIOLATION for all of them: ask for fewer at a time.",
        maximum=40_000,
    )
    create_partitions_max: int = _limit(
        10_000,
        "Partitions that one CreateTopics or CreatePartitions request may make.",
        beyond="POLICY_VIOLATION for all of its topics: ask for fewer at a time. Of what first writes make in a "
        "lane the rest is made when clients try again.",
        maximum=200_000,
    )
    create_partitions_burst: int = _limit(
        50_000,
        "Partitions that clients at one address may make at once, by a proxy; what is used up comes back at "
        "create_partitions_per_minute. A KiB of a topic's configuration, or of what is said in a change of one, "
        "counts like a partition. What first writes make in a lane counts, too.",
        beyond="THROTTLING_QUOTA_EXCEEDED with the time to wait; POLICY_VIOLATION, which says it in its text, to "
        "clients whose versions of these requests have no such error (librdkafka); for a first write in a "
        "lane UNKNOWN_TOPIC_OR_PARTITION: clients try again.",
        maximum=10_000_000,
    )
    create_partitions_per_minute: int = _limit(
        2_000,
        "How many partitions a minute clients at one address may go on to make after a burst, by a proxy.",
        beyond="THROTTLING_QUOTA_EXCEEDED with the time to wait; POLICY_VIOLATION, which says it in its text, to "
        "clients whose versions of these requests have no such error (librdkafka).",
        maximum=10_000_000,
    )
    partition_moves_burst: int = _limit(
        3,
        "How often clients and administrators may have one partition moved at once: what waits at its owner, as "
        "members of groups do, ends with each move. What drains and balances brokers is not counted.",
        beyond="THROTTLING_QUOTA_EXCEEDED (REST: 429) for that partition, with the time to wait.",
        maximum=1_000_000,
    )
    partition_moves_per_hour: int = _limit(
        60,
        "How many moves of one partition an hour come back after that.",
        beyond="As above.",
        maximum=10_000_000,
    )
    partitions_max: int = _limit(
        200_000,
        "Partitions of the cluster, all topics together. Each that was ever written to takes about 3.5 KiB of "
        "memory of the broker that owns it, whether or not anybody asks for it: upkeep opens all of those.",
        beyond="INVALID_PARTITIONS: delete topics, or raise it on all controllers.",
        maximum=10_000_000,
    )
    channels_max: int = _limit(
        1_000,
        "Channels of Databus that the cluster has. Every node holds them, and a sidecar that starts asks for all.",
        beyond="400 for further ones: delete one first, or raise it on all controllers.",
        maximum=100_000,
    )
    channel_bytes_max: int = _limit(
        16 * KIB,
        "What one of them says, as JSON without what is as by default. It is part of config_bytes_max, too.",
        beyond="400: say less, or raise it on all controllers. What is there stays, and may become smaller.",
        maximum=MIB,
        minimum=KIB,
    )
    config_bytes_max: int = _limit(
        64 * MIB,
        "Keys and values of all configurations that were set (topics', those of lanes and the cluster's), the "
        "patterns of what lanes read of the base, and channels. Every node holds them, and every snapshot of the "
        "metadata has them.",
        beyond="POLICY_VIOLATION for what would add to them: set shorter values, delete configurations or topics, "
        "or raise it on all controllers. What does not add goes on, also where there is more already: "
        "topics without a configuration, shorter values, deletions.",
        maximum=16 * 1024 * MIB,
        minimum=64 * KIB,
    )
    internal_strangers_max: int = _limit(
        256,
        "Connections to the internal address that have not shown yet that they belong to the cluster.",
        beyond="The one that came first of the address with the most is closed.",
        maximum=10_000,
        minimum=4,
    )
    producers_per_partition: int = _limit(
        10_000,
        "Idempotent producers that a partition remembers, each by its last twenty batches, and by its last five once "
        "it has been silent for ten minutes; looked at every five seconds. At most five times as many batches lie "
        "beyond the last five of each. A segment has all of its partition's: 25 to 200 bytes each.",
        beyond="The one that has been silent for longest is forgotten; it goes on with the sequence that it has, "
        "as in Kafka after producer.id.expiration.ms. Where there are too many batches those that have been silent "
        "for longest keep their last five.",
        maximum=10_000_000,
        minimum=10,
    )
    producers_per_broker: int = _limit(
        300_000,
        "Idempotent producers that all partitions of a broker remember together, and the same of their batches. One "
        "takes 220 bytes with one batch, 320 with five and 680 with twenty; while it writes, at most 320, 510 and "
        "1,230. 300,000 are 250 MB at most.",
        beyond="Partitions that remember more than the same share for each forget theirs that have been silent for "
        "longest, and batches of theirs, as above.",
        maximum=100_000_000,
        minimum=10,
    )


LIMITS: Final[tuple["Field[Any]", ...]] = fields(Limits)
"""The table: each has its default, and `doc`, `beyond`, `minimum`, `maximum` in its metadata."""

_BY_NAME: Final = {one.name: one for one in LIMITS}


def limits_of(given: Mapping[str, object]) -> Limits:
    """The defaults but for what is given, as text or numbers. Raises ConfigurationError, which names key, value and
    remedy.
    """
    values: dict[str, int] = {}
    for name, value in given.items():
        known = _BY_NAME.get(name)
        if known is None:
            raise ConfigurationError(f"{name} is no limit: use one of {', '.join(sorted(_BY_NAME))}")
        low, high = known.metadata["minimum"], known.metadata["maximum"]
        text = str(value).strip()
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise ConfigurationError(f"{name} = {text}: set a whole number from {low} to {high}")
        values[name] = int(text)
    return Limits(**values)
