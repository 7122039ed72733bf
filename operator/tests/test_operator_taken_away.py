"""Every field of every kind: what is written, changed and taken away is so in the objects, and the API server is told
of it.

That it then takes a field away which nobody wants any more is shown on a real one (tests/e2e/test_e2e_taken_away.py).
"""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from kinds_of_a_test import KINDS, KindOfATest
from kube_of_a_test import KubeOfATest
from written_fields import Written, fields_of

from bmq_operator.applied import as_wanted, digest, write


def cases() -> Iterator[Any]:
    for kind in KINDS:
        for one in fields_of(kind.spec):
            yield pytest.param(kind, one, id="/".join(part for part in (kind.name, one.path, one.within) if part))


@pytest.mark.parametrize(("kind", "written"), list(cases()))
def test_a_field_that_is_set_changed_and_taken_away_is_so_in_what_the_api_server_is_told(
    kind: KindOfATest, written: Written
) -> None:
    where = "/".join(part for part in (written.path, written.within) if part)
    made = [kind.made(spec, "shop") for spec in written.specs(kind.base(written.path))]
    assert made[0] == made[-1], "taken away, it is as if it had never been written"
    differ = [before != after for before, after in itertools.pairwise(made)]
    assert all(differ) != (where in kind.elsewhere), (
        f"stages {[n for n, one in enumerate(differ) if not one]} of {written.stages} change nothing"
    )

    async def main() -> None:
        kube = KubeOfATest()
        for one in made:
            for manifest in one.objects:
                meta = manifest["metadata"]
                there = await kube.get(manifest["kind"], meta["namespace"], meta["name"])
                if there is None or not as_wanted(there, manifest):
                    await write(kube, manifest, there)  # type: ignore[arg-type]
            for manifest in one.objects:
                meta = manifest["metadata"]
                told = kube.manifests[manifest["kind"], meta["namespace"], meta["name"]]
                assert {name: told[name] for name in manifest if name != "metadata"} == {
                    name: manifest[name] for name in manifest if name != "metadata"
                }

    asyncio.run(main())


def test_a_secrets_digest_tells_nothing_of_its_values() -> None:
    def secret(value: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": "shop"},
            "data": {"key": value},
        }

    assert digest(secret("YQ==")) == digest(secret("Yg=="))
    assert digest(secret("YQ==")) != digest(secret("YQ==") | {"data": {"other": "YQ=="}})


def test_an_object_of_an_older_operator_is_applied_once_so_that_what_it_kept_too_long_goes() -> None:
    wanted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "shop"},
        "data": {"a": "1"},
    }
    older = wanted | {"data": {"a": "1", "b": "2"}}
    assert not as_wanted(older, wanted)
