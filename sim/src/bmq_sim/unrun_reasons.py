"""Why statements of the services stay unrun in the simulator, by a pattern for `module function: text`."""

import re
from collections.abc import Mapping
from typing import Final

from bmq_sim.lines import Statement

REASONS: Final[Mapping[str, str]] = {}


def reason_for(statement: Statement) -> str | None:
    """Why it is not run; None: nobody knows."""
    place = f"{statement.module} {statement.function}: {statement.text}"
    return next((reason for pattern, reason in REASONS.items() if re.match(pattern, place)), None)
