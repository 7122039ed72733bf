"""A corrected spec reaches the nodes whose settings broke the cluster, and no other ones before it is whole again."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from clusters_world import World, cluster, run
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bmq_operator.clusters import asking
from bmq_operator.clusters.asking import Answer
from bmq_operator.clusters.names import NODE_IDS_FROM, ROLES, Component
from bmq_operator.clusters.nodes import ClusterState, Node, Pod
from bmq_operator.clusters.proven import PATIENCE_S_MIN, PATIENCE_SETTLES, PROVEN, noted, text_of, to_note, waited_for
from bmq_operator.clusters.upgrade import DeletePod, Drain, Idle, Step, Uncordon, Wait, next_step
from bmq_operator.clusters.whole import SETTLE_S_MAX, View
from bmq_operator.waits import Waits

SETTLE_S: Final = 20.0
PATIENCE_S: Final = PATIENCE_SETTLES * SETTLE_S


def revision(role: Component, template: str) -> str:
    return f"c-{role}-{template}"


def pod(role: Component, ordinal: int, template: str = "a", *, wanted: str = "a", **more: Any) -> Pod:
    name = f"c-{role}-{ordinal}"
    return Pod(
        name=name,
        component=role,
        ordinal=ordinal,
        ready=more.pop("ready", True),
        outdated=template != wanted,
        revision=revision(role, template),
        uid=f"uid-{name}-{template}",
        **more,
    )


def view(*pods: Pod, wanted: str = "a", proven: str | None = "a", **more: Any) -> View:
    """With `proven`, the cluster was whole with that template last."""
    counts: dict[Component, int] = {role: sum(one.component == role for one in pods) for role in ROLES}
    dead = more.pop("dead", ())
    nodes = {
        one.node_id: Node(
            node_id=one.node_id,
            alive=one.name not in dead,
            leads=one.node_id == 0,
            partitions=4 if one.component == "broker" else 0,
        )
        for one in pods
    }
    known = None if proven is None else frozenset(revision(role, one) for role in ROLES for one in proven)
    made = View(
        pods=pods,
        wanted=counts,
        current=counts,
        state=ClusterState(nodes=nodes, unowned=more.pop("unowned", 0), store_ok=True),
        settle_s=SETTLE_S,
        newest={role: revision(role, wanted) for role in ROLES},
        proven=known,
    )
    return replace(made, **more)


def of_pool(*, wanted: str, proven: str | None = "a", **more: Any) -> View:
    """The only broker has template b, with which nobody owns what it owned."""
    broker = pod("broker", 0, "b", wanted=wanted, made_ms=1)
    pods = (pod("controller", 0, wanted=wanted), broker, pod("proxy", 0, wanted=wanted))
    return view(*pods, wanted=wanted, proven=proven, unowned=12, **more)


@pytest.mark.parametrize("proven", ["a", ""])
@pytest.mark.parametrize("wanted", ["a", "c"])
def test_a_broker_that_is_in_a_wrong_pool_gets_corrected_settings_though_its_partitions_have_no_owner(
    wanted: str, proven: str
) -> None:
    """What was before, or third ones; and where the cluster never was whole."""
    early = next_step(of_pool(wanted=wanted, proven=proven, waited_s=PATIENCE_S - 1))
    assert isinstance(early, Wait)
    assert (
        "12 partitions have no owner. Once that was so for 60 s, c-broker-0 is replaced all the same" in early.message
    )
    step = next_step(of_pool(wanted=wanted, proven=proven, waited_s=PATIENCE_S))
    assert isinstance(step, DeletePod)
    assert (step.pod, step.uid) == ("c-broker-0", "uid-c-broker-0-b")
    assert "the cluster was never whole with the settings that it has, though 12 partitions" in step.message


def test_a_controller_that_nobody_reaches_gets_corrected_settings_though_all_nodes_are_dead_to_it() -> None:
    pods = (pod("controller", 0, "b"), pod("broker", 0), pod("broker", 1), pod("proxy", 0))
    step = next_step(view(*pods, dead=[one.name for one in pods], waited_s=PATIENCE_S))
    assert isinstance(step, DeletePod) and step.pod == "c-controller-0"
    mute = view(*pods, state=None, why_no_state="no controller answers", waited_s=PATIENCE_S)
    assert isinstance(next_step(mute), DeletePod), "nor where it does not even answer"


def test_what_the_cluster_was_whole_with_is_left_alone_until_it_is_again() -> None:
    """Third settings: neither the ones before, nor those that broke the cluster."""
    pods = (pod("controller", 0, wanted="c"), pod("broker", 0, wanted="c"), pod("proxy", 0, wanted="c"))
    step = next_step(view(*pods, wanted="c", unowned=1, waited_s=1e9))
    assert isinstance(step, Wait)
    assert "nothing is replaced while 1 partitions have no owner. c-controller-0 is next" in step.message
    assert "correct them, and what has them is replaced" in step.message and "kubectl delete pod" in step.message


def test_where_nobody_noted_what_it_was_whole_with_all_of_it_is_left_alone() -> None:
    step = next_step(of_pool(wanted="a", proven=None, waited_s=1e9))
    assert isinstance(step, Wait)
    assert "kubectl delete pod c-broker-0" in step.message


def test_the_youngest_of_those_that_never_worked_is_the_first() -> None:
    pods = (
        pod("controller", 0, "b", made_ms=1),
        pod("broker", 0, "b", made_ms=2),
        pod("broker", 1, "b", made_ms=3),
        pod("broker", 2, made_ms=4),
        pod("proxy", 0, made_ms=0),
    )
    for name in ("c-broker-1", "c-broker-0", "c-controller-0"):
        step = next_step(view(*pods, unowned=1, waited_s=PATIENCE_S))
        assert isinstance(step, DeletePod) and step.pod == name
        pods = tuple(pod(one.component, one.ordinal) if one.name == name else one for one in pods)


def test_only_one_is_away_at_a_time() -> None:
    away = (pod("controller", 0), pod("broker", 0, "b"), pod("broker", 1, "b", deleting=True), pod("proxy", 0))
    seen = view(*away, unowned=1)
    assert "uid-c-broker-1-b" not in waited_for(seen), "it is another cluster than it was, so that time begins anew"
    starting = (*away[:2], pod("broker", 1, ready=False), away[3])
    for pods in (away, starting):
        step = next_step(view(*pods, unowned=1, waited_s=SETTLE_S_MAX + SETTLE_S - 1))
        assert isinstance(step, Wait), "machines come and images are pulled within minutes"
        assert "Once that was so for 620 s, c-broker-0" in step.message
    assert isinstance(next_step(view(*starting, unowned=1, waited_s=SETTLE_S_MAX + SETTLE_S)), DeletePod)


def test_third_settings_that_break_nodes_themselves_are_given_to_no_other_one() -> None:
    wanted = "c"
    for broken in ({"ready": False, "restarts": 1}, {"restarts": 3, "worked_s": 100}):
        pods = (
            pod("controller", 0, wanted=wanted),
            pod("broker", 0, "b", wanted=wanted),
            pod("broker", 1, wanted, wanted=wanted, **broken),
            pod("proxy", 0, wanted=wanted),
        )
        step = next_step(view(*pods, wanted=wanted, unowned=1, waited_s=1e9))
        assert isinstance(step, Wait) and "the newest ones do not work where they are: correct them" in step.message
        again = next_step(view(*pods, wanted=wanted, proven=wanted, unowned=1, waited_s=1e9))
        assert isinstance(again, DeletePod), "what worked before is not what breaks them"


def test_a_broker_that_left_the_topics_pool_is_the_only_one_though_others_are_enough_to_own_all_partitions() -> None:
    pods = (pod("controller", 0), pod("broker", 0, wanted="a"), pod("broker", 1, "b"), pod("broker", 2, "b"))
    seen = view(*pods, pod("proxy", 0))
    assert seen.state is not None

    def with_pool(**of_broker_0: Any) -> Step:
        nodes = {**seen.state.nodes, 1000: Node(node_id=1000, alive=True, **of_broker_0)}  # type: ignore[union-attr]
        return next_step(replace(seen, state=ClusterState(nodes=nodes), proven=frozenset(one.revision for one in pods)))

    step = with_pool(pool="fast")
    assert isinstance(step, Wait)
    assert "c-broker-0 is in the pool 'fast' (BMQ_POOL), of which no topic is" in step.message
    assert "correct them" in step.message
    assert isinstance(with_pool(), Drain), "it only has nothing yet"
    assert isinstance(with_pool(pool="fast", partitions=1), Drain), "topics went with it"


def test_how_long_it_is_waited_is_bounded_below_and_above() -> None:
    for settle_s, needed_s in ((0, PATIENCE_S_MIN), (20, 60), (600, SETTLE_S_MAX)):
        assert isinstance(next_step(of_pool(wanted="a", settle_s=settle_s, waited_s=needed_s - 1)), Wait)
        assert isinstance(next_step(of_pool(wanted="a", settle_s=settle_s, waited_s=needed_s)), DeletePod)


def test_what_never_worked_is_replaced_before_what_did_where_the_cluster_is_whole() -> None:
    """Else broker 0, whose partitions the other one does not take as long as it is in another pool, would be the
    next."""
    pods = (pod("controller", 0, "c", wanted="c"), pod("broker", 0, wanted="c"), pod("broker", 1, "b", wanted="c"))
    step = next_step(view(*pods, pod("proxy", 0, wanted="c"), wanted="c"))
    assert isinstance(step, Drain) and step.node_id == 1001


def test_fewer_brokers_that_cannot_be_emptied_keep_no_corrected_settings_from_what_keeps_them_so() -> None:
    pods = (pod("controller", 0, "b"), pod("broker", 0), pod("broker", 1), pod("proxy", 0))
    seen = view(*pods, state=None, why_no_state="no controller answers", waited_s=PATIENCE_S)
    step = next_step(replace(seen, wanted={**seen.wanted, "broker": 1}))
    assert isinstance(step, DeletePod) and step.pod == "c-controller-0"


def test_settings_are_noted_once_all_of_a_role_have_them_and_the_cluster_is_whole() -> None:
    pods = (pod("controller", 0), pod("broker", 0), pod("broker", 1), pod("proxy", 0))
    now = frozenset(one.revision for one in pods)
    assert to_note(view(*pods, proven="")) == to_note(view(*pods, proven=None)) == now
    assert to_note(view(*pods)) is None, "they are noted"
    for lack in ({"unowned": 1}, {"dead": ["c-proxy-0"]}, {"state": None}, {"settled": False}):
        assert to_note(view(*pods, proven="", **lack)) is None
    young = (*pods[:3], replace(pods[3], worked_s=SETTLE_S - 1))
    assert to_note(view(*young, proven="")) is None
    some = (pods[0], pod("broker", 0, "b", wanted="b"), pod("broker", 1, wanted="b"), pods[3])
    assert to_note(view(*some, wanted="b")) is None, "the old ones may be what keeps it whole"
    assert to_note(view(*some, wanted="b", proven=None)) == {one.revision for one in some}, "who knows"


def test_that_a_cluster_never_was_whole_is_noted_where_nothing_is_to_be_replaced() -> None:
    pods = (pod("controller", 0), pod("broker", 0), pod("proxy", 0))
    assert to_note(view(*pods, proven=None, unowned=1)) == frozenset()
    old = tuple(replace(one, outdated=True) for one in pods)
    assert to_note(view(*old, proven=None, unowned=1)) is None, "what they had before may have worked"


def test_what_is_noted_is_read_again() -> None:
    for proven in (frozenset(), frozenset(("c-broker-1", "c-proxy-2"))):
        assert noted({PROVEN: text_of(proven)}) == proven
    assert noted({}) is None


def test_an_operator_notes_it_at_the_cluster_and_looks_again_until_it_has() -> None:
    async def use(world: World) -> None:
        async def asked(*_: Any) -> Answer:
            nodes = {
                NODE_IDS_FROM[role] + number: Node(node_id=NODE_IDS_FROM[role] + number, alive=True)
                for role in ROLES
                for number in range(3)
            }
            return Answer(state=ClusterState(nodes=nodes, unowned=unowned, store_ok=True))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asking, "ask_state", asked)
            unowned = 3
            await world.look("prod")
            world.pods_are_made()
            await world.look("prod")
            assert world.there("Cluster", "prod")["metadata"]["annotations"][PROVEN] == ""
            unowned = 0
            await world.look("prod")
            assert world.there("Cluster", "prod")["metadata"]["annotations"][PROVEN] == "r1"

    run(use, cluster())


BREAKS: Final = ("pool", "listens", "mute")
"""What a template may break without a pod that looks so: brokers in a pool that no topic is in; controllers that no
node reaches, or that do not even answer."""


@dataclass
class Life:
    """A cluster whose templates may break it, as the operator sees it look by look, 5 s apart."""

    counts: dict[Component, int]
    breaks: dict[str, str]
    """By template, what it breaks."""
    template: str = "a"
    now_s: float = 0
    pods: dict[str, Pod] = field(default_factory=dict)
    owned_by: set[int] = field(default_factory=set)
    cordoned: set[int] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)
    proven: frozenset[str] | None = None
    waits: Waits = field(default_factory=Waits)
    made: int = 0

    def __post_init__(self) -> None:
        for role in ROLES:
            for ordinal in range(self.counts[role]):
                self._make(role, ordinal)

    def _make(self, role: Component, ordinal: int) -> None:
        self.made += 1
        new = pod(role, ordinal, self.template, wanted=self.template, made_ms=self.made, ready=False)
        self.pods[new.name] = replace(new, uid=f"uid-{self.made}", worked_s=self.now_s)

    def _broken(self, one: Pod, what: str) -> bool:
        return self.breaks.get(one.revision.rpartition("-")[2]) == what

    def view(self) -> View:
        pods = tuple(
            replace(
                one, worked_s=self.now_s - one.worked_s, outdated=one.revision != revision(one.component, self.template)
            )
            for one in sorted(self.pods.values(), key=lambda one: (ROLES.index(one.component), one.ordinal))
        )
        leader = self.pods["c-controller-0"]
        willing = [one for one in pods if one.component == "broker" and one.ready and not self._broken(one, "pool")]
        nodes = {
            one.node_id: Node(
                node_id=one.node_id,
                alive=one.ready and not self._broken(leader, "listens"),
                leads=one.name == leader.name,
                cordoned=one.node_id in self.cordoned,
                partitions=4 if one in willing and one.node_id not in self.cordoned else 0,
                pool="fast" if self._broken(one, "pool") else "",
            )
            for one in pods
        }
        mute = not leader.ready or self._broken(leader, "mute")
        seen = View(
            pods=pods,
            wanted=self.counts,
            current=self.counts,
            state=None if mute else ClusterState(nodes=nodes, unowned=0 if willing else 12),
            why_no_state="no controller answers" if mute else "",
            marked=frozenset(self.marked),
            settle_s=SETTLE_S,
            newest={role: revision(role, self.template) for role in ROLES},
            proven=self.proven,
        )
        lasts = self.waits.waited_s("c", "", waited_for(seen), now_ms=round(self.now_s * 1000))
        return replace(seen, waited_s=lasts)

    def look(self) -> Step:
        """Takes one step, and lets what was made before become ready."""
        seen = self.view()
        if (found := to_note(seen)) is not None:
            self.proven = found
        step = next_step(seen)
        self.pods = {
            name: one if one.ready else replace(one, ready=True, worked_s=self.now_s) for name, one in self.pods.items()
        }
        match step:
            case DeletePod(pod=name):
                self._replaced(seen, next(one for one in seen.pods if one.name == name))
            case Drain(node_id=node_id):
                others = [
                    one
                    for one in seen.pods
                    if one.component == "broker" and one.node_id != node_id and not self._broken(one, "pool")
                ]
                mine = next(one for one in seen.pods if one.node_id == node_id)
                if others or self._broken(mine, "pool"):
                    self.cordoned.add(node_id)
                    self.marked.add(node_id)
            case Uncordon(node_id=node_id):
                self.cordoned.discard(node_id)
                self.marked.discard(node_id)
            case _:
                pass
        self.now_s += 5
        return step

    def _replaced(self, seen: View, old: Pod) -> None:
        assert all(one.ready for one in seen.pods if one != old), "one is away at a time"
        whole = not waited_for(seen)
        assert whole or seen.proven is None or old.revision not in seen.proven, "what worked is left alone meanwhile"
        self._make(old.component, old.ordinal)

    def lives(self, looks: int) -> Step:
        step: Step = Idle()
        for _ in range(looks):
            step = self.look()
        return step

    def with_newest(self) -> int:
        return sum(not one.outdated for one in self.view().pods)


@settings(max_examples=150, deadline=None)
@given(
    brokers=st.integers(1, 3),
    templates=st.lists(st.sampled_from(("", "", *BREAKS)), min_size=1, max_size=5),
    looks=st.lists(st.integers(1, 120), min_size=5, max_size=5),
    good_first=st.booleans(),
)
@example(brokers=2, templates=["", "", "", "", "pool"], looks=[1, 1, 1, 63, 13], good_first=False)
def test_whatever_is_written_and_when_what_is_right_in_the_end_reaches_every_node(
    *, brokers: int, templates: list[str], looks: list[int], good_first: bool
) -> None:
    names = [f"t{number}" for number in range(len(templates))]
    breaks = dict(zip(names, templates, strict=True)) | ({"a": ""} if good_first else {"a": "listens"})
    life = Life(counts={"controller": 1, "broker": brokers, "proxy": 2}, breaks=breaks)
    for name, many in zip(names, looks, strict=False):
        life.lives(many)
        life.template = name
    life.lives(looks[-1])
    life.template = "good"
    assert isinstance(life.lives(400), Idle)
    assert life.with_newest() == len(life.pods) and not life.marked


@pytest.mark.parametrize("what", BREAKS)
@pytest.mark.parametrize("brokers", [2, 3])
def test_settings_that_break_nodes_break_one_and_taking_them_back_mends_it(what: str, brokers: int) -> None:
    life = Life(counts={"controller": 1, "broker": brokers, "proxy": 1}, breaks={"bad": what})
    assert isinstance(life.lives(20), Idle)
    life.template = "bad"
    life.lives(400)
    broken = [one.name for one in life.view().pods if not one.outdated and life._broken(one, what)]
    roles = {"c-controller-0", "c-broker-0"} if what == "pool" else {"c-controller-0"}
    assert set(broken) == roles
    life.template = "a"
    assert isinstance(life.lives(100), Idle)
    assert life.with_newest() == len(life.pods)
