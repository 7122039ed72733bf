"""What the chart renders, without a cluster: the same each time, the CRDs of the models, no right more than needed, no
value that nobody knows.
"""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_helm import CHART, ROOT, HelmRefused, helm, objects, of_kind, rendered

EVERYTHING: dict[str, Any] = {
    "cluster": {"create": True, "spec": {"brokers": {"replicas": 1}}},
    "replicas": 2,
    "imagePullSecrets": [{"name": "registry"}],
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "nodeSelector": {"pool": "queues"},
    "tolerations": [{"key": "queues", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "networkPolicy": {"metricsFromNamespaces": ["monitoring"]},
    "serviceAccount": {"annotations": {"e": "f"}},
    "monitoring": {
        part: {"enabled": True, "labels": {"release": "prometheus"}}
        for part in ("serviceMonitor", "podMonitor", "rules", "dashboards")
    },
    "spark": {
        "namespaces": ["shop", "here"],
        "pullSecrets": ["registry"],
        "conf": {"spark.log.level": "WARN"},
        "eventLog": "s3a://logs/spark",
        "executor": {"instances": 3, "memory": "4g"},
    },
}
NAMESPACED: dict[str, Any] = {"watchNamespaces": ["first", "second"]}
ALL: dict[str, Any] = {"watchNamespaces": ["*"]}


def test_helm_finds_nothing_to_say_about_it() -> None:
    for values in ({}, EVERYTHING, NAMESPACED):
        assert "1 chart(s) linted, 0 chart(s) failed" in helm("lint", "--strict", str(CHART), values=values)


@pytest.mark.parametrize("values", [{}, EVERYTHING, NAMESPACED], ids=["defaults", "everything", "namespaced"])
def test_it_renders_the_same_each_time(values: dict[str, Any]) -> None:
    assert rendered(values) == rendered(values)


SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""What Kubernetes takes."""


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("bmq", {}, "bmq"),
        ("queue", {}, "queue-bmq"),
        ("my.queue", {}, "my-queue-bmq"),
        ("1st", {}, "bmq-1st-bmq"),
        ("1bmq.x", {}, "bmq-1bmq-x"),
        ("queue", {"fullnameOverride": "9.q"}, "bmq-9-q"),
        ("a" * 51 + ".b", {}, "a" * 51),
        ("9" * 53, {}, "bmq-" + "9" * 48),
        ("a" * 50 + "--b", {}, "a" * 50),
    ],
)
def test_whatever_a_release_is_called_its_objects_have_names_that_kubernetes_takes(
    release: str, values: dict[str, Any], name: str
) -> None:
    made = objects(rendered(values, release=release))
    services = [one["metadata"]["name"] for one in made if one["kind"] == "Service"]
    assert services == [name]
    assert all(
        SERVICE_NAME.fullmatch(one["metadata"]["name"])
        for one in made
        if one["kind"] in ("Service", "Deployment", "Job", "Pod")
    )


def no_key_twice(text: str) -> None:
    """Raises where a mapping has one key twice, which a parser of YAML passes over."""

    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader: Strict, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = [loader.construct_object(key) for key, _ in node.value]  # type: ignore[no-untyped-call]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: {keys}"
        return loader.construct_mapping(node)

    Strict.add_constructor("tag:yaml.org,2002:map", mapping)
    list(yaml.load_all(text, Strict))


def test_labels_that_repeat_the_charts_own_are_there_once_and_as_they_were_written() -> None:
    own = {"app.kubernetes.io/part-of": "platform", "app.kubernetes.io/managed-by": "us"}
    parts = ("serviceMonitor", "podMonitor", "rules", "dashboards")
    text = rendered({"podLabels": own, "monitoring": {part: {"enabled": True, "labels": own} for part in parts}})
    no_key_twice(text)
    made = objects(text)
    kinds = ("ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap")
    labelled = [one["metadata"]["labels"] for one in made if one["kind"] in kinds]
    labelled += [one["spec"]["template"]["metadata"]["labels"] for one in made if one["kind"] == "Deployment"]
    assert len(labelled) > len(kinds) and all(own.items() <= one.items() for one in labelled)


def test_no_object_is_rendered_twice() -> None:
    for values in ({}, EVERYTHING, NAMESPACED):
        names = [
            (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
            for one in objects(rendered(values))
        ]
        assert len(names) == len(set(names))


def test_its_crds_are_those_of_the_models_and_stay_after_an_uninstall() -> None:
    models = {
        crd["metadata"]["name"]: crd
        for file in sorted((ROOT / "crds").glob("*.yaml"))
        for crd in objects(file.read_text())
    }
    crds = {one["metadata"]["name"]: one for one in of_kind("CustomResourceDefinition")}
    assert crds.keys() == models.keys()
    for name, crd in crds.items():
        assert crd["spec"] == models[name]["spec"]
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert of_kind("CustomResourceDefinition", {"crds": {"install": False}}) == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"imag": {}}, "additional properties 'imag' not allowed"),
        ({"image": {"tagg": "1"}}, "additional properties 'tagg' not allowed"),
        ({"image": {"tag": "1@sha256:ab"}}, "does not match pattern"),
        ({"image": {"tag": "@sha256:" + "ab" * 32}}, "does not match pattern"),
        ({"image": {"repository": "bmq:1.0"}}, "does not match pattern"),
        ({"image": {"repository": "r:5000/bmq:1.0"}}, "does not match pattern"),
        ({"image": {"repository": "r/bmq@sha256:" + "ab" * 32}}, "does not match pattern"),
        ({"image": {"repository": ""}}, "does not match pattern"),
        ({"spark": {"image": {"repository": "bmq-spark:1.0"}}}, "does not match pattern"),
        (
            {"podLabels": {"app.kubernetes.io/name": "mine"}},
            "podLabels: app.kubernetes.io/name is how the operator's pods are found: leave it out",
        ),
        ({"replicas": "2"}, "got string, want integer"),
        ({"replicas": 9}, "maximum"),
        ({"watchNamespaces": ["No_Namespace"]}, "does not match pattern"),
        ({"operator": {"logLevel": "loud"}}, "value must be one of"),
        ({"cluster": {"name": "a.b"}}, "does not match pattern"),
        ({"monitoring": {"podMonitor": {"interval": "soon"}}}, "does not match pattern"),
        ({"spark": {"driver": {"memory": "1Gi"}}}, "does not match pattern"),
        ({"spark": {"executor": {"instances": 0}}}, "minimum"),
        ({"spark": {"conf": {"executor.memory": "1g"}}}, "does not match pattern"),
        ({"spark": {"eventLog": "/logs"}}, "does not match pattern"),
    ],
)
def test_values_that_cannot_be_used_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(HelmRefused, match=says):
        rendered(values)


def test_images_may_be_named_by_tag_and_digest() -> None:
    from bmq_operator.settings import OperatorSettings
    from bmq_operator.spark_settings import SparkSettings

    tag = "0.1.0@sha256:" + "ab" * 32
    image = {"repository": "r:5000/bmq", "tag": tag}
    (deployment,) = of_kind("Deployment", {"image": image, "spark": {"image": image}})
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    told = {one["name"]: one.get("value", "") for one in container["env"]}
    assert (
        container["image"]
        == told["BMQ_OPERATOR_IMAGE"]
        == OperatorSettings(image=told["BMQ_OPERATOR_IMAGE"]).image
        == f"r:5000/bmq:{tag}"
    )
    assert SparkSettings.model_validate_json(told["BMQ_OPERATOR_SPARK"]).image == f"r:5000/bmq:{tag}"


def test_the_page_of_values_is_up_to_date() -> None:
    described = importlib.util.spec_from_file_location("chart_values", ROOT / "tools" / "chart_values.py")
    assert described
    assert described.loader
    chart_values = importlib.util.module_from_spec(described)
    described.loader.exec_module(chart_values)
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = (CHART / "values.yaml").read_text()
    assert (ROOT / "docs" / "chart-values.md").read_text() == chart_values.page(values, schema), "run: make generated"
    with pytest.raises(chart_values.Undocumented, match="does not know nobody"):
        chart_values.page(values + "\n# What?\nnobody: 1\n", schema)
    with pytest.raises(chart_values.Undocumented, match="no comment"):
        chart_values.page(values.replace("  # When it is pulled.\n", ""), schema)


def test_the_chart_has_the_version_of_the_packages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'\nversion = "{chart["appVersion"]}"\n' in (ROOT / "pyproject.toml").read_text()


def test_chart_and_guide_name_the_same_oldest_kubernetes() -> None:
    (oldest,) = re.findall(r">=(\d+\.\d+)\.0-0", str(yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]))
    assert f"({oldest} or newer)" in (ROOT / "docs" / "kubernetes.md").read_text()


def test_a_cluster_that_is_made_without_a_spec_has_a_minio_and_one_with_a_store_has_that() -> None:
    def made(spec: dict[str, Any]) -> dict[str, Any]:
        (job,) = (
            one
            for one in of_kind("Job", {"cluster": {"create": True, "spec": spec}})
            if one["metadata"]["name"].endswith("-apply")
        )
        (manifest,) = (
            one["value"]
            for one in job["spec"]["template"]["spec"]["containers"][0]["env"]
            if one["name"] == "BMQ_HOOK_MANIFEST"
        )
        return dict(json.loads(manifest)["spec"])

    assert made({}) == {"store": {"minio": {"embedded": True}}}
    assert made({"store": {"url": "s3://bucket"}}) == {"store": {"url": "s3://bucket"}}


@pytest.mark.parametrize(
    ("release", "values"),
    [
        ("bmq-spark", {"rbac": {"create": False}}),
        ("bmq", {"spark": {"serviceAccount": {"name": "bmq-operator"}}}),
        ("bmq", {"serviceAccount": {"name": "bmq-spark"}, "watchNamespaces": ["*"]}),
        (
            "bmq",
            {"serviceAccount": {"create": False, "name": "drivers"}, "spark": {"serviceAccount": {"name": "drivers"}}},
        ),
    ],
)
def test_drivers_do_not_run_as_the_operator(release: str, values: dict[str, Any]) -> None:
    enabled = {**values, "spark": {"enabled": True, **values.get("spark", {})}}
    with pytest.raises(HelmRefused, match=r"is the operator's own ServiceAccount .* give one of the two another name"):
        rendered(enabled, release=release)
    elsewhere = {**enabled, "spark": {**enabled["spark"], "namespaces": ["tables"]}}
    for watched in ([], ["*"], ["tables", "here"]):  # a table of this namespace would name it all the same
        with pytest.raises(HelmRefused, match="is the operator's own ServiceAccount"):
            rendered({**elsewhere, "watchNamespaces": watched}, release=release)
    assert "kind: Deployment" in rendered({**elsewhere, "watchNamespaces": ["tables"]}, release=release)


def test_what_values_say_reaches_the_operator_and_the_hook_as_it_is_written() -> None:
    """The kubelet takes $$ for $, and $(NAME) for a variable."""
    text = "$(KUBERNETES_SERVICE_HOST) $$ $$(A) a$b$"
    values = {
        "cluster": {"create": True, "spec": {"store": {"url": "s3://b"}, "config": {"x": text}}},
        "allow": {"images": [text]},
        "spark": {"enabled": True, "conf": {"spark.x": text}},
    }
    found = {
        one["name"]: json.loads(
            re.sub(r"\$\$|\$\([^)]*\)", lambda it: "$" if it[0] == "$$" else "10.0.0.1", one["value"])
        )
        for manifest in [*of_kind("Job", values), *of_kind("Deployment", values)]
        for one in manifest["spec"]["template"]["spec"]["containers"][0]["env"]
        if one["name"] in ("BMQ_HOOK_MANIFEST", "BMQ_OPERATOR_ALLOW", "BMQ_OPERATOR_SPARK")
    }
    assert found["BMQ_HOOK_MANIFEST"]["spec"]["config"]["x"] == text
    assert found["BMQ_OPERATOR_ALLOW"]["images"] == [text]
    assert found["BMQ_OPERATOR_SPARK"]["conf"]["spark.x"] == text


def test_a_cluster_is_not_made_where_the_operator_does_not_look() -> None:
    """Nobody would make anything of it, nor say so."""
    with pytest.raises(HelmRefused, match=r"cluster\.create: .* the namespace here.* add it to watchNamespaces"):
        rendered(NAMESPACED | {"cluster": {"create": True}})
    for namespaces in ([], ["*"], ["first", "here"]):
        assert "BMQ_HOOK_MANIFEST" in rendered({"watchNamespaces": namespaces, "cluster": {"create": True}})


def accounts(values: dict[str, Any], *, chart: Path = CHART) -> tuple[set[str], set[str], set[str]]:
    """Names of ServiceAccounts in the release's namespace that stay; those that its roles are bound to, and that the
    operator runs as."""
    made = [
        one
        for one in objects(rendered(values, release="bmq", chart=chart))
        if "helm.sh/hook" not in one["metadata"].get("annotations", {})
    ]
    return (
        {one["metadata"]["name"] for one in made if one["kind"] == "ServiceAccount"},
        {
            subject["name"]
            for one in made
            if one["kind"] in ("RoleBinding", "ClusterRoleBinding")
            for subject in one["subjects"]
        },
        {one["spec"]["template"]["spec"]["serviceAccountName"] for one in made if one["kind"] == "Deployment"},
    )


def test_a_cluster_called_as_the_release_has_an_account_of_its_own_with_nothing_but_defaults() -> None:
    """One has a ServiceAccount of its name."""
    values = {"cluster": {"create": True}}
    (example,) = objects((ROOT / "examples" / "cluster.yaml").read_text())
    made, bound, runs_as = accounts(values)
    assert example["metadata"]["name"] == "bmq" and "bmq" not in made
    assert runs_as == {"bmq-operator"} and made == bound == {"bmq-operator", "bmq-spark"}


def test_an_upgrade_gives_the_operator_an_account_of_another_name_with_all_of_its_roles() -> None:
    assert accounts({}, chart=ROOT / "tests/e2e/fixtures/chart-0.1.0")[2] == {"bmq"}
    for values in ({}, ALL, NAMESPACED):
        made, bound, runs_as = accounts({**values, "spark": {"enabled": False}})
        assert made == bound == runs_as == {"bmq-operator"}
    assert accounts({"serviceAccount": {"name": "bmq"}})[2] == {"bmq"}, "whom something else knows by it"
    assert accounts({"rbac": {"create": False}})[2] == {"bmq"}, "roles that others made are bound to that"
    assert accounts({"serviceAccount": {"create": False}})[2] == {"default"}


@pytest.mark.parametrize(
    "values",
    [
        {"serviceAccount": {"name": "bmq"}},
        {"rbac": {"create": False}},
        {"serviceAccount": {"create": False, "name": "bmq"}},
        {"cluster": {"name": "bmq-operator"}},
        {"cluster": {"name": "bmq-spark"}},
        {"cluster": {"name": "bmq-apply"}},
        {"cluster": {"name": "default"}},
    ],
)
def test_a_cluster_is_not_made_whose_account_is_somebody_elses(values: dict[str, Any]) -> None:
    created = {**values, "cluster": {"create": True, **values.get("cluster", {})}}
    with pytest.raises(HelmRefused, match=r"cluster\.name: .* is the name of another one in .* here: choose"):
        rendered(created, release="bmq")
    assert "kind: Deployment" in rendered(values, release="bmq")


def test_names_that_yaml_takes_for_something_else_stay_names() -> None:
    values = EVERYTHING | {
        "fullnameOverride": "no",
        "priorityClassName": "null",
        "watchNamespaces": ["0x10", "true"],
        "serviceAccount": {"name": "on"},
        "operator": {"leaseName": "off"},
        "networkPolicy": {"metricsFromNamespaces": ["1e3"]},
        "spark": {"namespaces": ["0x10"], "serviceAccount": {"name": "yes"}},
        "cluster": {"create": True},
    }
    text = rendered(values, release="1e1", namespace="0x10")
    assert {one["metadata"]["namespace"] for one in objects(text) if "namespace" in one["metadata"]} == {"0x10", "true"}

    def names(part: Any, key: str = "") -> Iterator[tuple[str, Any]]:
        if isinstance(part, dict):
            for name, one in part.items():
                yield from names(one, "label" if key in ("labels", "matchLabels") else name)
        elif isinstance(part, list):
            for one in part:
                yield from names(one, key)
        else:
            yield key, part

    kinds = {"name", "namespace", "serviceAccountName", "priorityClassName", "resourceNames", "label", "matchNames"}
    found = [
        (key, one)
        for made in objects(text)
        if made["kind"] != "CustomResourceDefinition"
        for key, one in names(made)
        if key in kinds
    ]
    assert {"no", "null", "on", "off", "yes", "1e1", "1e3"} <= {one for _, one in found}
    assert [one for one in found if not isinstance(one[1], str)] == []


def test_the_pod_of_helm_test_goes_once_it_succeeded() -> None:
    (pod,) = of_kind("Pod")
    assert "hook-succeeded" in pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")


def test_an_uninstall_makes_nothing_in_watched_namespaces_which_may_be_gone_or_going() -> None:
    """Helm gives up at the first hook that is refused, and all finalizers would stay. Who makes the roles himself may
    have no rights beyond those namespaces: then it is all the same."""

    def namespaces(values: dict[str, Any]) -> set[str]:
        made = [
            one
            for one in objects(rendered(values))
            if "post-delete" in one["metadata"].get("annotations", {}).get("helm.sh/hook", "")
        ]
        granted = {
            (resource, verb)
            for one in made
            for rule in one.get("rules", ())
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert {
            (kind, verb)
            for kind in ("clusters", "topics", "lanes", "channels", "parquetsinks")
            for verb in ("list", "patch")
        } <= granted
        return {one["metadata"].get("namespace", "") for one in made}

    assert namespaces(NAMESPACED) == {"", "here"}
    assert namespaces(NAMESPACED | {"rbac": {"create": False}}) == {"here", "first", "second"}


def rules(*kinds: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """All rules of the roles of these kinds."""
    return [rule for one in objects(rendered(values)) if one["kind"] in kinds for rule in one["rules"]]


def test_no_role_has_a_wildcard_or_gives_others_rights() -> None:
    for values in ({}, EVERYTHING, NAMESPACED):
        for rule in rules("Role", "ClusterRole", values=values):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"roles", "clusterroles", "rolebindings", "clusterrolebindings", "pods/exec"} & set(
                rule["resources"]
            )


def test_where_nothing_is_said_the_operator_looks_after_its_namespace_and_has_no_rights_elsewhere() -> None:
    made = objects(rendered({}))
    assert not [
        rule
        for one in made
        if one["kind"] == "ClusterRole"
        for rule in one["rules"]
        if {"secrets", "pods"} & set(rule["resources"])
    ]
    assert {one["metadata"]["namespace"] for one in made if one["kind"] == "Role"} == {"here"}
    for values, namespaces in (({}, "here"), (NAMESPACED, "first,second"), (ALL, "")):
        (deployment,) = of_kind("Deployment", values)
        told = {one["name"]: one.get("value") for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert told["BMQ_OPERATOR_NAMESPACES"] == namespaces
    assert [rule for rule in rules("ClusterRole", values=ALL) if "secrets" in rule["resources"]]


def test_what_resources_may_use_is_what_the_operator_takes_for_granted() -> None:
    from bmq_operator.allowed import Allowed

    (deployment,) = of_kind("Deployment")
    told = {one["name"]: one.get("value") for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert Allowed.model_validate_json(told["BMQ_OPERATOR_ALLOW"]) == Allowed()


def test_with_named_namespaces_it_has_rights_elsewhere_on_its_own_resources_alone() -> None:
    made = objects(rendered(NAMESPACED))
    (everywhere,) = (
        one for one in made if one["kind"] == "ClusterRole" and not one["metadata"]["name"].endswith("-release")
    )
    releases = [rule for one in made if one["kind"] == "ClusterRole" and one != everywhere for rule in one["rules"]]
    assert {tuple(rule["apiGroups"]) for rule in releases} == {("bmq.io",)}
    beyond = [rule for rule in everywhere["rules"] if rule["apiGroups"] != ["bmq.io"]]
    assert beyond == [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}]
    where = {one["metadata"]["namespace"] for one in made if one["kind"] == "Role"}
    assert where == {"first", "second", "here"}
    own = [one for one in made if one["kind"] == "Role" and one["metadata"]["namespace"] == "here"]
    assert {resource for one in own for rule in one["rules"] for resource in rule["resources"]} == {"leases", "pods"}
    reading_nodes = rules("ClusterRole", values=NAMESPACED | {"rbac": {"readNodes": True}})
    assert {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]} in reading_nodes


VERBS = {
    "get": {"get"},
    "list": {"list"},
    "apply": {"create", "patch"},
    "create": {"create"},
    "replace": {"update"},
    "merge": {"patch"},
    "delete": {"delete"},
}


def test_what_the_operator_asks_of_the_api_server_it_may() -> None:
    from bmq_operator.kinds import path_of

    granted = {
        (resource, verb)
        for rule in rules("Role", "ClusterRole", values=ALL)
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    sources = "".join(file.read_text() for file in sorted((ROOT / "operator" / "src").rglob("*.py")))
    calls = re.findall(r"kube\.(get|list|apply|create|replace|merge|delete)\(\s*\"([A-Z][A-Za-z]+)\"", sources)
    assert len(calls) > 10
    wanted = {(path_of(kind).rpartition("/")[2], verb) for call, kind in calls for verb in VERBS[call]}
    assert wanted <= granted


NEEDED = {
    ("clusters", "topics", "lanes", "channels", "parquetsinks"): {"get", "list", "watch", "patch"},
    ("lanes",): {"delete"},
    ("clusters/status", "topics/status", "lanes/status", "channels/status", "parquetsinks/status"): {"patch"},
    ("namespaces",): {"get"},
    ("statefulsets", "services", "secrets", "jobs", "sparkapplications", "scheduledsparkapplications"): {
        *("get", "list", "watch", "create", "patch", "delete")
    },
    ("configmaps", "serviceaccounts", "horizontalpodautoscalers", "poddisruptionbudgets", "networkpolicies"): {
        *("get", "list", "create", "patch", "delete")
    },
    ("pods",): {"get", "list", "watch", "patch", "delete"},
    ("persistentvolumeclaims",): {"get", "patch", "delete"},
    ("events",): {"create", "list"},
    ("sparkapplications/status", "scheduledsparkapplications/status"): {"patch"},
    ("nodes", "controllerrevisions"): {"list"},
    ("customresourcedefinitions",): {"get", "list", "watch"},
    ("leases",): {"create", "get", "update"},
}
"""What the operator's own code asks for: reads, watches (handlers.py), applies (create and patch), deletes; leases are
replaced."""


def test_the_operator_has_no_right_that_nothing_uses() -> None:
    needed = {(resource, verb) for resources, verbs in NEEDED.items() for resource in resources for verb in verbs}
    operators = [
        one
        for one in objects(rendered(ALL))
        if one["kind"] in ("Role", "ClusterRole")
        and not re.search("spark|hook|works|release|cluster$", one["metadata"]["name"])
    ]
    granted = {
        (resource, verb)
        for role in operators
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == needed


def test_spark_is_what_the_operator_reads_it_as() -> None:
    from bmq_operator.spark_settings import SparkSettings

    for values in ({}, EVERYTHING):
        (deployment,) = of_kind("Deployment", values)
        (told,) = (
            one["value"]
            for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
            if one["name"] == "BMQ_OPERATOR_SPARK"
        )
        spark = SparkSettings.model_validate_json(told)
        version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        assert (spark.enabled, spark.image, spark.service_account, spark.driver.memory) == (
            True,
            f"bmq-spark:{version}",
            "bmq-spark",
            "1g",
        )
    assert (spark.executor.instances, spark.executor.memory, spark.event_log) == (3, "4g", "s3a://logs/spark")
    assert (spark.pull_secrets, spark.conf) == (("registry",), {"spark.log.level": "WARN"})


def test_drivers_have_an_account_in_each_namespace_of_tables() -> None:
    for values, namespaces in (({}, {"here"}), (NAMESPACED, {"first", "second"}), (EVERYTHING, {"shop", "here"})):
        made = [one for one in objects(rendered(values)) if one["metadata"]["name"] == "bmq-spark"]
        for kind in ("ServiceAccount", "Role", "RoleBinding"):
            assert {one["metadata"]["namespace"] for one in made if one["kind"] == kind} == namespaces


def test_without_spark_the_operator_has_no_rights_on_its_applications() -> None:
    without = {"spark": {"enabled": False}}
    assert not any("sparkoperator.k8s.io" in rule["apiGroups"] for rule in rules("Role", "ClusterRole", values=without))
    assert not any(one["metadata"]["name"] == "bmq-spark" for one in objects(rendered(without)))


def test_the_lease_is_the_only_one_that_it_may_touch() -> None:
    (leader,) = (one for one in of_kind("Role") if one["metadata"]["name"].endswith("-leader"))
    (deployment,) = of_kind("Deployment")
    environment = {
        one["name"]: one.get("value") for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    touching = [rule for rule in leader["rules"] if rule["verbs"] != ["create"]]
    assert [rule["resourceNames"] for rule in touching] == [[environment["BMQ_OPERATOR_LEASE_NAME"]]]


def test_every_pod_keeps_to_what_restricted_namespaces_ask_for() -> None:
    pods = [one for one in objects(rendered(EVERYTHING)) if one["kind"] in ("Pod", "Job", "Deployment")]
    templates = [one["spec"] if one["kind"] == "Pod" else one["spec"]["template"]["spec"] for one in pods]
    assert len(templates) == 4
    for pod in templates:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"]


def test_what_is_written_reaches_the_pods() -> None:
    (deployment,) = of_kind("Deployment", EVERYTHING)
    template = deployment["spec"]["template"]
    pod = template["spec"]
    assert (deployment["spec"]["replicas"], pod["priorityClassName"], pod["nodeSelector"]) == (
        2,
        "high",
        {"pool": "queues"},
    )
    assert (pod["imagePullSecrets"], pod["tolerations"]) == (EVERYTHING["imagePullSecrets"], EVERYTHING["tolerations"])
    assert pod["affinity"] == EVERYTHING["affinity"]
    assert {"name": "TZ", "value": "UTC"} in pod["containers"][0]["env"]
    assert template["metadata"]["annotations"] == {"a": "b"}
    assert template["metadata"]["labels"]["c"] == "d"


def test_every_variable_of_the_operator_is_one_that_it_reads() -> None:
    from bmq_operator.settings import OperatorSettings

    for values in ({}, EVERYTHING, NAMESPACED):
        (deployment,) = of_kind("Deployment", values)
        names = {one["name"] for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]} - {"TZ"}
        assert names <= {f"BMQ_OPERATOR_{field.upper()}" for field in OperatorSettings.model_fields}


def test_dashboards_and_rules_arrive_as_they_are() -> None:
    dashboards = {file.name: json.loads(file.read_text()) for file in (CHART / "files" / "dashboards").glob("*.json")}
    maps = [one for one in of_kind("ConfigMap", EVERYTHING) if "-dashboard-" in one["metadata"]["name"]]
    found = {name: json.loads(text) for one in maps for name, text in one["data"].items()}
    assert found == dashboards
    groups = [
        group
        for file in sorted((CHART / "files" / "rules").glob("*.yaml"))
        for group in yaml.safe_load(file.read_text())["groups"]
    ]
    assert [group for one in of_kind("PrometheusRule", EVERYTHING) for group in one["spec"]["groups"]] == groups


def test_alerts_on_the_operator_need_its_metrics() -> None:
    names = [one["metadata"]["name"] for one in of_kind("PrometheusRule", {"monitoring": {"rules": {"enabled": True}}})]
    assert names
    assert not any(name.endswith("bmq-operator") for name in names)


def test_monitors_find_what_the_operator_makes() -> None:
    from bmq_operator.clusters.names import labels_of

    monitor, of_spark = of_kind("PodMonitor", EVERYTHING)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels_of("orders", "broker").items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert of_spark["spec"]["namespaceSelector"] == {"matchNames": ["shop", "here"]}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert {"instance", "cluster", "component"} <= {one["targetLabel"] for one in endpoint["relabelings"]}
    assert [one["path"] for one in of_spark["spec"]["podMetricsEndpoints"]] == [
        "/metrics/prometheus/",
        "/metrics/executors/prometheus/",
    ]
    for endpoint in of_spark["spec"]["podMetricsEndpoints"]:
        assert endpoint["port"] == "spark-ui"
        assert {"instance", "cluster", "application"} <= {one["targetLabel"] for one in endpoint["relabelings"]}
    (service,) = of_kind("Service", EVERYTHING)
    (of_operator,) = of_kind("ServiceMonitor", EVERYTHING)
    assert of_operator["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {one["port"] for one in of_operator["spec"]["endpoints"]} <= {
        one["name"] for one in service["spec"]["ports"]
    }
