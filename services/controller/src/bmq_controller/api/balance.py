"""`/v1/balance`: what evening out would move and why, and one round of it."""

from dataclasses import asdict, replace
from typing import Annotated

from fastapi import FastAPI, Query

from bmq.fairness.turns import Places
from bmq_controller.api.node_models import BalanceAsked, BegunView, ImbalanceView, MoveView, PlanView, ShareView
from bmq_controller.api.parameters import Address
from bmq_controller.api.problems import Refused
from bmq_controller.api.sources import ApiSources, in_thread
from bmq_controller.controller import LeadingController
from bmq_controller.machine.balance_model import BalanceSettings, Move, Plan

PLANNED_MAX = 10_000


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that show what evening out would move, and begin one round of it."""
    places = Places(1)

    async def planned(leader: LeadingController, moves_max: int, address: str) -> Plan:
        """One at a time, by turns of addresses: a plan takes longer than other pages, which would wait for all of
        them.
        """
        async with places.holding(party=address):
            return await in_thread(leader.balancer.plan_later(replace(BalanceSettings(), moves_max=moves_max)))

    @app.get("/v1/balance", tags=["balance"])
    async def plan(
        address: Address,
        moves_max: Annotated[
            int, Query(ge=1, le=PLANNED_MAX, description="Moves that the plan may have; rounds have 100")
        ] = 1_000,
    ) -> PlanView:
        """What would be moved and why. Changes nothing."""
        leader = _informed(sources)
        found = await planned(leader, moves_max, address)
        return PlanView(
            moves=[_move(one) for one in found.moves],
            problems=list(found.problems),
            before=ImbalanceView(**asdict(found.before)),
            after=ImbalanceView(**asdict(found.after)),
            brokers=[ShareView(**share._asdict()) for share in found.brokers],
        )

    @app.post("/v1/balance", tags=["balance"], status_code=202)
    async def balance(address: Address, asked: BalanceAsked | None = None) -> BegunView:
        """Plans one round anew, and begins its moves. Whoever wants all of it asks again once they are done, until
        nothing is begun.
        """
        moves_max = (asked if asked is not None else BalanceAsked()).moves_max
        leader = _informed(sources)
        found = await planned(leader, moves_max, address)
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
