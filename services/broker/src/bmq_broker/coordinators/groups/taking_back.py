"""What a step that raised half-way has changed is taken back, as a take-over would: by what the log says. Pure."""

from bmq_broker.coordinators.groups import timeouts
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.requests import Now
from bmq_broker.coordinators.groups.timers import TimerKey


def take_back(machine: GroupMachine, now: Now) -> Effects:
    """The log's state and the addresses' shares are as before the step, and the groups that it touched are as one that
    was just loaded has them.

    So nobody waits for them any more: whoever was joining joins again. The members of a stored generation get a full
    session.
    """
    step = machine.step
    machine.begin()
    for key, value in reversed(step.before):
        machine.replay(key, value)
    for shares, address, size_bytes in step.shares:
        shares.give_back(address, size_bytes)
    for group_id in step.touched:
        group = machine.drop(group_id)
        if group is not None:
            for member_id in (*group.members, *group.pending):
                machine.drop_session(group_id, member_id)
        for kind in ("join", "sync"):
            machine.timers.cancel(TimerKey(kind, group_id))
    return timeouts.start(machine, now, [group_id for group_id in step.touched if group_id in machine.durable.groups])
