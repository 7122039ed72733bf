"""Rolling changes: what is decided from what is there, and that deciding again and again ends well, whatever happens in
between.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bmq_operator.clusters.names import NODE_IDS_FROM, ROLES, Component
from bmq_operator.clusters.nodes import ClusterState, Node, Pod
from bmq_operator.clusters.upgrade import DeletePod, Drain, Idle, Shrink, Step, Uncordon, Wait, next_step
from bmq_operator.clusters.whole import SETTLE_S_MAX, View, why_settling


def pod(component: Component, ordinal: int, *, ready: bool = True, outdated: bool = False) -> Pod:
    return Pod(name=f"c-{component}-{ordinal}", component=component, ordinal=ordinal, ready=ready, outdated=outdated)


def view(*pods: Pod, partitions: int = 4, leader: int = 1, **more: object) -> View:
    counts: dict[Component, int] = {role: sum(one.component == role for one in pods) for role in ROLES}
    nodes = {
        one.node_id: Node(
            node_id=one.node_id,
            alive=True,
            leads=one.node_id == leader,
            partitions=partitions if one.component == "broker" else 0,
        )
        for one in pods
    }
    made = View(pods=pods, wanted=counts, current=counts, state=ClusterState(nodes=nodes, store_ok=True))
    return replace(made, **more)  # type: ignore[arg-type]


ALL = (pod("controller", 0), pod("controller", 1), pod("broker", 0), pod("broker", 1), pod("proxy", 0))


def outdated(*which: str) -> tuple[Pod, ...]:
    return tuple(replace(one, outdated=one.name in which) for one in ALL)


def test_nothing_is_done_where_everything_is_as_it_is_to_be() -> None:
    assert isinstance(next_step(view(*ALL)), Idle)


def test_the_leading_controller_is_the_last_of_the_controllers() -> None:
    assert next_step(view(*outdated("c-controller-0", "c-controller-1", "c-proxy-0"), leader=1)) == DeletePod(
        reason="Upgrading", message="c-controller-1 is replaced, 3 left", pod="c-controller-1"
    )


def test_a_broker_is_drained_before_it_is_replaced() -> None:
    pods = outdated("c-broker-1")
    first = next_step(view(*pods))
    assert isinstance(first, Drain)
    assert (first.node_id, first.pod) == (1001, "c-broker-1")


def test_the_only_broker_is_replaced_without_a_drain_as_nobody_could_take_its_partitions() -> None:
    pods = tuple(one for one in outdated("c-broker-0") if one.name != "c-broker-1")
    assert isinstance(next_step(view(*pods)), DeletePod)


def test_a_broker_that_goes_as_there_are_to_be_fewer_is_nobodys_heir_though_the_controller_has_forgotten_it() -> None:
    pods = outdated("c-broker-1")
    going = replace(pod("broker", 2), deleting=True)
    first = next_step(replace(view(*pods), pods=(*pods, going)))
    assert isinstance(first, Drain) and first.node_id == 1001
    alone = tuple(one for one in outdated("c-broker-0") if one.name != "c-broker-1")
    seen = view(*alone)
    for nodes in ({}, {1002: Node(node_id=1002, alive=True)}, {1002: Node(node_id=1002, alive=False)}):
        state = ClusterState(nodes={**seen.state.nodes, **nodes}, store_ok=True)  # type: ignore[union-attr]
        assert isinstance(next_step(replace(seen, pods=(*alone, going), state=state)), DeletePod), (
            "no other broker could take its partitions"
        )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"state": None, "why_no_state": "no controller answers"}, "no controller answers"),
        ({"settled": False}, "has yet to see"),
    ],
)
def test_nothing_is_taken_away_while_something_is_not_known(change: dict[str, object], word: str) -> None:
    step = next_step(view(*outdated("c-controller-0"), **change))
    assert isinstance(step, Wait)
    assert word in step.message


def test_nothing_is_taken_away_while_partitions_have_no_owner() -> None:
    made = view(*outdated("c-controller-0"))
    assert made.state is not None
    step = next_step(replace(made, state=replace(made.state, unowned=2)))
    assert isinstance(step, Wait)
    assert "2 partitions have no owner" in step.message


def test_nothing_is_taken_away_while_a_node_is_not_alive() -> None:
    made = view(*outdated("c-controller-0"))
    assert made.state is not None
    nodes = dict(made.state.nodes) | {10_000: Node(node_id=10_000, alive=False)}
    assert isinstance(next_step(replace(made, state=replace(made.state, nodes=nodes))), Wait)


def test_a_broker_that_was_drained_is_taken_back_while_fewer_proxies_wait_for_one() -> None:
    pods = (*outdated("c-broker-0"), pod("proxy", 1))
    pods = tuple(replace(one, ready=one.name != "c-proxy-0") for one in pods)
    made = view(*pods, marked=frozenset((1000,)))
    wanted: dict[Component, int] = {"controller": 2, "broker": 2, "proxy": 1}
    step = next_step(replace(made, wanted=wanted))
    assert isinstance(step, Uncordon) and step.node_id == 1000
    step = next_step(replace(made, wanted=wanted, marked=frozenset()))
    assert step == Wait(reason="Scaling", message="c-proxy-0, which would stay, is not ready")


def test_proxies_that_are_not_needed_go_though_brokers_cannot_yet() -> None:
    pods = tuple(replace(one, ready=one.name != "c-controller-0", without_room=True) for one in ALL)
    made = view(*pods, pod("proxy", 1), state=None, why_no_state="nobody answers")
    step = next_step(replace(made, wanted={"controller": 2, "broker": 1, "proxy": 1}))
    assert isinstance(step, Shrink) and (step.component, step.replicas) == ("proxy", 1), "it may make room"
    assert isinstance(next_step(replace(made, wanted={"controller": 2, "broker": 1, "proxy": 2})), Wait)


def test_a_proxy_that_goes_is_not_tried_with_the_newest_settings_before() -> None:
    pods = (*(replace(one, outdated=True) for one in ALL), pod("proxy", 1, ready=False, outdated=True))
    step = next_step(replace(view(*pods), wanted={"controller": 2, "broker": 2, "proxy": 1}))
    assert isinstance(step, Shrink) and (step.component, step.replicas) == ("proxy", 1)
    staying = next_step(view(*pods))
    assert isinstance(staying, DeletePod) and staying.pod == "c-proxy-1"


def test_nothing_is_taken_away_while_another_pod_is_not_ready() -> None:
    pods = tuple(replace(one, ready=one.name != "c-proxy-0") for one in outdated("c-controller-0"))
    assert isinstance(next_step(view(*pods)), Wait)


def test_a_pod_that_is_outdated_and_broken_is_replaced_though_nobody_answers() -> None:
    pods = (*ALL[:-1], pod("proxy", 0, ready=False, outdated=True))
    step = next_step(view(*pods, state=None, why_no_state="nobody answers"))
    assert isinstance(step, DeletePod)
    assert step.pod == "c-proxy-0"


def test_the_next_one_is_replaced_only_once_the_one_before_has_worked_for_a_while() -> None:
    def worked(worked_s: float, restarts: int = 0) -> tuple[Pod, ...]:
        return tuple(
            replace(one, worked_s=worked_s, restarts=restarts) if one.name == "c-broker-0" else one
            for one in outdated("c-broker-1")
        )

    step = next_step(view(*worked(19), settle_s=20))
    assert isinstance(step, Wait)
    assert "c-broker-0 is to work for 20 s first" in step.message
    assert isinstance(next_step(view(*worked(20), settle_s=20)), Drain)
    again = next_step(view(*worked(20, restarts=2), settle_s=20))
    assert isinstance(again, Wait)
    assert "for 80 s first, as it ended 2 times" in again.message
    assert isinstance(next_step(view(*worked(600, restarts=9), settle_s=20)), Drain)


def test_how_long_an_old_one_has_worked_keeps_nothing_from_being_replaced() -> None:
    pods = tuple(replace(one, outdated=True, worked_s=0) for one in ALL)
    assert isinstance(next_step(view(*pods, settle_s=20)), DeletePod)


def test_settings_with_which_a_node_has_ended_are_not_given_to_others_that_are_broken_too() -> None:
    ended = pod("broker", 0, ready=False)
    others = (pod("controller", 0), pod("proxy", 0))
    waiting = pod("broker", 1, ready=False, outdated=True)
    assert isinstance(next_step(view(*others, replace(ended, restarts=1), waiting)), Wait)
    assert isinstance(next_step(view(*others, ended, waiting)), DeletePod), "one that only starts is no reason"
    assert isinstance(next_step(view(*others, replace(ended, restarts=1, outdated=True), waiting)), DeletePod), (
        "corrected ones reach all"
    )


def test_settings_with_which_a_node_does_not_even_start_are_not_given_to_others_that_are_broken_too() -> None:
    never = replace(pod("broker", 0, ready=False), held_back=True)
    others = (pod("controller", 0), pod("proxy", 0))
    waiting = pod("broker", 1, ready=False, outdated=True)
    assert isinstance(next_step(view(*others, never, waiting)), Wait)
    assert isinstance(next_step(view(*others, replace(never, outdated=True), waiting)), DeletePod), (
        "corrected ones reach all"
    )
    assert isinstance(next_step(view(*others, never, waiting, pod("broker", 2))), DeletePod), "others work with them"


@pytest.mark.parametrize("broken", [{"restarts": 1}, {"held_back": True}])
def test_settings_that_break_a_controller_are_not_given_to_a_broker_or_proxy_that_is_broken_too(
    broken: dict[str, Any],
) -> None:
    new = replace(pod("controller", 0, ready=False), **broken)
    others = (pod("controller", 1, outdated=True), pod("broker", 0, outdated=True), pod("proxy", 0, outdated=True))
    for role in ("broker", "proxy"):
        pods = tuple(replace(one, ready=one.component != role) for one in others)
        assert isinstance(next_step(view(new, *pods)), Wait)
    controllers = (replace(others[0], ready=False), pod("broker", 0), replace(pod("proxy", 0, ready=False), **broken))
    assert isinstance(next_step(view(pod("controller", 0), *controllers)), DeletePod), (
        "a proxy may wait for what is replaced before it"
    )


@pytest.mark.parametrize("role", ["controller", "broker"])
def test_settings_of_which_kubernetes_makes_no_pod_are_not_given_to_others_that_are_broken_too(role: Component) -> None:
    """By a quota, a Pod Security Standard, a webhook."""
    pods = [
        one
        for one in (pod("controller", 0, outdated=True), pod("broker", 0, outdated=True), pod("proxy", 0))
        if one.component != role
    ]
    ended = replace(pod("broker", 1), outdated=True, ready=False)
    seen = view(*pods, ended)
    without = replace(
        seen,
        current={**seen.current, role: seen.current[role] + 1},
        wanted={**seen.wanted, role: seen.wanted[role] + 1},
    )
    assert isinstance(next_step(without), Wait)
    assert isinstance(next_step(seen), DeletePod)
    works = replace(
        without,
        pods=(*without.pods, replace(pod(role, 5))),
        current={**without.current, role: without.current[role] + 1},
    )
    assert isinstance(next_step(works), DeletePod), "with the newest settings another one of its role works"
    proxies = replace(seen, current={**seen.current, "proxy": 2}, wanted={**seen.wanted, "proxy": 2})
    assert isinstance(next_step(proxies), DeletePod), "a broker waits for no proxy"


def test_a_role_beyond_its_quota_keeps_no_corrected_settings_from_those_that_need_no_other_room_than_they_have() -> (
    None
):
    """As where there were to be more of them than the quota has room for, before what breaks them now."""
    ended = replace(pod("broker", 1), outdated=True, ready=False, same_room=True)
    seen = view(pod("controller", 0), ended, pod("proxy", 0))
    beyond = replace(
        seen,
        current={**seen.current, "broker": 2},
        wanted={**seen.wanted, "broker": 2},
        over_quota=frozenset(("broker",)),
    )
    assert isinstance(next_step(beyond), DeletePod)
    assert isinstance(next_step(replace(beyond, over_quota=frozenset(("proxy",)))), Wait), (
        "it is not made for something else"
    )
    other = tuple(replace(one, same_room=False) for one in beyond.pods)
    assert isinstance(next_step(replace(beyond, pods=other)), Wait), (
        "the newest settings may be why it is beyond the quota"
    )


def test_what_has_no_room_keeps_no_corrected_settings_from_those_that_need_no_other_room_than_they_have() -> None:
    nowhere = replace(pod("broker", 0, ready=False), without_room=True)
    others = (pod("controller", 0), pod("proxy", 0))
    broken = pod("broker", 1, ready=False, outdated=True)
    assert isinstance(next_step(view(*others, nowhere, broken)), Wait), "they may need more room than there is"
    step = next_step(view(*others, nowhere, replace(broken, same_room=True)))
    assert isinstance(step, DeletePod) and step.pod == "c-broker-1"
    assert isinstance(next_step(view(*others, replace(nowhere, restarts=1), replace(broken, same_room=True))), Wait)


def test_a_broker_that_somebody_else_cordoned_stays_cordoned() -> None:
    made = view(*ALL)
    assert made.state is not None
    nodes = dict(made.state.nodes) | {1000: Node(node_id=1000, alive=True, cordoned=True)}
    assert isinstance(next_step(replace(made, state=replace(made.state, nodes=nodes))), Idle)


@dataclass
class World:
    """A cluster that does what it is asked, in its own time."""

    pods: dict[str, Pod]
    wanted: dict[Component, int]
    current: dict[Component, int]
    partitions: dict[int, int]
    cordoned: set[int] = field(default_factory=set)
    users_own: frozenset[int] = frozenset()
    """Cordoned by somebody else."""
    draining: set[int] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)
    taken_while_not_ready: list[str] = field(default_factory=list)
    taken_with_partitions: list[str] = field(default_factory=list)

    def view(self) -> View:
        nodes = {
            one.node_id: Node(
                node_id=one.node_id,
                alive=one.ready,
                leads=one.node_id == 1,
                cordoned=one.node_id in self.cordoned,
                draining=one.node_id in self.draining,
                partitions=self.partitions.get(one.node_id, 0),
            )
            for one in self.pods.values()
        }
        ordered = tuple(sorted(self.pods.values(), key=lambda one: (ROLES.index(one.component), one.ordinal)))
        return View(
            pods=ordered,
            wanted=self.wanted,
            current=self.current,
            state=ClusterState(nodes=nodes),
            marked=frozenset(self.marked),
        )

    def take(self, step: Step) -> None:
        match step:
            case DeletePod(pod=name):
                old = self.pods[name]
                if old.ready and any(not one.ready for one in self.pods.values()):
                    self.taken_while_not_ready.append(name)
                heirs = [
                    one
                    for one in self.pods.values()
                    if one.component == "broker" and one != old and one.node_id not in self.cordoned
                ]
                if self.partitions.get(old.node_id, 0) and heirs:
                    self.taken_with_partitions.append(name)
                self.pods[name] = replace(old, ready=False, outdated=False)
            case Drain(node_id=node_id, mark=mark):
                if mark:
                    self.marked.add(node_id)
                self.cordoned.add(node_id)
                self.draining.add(node_id)
            case Uncordon(node_id=node_id):
                self.cordoned.discard(node_id)
                self.draining.discard(node_id)
                self.marked.discard(node_id)
            case Shrink(replicas=replicas, component=role):
                for ordinal in range(replicas, self.current[role]):
                    gone = self.pods.pop(f"c-{role}-{ordinal}")
                    if self.partitions.pop(gone.node_id, 0):
                        self.taken_with_partitions.append(gone.name)
                    staying = [self.pods[f"c-{role}-{one}"] for one in range(self.wanted[role])]
                    if role != "broker" and gone.ready and not all(one.ready for one in staying):
                        self.taken_while_not_ready.append(gone.name)
                self.current[role] = replicas
            case _:
                pass

    def go_on(self) -> None:
        """Pods become ready, partitions move away from cordoned brokers, StatefulSets make pods."""
        for role in ROLES:
            self.current[role] = max(self.current[role], self.wanted[role])
            for ordinal in range(self.current[role]):
                self.pods.setdefault(f"c-{role}-{ordinal}", pod(role, ordinal, ready=False))
        self.pods = {name: replace(one, ready=True) for name, one in self.pods.items()}
        able = [
            one.node_id for one in self.pods.values() if one.component == "broker" and one.node_id not in self.cordoned
        ]
        for node_id in self.draining & self.partitions.keys():
            if able and self.partitions[node_id]:
                self.partitions[node_id] -= 1
                self.partitions[able[0]] = self.partitions.get(able[0], 0) + 1

    def done(self) -> bool:
        right = len(self.pods) == sum(self.wanted.values()) and self.cordoned <= self.users_own and not self.marked
        return right and all(one.ready and not one.outdated for one in self.pods.values())


@settings(max_examples=200, deadline=None)
@given(
    controllers=st.integers(1, 3),
    brokers=st.integers(1, 4),
    proxies=st.integers(1, 3),
    wanted_controllers=st.integers(1, 3),
    wanted_brokers=st.integers(1, 5),
    wanted_proxies=st.integers(1, 3),
    old=st.lists(st.integers(0, 8), max_size=9),
    looks_between=st.integers(1, 3),
    new_leader_every=st.integers(2, 9),
    users_own=st.frozensets(st.integers(1000, 1004), max_size=2),
)
def test_step_by_step_every_change_is_rolled_out_and_no_broker_goes_with_partitions(
    *,
    controllers: int,
    brokers: int,
    proxies: int,
    wanted_controllers: int,
    wanted_brokers: int,
    wanted_proxies: int,
    old: list[int],
    looks_between: int,
    new_leader_every: int,
    users_own: frozenset[int],
) -> None:
    # else nobody could take anything
    assume(any(node_id not in users_own for node_id in range(1000, 1000 + min(brokers, wanted_brokers))))
    current: dict[Component, int] = {"controller": controllers, "broker": brokers, "proxy": proxies}
    pods = [pod(role, ordinal) for role in ROLES for ordinal in range(current[role])]
    pods = [replace(one, outdated=number in old) for number, one in enumerate(pods)]
    world = World(
        pods={one.name: one for one in pods},
        wanted={"controller": wanted_controllers, "broker": wanted_brokers, "proxy": wanted_proxies},
        current=current,
        cordoned=set(users_own),
        users_own=users_own,
        partitions={NODE_IDS_FROM["broker"] + ordinal: 3 for ordinal in range(brokers)},
    )
    for look in range(400):
        step = next_step(world.view())
        if isinstance(step, Idle) and world.done():
            break
        world.take(step)
        if look < 60 and look % new_leader_every == 0:
            world.draining.clear()
        if look % looks_between == 0:
            world.go_on()
    assert world.done()
    assert all(
        node_id in world.cordoned
        for node_id in users_own
        if node_id in range(1000, 1000 + min(brokers, wanted_brokers))
    )
    assert world.taken_with_partitions == []
    assert world.taken_while_not_ready == []


def test_a_pod_that_ended_thousands_of_times_is_waited_for_as_one_that_ended_often() -> None:
    worn = replace(pod("broker", 0), restarts=5_000, worked_s=SETTLE_S_MAX - 1)
    assert (why_settling([worn], 20.0) or "").startswith(f"{worn.name} is to work for {SETTLE_S_MAX:g} s")
    assert why_settling([replace(worn, worked_s=SETTLE_S_MAX)], 20.0) is None


def marked(*, first: str = "c-broker-0", **more: Any) -> View:
    """The operator drained broker 1000, which is outdated."""
    found = view(*outdated("c-broker-0", first), marked=frozenset((1000,)), **more)
    if found.state is None:
        return found
    nodes = {**found.state.nodes, 1000: Node(node_id=1000, alive=True, cordoned=True)}
    return replace(found, state=replace(found.state, nodes=nodes))


BACK_IN_USE = Uncordon(
    reason="Upgrading", message="broker 1000 is not replaced next: it gets partitions again", node_id=1000
)


def test_what_was_drained_to_be_replaced_gets_partitions_again_where_something_else_comes_first() -> None:
    wanted: dict[Component, int] = {"controller": 2, "broker": 1, "proxy": 1}
    assert next_step(marked(wanted=wanted)) == BACK_IN_USE, "it is the heir of those that go"
    assert next_step(marked(first="c-controller-1")) == BACK_IN_USE, "who knows how long controllers take"
    assert isinstance(next_step(marked()), DeletePod), "it is what is replaced next"
    assert isinstance(next_step(marked(state=None, why_no_state="nobody answers")), Wait)


def test_brokers_that_go_are_not_drained_where_none_that_stays_takes_partitions() -> None:
    pods = (pod("controller", 0), *(pod("broker", ordinal) for ordinal in range(3)), pod("proxy", 0))
    wanted: dict[Component, int] = {"controller": 1, "broker": 2, "proxy": 1}
    found = view(*pods, leader=0, wanted=wanted)
    assert isinstance(next_step(found), Drain)
    assert found.state is not None
    both = {number: replace(found.state.nodes[number], cordoned=True) for number in (1000, 1001)}
    step = next_step(replace(found, state=replace(found.state, nodes={**found.state.nodes, **both})))
    assert isinstance(step, Wait), "what is asked for in vain is noted, heard of, and asked for again at once"
    assert "broker 1002 cannot be drained" in step.message and "kubectl bmq drain c-broker-0 --undo" in step.message


def test_a_broker_without_partitions_goes_though_none_that_stays_takes_any() -> None:
    found = view(pod("controller", 0), pod("broker", 0), pod("broker", 1), leader=0, partitions=0)
    assert found.state is not None
    nodes = {**found.state.nodes, 1000: replace(found.state.nodes[1000], cordoned=True, partitions=5)}
    wanted: dict[Component, int] = {"controller": 1, "broker": 1, "proxy": 0}
    step = next_step(replace(found, wanted=wanted, state=replace(found.state, nodes=nodes)))
    assert isinstance(step, Drain) and step.node_id == 1001
