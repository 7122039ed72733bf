"""Free ports for servers that tests start, which stay free while their server is away.

They are below those that the system gives to outgoing connections and that Kubernetes gives to services. Test processes
that run at once (pytest -n) take theirs from ranges of their own.
"""

import itertools
import os
import socket
from pathlib import Path

FIRST, END = 10_000, 30_000
WORKERS = 10


def _ports() -> list[int]:
    """Those of this process, in the order in which they are given."""
    outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    share = (min(END, outgoing) - FIRST) // WORKERS
    assert share > 0, (
        f"outgoing connections may have ports from {outgoing} on: set net.ipv4.ip_local_port_range to {END} or more"
    )
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    first = FIRST + worker * share
    begin = os.getpid() % share  # so that test runs of two checkouts seldom meet
    return [*range(first + begin, first + share), *range(first, first + begin)]


_own = _ports()
_turns = itertools.cycle(_own)


def free_port() -> int:
    """One that nothing listens on now, and that was not given for long."""
    for port in itertools.islice(_turns, len(_own)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"none of the ports {min(_own)}-{max(_own)} is free")
