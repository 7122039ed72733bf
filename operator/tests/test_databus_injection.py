"""The patch of a pod: applied, all that was there is there as it was, and a sidecar beside it; a second time changes
nothing.
"""

import copy
import json
import re
import shlex
from typing import Any

import jsonpatch
import pytest
import typer
from databus_of_a_test import config_map, pod
from hypothesis import given
from hypothesis import strategies as st

from bmq_cli.main import app
from bmq_operator.databus.channel_sets import channel_set_of
from bmq_operator.databus.injection import INJECTED, REFUSED, Injection, asked_for, injected, refused
from bmq_operator.databus.sidecar import VOLUMES
from bmq_operator.databus_settings import DatabusSettings

SET = channel_set_of(config_map())
IMAGE = "registry/bmq:1"


def inject(given: dict[str, Any], channel_set: Any = SET, **settings: Any) -> Injection:
    return injected(given, channel_set, namespace="shop", image=IMAGE, settings=DatabusSettings(**settings))


def patched(given: dict[str, Any], found: Injection) -> dict[str, Any]:
    """As the API server does it; what was given stays as it is."""
    result = jsonpatch.apply_patch(copy.deepcopy(given), json.loads(json.dumps(found.patch)))
    assert isinstance(result, dict)
    return result


def sidecar_of(given: dict[str, Any]) -> dict[str, Any]:
    [one] = [one for one in given["spec"]["initContainers"] if one["name"] == "bmq-databus"]
    assert isinstance(one, dict)
    return one


NAMES = st.sampled_from(["a", "app", "proxy", "tmp", "data", "x/y~z"])
MAPS = st.dictionaries(NAMES, st.text(max_size=3), max_size=3)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "image": st.just("app:1")},
        optional={
            "restartPolicy": st.just("Always"),
            "ports": st.lists(st.fixed_dictionaries({"containerPort": st.integers(1, 8599)}), max_size=2),
            "volumeMounts": st.just([{"name": "data", "mountPath": "/data"}]),
            "env": st.just([{"name": "A", "value": "b"}]),
        },
    ),
    max_size=3,
    unique_by=lambda one: one["name"],
)
VOLUMES_GIVEN = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": NAMES, "emptyDir": st.just({})}),
        st.fixed_dictionaries({"name": NAMES, "secret": st.just({"secretName": "s"})}),
    ),
    max_size=3,
    unique_by=lambda one: one["name"],
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"annotations": MAPS.map(lambda given: {**given, "bmq.io/databus": "shop-channels"})},
            optional={"labels": st.one_of(MAPS, st.none()), "name": NAMES, "generateName": NAMES},
        ),
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "initContainers": st.one_of(CONTAINERS, st.none()),
                "volumes": st.one_of(VOLUMES_GIVEN, st.none()),
                "restartPolicy": st.sampled_from(["Always", "Never"]),
                "terminationGracePeriodSeconds": st.integers(0, 100),
                "securityContext": st.one_of(st.just({"fsGroup": 5}), st.none()),
            },
        ),
    }
)


@given(given=PODS, is_known=st.booleans(), was_refused=st.booleans())
def test_whatever_a_pod_has_is_there_as_it_was_and_a_second_time_changes_nothing(
    given: dict[str, Any], is_known: bool, was_refused: bool
) -> None:
    if was_refused:
        given["metadata"]["annotations"][REFUSED] = "no sidecar of Databus: before"
    before = copy.deepcopy(given)
    found = inject(given) if is_known else refused(given, "x")
    assert given == before, "what was given is changed"
    after = patched(given, found)
    if is_known:
        assert asked_for(after) is None and inject(after) == Injection(), "twice is not once"
        added = sidecar_of(after)
        assert after["spec"]["initContainers"][0] == added, "who comes before it cannot write"
        after["spec"]["initContainers"].remove(added)
        after["spec"]["volumes"] = [one for one in after["spec"]["volumes"] if one["name"] not in VOLUMES]
        assert after["metadata"]["labels"].pop(INJECTED) == "true"
        assert REFUSED not in after["metadata"]["annotations"]
    else:
        assert after["metadata"]["annotations"].pop(REFUSED) == "no sidecar of Databus: x"
    before["metadata"]["annotations"].pop(REFUSED, None)

    def bare(one: dict[str, Any]) -> dict[str, Any]:
        """Nothing, an empty list and an empty map are the same to Kubernetes."""
        spec = {**one["spec"], **{key: one["spec"].get(key) or [] for key in ("initContainers", "volumes")}}
        return {**one, "metadata": {**one["metadata"], "labels": one["metadata"].get("labels") or {}}, "spec": spec}

    assert bare(after) == bare(before)


def command_of(names: list[str]) -> Any:
    """The command that is called so."""
    found: Any = typer.main.get_command(app)
    for name in names:
        found = found.get_command(typer.Context(found), name)
    return found


def test_the_sidecar_is_native_has_no_privileges_and_no_token_and_the_command_takes_its_arguments() -> None:
    after = patched(given := pod(volumes=[{"name": "token", "projected": {}}]), inject(given))
    made = sidecar_of(after)
    assert (made["restartPolicy"], made["image"], made["command"]) == ("Always", IMAGE, ["bmq"])
    security = made["securityContext"]
    assert security["runAsNonRoot"] and security["readOnlyRootFilesystem"] and security["runAsUser"] == 10001
    assert not security["allowPrivilegeEscalation"] and not security["privileged"]
    assert security["capabilities"] == {"drop": ["ALL"]} and security["seccompProfile"] == {"type": "RuntimeDefault"}
    mounts = {one["mountPath"]: one for one in made["volumeMounts"]}
    empty = mounts["/var/run/secrets/kubernetes.io/serviceaccount"]
    volumes = {one["name"]: one for one in after["spec"]["volumes"]}
    assert "emptyDir" in volumes[empty["name"]] and empty["readOnly"]
    assert {one["name"] for one in made["volumeMounts"]} == volumes.keys() - {"token"}
    assert made["resources"]["limits"]["memory"] and made["resources"]["requests"]["cpu"]
    assert made["livenessProbe"] and made["readinessProbe"] and made["startupProbe"]
    with command_of(made["args"][:2]).make_context(
        "serve", [*made["args"][2:], "--bootstrap-servers", "a:1"]
    ) as parsed:
        assert parsed.params["listen"] == "127.0.0.1:8600" and parsed.params["empty_spools_seconds"] == 25


def test_where_the_cluster_is_comes_from_the_config_map_or_is_its_service() -> None:
    [variable, *_] = sidecar_of(patched(pod(), inject(pod())))["env"]
    reference = {"name": "shop-channels", "key": "bootstrapServers"}
    assert variable["valueFrom"] == {"configMapKeyRef": reference}
    for cluster, address in (("bmq", "bmq-bootstrap.shop.svc:9092"), ("q/bmq", "bmq-bootstrap.q.svc:9092")):
        found = inject(pod(), channel_set_of(config_map(cluster=cluster)))
        [variable, *_] = sidecar_of(patched(pod(), found))["env"]
        assert variable["value"] == address


def test_tokens_are_mounted_to_the_sidecar_alone() -> None:
    after = patched(pod(), inject(pod(), channel_set_of(config_map(tokensSecret="writers"))))
    [volume] = [one for one in after["spec"]["volumes"] if "secret" in one]
    assert volume["secret"] == {"secretName": "writers", "items": [{"key": "tokens", "path": "tokens"}]}
    assert "--token-file /etc/bmq-databus-tokens/tokens" in shlex.join(sidecar_of(after)["args"])
    assert "volumeMounts" not in after["spec"]["containers"][0]


def test_what_channels_may_keep_fits_into_the_volume() -> None:
    def limit(given: dict[str, Any], text: str) -> int:
        found = inject(given, channel_set_of(config_map(**{"channels.yaml": text})))
        [volume] = [one for one in patched(given, found)["spec"]["volumes"] if one["name"] == "bmq-databus-spool"]
        return int(volume["emptyDir"]["sizeLimit"])

    channel = "{apiVersion: bmq.io/v1alpha1, kind: Channel, metadata: {name: a}, spec: {acknowledgement: accepted%s}}"
    assert limit(pod(), channel % ", spool: {maxBytes: 1048576}") == 1 << 30
    assert limit(pod(), channel % ", spool: {maxBytes: 2147483648}") > 2147483648 + 2 * (128 << 20)
    asked = {"bmq.io/databus": "shop-channels", "bmq.io/databus-spool": "5Gi"}
    assert limit(pod(asked), channel % "") == 5 << 30


@pytest.mark.parametrize(
    ("annotations", "spec", "says"),
    [
        ({"bmq.io/databus-spool": "lots"}, {}, "'lots' is no size: write 2Gi"),
        ({"bmq.io/databus-spool": "-1Gi"}, {}, "is no size"),
        ({"bmq.io/databus-spool": "100Mi"}, {}, "Kubernetes would end the pod"),
        ({"bmq.io/databus-spool-volume": "mine"}, {}, "the pod has no volume 'mine'"),
        (
            {"bmq.io/databus-spool-volume": "s"},
            {"volumes": [{"name": "s", "secret": {}}]},
            "is a secret, into which nobody writes",
        ),
        (
            {"bmq.io/databus-spool-volume": "s"},
            {"volumes": [{"name": "s", "emptyDir": {"sizeLimit": "10Mi"}}]},
            "volume s, sizeLimit: .* Kubernetes would end the pod",
        ),
        (
            {"bmq.io/databus-spool-volume": "s", "bmq.io/databus-spool": "2Gi"},
            {"volumes": [{"name": "s", "emptyDir": {}}]},
            "write one of them",
        ),
        ({"bmq.io/databus-socket-volume": ""}, {}, "the pod has no volume ''"),
        ({"bmq.io/databus-unix": "x"}, {}, "bmq.io/databus-unix is no annotation"),
        ({}, {"hostNetwork": True}, "hostNetwork"),
        ({}, {"os": {"name": "windows"}}, "Linux alone"),
        ({}, {"containers": [{"name": "a", "ports": [{"containerPort": 8600}]}]}, "container a has port 8600"),
        ({}, {"containers": [{"name": "bmq-databus"}]}, "a container of the pod is called bmq-databus"),
        ({}, {"initContainers": [{"name": "bmq-databus"}]}, "a container of the pod is called bmq-databus"),
        ({}, {"volumes": [{"name": "bmq-databus-spool"}]}, "a volume of the pod is called bmq-databus-spool"),
    ],
)
def test_a_pod_that_cannot_have_one_runs_without_and_says_why(
    annotations: dict[str, str], spec: dict[str, Any], says: str
) -> None:
    given = pod({"bmq.io/databus": "shop-channels", **annotations}, **spec)
    found = inject(given)
    after = patched(given, found)
    note = after["metadata"]["annotations"].pop(REFUSED)
    assert after == given, "all else is as it was"
    assert found.warnings == (note,) and len(note) <= 1000
    assert re.search(says, note), note


def test_a_volume_of_the_pods_own_has_the_spool_and_the_socket() -> None:
    volumes = [
        {"name": "kept", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "run", "emptyDir": {}},
    ]
    asked = {
        "bmq.io/databus": "shop-channels",
        "bmq.io/databus-spool-volume": "kept",
        "bmq.io/databus-socket-volume": "run",
    }
    found = inject(given := pod(asked, volumes=volumes))
    after = patched(given, found)
    made = sidecar_of(after)
    mounts = {one["name"]: one["mountPath"] for one in made["volumeMounts"]}
    assert (mounts["kept"], mounts["run"]) == ("/var/lib/bmq-databus", "/run/bmq-databus")
    line = shlex.join(made["args"])
    assert "--spool /var/lib/bmq-databus/spool --empty-spools-seconds 0" in line, "it stays for the next pod"
    assert "--unix /run/bmq-databus/databus.sock" in line
    assert "bmq-databus-spool" not in {one["name"] for one in after["spec"]["volumes"]}
    assert [one for one in found.warnings if "fsGroup" in one] == list(found.warnings) and len(found.warnings) == 2
    assert inject(pod(asked, volumes=volumes, securityContext={"fsGroup": 10001})).warnings == ()


@pytest.mark.parametrize(("grace_s", "empty_s", "warned"), [(None, 25, False), (60, 55, False), (0, 1, True)])
def test_its_end_waits_for_the_cluster_as_long_as_the_pod_may_end(
    grace_s: int | None, empty_s: int, warned: bool
) -> None:
    given = pod(terminationGracePeriodSeconds=grace_s)
    found = inject(given)
    assert f"--empty-spools-seconds {empty_s}" in shlex.join(sidecar_of(patched(given, found))["args"])
    assert any("little for what was accepted" in one for one in found.warnings) == warned


def test_pods_that_do_not_ask_are_left_alone() -> None:
    for one in (pod({}), {"metadata": {}, "spec": {"containers": []}}):
        assert asked_for(one) is None and inject(one) == Injection()


def test_a_pod_that_asks_for_it_has_a_sidecar_that_is_called_by_grpc_and_no_other_has() -> None:
    asked = {"bmq.io/databus": "shop-channels", "bmq.io/databus-grpc": "enabled"}
    line = shlex.join(sidecar_of(patched(given := pod(asked), inject(given)))["args"])
    assert "--grpc-listen 127.0.0.1:8602" in line and "--grpc-unix" not in line
    with_socket = pod({**asked, "bmq.io/databus-socket-volume": "run"}, volumes=[{"name": "run", "emptyDir": {}}])
    made = sidecar_of(patched(with_socket, inject(with_socket)))
    assert "--grpc-unix /run/bmq-databus/databus-grpc.sock" in shlex.join(made["args"])
    with command_of(made["args"][:2]).make_context(
        "serve", [*made["args"][2:], "--bootstrap-servers", "a:1"]
    ) as parsed:
        assert parsed.params["grpc_listen"] == "127.0.0.1:8602"
    for given in (pod(), pod({**asked, "bmq.io/databus-grpc": "disabled"})):
        assert "grpc" not in shlex.join(sidecar_of(patched(given, inject(given)))["args"])
    assert "write enabled or disabled" in inject(pod({**asked, "bmq.io/databus-grpc": "8602"})).refused
    taken = pod(asked)
    taken["spec"]["containers"][0]["ports"] = [{"containerPort": 8602}]
    assert "has port 8602, which is the sidecar's" in inject(taken).refused
    del taken["metadata"]["annotations"]["bmq.io/databus-grpc"]
    assert not inject(taken).refused
