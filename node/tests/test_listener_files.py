"""Addresses of listeners that become known while a node runs."""

from pathlib import Path

import pytest

from bmq.errors import ConfigurationError
from bmq_node.configuration.listener_files import ListenerFile
from bmq_node.configuration.listeners import advertised_listeners

LISTENERS = {"external": "0.0.0.0:9094", "lan": "127.0.0.1:0"}


def of(path: Path, host_name: str = "bmq-proxy-3.nodes") -> ListenerFile:
    return ListenerFile(path, LISTENERS, host_name=host_name)


def test_a_line_for_this_hosts_number_goes_before_one_for_all(tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    file.write_text(
        "# of the cloud\nexternal.3 = "
        "a3.example:31003\nexternal=all.example:9\n\nexternal.4=a4.example:31004\nlan={hostname}:0\n"
    )
    assert of(file).read() == {"external": "a3.example:31003", "lan": "bmq-proxy-3:0"}
    assert of(file, "bmq-proxy-5").read() == {"external": "all.example:9", "lan": "bmq-proxy-5:0"}
    assert of(file, "laptop").read() == {"external": "all.example:9", "lan": "laptop:0"}


def test_a_folder_has_a_file_for_each(tmp_path: Path) -> None:
    (tmp_path / "external.3").write_text("a3.example:31003\n")
    (tmp_path / "external.4").write_text("no address")
    (tmp_path / "..data").mkdir()
    assert of(tmp_path).read() == {"external": "a3.example:31003"}


def test_what_is_not_there_yet_has_no_addresses(tmp_path: Path) -> None:
    assert of(tmp_path / "none").start() == {}
    assert of(tmp_path).start() == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("external\n", "line 1 is 'external': write NAME=HOST:PORT or NAME.ORDINAL=HOST:PORT"),
        ("\nexternal.x=h:1\n", "line 2 is 'external.x=h:1': write NAME=HOST:PORT or NAME.ORDINAL=HOST:PORT"),
        ("external.3=h:1\nexternal.3=h:2\n", "line 2: external.3 is there twice: leave one of them out"),
        ("external.3=h\n", "external.3=h: write HOST:PORT, for example node1.example:31001"),
        (
            "external.3=0.0.0.0:1\n",
            "external.3=0.0.0.0:1: nobody can connect to that: write a name or an address, HOST:PORT",
        ),
        ("external={node}:1\n", "external {node}:1: {node} stands for nothing: use {hostname} or {ordinal}"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        of(file).start()
    assert str(caught.value) == f"advertised_listeners_file {file}: {says}"


def test_clients_are_told_where_it_listens_unless_that_is_no_address() -> None:
    listening = {"external": ("0.0.0.0", 9094), "lan": ("127.0.0.1", 5000)}
    assert advertised_listeners(LISTENERS, listening, told={}) == {"lan": ("127.0.0.1", 5000)}
    told = {"external": "n1.example:0", "lan": "n1:7"}
    assert advertised_listeners(LISTENERS, listening, told=told) == {"external": ("n1.example", 9094), "lan": ("n1", 7)}
    assert advertised_listeners(LISTENERS, {}, told=told) == {}, "it does not listen yet"
