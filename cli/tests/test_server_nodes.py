"""`bmq up --nodes`: which nodes a shape makes, and where each listens."""

import pytest

from bmq.errors import ConfigurationError
from bmq_cli.processes.nodes import NodePlan, plan_nodes, shape_of
from bmq_node.configuration.values import Role


def planned(shape: str, *, listen: int = 9092, admin: int = 9080) -> list[NodePlan]:
    return plan_nodes(
        shape_of(shape), store="file:///data?shared=true", listen=("127.0.0.1", listen), admin=("127.0.0.1", admin)
    )


@pytest.mark.parametrize("text", ["1c3b2p", "3b1c2p", "2p3b1c"])
def test_a_shape_is_read_in_any_order(text: str) -> None:
    assert shape_of(text) == {Role.CONTROLLER: 1, Role.BROKER: 3, Role.PROXY: 2}


@pytest.mark.parametrize(
    "text", ["", "3", "1c3b", "1c3b2p1c", "1c3b2x", "c3b2p", "1c0b2p", "1c100b2p", "-1c3b2p", "1c 3b 2p"]
)
def test_what_is_no_shape_is_refused_with_its_value_and_a_remedy(text: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^--nodes {text}: .*(1c3b2p|choose 1 to 99)"):
        shape_of(text)


def test_proxies_take_the_listen_port_and_those_after_it_and_admin_ports_go_over_all_nodes() -> None:
    plans = planned("1c2b2p")
    assert [(plan.name, plan.listen and plan.listen[1], plan.admin[1]) for plan in plans] == [
        ("proxy 1", 9092, 9080),
        ("proxy 2", 9093, 9081),
        ("broker 101", None, 9082),
        ("broker 102", None, 9083),
        ("controller 201", None, 9084),
    ]


def test_nodes_keep_their_ids_where_others_are_added() -> None:
    before, after = ({plan.node_id: plan.role for plan in planned(shape)} for shape in ("1c2b2p", "3c5b4p"))
    assert before.items() <= after.items()


def test_any_free_port_stays_any_free_port() -> None:
    plans = planned("1c2b2p", listen=0, admin=0)
    assert {plan.listen for plan in plans} == {("127.0.0.1", 0), None}
    assert {plan.admin for plan in plans} == {("127.0.0.1", 0)}


def test_a_node_is_a_command_line_of_the_server() -> None:
    assert planned("1c1b1p")[0].arguments == (
        *("server", "--roles", "proxy", "--node-id", "1", "--store", "file:///data?shared=true"),
        *("--listen", "127.0.0.1:9092", "--internal-listen", "127.0.0.1:0", "--admin", "127.0.0.1:9080"),
    )


@pytest.mark.parametrize(("listen", "admin"), [(9092, 9093), (9093, 9092), (9092, 9090), (9092, 9094), (65530, 65531)])
def test_ports_that_meet_go_round_each_other(listen: int, admin: int) -> None:
    plans = planned("1c1b2p", listen=listen, admin=admin)
    ports = [plan.admin[1] for plan in plans] + [plan.listen[1] for plan in plans if plan.listen is not None]
    assert len(set(ports)) == len(ports)
    assert (plans[0].listen, plans[0].admin) == (("127.0.0.1", listen), ("127.0.0.1", admin))
    assert max(ports) <= 65535


def test_ports_that_are_the_same_or_run_out_are_refused() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"--listen 127\.0\.0\.1:9092 and --admin 127\.0\.0\.1:9092: choose another port for one",
    ):
        planned("1c2b2p", admin=9092)
    with pytest.raises(
        ConfigurationError,
        match=r"--admin 127\.0\.0\.1:65533: 5 nodes take a port each from there on: choose a lower port",
    ):
        planned("1c2b2p", admin=65533)
