"""The commands' client of the admin API, against a server that answers as it is told to."""

import json

import pytest
from api_server import Answer, ok, problem, serving

from bmq_cli.cluster.client import ApiFailed, ClusterClient, check_urls
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode


def client_of(*urls: str, token: str = "") -> ClusterClient:
    return ClusterClient(urls, token=token, timeout_s=5)


def test_the_token_goes_with_each_request_and_queries_leave_out_what_is_not_given() -> None:
    with serving(ok({"a": 1}), ok({})) as server:
        client = client_of(server.url, token="t-o-k-e-n")
        assert client.get("x", limit=5, moving=True, after=None) == {"a": 1}
        client.post("y", body={"to": 3})
    (_, path, headers, _), (method, _, _, body) = server.asked
    assert (path, headers["authorization"]) == ("/v1/x?limit=5&moving=true", "Bearer t-o-k-e-n")
    assert (method, json.loads(body)) == ("POST", {"to": 3})


def test_all_pages_of_a_list_are_read() -> None:
    with serving(ok({"items": [1, 2], "continue": "t"}), ok({"items": [3], "continue": None})) as server:
        assert list(client_of(server.url).items("nodes")) == [1, 2, 3]
    assert "continue=t" in server.asked[1][1]


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "passes"),
    [
        (400, "InvalidRequest", ExitCode.USAGE, False),
        (403, "NoTokens", ExitCode.FAILED, False),
        (404, "UnknownNode", ExitCode.NOT_FOUND, False),
        (409, "NoHeir", ExitCode.FAILED, False),
        (412, "VersionMismatch", ExitCode.FAILED, False),
        (503, "NoLeader", ExitCode.NO_CONNECTION, True),
    ],
)
def test_a_problem_becomes_the_commands_failure_with_its_remedy(
    status: int, code: str, exit_code: ExitCode, *, passes: bool
) -> None:
    with serving(problem(status, code)) as server, pytest.raises(ApiFailed) as raised:
        client_of(server.url).get("nodes", "7")
    assert str(raised.value) == "node 7: because. mend it"
    assert (raised.value.code, raised.value.problem, raised.value.passes) == (exit_code, code, passes)


def test_who_has_no_token_is_told_how_to_present_one() -> None:
    with serving(problem(401, "Unauthenticated")) as server, pytest.raises(ApiFailed, match=r"\$BMQ_TOKEN or --token"):
        client_of(server.url).get("nodes")


def test_a_token_is_not_taken_along_to_where_an_answer_points() -> None:
    with serving() as other, serving((302, {"location": f"{other.url}/v1/nodes"}, b"")) as server:
        with pytest.raises(ApiFailed, match="it answers 302"):
            client_of(server.url, token="t-o-k-e-n").get("nodes")
        assert not other.asked


@pytest.mark.parametrize(
    "answer", [(502, {}, b"<html>bad gateway"), (500, {}, b"[1]"), (404, {}, b'{"detail":"Not Found"}')]
)
def test_what_is_not_bmq_is_told_so(answer: Answer) -> None:
    with serving(answer) as server, pytest.raises(ApiFailed, match="not as bmq does") as raised:
        client_of(server.url).get("nodes")
    assert raised.value.code is ExitCode.NO_CONNECTION


def test_an_answer_that_is_not_json_is_told_so() -> None:
    with serving((200, {}, b"ok")) as server, pytest.raises(ApiFailed, match="not JSON"):
        client_of(server.url).get("nodes")


def test_the_next_address_is_asked_where_one_is_not_reached_and_not_where_it_refuses() -> None:
    with serving(ok(1), problem(404, "UnknownNode")) as server:
        client = client_of("http://127.0.0.1:1", server.url)
        assert client.get("nodes") == 1
        with pytest.raises(ApiFailed, match="node 7"):
            client_of(server.url, "http://127.0.0.1:1").get("nodes")
    with pytest.raises(ApiFailed, match=r"cannot connect to http://127.0.0.1:1: connection refused") as raised:
        client_of("http://127.0.0.1:1").get("nodes")
    assert raised.value.passes


def test_who_is_patient_asks_again_while_nobody_leads_and_not_for_ever() -> None:
    slept: list[float] = []
    with serving(
        problem(503, "NoLeader"),
        problem(503, "LoadsUnknown"),
        ok(1),
        *[problem(503, "NoLeader")] * 4,
        problem(409, "NoHeir"),
    ) as server:
        client = ClusterClient([server.url], timeout_s=5, patience_s=0.75, sleep=slept.append)
        assert client.get("nodes") == 1
        with pytest.raises(ApiFailed, match="node 7") as raised:
            client.post("nodes", "7", "drain")
        assert (raised.value.problem, len(slept)) == ("NoLeader", 5)
        with pytest.raises(ApiFailed) as raised:
            client.get("nodes")
        assert raised.value.problem == "NoHeir", "asked once"


def test_addresses_are_urls_or_host_and_port() -> None:
    assert check_urls("127.0.0.1:9080, https://bmq.example/admin") == [
        "http://127.0.0.1:9080",
        "https://bmq.example/admin",
    ]
    for text in ("", "ftp://host:1", "http://:9080", "http://host:port", "http://host:99999", "a,,b"):
        with pytest.raises(CommandFailed, match="is no address"):
            check_urls(text)
    with pytest.raises(CommandFailed, match="a password in it") as raised:
        check_urls("http://user:hunter2@host")
    assert "hunter2" not in str(raised.value)
