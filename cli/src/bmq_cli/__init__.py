"""The `bmq` command. What has to be so before anything else is imported is here."""

import os
import signal
from types import FrameType

if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    # The kernel keeps signals that nobody handles from the first process of a container: without this, one that is told
    # to end while it still starts would not hear it, and be killed half a minute later.

    def _end(number: int, _: FrameType | None) -> None:
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, _end)
