"""A sidecar that follows a cluster's channels: changes reach it while it runs, and it serves without the cluster by
what it knew last.
"""

import json
import subprocess
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from compat_server import BMQ, Bmq
from databus_process import Databus
from test_databus import values
from tests.waiting import until

FOLLOWED_WITHIN_S = 2.0


def channels(bmq: Bmq, *arguments: str) -> str:
    command = [str(BMQ), "channels", *arguments, "--admin", f"http://127.0.0.1:{bmq.admin_port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ready(databus: Databus) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"http://{databus.address}/readyz", timeout=5) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture
def follower(bmq: Bmq, tmp_path: Path) -> Any:
    sidecar = Databus(bmq.servers, None, tmp_path / "sidecar", control_plane=f"http://127.0.0.1:{bmq.admin_port}")
    try:
        yield sidecar
    finally:
        sidecar.stop()


def answers(databus: Databus, channel: str, status: int) -> None:
    """As soon as it follows; within two seconds."""
    began_s = monotonic()
    until(
        lambda: databus.post(channel, b"x")[0] == status,
        f"channel {channel} to answer {status}",
        FOLLOWED_WITHIN_S,
        shows=lambda: f"{databus.post(channel, b'x')} after {monotonic() - began_s:.1f} s",
    )


def test_channels_are_followed_while_it_runs_and_served_without_the_cluster(bmq: Bmq, follower: Databus) -> None:
    bmq.start()
    follower.start()
    until(lambda: ready(follower)[0] == 200, "the sidecar to know that there are no channels", 10)
    assert follower.post("orders", b"x")[0] == 404
    channels(bmq, "create", "orders", "--topic", "shop-orders")
    channels(bmq, "create", "clicks", "--acknowledgement", "accepted", "--set", "spool.maxBytes=2097152")
    answers(follower, "orders", 200)
    answers(follower, "clicks", 202)
    assert follower.post("orders", b"one")[0] == 200
    assert "one" in values(bmq, "shop-orders", 2)
    channels(bmq, "alter", "orders", "--disabled")
    answers(follower, "orders", 403)
    channels(bmq, "alter", "orders", "--unset", "enabled", "--unset", "topic")
    answers(follower, "orders", 200)
    status, told = ready(follower)
    assert (status, told["configuration"]["controlPlane"]) == (200, "ok")
    bmq.kill9()
    follower.stop()
    follower.start()
    assert follower.post("clicks", b"without a cluster")[0] == 202
    assert follower.post("other", b"x")[0] == 404
    until(lambda: "not reached" in ready(follower)[1]["configuration"]["controlPlane"], "it to know so", 10)
    assert ready(follower)[0] == 200
    assert follower.value("bmq_databus_configuration_age_seconds") > 0
    bmq.start()
    until(lambda: ready(follower)[1]["configuration"]["controlPlane"] == "ok", "it to be followed again", 40)
    assert "without a cluster" in values(bmq, "clicks", 2)


def test_a_channel_that_is_deleted_takes_nothing_and_what_it_accepted_is_sent(bmq: Bmq, follower: Databus) -> None:
    bmq.start()
    channels(bmq, "create", "clicks", "--acknowledgement", "accepted")
    follower.start()
    answers(follower, "clicks", 202)
    bmq.kill9()
    for number in range(20):
        assert follower.post("clicks", f"m{number}".encode())[0] == 202
    bmq.start()
    channels(bmq, "delete", "clicks", "--yes")
    until(lambda: follower.post("clicks", b"late")[0] == 404, "the channel to be gone", 40)
    assert [f"m{number}" for number in range(20)] == [one for one in values(bmq, "clicks", 21) if one.startswith("m")]


def test_without_a_control_plane_and_anything_known_it_waits_and_says_so(bmq: Bmq, follower: Databus) -> None:
    follower.start()
    assert follower.post("orders", b"x")[0] == 503
    until(lambda: "not reached" in ready(follower)[1]["configuration"]["controlPlane"], "it to say why", 10)
    assert ready(follower)[0] == 503
    bmq.start()
    channels(bmq, "create", "orders")
    until(lambda: follower.post("orders", b"x")[0] == 200, "the channel to be there", 40)


def test_an_accepting_channel_without_a_folder_is_told_and_the_others_work(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    channels(bmq, "create", "clicks", "--acknowledgement", "accepted")
    channels(bmq, "create", "orders")
    sidecar = Databus(
        bmq.servers,
        None,
        tmp_path / "sidecar",
        control_plane=f"http://127.0.0.1:{bmq.admin_port}",
        spools=False,
        options=["--state", str(tmp_path / "state")],
    )
    try:
        sidecar.start()
        answers(sidecar, "orders", 200)
        assert sidecar.post("clicks", b"x")[0] == 404
        assert "--spool DIR" in ready(sidecar)[1]["configuration"]["troubles"]["clicks"]
        assert (tmp_path / "state" / "known-channels.json").exists()
    finally:
        sidecar.stop()
