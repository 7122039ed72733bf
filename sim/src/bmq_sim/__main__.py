"""`python -m bmq_sim`."""

import contextlib
import sys

from bmq_sim.lines import Watch

if __name__ == "__main__":
    asked = any(one == "--unrun" or one.partition("=")[0] == "--ran" for one in sys.argv)
    watch = Watch() if asked else None
    with watch.importing() if watch else contextlib.nullcontext():
        from bmq_sim.main import WATCHES, start

        WATCHES.extend([watch] if watch else [])
        start()
