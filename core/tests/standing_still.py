"""Processes of tests that stand still."""

import os
import signal
from pathlib import Path

from tests.waiting import until


def stand_still(pid: int) -> None:
    """Returns when none of its threads runs any more: for a moment after the signal they go on, and one may answer."""

    def stopped() -> bool:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()
        ]
        return set(states) == {"T"}

    os.kill(pid, signal.SIGSTOP)
    until(stopped, f"process {pid} to stand still", 10)
