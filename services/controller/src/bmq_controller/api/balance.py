"""`/v1/balance`: what evening out would move and why, and one round of it."""

from dataclasses import asdict, replace
from typing import Annotated

from fastapi import FastAPI, Query

from bmq_controller.api.node_models import BalanceAsked, BegunView, ImbalanceView, MoveView, PlanView, ShareView
from bmq_controller.api.problems import Refused
from bmq_controller.api.sources import ApiSources
from bmq_controller.controller import LeadingController
from bmq_controller.machine.balance_model import BalanceSettings, Move

PLANNED_MAX = 10_000


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that show what evening out would move, and begin one round of it."""

    @app.get("/v1/balance", tags=["balance"])
    async def plan(
        moves_max: Annotated[
            int, Query(ge=1, le=PLANNED_MAX, description="Moves that the plan may have; rounds have 100")
        ] = 1_000,
    ) -> PlanView:
        """What would be moved and why. Changes nothing."""
        leader = _informed(sources)
        found = await leader.balancer.plan(settings=replace(BalanceSettings(), moves_max=moves_max))
        return PlanView(
            moves=[_move(one) for one in found.moves],
            problems=list(found.problems),
            before=ImbalanceView(**asdict(found.before)),
            after=ImbalanceView(**asdict(found.after)),
            brokers=[ShareView(**share._asdict()) for share in found.brokers],
        )

    @app.post("/v1/balance", tags=["balance"], status_code=202)
    async def balance(asked: BalanceAsked | None = None) -> BegunView:
        """Plans one round anew, and begins its moves. Whoever wants all of it asks again once they are done, until
        nothing is begun.
        """
        moves_max = (asked if asked is not None else BalanceAsked()).moves_max
        leader = _informed(sources)
        found = await leader.balancer.plan(settings=replace(BalanceSettings(), moves_max=moves_max))
        begun = await leader.balancer.begin(found)
        return BegunView(begun=[_move(one) for one in begun], planned=len(found.moves), problems=list(found.problems))


def _informed(sources: ApiSources) -> LeadingController:
    """Raises Refused where a broker has yet to report: it would look idle."""
    leader = sources.leader()
    if not leader.balancer.knows_loads:
        raise Refused(
            "LoadsUnknown",
            "not every broker has said yet what it takes, since this controller leads",
            "try again in a few seconds",
        )
    return leader


def _move(one: Move) -> MoveView:
    return MoveView(
        topic=one.topic,
        partition=one.tp.partition,
        source=one.source,
        target=one.target,
        kind=str(one.kind),
        bytes_per_s=one.bytes_per_s,
        reason=one.reason,
    )
