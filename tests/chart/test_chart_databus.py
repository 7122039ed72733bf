"""What the chart renders for sidecars of Databus: nothing until it is asked for; then a webhook that keeps no pod back,
and rights on its own two objects alone.
"""

import json
from typing import Any

import pytest
from chart_helm import CHART, HelmRefused, helm, objects, of_kind, rendered

from bmq_operator.databus.admission import BODY_S, FIND_S, PATH
from bmq_operator.databus_settings import DatabusSettings

ENABLED: dict[str, Any] = {"databus": {"injection": {"enabled": True}}}
ALL: dict[str, Any] = {"watchNamespaces": ["*"]}


def told(values: dict[str, Any]) -> DatabusSettings:
    (deployment,) = of_kind("Deployment", values)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [one] = [one["value"] for one in container["env"] if one["name"] == "BMQ_OPERATOR_DATABUS"]
    return DatabusSettings.model_validate_json(one)


def webhook(values: dict[str, Any]) -> dict[str, Any]:
    (configuration,) = of_kind("MutatingWebhookConfiguration", values)
    [one] = configuration["webhooks"]
    assert isinstance(one, dict)
    return one


def test_it_is_off_until_it_is_asked_for() -> None:
    text = rendered({})
    assert "databus" not in "\n".join(line for line in text.splitlines() if "fullPath" not in line).lower()
    assert of_kind("MutatingWebhookConfiguration") == []


def test_helm_finds_nothing_to_say_about_it_and_renders_the_same_each_time() -> None:
    for values in (ENABLED, {**ENABLED, **ALL}):
        assert "1 chart(s) linted, 0 chart(s) failed" in helm("lint", "--strict", str(CHART), values=values)
        assert rendered(values) == rendered(values)


def test_the_operator_serves_and_keeps_what_the_chart_made() -> None:
    settings, hook = told(ENABLED), webhook(ENABLED)
    service = hook["clientConfig"]["service"]
    assert (service["name"], service["namespace"], service["path"]) == (settings.name, "here", PATH)
    [found] = [one for one in of_kind("Service", ENABLED) if one["metadata"]["name"] == settings.name]
    [port] = found["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (service["port"], "webhook")
    (deployment,) = of_kind("Deployment", ENABLED)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert settings.listen == f"0.0.0.0:{ports['webhook']}"
    assert found["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    [secret] = of_kind("Secret", ENABLED)
    assert secret["metadata"]["name"] == settings.name and "data" not in secret and "stringData" not in secret
    (configuration,) = of_kind("MutatingWebhookConfiguration", ENABLED)
    assert configuration["metadata"]["name"] == settings.webhook == "here-queue-bmq-databus"
    assert settings.enabled and settings.image == "" and settings.resources["limits"] == {"memory": "512Mi"}
    assert "caBundle" not in hook["clientConfig"], "an upgrade would take it away from the operator"


def test_a_webhook_that_is_down_keeps_no_pod_back_and_is_asked_of_those_alone_that_ask() -> None:
    hook = webhook(ENABLED)
    assert hook["failurePolicy"] == "Ignore" and BODY_S + FIND_S < hook["timeoutSeconds"] <= 5
    assert hook["sideEffects"] == "NoneOnDryRun"
    assert hook["rules"] == [
        {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
            "scope": "Namespaced",
        }
    ]
    assert hook["namespaceSelector"]["matchLabels"] == {"bmq.io/databus-injection": "enabled"}
    [condition] = hook["matchConditions"]
    assert "'bmq.io/databus' in object.metadata.annotations" in condition["expression"]


@pytest.mark.parametrize(
    ("namespaces", "asked"), [([], ["here"]), (["first", "second"], ["first", "second"]), (["*"], None)]
)
def test_it_is_asked_of_namespaces_alone_that_the_operator_may_read(namespaces: list[str], asked: Any) -> None:
    selector = webhook({**ENABLED, "watchNamespaces": namespaces})["namespaceSelector"]
    found = [one["values"] for one in selector.get("matchExpressions", ()) if one["operator"] == "In"]
    assert found == ([] if asked is None else [asked])


def test_its_rights_are_to_read_and_patch_its_secret_and_its_webhook() -> None:
    def rules(values: dict[str, Any]) -> list[str]:
        made = [one for one in objects(rendered(values)) if one["kind"] in ("Role", "ClusterRole")]
        return sorted(json.dumps([one["metadata"].get("namespace"), rule]) for one in made for rule in one["rules"])

    for values in ({}, ALL):
        before, after = rules(values), rules({**values, **ENABLED})
        assert set(before) < set(after)
        added = [json.loads(one) for one in after if one not in before]
        for _, rule in added:
            assert rule["verbs"] == ["get", "patch"] and len(rule["resourceNames"]) == 1
        assert {(where, rule["resources"][0]) for where, rule in added} == {
            ("here", "secrets"),
            (None, "mutatingwebhookconfigurations"),
        }
    made = objects(rendered({**ENABLED, "rbac": {"create": False}}))
    assert not [one for one in made if one["kind"] == "ClusterRole" and "databus" in one["metadata"]["name"]]


def test_a_network_policy_lets_the_api_server_in() -> None:
    (policy,) = of_kind("NetworkPolicy", {**ENABLED, "networkPolicy": {"metricsFromNamespaces": ["monitoring"]}})
    [metrics, asked] = policy["spec"]["ingress"]
    assert "from" in metrics and asked == {"ports": [{"port": "webhook", "protocol": "TCP"}]}


@pytest.mark.parametrize(
    "values", [{"enabled": "yes"}, {"image": "bmq"}, {"image": "a b:1"}, {"resource": {}}, {"upgradeRunning": 1}]
)
def test_values_that_cannot_be_used_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(HelmRefused):
        rendered({"databus": {"injection": values}})


def test_sidecars_are_scraped_at_the_port_that_they_have_for_it() -> None:
    from bmq_operator.databus.injection import INJECTED
    from bmq_operator.databus.sidecar import METRICS_PORT_NAME

    scraped = {**ENABLED, "monitoring": {"podMonitor": {"enabled": True}}}
    [monitor] = [one for one in of_kind("PodMonitor", scraped) if one["metadata"]["name"].endswith("-databus")]
    assert monitor["spec"]["selector"]["matchLabels"] == {INJECTED: "true"}
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == (METRICS_PORT_NAME, "/metrics")
    assert {one["targetLabel"] for one in endpoint["relabelings"]} == {"instance", "component"}
    without = {"databus": {"injection": {"enabled": True, "metrics": False}}, "monitoring": scraped["monitoring"]}
    for values in (without, {"monitoring": scraped["monitoring"]}):
        names = [one["metadata"]["name"] for one in of_kind("PodMonitor", values)]
        assert names and not [one for one in names if one.endswith("-databus")]
