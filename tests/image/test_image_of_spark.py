"""spark-apps/Dockerfile and `tools/image spark` make the same image, and its SPARK_HOME is trimmed as it says."""

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from dockerfiles import Instructions, copied, only, stages_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from packed_image import contents, sbom, spark, spark_home  # noqa: E402 - tools/ is no package


@pytest.fixture(scope="module")
def stages() -> dict[str, Instructions]:
    """The Dockerfile's."""
    return stages_of(spark.APPLICATIONS / "Dockerfile")


def test_sparks_image_runs_the_same_as_the_same_user_in_the_same_environment(stages: dict[str, Instructions]) -> None:
    final = stages["final"]
    assert json.loads(only(final, "ENTRYPOINT")) == list(spark.ENTRYPOINT)
    assert only(final, "USER") == spark.USER
    assert only(final, "WORKDIR") == spark.WORKDIR
    assert dict(part.split("=", 1) for part in shlex.split(only(final, "ENV"))) == spark.ENVIRONMENT
    assert not [argument for instruction, argument in final if instruction in ("CMD", "VOLUME", "EXPOSE")]


def test_sparks_image_has_the_same_labels(stages: dict[str, Instructions]) -> None:
    written = dict(part.split("=", 1) for part in shlex.split(only(stages["final"], "LABEL")))
    filled = written | {
        "org.opencontainers.image.version": contents.version(),
        "org.opencontainers.image.revision": contents.revision(),
    }
    assert filled == contents.labels(spark.TITLE, spark.DESCRIPTION)


def test_sparks_image_has_the_same_debian_packages_and_user(stages: dict[str, Instructions]) -> None:
    run = only(stages["base"], "RUN")
    installed = re.search(r"--no-install-recommends ([^&]+?) &&", run)
    assert installed
    assert tuple(installed[1].split()) == spark.DEBIAN_PACKAGES
    assert f"spark:x:{spark.USER}:spark:/tmp:/usr/sbin/nologin" in run
    assert f"spark:x:{spark.USER_ID}:" in run


def test_sparks_image_has_the_same_files(stages: dict[str, Instructions]) -> None:
    made = (
        spark.SPARK_HOME,
        contents.DEPENDENCIES_FOLDER,
        contents.PACKAGES_FOLDER,
        spark.APPLICATIONS_FOLDER,
        contents.ABOUT_FOLDER,
    )
    from_build = [part[1:] for part in copied(stages["final"]) if part[0] == "--from=build"]
    assert from_build == [[folder, folder] for folder in made]
    from_here = [part for part in copied(stages["final"]) if part[0] != "--from=build"]
    assert from_here == [
        ["LICENSE", f"{contents.ABOUT_FOLDER}/{contents.LICENSE.name}"],
        [str(spark.ADDED_FILES.relative_to(ROOT)), "/"],
    ]
    assert (
        tuple(part[0] for part in copied(stages["build"]) if part[0] == part[1] and part[0] != "tools/get")
        == spark.MEMBERS
    )
    runs = [argument for instruction, argument in stages["build"] if instruction == "RUN"]
    assert any(f"tools/get {' '.join(spark.JARS)}" in run for run in runs)
    assert any(
        f"--target {contents.DEPENDENCIES_FOLDER} --require-hashes" in run and spark.LOCK.name in run for run in runs
    )
    assert any(
        f"{spark.SPARK_HOME} --packages {contents.DEPENDENCIES_FOLDER} --jars jars/{' jars/'.join(spark.JARS)} " in run
        for run in runs
    )
    assert any(f"--target {contents.PACKAGES_FOLDER} ./{' ./'.join(spark.MEMBERS)} " in run for run in runs)
    assert any(f"cp spark-apps/*.py {spark.APPLICATIONS_FOLDER}/" in run for run in runs)
    assert any(f">{contents.ABOUT_FOLDER}/{contents.SBOM_NAME}" in run for run in runs)


def test_what_sparks_dockerfile_copies_is_not_ignored(stages: dict[str, Instructions]) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [part[0] for stage in stages.values() for part in copied(stage) if not part[0].startswith("--")]
    assert sources
    assert not [source for source in sources if not any(Path(source).is_relative_to(one) for one in allowed)]


def test_the_lock_of_sparks_image_is_split_in_two_without_loss() -> None:
    home, rest = spark.locked(pyspark=True), spark.locked(pyspark=False)
    assert home.startswith("pyspark==") and "--hash=" in home
    assert sorted((home + rest).splitlines()) == sorted(spark.LOCK.read_text().splitlines())
    assert not re.search(r"^(pytest|mypy|duckdb|hypothesis|pyiceberg)\b", rest, flags=re.M), (
        "test tools are not for the image"
    )


def jar(file: Path, *entries: str) -> None:
    """A jar with entries of these names."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as written:
        for name in entries:
            written.writestr(name, name)


def test_spark_home_leaves_out_other_machines_and_what_no_job_uses(tmp_path: Path) -> None:
    package = tmp_path / "site" / "pyspark"
    for name in ("find-spark-home", "load-spark-env.sh", "spark-class", "spark-submit", "sparkR"):
        (package / "bin").mkdir(parents=True, exist_ok=True)
        (package / "bin" / name).write_text("#!/bin/sh")
    for name in ("data", "examples", "licenses", "python/lib", "sbin", "sql"):
        (package / name).mkdir(parents=True)
    about = tmp_path / "site" / "pyspark-4.1.2.dist-info"
    about.mkdir()
    (about / "RECORD").write_text("pyspark/bin/spark-submit")
    jar(
        package / "jars" / "rocksdbjni-9.8.4.jar",
        "librocksdbjni-linux64.so",
        "librocksdbjni-win64.dll",
        "librocksdbjni-linux64-musl.so",
        "A.class",
    )
    for name in (
        *(
            "spark-sql_2.13-4.1.2",
            "spark-mllib_2.13-4.1.2",
            "hive-storage-api-2.8.1",
            "hive-exec-2.3.10-core",
            "javax.jdo-3.2.0-m3",
        ),
        *(
            "netty-x-4.2.7.Final-linux-x86_64",
            "netty-x-4.2.7.Final-linux-aarch_64",
            "netty-x-4.2.7.Final-osx-x86_64",
            "netty-x-4.2.7.Final",
        ),
    ):
        jar(package / "jars" / f"{name}.jar")
    more = [f"{name}-1.2.3.jar" for name in spark_home.JARS_NEEDED]
    for name in more:
        jar(tmp_path / "more" / name, "A.class")
    home = tmp_path / "spark"
    spark_home.make(home, pyspark=package, jars=[tmp_path / "more"], machine="x86_64")
    kept = {one.name for one in (home / "jars").iterdir()}
    assert kept == {
        *(
            "spark-sql_2.13-4.1.2.jar",
            "hive-storage-api-2.8.1.jar",
            "netty-x-4.2.7.Final-linux-x86_64.jar",
            "netty-x-4.2.7.Final.jar",
        ),
        *("rocksdbjni-9.8.4.jar", *more),
    }
    with zipfile.ZipFile(home / "jars" / "rocksdbjni-9.8.4.jar") as rocksdb:
        assert sorted(rocksdb.namelist()) == ["A.class", "librocksdbjni-linux64.so"]
    assert sorted(one.name for one in (home / "python").iterdir()) == ["pyspark", "pyspark-4.1.2.dist-info"]
    assert [one.name for one in (home / "python" / "pyspark").iterdir()] == ["sql"]
    assert not (home / "bin" / "sparkR").exists()


@pytest.mark.parametrize("spoilt", ["missing", "empty"])
def test_without_a_jar_that_jobs_need_no_image_is_packed_and_it_is_named(tmp_path: Path, spoilt: str) -> None:
    for name in spark_home.JARS_NEEDED:
        jar(tmp_path / "jars" / f"{name}-1.2.3.jar", "A.class")
    wrong = tmp_path / "jars" / "hadoop-aws-1.2.3.jar"
    assert spark_home.missing_jars([tmp_path / "jars"]) == []
    wrong.unlink()
    if spoilt == "empty":
        wrong.touch()
    command = [
        sys.executable,
        spark_home.__file__,
        tmp_path / "spark",
        "--packages",
        tmp_path,
        "--machine",
        "x86_64",
        "--jars",
        tmp_path / "jars",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "no image without these jars: hadoop-aws" in done.stderr


def test_jars_are_in_the_bill_of_materials_by_their_coordinates(tmp_path: Path) -> None:
    (tmp_path / "debian" / "etc").mkdir(parents=True)
    (tmp_path / "debian" / "etc" / "os-release").write_text('VERSION_ID="12"\n')
    (tmp_path / "debian" / "var" / "lib" / "dpkg").mkdir(parents=True)
    (tmp_path / "debian" / "var" / "lib" / "dpkg" / "status").write_text("")
    with zipfile.ZipFile(tmp_path / "s3-2.29.52.jar", "w") as written:
        written.writestr(
            "META-INF/maven/software.amazon.awssdk/s3/pom.properties",
            "#x\ngroupId=software.amazon.awssdk\nartifactId=s3\nversion=2.29.52\n",
        )
    jar(tmp_path / "zookeeper-3.9.4.jar")
    bill = sbom.bill(version="1.2.3", python=[], debian=tmp_path / "debian", jars=tmp_path)
    assert {one["purl"] for one in bill["components"]} == {
        "pkg:maven/software.amazon.awssdk/s3@2.29.52",
        "pkg:generic/zookeeper-3.9.4",
    }


@pytest.fixture
def entered(tmp_path: Path) -> dict[str, str]:
    """An environment in which the entry point prints what it would run: tini and java are scripts that tell their
    arguments.
    """
    for name, told in (("tini", 'shift 2; exec "$@"'), ("java", 'printf "java\\n%s\\n" "$(printf "%s\\n" "$@")"')):
        script = tmp_path / name
        script.write_text(f"#!/bin/bash\n{told}\n")
        script.chmod(0o755)
    submit = tmp_path / "home" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    submit.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARK_HOME": str(tmp_path / "home")}


def run(environment: dict[str, str], *arguments: str) -> list[str]:
    """The lines that the entry point's command printed."""
    command = [spark.ADDED_FILES / "usr" / "local" / "bin" / spark.ENTRYPOINT[0], *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_driver_is_submitted_in_its_own_pod(entered: dict[str, str]) -> None:
    told = run(entered | {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}, "driver", "--class", "a b")
    assert "spark.driver.bindAddress=10.0.0.7" in told
    assert told[-4:] == ["--deploy-mode", "client", "--class", "a b"]


def test_an_executor_gets_javas_options_in_order_and_its_place(entered: dict[str, str]) -> None:
    options = {f"SPARK_JAVA_OPT_{n}": f"-Dn={n} x" for n in range(11)}
    names = (
        "DRIVER_URL",
        "EXECUTOR_ID",
        "EXECUTOR_CORES",
        "APPLICATION_ID",
        "EXECUTOR_POD_IP",
        "RESOURCE_PROFILE_ID",
        "EXECUTOR_POD_NAME",
    )
    place = {f"SPARK_{name}": name.lower() for name in names} | {
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_CONF_DIR": "/conf",
    }
    told = run(entered | options | place, "executor")
    assert told[1:12] == [f"-Dn={n} x" for n in range(11)]
    assert told[12:15] == ["-Xms1g", "-Xmx1g", "-cp"]
    assert told[15].startswith(f"/conf:{entered['SPARK_HOME']}/jars/*:")
    assert told[16:] == [
        *(
            "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
            "--driver-url",
            "driver_url",
            "--executor-id",
            "executor_id",
        ),
        *("--cores", "executor_cores", "--app-id", "application_id", "--hostname", "executor_pod_ip"),
        *("--resourceProfileId", "resource_profile_id", "--podName", "executor_pod_name"),
    ]


def test_anything_else_is_run_as_it_is(entered: dict[str, str]) -> None:
    assert run(entered, "echo", "as it is") == ["as it is"]
