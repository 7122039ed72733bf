"""One row of the table: what two systems did under the same load, in rounds, and what was to be reached."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`bmq` and `peer` hold one figure per round; the ratio is that of their medians.

    `target` bounds the ratio, or bmq's own figure where `target_of` says so; `at_least` tells in which direction.
    """

    topic: str
    measure: str
    setting: str
    unit: str
    bmq: list[float]
    peer_name: str = ""
    peer: list[float] = field(default_factory=list)
    target: float | None = None
    target_of: str = "ratio"
    at_least: bool = True
    beside: str = ""
    """What belongs to the figure: bytes written per byte produced, CPU, sizes."""
    quick: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What makes a row the same in two runs."""
        return self.measure, self.setting

    @property
    def ratio(self) -> float | None:
        """bmq's median by the peer's."""
        if not self.peer or not self.bmq:
            return None
        peer = statistics.median(self.peer)
        return statistics.median(self.bmq) / peer if peer else None

    @property
    def reached(self) -> str:
        """yes, no, or that the rounds disagree: each round is judged by its own figures. Empty where nothing was to be
        reached.
        """
        values = (
            self.bmq
            if self.target_of == "bmq"
            else [mine / other for mine, other in zip(self.bmq, self.peer, strict=False) if other]
        )
        if self.target is None or not values:
            return ""
        verdicts = {value >= self.target if self.at_least else value <= self.target for value in values}
        return "rounds disagree" if len(verdicts) > 1 else "yes" if True in verdicts else "no"


def shown(values: Sequence[float]) -> str:
    """The median, and the range where there were several rounds."""
    if not values:
        return ""
    median = number(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({number(min(values))}–{number(max(values))})"


def number(value: float) -> str:
    """Three digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
