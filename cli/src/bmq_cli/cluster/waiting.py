"""Waiting for what the cluster does by itself once it is asked to: with a progress bar on a terminal, else with a line
now and then.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bmq_cli.terminal.exit_codes import CommandFailed
from bmq_cli.terminal.output import Output, counted
from bmq_cli.wall_clock import monotonic_s, sleep_s

PAUSE_S: Final = 0.25
SAY_EVERY_S: Final = 5.0


class Wait:
    """Used as a context around the loop that looks. `total` None: it is not known yet, and grows with what is done and
    left.
    """

    def __init__(
        self,
        output: Output,
        what: str,
        *,
        total: int | None,
        unit: str,
        within_s: float,
        now_s: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = sleep_s,
    ) -> None:
        self._now_s = now_s
        self._sleep = sleep
        self._output = output
        self._what = what
        self._unit = unit
        self._within_s = within_s
        self._total = total
        self._began_s = self._said_s = now_s()
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        if self._output.messages.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._output.messages, transient=True)
            self._task = self._progress.add_task(self._what, total=self._total)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def pause(self, done: int, left: int) -> None:
        """Shows how far it is, and waits a moment. Raises CommandFailed where the time is up."""
        now_s = self._now_s()
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=done + left)
        elif now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            self._output.note(f"{self._what}: {counted(left, self._unit)} left")
        if now_s - self._began_s >= self._within_s:
            why = f"{counted(left, self._unit)} left after {self._within_s:g} s"
            raise CommandFailed(
                self._what, why, "it goes on; look with `bmq cluster nodes`, or wait with a longer --within"
            )
        self._sleep(PAUSE_S)
