"""Declaring, changing and deleting lanes, and what a lane's own topics are made of. Pure.

A lane's topics are topics like all others, under names that `bmq.naming.lanes` makes; deleting the lane deletes them in
the same entry, so nobody ever sees one without the other.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bmq.config.topic_config import POOL, overlay_first_offset
from bmq.errors import InvalidRequest, LaneExists, LaneFull, LaneInUse, UnknownLane
from bmq.metadata.derived import config_size, lane_size
from bmq.metadata.fold import changed_configs, declared_lane
from bmq.metadata.image import NESTED_MAX, Image, Lane, Topic
from bmq.metadata.records import NO_QUOTA, AnyRecord, ConfigsChanged, LaneDeclared, LaneDeleted, LaneQuota, TopicDeleted
from bmq.naming.lanes import check_lane_name, lane_of, searched_for
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.limits import DEFAULTS, Limits, check_config_bytes

POOLS_OF_LANES: Final = "lane-"
"""What the names of their pools begin with."""
LANES_MAX: Final = 1_000
TTL_S_MAX: Final = 365 * 24 * 60 * 60
BYTES_PER_S_MIN: Final = 1_024
BYTES_PER_S_MAX: Final = 1 << 40
QUOTA_PARTITIONS_MAX: Final = 1_000_000
STORAGE_BYTES_MAX: Final = 1 << 50
PARTITION_BYTES_MIN: Final = 1 << 20
"""What a partition of a lane with a quota of storage keeps at least."""
PATTERNS_MAX: Final = 64
PATTERN_LENGTH_MAX: Final = 249
EXPIRED_TOPICS_MAX: Final = 5_000
"""Topics that go at once with lanes whose time is over, but for those of one lane."""
NAMED_MAX: Final = 10
"""Lanes in what is told of a refusal."""
MIDDLES_MAX: Final = 64
MIDDLES_LENGTH_MAX: Final = 256
"""What all patterns have between stars: a name costs 12 us with so much of it, and half a ms with as much as they could
say else, in one turn of a proxy's loop for all topics of the base.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneWanted:
    """What a lane is to be. `ttl_s` 0: it stays. `reads_base` (): its clients read nothing of the base."""

    name: str
    ttl_s: int = 0
    own_brokers: bool = False
    reads_base: tuple[str, ...] = ()
    reads_base_bytes_per_s: int = 0
    falls_back: bool = False
    """Whether what nobody in it consumes goes on to the base; it stays as the lane was made."""
    parent: str = ""
    """The lane to which it goes on first, in which this one is nested; it stays as the lane was made."""
    quota: LaneQuota = NO_QUOTA
    """How much it may take of the cluster."""


def pool_of_lane(name: str) -> str:
    """The pool of a lane's own brokers."""
    return f"{POOLS_OF_LANES}{name}"


def create_lane(image: Image, now_ms: int, wanted: LaneWanted, *, limits: Limits = DEFAULTS) -> Decision[str]:
    """A lane that is not there yet. Raises RequestError."""
    _check(wanted)
    if wanted.name in image.lanes:
        raise LaneExists(f"there is a lane {wanted.name!r} already: change it, or choose another name")
    if len(image.lanes) >= LANES_MAX:
        raise InvalidRequest(f"the cluster has {len(image.lanes)} lanes, and takes {LANES_MAX}: delete one first")
    if wanted.parent:
        _check_parent(image, wanted)
    record = _declared(wanted, number=image.next_lane, created_ms=now_ms)
    _check_middles(wanted.reads_base)
    check_config_bytes(image, lane_size(declared_lane(None, record)), limits=limits)
    return Decision(wanted.name, (record,))


def change_lane(image: Image, now_ms: int, wanted: LaneWanted, *, limits: Limits = DEFAULTS) -> Decision[str]:
    """The lane is as `wanted` from now on; its topics follow it to its own brokers, or from them. Raises
    RequestError.
    """
    _check(wanted)
    before = find_lane(image, wanted.name)
    if wanted.falls_back != before.falls_back:
        is_now, is_to_be = ("base" if lane.falls_back else "none" for lane in (before, wanted))
        raise InvalidRequest(
            f"fallback = {is_to_be}: the lane was made with {is_now}, which stays: delete it and make it again, or "
            "make another one"
        )
    if wanted.parent != before.parent:
        made_in, to_be_in = (f"in {name}" if name else "in no other" for name in (before.parent, wanted.parent))
        raise InvalidRequest(
            f"parent: the lane was made {made_in}, which stays, and is to be {to_be_in}: delete it and make it again, "
            "or make another one"
        )
    if wanted.reads_base and (nested := nested_in(image, wanted.name)):
        raise InvalidRequest(
            f"reads_base: lanes are nested in {wanted.name!r} ({_some(nested)}), and what goes on from them would be "
            "read in place of the base's: delete those first"
        )
    if wanted.ttl_s and wanted.ttl_s != before.ttl_s and before.created_ms + wanted.ttl_s * 1000 <= now_ms:
        age_s = (now_ms - before.created_ms) // 1000
        raise InvalidRequest(
            f"ttl_seconds = {wanted.ttl_s}: the lane was created {age_s} s ago, so its time would be over at once, "
            f"and its topics and groups gone: set more than {age_s}, or delete the lane"
        )
    after = _declared(wanted, number=before.number, created_ms=before.created_ms)
    if after == _declared(_as_wanted(before), number=before.number, created_ms=before.created_ms):
        return Decision(wanted.name)
    if wanted.reads_base != before.reads_base:
        _check_middles(wanted.reads_base)
        _check_middles(declared_lane(before, after).has_read_base, which="what its clients could read so far has")
    have = image.lane_partitions.get(wanted.name, 0)
    if 0 < wanted.quota.partitions < have:
        raise InvalidRequest(
            f"quota.partitions = {wanted.quota.partitions}: the lane has {have} partitions, and none can be taken "
            "away: set that many at least, or delete topics of it first"
        )
    records: list[AnyRecord] = [after]
    added_bytes = lane_size(declared_lane(before, after)) - lane_size(before)
    if before.own_brokers != wanted.own_brokers:
        pool = pool_of_lane(wanted.name) if wanted.own_brokers else None
        for topic in topics_of(image, [wanted.name]):
            changes = {POOL: pool}
            records.append(ConfigsChanged(kind="topic", name=str(topic.topic_id), changes=changes))
            added_bytes += config_size(changed_configs(topic.configs, changes)) - config_size(topic.configs)
    check_config_bytes(image, added_bytes, limits=limits)
    return Decision(wanted.name, tuple(records))


def delete_lanes(image: Image, names: Collection[str]) -> Decision[int]:
    """Lanes with their topics; says how many topics. Raises UnknownLane, LaneInUse where another one is nested in one
    of them.
    """
    lanes = [find_lane(image, name) for name in names]
    names = frozenset(names)
    if in_use := {lane.parent for lane in image.lanes.values() if lane.name not in names} & names:
        lane = next(lane for lane in lanes if lane.name in in_use)
        nested = [name for name in nested_in(image, lane.name) if name not in names]
        raise LaneInUse(f"in {lane.name!r} there are nested {_some(nested)}, of which what they have goes on to it")
    topics = topics_of(image, names)
    gone: list[AnyRecord] = [
        TopicDeleted(
            topic_id=topic.topic_id,
            name=topic.name,
            last_leader_epoch=max(meta.leader_epoch for meta in topic.partitions),
        )
        for topic in topics
    ]
    return Decision(len(topics), (*gone, *(LaneDeleted(name=lane.name, number=lane.number) for lane in lanes)))


def expired(image: Image, now_ms: int) -> list[str]:
    """The lanes whose time is over. One that others are nested in stays for as long as they do."""
    over = [lane.name for lane in image.lanes.values() if lane.expires_ms is not None and lane.expires_ms <= now_ms]
    parents = {lane.parent for lane in image.lanes.values()} if over else set()
    return [name for name in over if name not in parents]


def nested_in(image: Image, name: str) -> list[str]:
    """The lanes that are nested in this one itself."""
    return [lane.name for lane in image.lanes.values() if lane.parent == name]


def delete_expired(image: Image, now_ms: int) -> Decision[list[str]]:
    """Deletes them: some, where they have very many topics, and the others next time."""
    over = expired(image, now_ms)
    counts = Counter(map(lane_of, image.topic_ids)) if over else Counter()
    names: list[str] = []
    left = EXPIRED_TOPICS_MAX
    for name in over:
        if names and counts[name] > left:
            break
        names.append(name)
        left -= counts[name]
    return Decision(names, delete_lanes(image, names).records)


def find_lane(image: Image, name: str) -> Lane:
    """Raises UnknownLane."""
    lane = image.lanes.get(name)
    if lane is None:
        raise UnknownLane(f"there is no lane {name[:40]!r}: list the lanes, or create it")
    return lane


def topics_of(image: Image, names: Collection[str]) -> list[Topic]:
    """All topics of these lanes. O(topics)."""
    names = frozenset(names)
    return [
        image.topics[topic_id]
        for stored, topic_id in image.topic_ids.items()
        if (lane := lane_of(stored)) and lane in names
    ]


def overlay_configs(lane: Lane, base: Topic | None, given: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a lane's topic: the base topic's, then what was given; and where its partitions live is the
    lane's to say.

    Where the lane's clients may have read the base's, its offsets begin above all of those.
    """
    configs = {**({} if base is None else base.configs), **given}
    if base is not None:
        configs.update(overlay_first_offset(base.name, lane.has_read_base))
    configs.pop(POOL, None)
    if lane.own_brokers:
        configs[POOL] = pool_of_lane(lane.name)
    return configs


def check_lane_partitions(image: Image, lane: Lane, added: int) -> None:
    """Raises LaneFull where its own topics would have more partitions than its quota says."""
    have, most = image.lane_partitions.get(lane.name, 0), lane.quota.partitions
    if most and have + added > most:
        raise LaneFull(
            f"the lane {lane.name!r} has {have} partitions and would have {have + added}; its quota is {most}: delete "
            "topics in it, or have its quota raised"
        )


def _check(wanted: LaneWanted) -> None:
    check_lane_name(wanted.name)
    if not 0 <= wanted.ttl_s <= TTL_S_MAX:
        raise InvalidRequest(f"ttl_seconds = {wanted.ttl_s}: set 0 (it stays) to {TTL_S_MAX}")
    if len(wanted.reads_base) > PATTERNS_MAX:
        raise InvalidRequest(f"reads_base names {len(wanted.reads_base)} patterns: name at most {PATTERNS_MAX}")
    for pattern in wanted.reads_base:
        if not 1 <= len(pattern) <= PATTERN_LENGTH_MAX:
            raise InvalidRequest(
                f"reads_base has a pattern of {len(pattern)} characters: use 1 to {PATTERN_LENGTH_MAX}"
            )
    if wanted.falls_back and wanted.reads_base:
        raise InvalidRequest(
            "fallback = base and reads_base: clients of a lane that reads the base would read there what went on from "
            "the lane: choose one of the two"
        )
    if wanted.parent and not wanted.falls_back:
        raise InvalidRequest(
            f"parent = {wanted.parent} and fallback = none: what nobody in the lane consumes goes on to its parent "
            "first: set fallback = base"
        )
    _check_quota(wanted.quota)
    if wanted.reads_base and not BYTES_PER_S_MIN <= wanted.reads_base_bytes_per_s <= BYTES_PER_S_MAX:
        raise InvalidRequest(
            f"bytes_per_second = {wanted.reads_base_bytes_per_s}: set {BYTES_PER_S_MIN} to {BYTES_PER_S_MAX}"
        )


def _check_quota(quota: LaneQuota) -> None:
    for name, value, least, most in (
        ("write_bytes_per_second", quota.write_bytes_per_s, BYTES_PER_S_MIN, BYTES_PER_S_MAX),
        ("read_bytes_per_second", quota.read_bytes_per_s, BYTES_PER_S_MIN, BYTES_PER_S_MAX),
        ("partitions", quota.partitions, 1, QUOTA_PARTITIONS_MAX),
        ("storage_bytes", quota.storage_bytes, PARTITION_BYTES_MIN, STORAGE_BYTES_MAX),
    ):
        if value and not least <= value <= most:
            raise InvalidRequest(f"quota.{name} = {value}: set 0 (no bound), or {least} to {most}")
    if quota.storage_bytes and quota.partition_bytes < PARTITION_BYTES_MIN:
        why = f"{quota.partition_bytes} for each partition" if quota.partitions else "and no quota.partitions"
        raise InvalidRequest(
            f"quota.storage_bytes = {quota.storage_bytes}, {why}: each of the lane's partitions keeps an equal part of "
            f"it, and {PARTITION_BYTES_MIN} at least: set quota.partitions, and storage_bytes for so many"
        )


def _check_parent(image: Image, wanted: LaneWanted) -> None:
    parent = image.lanes.get(wanted.parent)
    if parent is None:
        raise InvalidRequest(f"parent = {wanted.parent[:40]}: there is no such lane: create it first")
    if parent.reads_base:
        raise InvalidRequest(
            f"parent = {parent.name}: its clients read the base, and what goes on to it would be read in its place: "
            "choose a lane that does not"
        )
    depth = 1 + sum(1 for _ in image.parents(parent))
    if depth >= NESTED_MAX:
        raise InvalidRequest(
            f"parent = {parent.name}: it is nested in {depth - 1} others itself, and {NESTED_MAX} may be one in the "
            "other"
        )


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _check_middles(patterns: Collection[str], *, which: str = "reads_base has") -> None:
    middles = searched_for(patterns)
    count, length = len(middles), sum(map(len, middles))
    if count > MIDDLES_MAX or length > MIDDLES_LENGTH_MAX:
        raise InvalidRequest(
            f"{which} {count} texts between two stars, of {length} characters together: use at most {MIDDLES_MAX} of "
            f"{MIDDLES_LENGTH_MAX}, or say how names begin or end; a lane that is made again has read nothing"
        )


def _declared(wanted: LaneWanted, *, number: int, created_ms: int) -> LaneDeclared:
    return LaneDeclared(
        name=wanted.name,
        number=number,
        created_ms=created_ms,
        ttl_s=wanted.ttl_s,
        own_brokers=wanted.own_brokers,
        reads_base=wanted.reads_base,
        reads_base_bytes_per_s=wanted.reads_base_bytes_per_s,
        falls_back=wanted.falls_back,
        parent=wanted.parent,
        quota=wanted.quota,
    )


def _as_wanted(lane: Lane) -> LaneWanted:
    return LaneWanted(
        name=lane.name,
        ttl_s=lane.ttl_s,
        own_brokers=lane.own_brokers,
        reads_base=lane.reads_base,
        reads_base_bytes_per_s=lane.reads_base_bytes_per_s,
        falls_back=lane.falls_back,
        parent=lane.parent,
        quota=lane.quota,
    )
