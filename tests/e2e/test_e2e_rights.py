"""An operator that lacks a right says which one, and goes on once it has it."""

from e2e_release import Release


def test_a_missing_right_is_named_by_a_condition(release: Release) -> None:
    kubectl = release.kubectl
    bindings = kubectl("get", "rolebindings", "--output=name").split()
    (binding,) = (one for one in bindings if not one.endswith(("-leader", "-spark")) and "bmq" in one)
    kept = kubectl("get", binding, "--output=yaml")
    kubectl("delete", binding)
    kubectl.apply(release.example("cluster.yaml"))
    found = kubectl.until_condition("clusters.bmq.io/bmq", status="Unknown", reason="Forbidden")
    assert "cannot" in found["message"]
    kubectl(
        "create",
        "--filename",
        "-",
        given=kept.replace("resourceVersion:", "# resourceVersion:").replace("uid:", "# uid:"),
    )
    kubectl.until_ready("clusters.bmq.io/bmq", timeout_s=180)
