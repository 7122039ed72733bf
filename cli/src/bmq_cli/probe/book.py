"""What a probe has sent and not seen yet, and what has become too late. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum


class Failure(StrEnum):
    """Why a record of the probe counts as failed."""

    NO_CLUSTER = "no_cluster"
    """It could not even be sent: nothing answers, or the topic is not to be had."""
    NOT_ACKNOWLEDGED = "not_acknowledged"
    """It was sent and not acknowledged in time, or refused."""
    NOT_CONSUMED = "not_consumed"
    """It was acknowledged and not consumed in time."""


@dataclass(slots=True)
class _Sent:
    partition: int
    at_s: float
    is_acknowledged: bool = False
    is_seen: bool = False


@dataclass(slots=True, kw_only=True)
class ProbeBook:
    """By number. Each record ends once: seen, or failed. A consumer may have it before its producer hears that it is
    durable.
    """

    timeout_s: float
    _sent: dict[int, _Sent] = field(default_factory=dict)

    def sent(self, number: int, partition: int, *, at_s: float) -> None:
        """It is on its way."""
        self._sent[number] = _Sent(partition, at_s)

    def acknowledged(self, number: int, *, at_s: float) -> float | None:
        """Seconds that it took; None where its time was up before."""
        sent = self._sent.get(number)
        if sent is None:
            return None
        sent.is_acknowledged = True
        self._forget(number, sent)
        return at_s - sent.at_s

    def refused(self, number: int) -> bool:
        """Whether that is how it ended: a consumer may have it all the same."""
        sent = self._sent.pop(number, None)
        return sent is not None and not sent.is_seen

    def seen(self, number: int, *, at_s: float) -> float | None:
        """Seconds from its sending until now; None where it has ended already (a duplicate, or too late)."""
        sent = self._sent.get(number)
        if sent is None or sent.is_seen:
            return None
        sent.is_seen = True
        self._forget(number, sent)
        return at_s - sent.at_s

    def overdue(self, *, now_s: float) -> list[tuple[int, Failure]]:
        """(partition, why) of those that end now because their time is up."""
        late = [number for number, sent in self._sent.items() if now_s - sent.at_s >= self.timeout_s]
        ended = [self._sent.pop(number) for number in late]
        return [
            (one.partition, Failure.NOT_CONSUMED if one.is_acknowledged else Failure.NOT_ACKNOWLEDGED)
            for one in ended
            if not one.is_seen
        ]

    def _forget(self, number: int, sent: _Sent) -> None:
        if sent.is_acknowledged and sent.is_seen:
            del self._sent[number]
