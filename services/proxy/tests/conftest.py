"""What tests of connections share."""

import asyncio
from collections.abc import Iterator

import pytest
import uvloop


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def both_loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """They differ in when they read and in how they write: uvloop is what runs, asyncio what the simulator is like."""
    asyncio.set_event_loop_policy(request.param())
    yield
    asyncio.set_event_loop_policy(None)
