"""Constants of the services beyond which another way through the code opens: a seed has them tiny, as it has tiny
settings.

They are what nobody who runs bmq has to set. All nodes of a run have the same, for some decide what an image or a
stored object is. Each is drawn by its name and its module's: an entry that is added, or goes, leaves what every seed
makes of the others. `FIXED` names every other number of those modules with why no seed changes it; a test compares both
with the modules.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

from bmq.config.limits import Limits

SMALL: Final[Mapping[str, Sequence[int]]] = {
    "bmq.fairness.crowd:WOKEN_PER_TURN": (1, 2),
    # what is stored
    "bmq.storage.flatlog:READS_AHEAD": (1, 2),
    "bmq.storage.flatlog:DELETES_AT_ONCE": (1, 2),
    "bmq.storage.stream:PASSED_AT_ONCE": (1, 2),
    "bmq.storage.stream_read:READS_AHEAD": (1, 2),
    "bmq.storage.stream_seal:SEALS_AHEAD_MAX": (1, 2, 4),
    "bmq.storage.segment_index:BLOCK_SIZE_BYTES": (100, 1_000),
    "bmq.storage.stream_seal:OWNER_DELETES_AT_ONCE": (1, 2),
    "bmq.metadata.fold:TOMBSTONES_MAX": (1, 3),
    "bmq.metadata.fold:PAST_BOOTS_MAX": (1, 2),
    "bmq.metadata.shared_map:LEAF_MAX": (1, 4),
    "bmq.metadata.shared_map:LEAF_GROWN": (1, 2),
    "bmq.metadata.shared_map:LEAF_MIN": (0, 1),
    "bmq.metadata.journal:SNAPSHOTS_KEPT": (1,),
    "bmq.metadata.journal:FOLDED_BESIDE_BYTES": (0, 100, 1_000),
    # between nodes
    "bmq.internal.links.client:WRITE_BYTES": (1_000,),
    "bmq.internal.framing.frames:_JOIN_BYTES_MAX": (0, 100),
    "bmq.internal.calls.follow_calls:KEPT_FRAME_BYTES": (0, 1_000),
    "bmq.internal.calls.follow_calls:COPIED_SHARE": (1, 2),
    "bmq.internal.limits:FOLLOWED_LOOKED_AT": (1, 2),
    "bmq.internal.limits:PART_BYTES": (100, 1_000),
    "bmq.internal.limits:GROUP_READS_ADDRESS_BYTES_MAX": (4, 4_000),
    "bmq.internal.serving.group_reads:NARROW_BYTES": (0, 2_000),
    "bmq.internal.serving.group_reads:PASSED_OVER_MAX": (1, 2),
    "bmq.internal.tails.tail_session:NEWS_AT_ONCE": (1, 3),
    "bmq.internal.tails.tail_follower:CHANGED_AT_ONCE": (1, 2),
    "bmq.internal.remote.remote_owner:FEW_PARTITIONS": (0, 1),
    "bmq.internal.remote.remote_owner:LEAST_BYTES": (1, 1_000),
    "bmq.internal.calls.controller_calls:ENTRIES_BYTES_MAX": (1, 1_000),
    # the broker
    "bmq_broker.broker:UNREAD_AT_ONCE": (1, 2),
    "bmq_broker.broker:LOOKED_AT_ONCE": (1, 2),
    "bmq_broker.broker:FEW_PARTITIONS": (0, 1),
    "bmq_broker.handlers.k08_offset_commit:_OFFSETS_PER_TURN": (1,),
    "bmq_broker.wal.carrying:PARTITIONS_AT_ONCE": (1, 2),
    "bmq_broker.wal.commit:BUFFER_MAX_FLUSHES": (1,),
    "bmq_broker.segments.garbage:DELETES_PER_SWEEP_MAX": (5, 20),
    "bmq_broker.segments.garbage:DELETES_AT_ONCE": (1, 2),
    "bmq_broker.coordinators.groups.loading:_BATCHES_PER_TURN": (1, 3),
    "bmq_broker.coordinators.groups.deadlines:_DEADLINES_PER_TURN": (1,),
    "bmq_broker.coordinators.groups.service:_LOOKS_PER_TURN": (1,),
    "bmq_broker.coordinators.groups.asked:REPLIES_PER_TURN": (1, 2),
    "bmq_broker.coordinators.groups.subscription:TOPICS_MAX": (0, 1),
    "bmq_broker.coordinators.groups.subscription:_KNOWN_MAX": (1,),
    "bmq_broker.coordinators.groups.turns:TURN_BYTES": (1,),
    "bmq_broker.coordinators.groups.walks:OFFSETS_PER_TURN": (1, 3),
    "bmq_broker.coordinators.groups.walks:_BYTES_PER_TURN": (1,),
    "bmq_broker.coordinators.groups.walks:_GROUPS_PER_TURN": (1,),
    "bmq_broker.coordinators.groups.walks:_NAMES_PER_TURN": (1, 3),
    "bmq_broker.handlers.k13_leave_group:_LEAVERS_PER_TURN": (1, 2),
    "bmq_broker.handlers.k16_list_groups:_IDS_PER_TURN": (1,),
    "bmq_broker.handlers.k16_list_groups:_PAGE_CHARACTERS": (10,),
    "bmq_broker.handlers.k16_list_groups:_PAGE_GROUPS": (1, 2),
    "bmq_broker.coordinators.groups.timers:_SLACK": (0, 2),
    "bmq_broker.heartbeats:REPORTS_MAX": (1, 2),
    "bmq_broker.ownership.passes:PASSES_AT_ONCE": (1,),
    "bmq_broker.lag:GROUPS_AT_ONCE": (1, 2),
    "bmq_broker.lag:NAME_CHARS_MAX": (1, 2),
    "bmq_broker.lag:POSITIONS_MAX": (1,),
    "bmq_broker.lag:POSITIONS_AT_ONCE": (1,),
    "bmq_broker.ownership.leaving:ROLLS_MAX": (1,),
    "bmq_broker.ownership.reconfiguring:AT_ONCE": (1, 2),
    "bmq_broker.segments.lookups:SEGMENT_LOOK_UPS_AT_ONCE": (1, 2),
    "bmq_broker.segments.lookups:TAIL_BATCHES_PER_TURN": (1, 3),
    "bmq_broker.upkeep:YIELD_EVERY": (1, 2),
    "bmq_broker.segments.manifests:KEPT_VERSIONS": (1, 2, 4),
    "bmq.fairness.opening:ORDINARY_BYTES_MAX": (100, 1_000),
    "bmq.fairness.opening:ORDINARY_COMPRESSED_BYTES_MAX": (100, 1_000),
    "bmq_broker.wal.pacing:LARGE_BYTES": (100, 2_000),
    "bmq_broker.partitions.tail:OF_ONE_AGE_SHARE": (2,),
    "bmq_broker.ownership.recovery:STREAMS_AT_ONCE": (1,),
    "bmq_broker.ownership.recovery:READS_AHEAD": (1,),
    "bmq_broker.ownership.recovery:COPY_BELOW": (1, 8),
    "bmq_broker.segments.roll_writing:ATTEMPTS_MAX": (2,),
    "bmq_broker.segments.roll_writing:COMMITS_AT_ONCE": (1, 2),
    "bmq_broker.segments.roll_writing:SHARED_BYTES_MAX": (400, 2_000),
    "bmq_broker.segments.roll_writing:SHARED_RUNS_MAX": (1, 2),
    "bmq_broker.segments.retention:BELOW_SNAPSHOT_BYTES_MAX": (1, 5_000),
    "bmq_broker.segments.retention:DAY_MS": (3_000, 20_000),
    "bmq_broker.segments.rolling:RELIEF_PARTS": (2,),
    "bmq_broker.segments.rolling:REFUSED_MAX": (1,),
    "bmq_broker.segments.rolling:LOOKED_AT_PER_OBJECT": (1,),
    "bmq_broker.segments.rolling:OBJECTS_PER_ROLL": (1, 2),
    "bmq_broker.segments.rolling:ROLLS_SAVED_PARTS": (1,),
    "bmq_broker.segments.rolling:TOGETHER_PARTS": (1, 2),
    "bmq_broker.segments.shared_garbage:WATCHED_MAX": (4, 16),
    "bmq_broker.segments.shared_garbage:DIRECTORIES_PER_SWEEP_MAX": (5, 10),
    "bmq_broker.segments.shared_garbage:CLAIMS_PER_SWEEP_MAX": (2,),
    # the controller
    "bmq_controller.collector:DELETES_AT_ONCE": (1,),
    "bmq_controller.collector:KEYS_AT_ONCE": (1, 3),
    "bmq_controller.fencer:SEALS_AT_ONCE": (1,),
    "bmq_controller.machine.asked_moves:_LOOKED_THROUGH_FROM": (0, 2),
    "bmq_controller.machine.balance_evening:_EXCHANGES_TRIED_MAX": (1,),
    "bmq_controller.recent:ENTRIES_MAX": (1, 3),
    "bmq_controller.recent:BYTES_MAX": (100, 1_000),
    "bmq_controller.recent:REPLY_BYTES_MAX": (1, 300),
    "bmq_controller.strays:DELETES_AT_ONCE": (1,),
    "bmq_controller.strays:PER_ROUND_MAX": (10, 30),
    # the proxy
    "bmq_proxy.proxy:OPERATIONS_AT_ONCE": (1, 2),
    "bmq_proxy.appends:GIVEN_UP_MAX": (1, 2),
    "bmq_proxy.admission:PASSED_OVER_MAX": (1, 2),
    "bmq_proxy.bulk:DELETIONS_PER_ADDRESS": (1, 2),
    "bmq_proxy.bulk:TURN_ELEMENTS": (1, 3),
    "bmq_proxy.bulk:WIDE_ELEMENTS": (1, 3),
    "bmq_proxy.bulk:FEW_PARTITIONS": (0, 1),
    "bmq_proxy.bulk:SMALL_BYTES": (0, 40),
    "bmq_proxy.bulk:COUNTED_ANSWER_BYTES": (100,),
    "bmq_proxy.endpoint:ARRIVING_SHARE": (40, 200),
    "bmq_proxy.endpoint:FORMS_MAX": (1, 2),
    "bmq_proxy.intake:SPLIT_AT_ONCE": (1, 3, 5),
    "bmq_proxy.caches:TOGETHER_BYTES": (1, 1_000),
    "bmq_proxy.connection:ALIKE_BYTES_MAX": (400, 1_000),
    "bmq_proxy.connection:OUTGOING_PARTS_MAX": (1, 2),
    "bmq_proxy.connection:WAITING_BYTES_MAX": (300,),
    "bmq_proxy.coordinators:CALLS_AT_ONCE": (1,),
    "bmq_proxy.coordinators:IDS_PER_TURN": (1,),
    "bmq_proxy.fetch.blocks:BLOCK_SIZE_BYTES": (4_000, 30_000),
    "bmq_proxy.fetch.blocks:TAIL_GETS_AT_ONCE": (2,),
    "bmq_proxy.fetch.reader:PLANNED_AT_ONCE": (1, 2),
    "bmq_proxy.fetch.reader:SMALL_BYTES": (100,),
    "bmq_proxy.fetch.reader:NEAR_TAIL_ENTRIES": (0, 1),
    "bmq_proxy.fetch.segments:LOOKED_AT_ONCE": (1, 2),
    "bmq_proxy.fetch.tails:ASKED_MAX": (1, 2),
    "bmq_proxy.fetch.segments:READERS_MAX": (1, 2),
    "bmq_proxy.handlers.k02_list_offsets:LOOK_UPS_AT_ONCE": (1,),
    "bmq_proxy.handlers.k21_delete_records:DELETIONS_AT_ONCE": (1,),
    "bmq_proxy.handlers.k23_offset_for_leader_epoch:LOOK_UPS_AT_ONCE": (1,),
    "bmq_proxy.handlers.k44_incremental_alter_configs:ALTERATIONS_AT_ONCE": (1,),
    "bmq_proxy.lanes.groups:LISTED_PER_TURN": (1,),
    "bmq_proxy.lanes.fallback.closing:AT_ONCE": (1, 2),
    "bmq_proxy.lanes.fallback.closing:ROUND_MAX": (1, 2),
    "bmq_proxy.lanes.fallback.pump:READ_BYTES": (200, 1_000),
    "bmq_proxy.lanes.fallback.pump:READ_AT_ONCE": (1, 2),
    "bmq_proxy.lanes.fallback.pump:APPENDS_AT_ONCE": (1, 2),
    "bmq_proxy.lanes.fallback.pump:DISTANCE_MAX": (20, 60),
    "bmq_proxy.lanes.fallback.pump:APPENDED_BYTES": (1, 300),
    "bmq_proxy.lanes.fallback.runs:RUN_BATCHES": (1, 2),
    "bmq_proxy.lanes.fallback.runs:RUN_RECORDS": (1, 3),
    "bmq_proxy.lanes.fallback.runs:RUN_BYTES": (100, 400),
    "bmq_proxy.lanes.fallback.rewriting:PIECE_BYTES": (1, 10),
    "bmq_proxy.lanes.fallback.rewriting:PIECE_RECORDS": (1, 2),
    "bmq_proxy.lanes.fallback.worker:LOOKED_AT_ONCE": (1, 2),
    "bmq_proxy.lanes.fallback.worker:REWRITTEN_AT_ONCE": (1, 2),
    "bmq_controller.machine.lanes:EXPIRED_TOPICS_MAX": (1, 2),
    "bmq_proxy.lanes.reading:ENDS_KEPT_MAX": (1,),
    "bmq_proxy.lanes.stale_commits:OWNERS_AT_ONCE": (1,),
    "bmq_proxy.ordered_names:LOOKED_AT_PER_TURN": (1, 2),
    "bmq_proxy.producer_ids:BLOCK_SIZE": (1, 2),
    "bmq_proxy.proofs:INLINE_RECORDS_MAX": (1,),
    "bmq_proxy.proofs:INLINE_COMPRESSED_BYTES_MAX": (10,),
    "bmq_proxy.proofs:INLINE_OPENED_BYTES_MAX": (10,),
    "bmq_proxy.server:SWEEP_EVERY": (1,),
    "bmq.metadata.image:HAS_READ_MAX": (1, 2),
    "bmq_broker.ownership.reports:VERSIONS_APART": (1, 3),
    "bmq_proxy.fair_memory:PASSED_OVER_MAX": (1, 2),
    "bmq_proxy.under_way:PARTITIONS_PER_REQUEST": (1,),
    "bmq_proxy.under_way:LOOKED_AT_MAX": (1, 2),
    "bmq_proxy.fair_memory:ROOMS_AT_ONCE": (1,),
}
"""By module and name: what a seed may make of it. A third of the seeds have what is shipped, of each."""

IMPORTED: Final[Mapping[str, Sequence[str]]] = {
    "bmq.metadata.image:HAS_READ_MAX": ("bmq.metadata.fold",),
    "bmq.storage.stream_seal:OWNER_DELETES_AT_ONCE": ("bmq.storage.stream",),
    "bmq_broker.wal.carrying:PARTITIONS_AT_ONCE": ("bmq_broker.segments.rolling",),
    "bmq_broker.coordinators.groups.turns:TURN_BYTES": ("bmq_broker.coordinators.groups.service",),
    "bmq_broker.coordinators.groups.walks:OFFSETS_PER_TURN": tuple(
        f"bmq_broker.handlers.{name}" for name in ("k09_offset_fetch", "k42_delete_groups", "k47_offset_delete")
    ),
    "bmq_broker.heartbeats:REPORTS_MAX": ("bmq_broker.main",),
    "bmq_broker.segments.roll_writing:SHARED_BYTES_MAX": ("bmq_broker.segments.rolling",),
    "bmq_broker.segments.roll_writing:SHARED_RUNS_MAX": ("bmq_broker.segments.rolling",),
    "bmq_proxy.fetch.blocks:BLOCK_SIZE_BYTES": ("bmq_proxy.fetch.segments",),
}
"""Modules that have them under the same name."""
DRAWN_AS: Final[Mapping[str, str]] = {
    "bmq_broker.upkeep:YIELD_EVERY": "maintenance:YIELD_EVERY",
    "bmq_proxy.fair_memory:PASSED_OVER_MAX": "request_memory:PASSED_OVER_MAX",
    "bmq_proxy.fair_memory:ROOMS_AT_ONCE": "request_memory:ROOMS_AT_ONCE",
}
"""By what text of it its random numbers follow from the seed, where that is another one than `module:NAME`."""

FIXED: Final[Mapping[str, str]] = {
    r"bmq\.metadata\.image:NESTED_MAX": "lanes are nested one in the other in seeds, and as deep as may be in tests",
    r".*:_?[A-Z_]*(_S|_MS|_S_MAX|_S_MIN|_MS_MAX|_MS_MIN|_MS_MAX|_WITHIN_S)": "a time: it passes virtually, and faults last longer",
    r".*:_?[A-Z_]*(VERSION|VERSION_MIN|FROM|_UP_TO|MIB|CRC|HEADER|HEADER_END)": "a version of a protocol or a format, or a unit",
    r".*:_?[A-Z_]*(HEADER|FOOTER|ENVELOPE|ENTRY|SEAL|CRC|ID)_SIZE_BYTES": "the size of a part of a stored object",
    r".*:_?(TOPIC|BROKER|BROKER_LOGGER|GROUP|BROKERS|CODE|NOT_YET|NO_NODE|NOBODY|NOWHERE|NUMBER_DIGITS|FIRST_NUMBER|CLAIM|MASK)": "a name",
    r".*:_?(LATEST|EARLIEST|MAX_TIMESTAMP|EARLIEST_LOCAL|LATEST_TIERED|READ_COMMITTED|PREFERRED|UNCLEAN|TOPIC_ID_TAG)": "a number of the protocol's",
    r"bmq_broker\.coordinators\.groups\.records:_((GROUP|MEMBER)_FIXED_BYTES|EXPIRE_MS_TAG)": "of a stored format",
    r"bmq_broker\.segments\.manifests:FIRST_OWNERS_EPOCH": "of a stored format",
    r".*:_?(FINAL_EPOCH|INITIAL_EPOCH|NO_SESSION|NOT_ASKED|ALL_OPERATIONS|AUTHORIZED_OPERATIONS_UNKNOWN|LAST_OFFSET_DELTA_AT)": "of the protocol's",
    r".*:_?(EPOCH_MAX|NUMBER_MAX|NUMBER_MIN|SEQUENCES|PRODUCER_ID_MAX|NODE_ID_MAX|EXPIRE_MS_MAX)": "as much as its field holds",
    r".*:_?(PAYLOAD_SIZE_BYTES_MAX|RUN_SIZE_BYTES_MAX|WAL_OBJECT_SIZE_BYTES_MAX|STRING_SIZE_BYTES_MAX|VARINT_BYTES_MAX)": "what its field holds",
    r"bmq_proxy\.spreading:.*": "of a hash function",
    r"bmq_broker\.broker:_NO_LIMIT": "more than anything is",
    r"bmq_controller\.controller:LEASES_OF_A_GRACE": "a ratio: the grace is 3 or 8 s in seeds",
    r".*:_?[A-Z_]*NAMED_MAX": "how much of a list a message names",
    r".*:_?[A-Z_]*(SHARE|SHARE_MAX|SHARES|_PARTS|HELD_TIMES)": "a ratio",
    r"bmq_broker\.ownership\.opening_turns:WANTING_MAX": "whose turn brings an opening: beyond it that of those who came first, as in test_opening_turns.py",
    r"bmq_broker\.wal\.commit:GATHERING_TURNS": "when a buffer goes, not what goes: seeds have lingers of 0 to 100 ms",
    r"bmq\.metadata\.journal:LOADS_MAX": "more than faults take, so that a start does not fail for bad luck",
    r"bmq\.storage\.durable:.*": "probabilities of a second request and tries: chance decides, not size",
    r"bmq\.storage\.flatlog:LOOKS_MAX": "more than faults take",
    r"bmq_broker\.coordinators\.groups\.membership:OFFERS_TIMES_RECORD|bmq_proxy\.handlers\.k09_offset_fetch:ALL_COUNTS": "a ratio",
    r"bmq_broker\.coordinators\.groups\.(group|durable|tally):.*|bmq_broker\.segments\.stopped_partitions:.*": "an estimate",
    r"bmq_broker\.partitions\.tail:(BATCH|RUN)_MEMORY_BYTES": "an estimate",
    r"bmq_proxy\.handlers\.k15_describe_groups:GROUP_BYTES_MAX|bmq_proxy\.coordinators:_ID_CHARS": "an estimate",
    r"bmq_proxy\.creation:.*|bmq_proxy\.handlers\.k19_create_topics:.*": "wide CreateTopics, by tests of the proxy",
    r"bmq_proxy\.authorized:.*": "of the protocol's",
    r"bmq\.storage\.flatlog:(UNSETTLED_MAX|CANDIDATES_MAX)": "a guard against a log that only an attacker makes",
    r"bmq\.storage\.manifest:ENTRIES_MAX": "what a stored manifest may have; how many it gets is a setting, which "
    "is tiny",
    r"bmq\.storage\.stream:IN_FLIGHT_MAX": "the default of a setting, which is tiny",
    r"bmq\.storage\.stream_read:DELETES_AT_ONCE": "bound when it is imported: how many at a time, as the "
    "collector's, which is tiny",
    r"bmq_broker\.(heartbeats|membership):BEATS_PER_LEASE|bmq_node\.membership:BEATS_PER_LEASE": "a ratio",
    r"bmq_broker\.ownership\.passes:AGAIN_TIMES_MAX": "a ratio: how much longer a stopped partition waits each time",
    r"bmq_broker\.ownership\.salvaging:.*": "of a checksum",
    r"bmq_broker\.loads:LOAD_MIN_BYTES_PER_S": "a rate",
    r"bmq_broker\.segments\.lookups:PLANS_MAX": "tries after a move; more moves than that at once are met anyway",
    r"bmq_broker\.partitions\.producers:_(TIMED|SIZE|NEWEST_SIZE|KEPT_SIZE|LAST_SEQUENCE_AT)": "how many numbers a stored "
    "batch has, and their bytes",
    r"bmq_broker\.partitions\.producers:(KEPT|REMEMBERED)_BATCHES": "what clients have in flight, by the protocol, and "
    "more",
    r"bmq_broker\.partitions\.producers:SILENT_MS": "longer than a client tries to send a batch again",
    r"bmq_broker\.partitions\.beginnings:REMEMBERED_MAX": "against abuse, by a test",
    r"bmq_broker\.partitions\.validation:.*": "what a batch may be",
    r"bmq_broker\.handlers\.(group_errors:_TEXT_MAX|k11_join_group:_(ID_PREFIX|CLIENT_ID)_MAX)": "the length of a text",
    r"bmq_broker\.heartbeats:TROUBLE_LENGTH_MAX": "the length of a text",
    r"bmq_controller\.api\..*": "limits of the REST API, which tests ask for one by one",
    r"bmq_controller\.controller:REGISTRATION_TRIES_MAX|bmq_node\.alone:REGISTERED_AGAIN_MAX": "more than faults take",
    r"bmq_controller\.machine\.lanes:.*": "what a lane may be: refused beyond, by tests of the machine",
    r"bmq_controller\.machine\.(producer_ids:BLOCK_SIZE_MAX|topics:.*)": "refused beyond, by tests of the machine",
    r"bmq_controller\.machine\.registrable:.*": "what a node may say of itself: refused beyond, by tests of the "
    "machine",
    r"bmq_controller\.operations:(DECISION|ELEMENT|FOLDING|LIST|TOPIC)_WORK": "an estimate; how much of it an entry takes is a setting, "
    "which is tiny",
    r"bmq_controller\.strays:CURRENT_TRIES_MAX": "more than faults take",
    r"bmq_proxy\.api:ERRORS_LOOKED_AT": "how many errors of an answer the log looks at",
    r"bmq_proxy\.fetch\.manifests:_OVERHEAD_ENTRIES|bmq_proxy\.fetch\.segments:INDEX_BLOCK_COST_BYTES": "an estimate",
    r"bmq_proxy\.fetch\.reader:MANIFESTS_TRIED_MAX": "tries after an owner's merge; fewer would fail reads that "
    "faults make slow",
    r"bmq_proxy\.handlers\.k03_metadata:.*|bmq_proxy\.handlers\.k32_describe_configs:.*": "answers that are kept or wide, by tests of the proxy",
    r"bmq_proxy\.handlers\.(k33|k35|k75).*": "an API that no simulated client uses, by tests of the proxy",
    r"bmq_proxy\.(intake:UNASKED_BYTES_MAX|metrics:_SOFTWARE_MAX)": "against abuse, by its tests",
    r"bmq_node\.configuration\.node_settings:ONE_DISK_CATCH_UP_GETS": "the default of a setting",
}
"""By a pattern for module and name: why no seed changes the number."""


SMALL_LIMITS: Final[Mapping[str, Sequence[int]]] = {
    "request_inline_bytes_max": (256,),
    "alike_requests_max": (1, 2, 4),
    "turn_requests": (1, 3),
    "turn_bytes": (256, 1_000),
    "produce_turn_partitions": (1, 2),
    "produce_requests_max": (1, 3),
}
"""Limits of a proxy that decide when a request is begun, by name. Half of the seeds have what is shipped, of each."""


Chance = Callable[[str], Random]
"""A stream of chance for each name, as `World.rng`."""
T = TypeVar("T")


def limits_of(chance: Chance) -> Limits:
    """What a node of this seed lets a client do."""
    drawn = {name: chance(f"limits of requests: {name}") for name in SMALL_LIMITS}
    return Limits(**{name: rng.choice(SMALL_LIMITS[name]) for name, rng in drawn.items() if rng.random() < 1 / 2})


class Draws:
    """Settings of a seed, each drawn by its name: one that is added, or goes, leaves what every seed makes of the
    others.
    """

    def __init__(self, chance: Chance, of: str) -> None:
        """`of`: whose settings."""
        self._chance = chance
        self._of = of

    def choice(self, name: str, choices: Sequence[T]) -> T:
        """One of them."""
        return self._chance(f"{self._of}: {name}").choice(choices)


@contextlib.contextmanager
def small(chance: Chance) -> Iterator[None]:
    """Has the constants as this seed wants them, until the block ends."""
    shipped = _shipped()
    try:
        for place, choices in SMALL.items():
            rng = chance(f"limits: {_drawn_as(place)}")
            if rng.random() < 2 / 3 and place in shipped:
                _set(place, rng.choice(choices))
        yield
    finally:
        for place, value in shipped.items():
            _set(place, value)


def _shipped() -> dict[str, int]:
    """Those that are there: one that has gone fails its test, and no run."""
    found = {}
    for place in SMALL:
        module, name = place.split(":")
        with contextlib.suppress(ImportError, AttributeError):
            found[place] = getattr(importlib.import_module(module), name)
    return found


def _drawn_as(place: str) -> str:
    """Module and name without the packages that it is in: one that moves to another room, or is called otherwise
    (`DRAWN_AS`), leaves the seeds as they are.
    """
    return DRAWN_AS.get(place, place.rpartition(".")[2])


def _set(place: str, value: int) -> None:
    module, name = place.split(":")
    for holder in (module, *IMPORTED.get(place, ())):
        setattr(importlib.import_module(holder), name, value)
