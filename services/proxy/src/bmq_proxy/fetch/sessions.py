"""Incremental fetch sessions (KIP-227): what a consumer wants to read, remembered between its requests. Pure: no clock,
no I/O.

A session is a table of partitions in the order in which they are served; one that returned records moves to the end, so
that a response limit starves nobody. A response names only what changed. Sessions are bounded in number, each in its
partitions, and all in partitions altogether; who finds no room reads without a session, which is slower and otherwise
the same. So does who asks for a topic of a name that none can have: what is remembered of a client is as long as names
of topics are.

Errors are told each time. A session that has many of them ends with the answer that tells them: a request that names
nothing would be answered with all of them again and again; so its client says anew what it wants, in a request that is
as long as that.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from bmq.errors import RequestError
from bmq.naming.names import TOPIC_NAME_LENGTH_MAX

FINAL_EPOCH: Final = -1
"""A full fetch without a session; ends the one that it names."""
INITIAL_EPOCH: Final = 0
"""A full fetch that wants a new session."""
NO_SESSION: Final = 0
EPOCH_MAX: Final = 2**31 - 1
ERRORS_MAX: Final = 200
"""How many partitions of a session may have an error in one answer: some 60 KiB of it, if their names are the
longest."""

TopicKey = str | UUID
PartitionKey = tuple[TopicKey, int]


class SessionNotFound(RequestError):
    """No such fetch session (any more): the client starts a new one."""


class InvalidSessionEpoch(RequestError):
    """Not the session's next epoch: a response was lost."""


class SessionTopicIdMismatch(RequestError):
    """A session of names was continued with ids, or the other way round."""


class Wanted(NamedTuple):
    """One partition of a Fetch. `topic` is a name below version 13 and an id from there on."""

    topic: TopicKey
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1

    @property
    def key(self) -> PartitionKey:
        """What tells partitions of a session apart."""
        return self.topic, self.partition


class Shown(NamedTuple):
    """What of an answer decides whether a client has to see it. `notable`: an error or a diverging epoch."""

    high_watermark: int
    log_start: int
    has_records: bool
    notable: bool


@dataclass(slots=True)
class _Cached:
    """A partition of a session and what its client last saw of it."""

    wanted: Wanted
    high_watermark: int = -1
    log_start: int = -1

    def changed(self, shown: Shown) -> bool:
        """Whether the client has to see this; remembers that it did. After an error the next answer is always shown."""
        news = (
            shown.has_records
            or shown.notable
            or shown.high_watermark != self.high_watermark
            or shown.log_start != self.log_start
        )
        self.high_watermark = -1 if shown.notable else shown.high_watermark
        self.log_start = shown.log_start
        return news


@dataclass(slots=True, kw_only=True)
class _Session:
    session_id: int
    topic_ids: bool
    lane: int
    created_ms: int
    used_ms: int
    epoch: int = 1
    partitions: dict[PartitionKey, _Cached] = field(default_factory=dict)


class Fetching:
    """One Fetch under way: `wanted` in the order to serve it, `count` of them. Tell `changed` what was found, of each
    once.

    Of one that waits for its turn no list of thousands is kept: what a session has is looked up when it is asked for
    first, and what the request says itself is `set_aside`, and has to be told again (`take_up`).
    """

    def __init__(
        self,
        wanted: Sequence[Wanted] | None,
        session: _Session | None,
        *,
        full: bool,
        end: Callable[[_Session], None] | None = None,
    ) -> None:
        """`wanted`: None where it is what the session has. `end` ends its session."""
        self._wanted = wanted
        self.count = len(session.partitions if wanted is None and session is not None else wanted or ())
        self._session = session
        self._full = full
        self._end = end
        self._errors = 0
        self.is_set_aside = False

    @property
    def wanted(self) -> Sequence[Wanted]:
        """What is read."""
        if self._wanted is None:
            assert self._session is not None and not self.is_set_aside
            # No more than it was admitted with: another request of the same session may have added some.
            self._wanted = [cached.wanted for cached in islice(self._session.partitions.values(), self.count)]
        return self._wanted

    def set_aside(self) -> None:
        """Forgets what the request says."""
        self.is_set_aside = self._wanted is not None
        self._wanted = None

    def take_up(self, said: Iterable[Wanted]) -> None:
        """It has what the request says."""
        self._wanted = _each_once(said)
        assert len(self._wanted) == self.count
        self.is_set_aside = False

    @property
    def session_id(self) -> int:
        """For the response; 0 without a session."""
        return NO_SESSION if self._session is None else self._session.session_id

    def changed(self, shown: Sequence[Shown], *, first: int = 0) -> list[int]:
        """Indexes into `wanted` of what the response names, in order; `shown` are those from index `first` on, many or
        all of them.
        """
        assert first + len(shown) <= len(self.wanted)
        session = self._session
        if session is None:
            return list(range(first, first + len(shown)))
        told = []
        for i, one in enumerate(shown, first):
            wanted = self.wanted[i]
            cached = session.partitions.get(wanted.key)
            if cached is None:
                continue  # Forgotten by a later request of the same session.
            if cached.changed(one) or self._full:
                told.append(i)
                if one.has_records:
                    session.partitions[wanted.key] = session.partitions.pop(wanted.key)
                self._errors += one.notable
        if self._errors > ERRORS_MAX and self._end is not None:
            self._end(session)
        return told


class SessionCache:
    """All sessions of one proxy, whatever lanes their clients are in.

    Eviction is Kafka's: a session that nobody used for `eviction_ms` makes room for any, one that is older than that
    and smaller makes room for a larger one. `random` gives numbers in [0, 1) for ids.
    """

    def __init__(
        self,
        *,
        sessions_max: int,
        partitions_max: int,
        session_partitions_max: int,
        eviction_ms: int,
        random: Callable[[], float],
    ) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._session_partitions_max = session_partitions_max
        self._eviction_ms = eviction_ms
        self._random = random
        self._sessions: dict[int, _Session] = {}  # Ordered by last use.
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions of all sessions together."""
        return self._partitions

    def begin(
        self,
        *,
        now_ms: int,
        session_id: int,
        session_epoch: int,
        wanted: Sequence[Wanted],
        forgotten: Iterable[PartitionKey] = (),
        topic_ids: bool,
        lane: int = 0,
    ) -> Fetching:
        """Takes a Fetch request in. `lane`: its number; there are no sessions but its own. Raises SessionNotFound,
        InvalidSessionEpoch, SessionTopicIdMismatch.
        """
        known = self._sessions.get(session_id)
        session = known if known is not None and known.lane == lane else None
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session is not None:
                self._drop(session_id)
                # a request of it that still waits, over another connection, keeps none of them
                session.partitions.clear()
            unique = _each_once(wanted)
            begun = None
            if (
                session_epoch == INITIAL_EPOCH
                and unique
                and len(unique) <= self._session_partitions_max
                and _may_be_there(unique)
            ):
                begun = self._create(now_ms, unique, topic_ids=topic_ids, lane=lane)
            return Fetching(unique, begun, full=True, end=self._end)
        if session is None:
            raise SessionNotFound(f"no fetch session {session_id}")
        return self._continue(session, now_ms, session_epoch, wanted, forgotten, topic_ids=topic_ids)

    def _continue(
        self,
        session: _Session,
        now_ms: int,
        session_epoch: int,
        wanted: Sequence[Wanted],
        forgotten: Iterable[PartitionKey],
        *,
        topic_ids: bool,
    ) -> Fetching:
        session_id = session.session_id
        if session.topic_ids != topic_ids:
            raise SessionTopicIdMismatch(
                f"fetch session {session_id} was opened with {'ids' if session.topic_ids else 'names'}"
            )
        if session.epoch != session_epoch:
            raise InvalidSessionEpoch(f"fetch session {session_id} is at epoch {session.epoch}, not {session_epoch}")
        before = len(session.partitions)
        for one in wanted:
            cached = session.partitions.get(one.key)
            if cached is None:
                session.partitions[one.key] = _Cached(one)
            else:
                cached.wanted = one
        for key in forgotten:
            session.partitions.pop(key, None)
        self._partitions += len(session.partitions) - before
        if len(session.partitions) > self._session_partitions_max or not _may_be_there(wanted):
            # By small steps it came to more than one request may ask for: the client says again what it wants, in a
            # request of its own.
            self._drop(session_id)
            raise SessionNotFound(
                f"fetch session {session_id} was to have {len(session.partitions)} partitions, or a name that no "
                "topic has"
            )
        if not session.partitions:
            self._drop(session_id)
            return Fetching([], None, full=True)
        session.epoch = session_epoch + 1 if session_epoch < EPOCH_MAX else 1
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        fetching = Fetching(None, session, full=False, end=self._end)
        if self._partitions > self._partitions_max:
            self._drop(session_id)  # It grew beyond all bounds: this answer still comes, then the client starts anew.
        return fetching

    def _create(self, now_ms: int, wanted: Sequence[Wanted], *, topic_ids: bool, lane: int) -> _Session | None:
        while len(self._sessions) >= self._sessions_max or self._partitions + len(wanted) > self._partitions_max:
            victim = self._victim(now_ms, len(wanted))
            if victim is None:
                return None
            self._drop(victim.session_id)
        session = _Session(
            session_id=self._new_id(),
            topic_ids=topic_ids,
            lane=lane,
            created_ms=now_ms,
            used_ms=now_ms,
            partitions={one.key: _Cached(one) for one in wanted},
        )
        self._sessions[session.session_id] = session
        self._partitions += len(session.partitions)
        return session

    def _victim(self, now_ms: int, size: int) -> _Session | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return None
        if now_ms - oldest.used_ms > self._eviction_ms:
            return oldest
        settled = [session for session in self._sessions.values() if now_ms - session.created_ms > self._eviction_ms]
        smallest = min(settled, key=lambda session: (len(session.partitions), session.session_id), default=None)
        return smallest if smallest is not None and len(smallest.partitions) < size else None

    def _new_id(self) -> int:
        while True:
            session_id = 1 + int(self._random() * (2**31 - 2))
            if session_id not in self._sessions:
                return session_id

    def _end(self, session: _Session) -> None:
        if self._sessions.get(session.session_id) is session:
            self._drop(session.session_id)

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)


def _each_once(wanted: Iterable[Wanted]) -> list[Wanted]:
    """Each partition once: of one that is named twice the last."""
    return list({one.key: one for one in wanted}.values())


def _may_be_there(wanted: Iterable[Wanted]) -> bool:
    """Whether all of them have ids, or names that are no longer than those of topics are."""
    return all(
        isinstance(one.topic, UUID) or (len(one.topic) <= TOPIC_NAME_LENGTH_MAX and one.topic.isascii())
        for one in wanted
    )
