"""`/v1/clock`: the time that the leading controller goes by."""

from fastapi import FastAPI

from bmq_controller.api.lane_models import ClockView
from bmq_controller.api.sources import ApiSources


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the page of the clock by which lanes end."""

    @app.get("/v1/clock", tags=["cluster"])
    async def get_clock() -> ClockView:
        """The time by which lanes are deleted. Who deletes one as its time is over goes by this and no other."""
        now_ms, trusted = await sources.leader().clock()
        return ClockView(now_ms=now_ms, trusted=trusted)
