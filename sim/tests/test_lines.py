"""Which statements ran is told of the services as they are."""

import subprocess
import sys

from bmq_sim.lines import Statement, statements, watched_modules

WATCHED = """
from bmq_sim.lines import Watch, count, unrun

watch = Watch()
with watch.importing():
    from bmq.storage import numbered
numbered.just_before("wal/", 7)
left = [one.function for one in unrun(watch.ran()) if one.module == "bmq.storage.numbered"]
assert "just_before" not in left
assert "number_of" in left, "nobody called it"
assert 1_000 < len(unrun(watch.ran())) < count()
"""


def test_a_function_that_runs_under_watch_is_not_among_those_that_never_ran() -> None:
    """In a process that has imported nothing of it yet."""
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_heads_of_compound_statements_and_simple_ones_count_and_docstrings_do_not() -> None:
    path = watched_modules()["bmq.storage.numbered"]
    found = statements("bmq.storage.numbered", path)
    assert all(isinstance(statement, Statement) and not statement.text.startswith('"""') for statement in found)
    assert {statement.text.split()[0] for statement in found} >= {"if", "return"}
