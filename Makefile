# Every target installs what it needs: python3 (3.11 or newer), make and the package registries are all that has to be there.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
UV := .cache/uv/bin/uv
MEMBERS := core admin resources audit backup services/controller services/broker services/proxy node databus cli operator sim
SPARK := .cache/spark/bin
UNIT_TESTS := core/tests admin/tests resources/tests audit/tests backup/tests services/controller/tests services/broker/tests services/proxy/tests node/tests databus/tests cli/tests operator/tests sim/tests
SEEDS ?= 0-49
JOBS ?= $(shell nproc)
# Tests and jobs start hundreds of processes: each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Tests of processes wait more than they compute: one more of them than there are cores.
BESIDE := -n $(shell expr $(JOBS) + 1)
# PART=K/N: of every N tests of `make verify`, or files of such, each K-th, from 0 on.
FOR_PART := $(if $(PART),env PYTHONPATH=$(CURDIR))
OF_PART := $(if $(PART),-p tests.parts --part $(PART))

.PHONY: help setup up test verify .verify-on-kubernetes .verify-beside unit spark parquet lint types sim unrun compat e2e image chaos bench generated lock clean

help: ## list the targets
	@grep -E '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /\1\t/' | expand -t 10

setup: .cache/setup ## make .venv with the command .venv/bin/bmq

up: setup ## start bmq on 127.0.0.1:9092 over the folder ./bmq-data (ARGS="--listen HOST:PORT --admin HOST:PORT --data DIR")
	@exec $(BIN)/bmq up $(ARGS)

test: setup lint types ## what has to be green, for people who wait: lint, types, unit and property tests, the simulator, tables, the main clients
	$(SPARK)/pytest -n $(JOBS) --dist loadfile -m "not verify" -c spark-apps/pyproject.toml spark-apps/tests
	$(BIN)/python -m bmq_sim --seeds $(SEEDS) --ran .cache/ran.json
	$(BIN)/pytest $(BESIDE) -m "not verify" tests $(UNIT_TESTS)

verify: setup .cache/tools/complete .cache/spark/complete ## the rest: all clients and stores, jobs, processes that are killed, chaos, Kubernetes, measures, planted bugs, what no seed runs (PART=0/3: a third of it)
	+$(MAKE) --no-print-directory --jobs 2 --output-sync=line .verify-on-kubernetes .verify-beside
	$(FOR_PART) $(BIN)/pytest $(BESIDE) $(OF_PART) -m "measures and memory" tests/abuse
	$(FOR_PART) $(BIN)/pytest $(OF_PART) -m "measures and not memory" tests $(UNIT_TESTS)

# These wait more than they compute, and take longest: all else but measures goes on beside them, and gives way. With
# ON_KUBERNETES=FILE somebody has begun them, and what became of them is in FILE.log and FILE.status.
.verify-on-kubernetes:
ifdef ON_KUBERNETES
	until test -e $(ON_KUBERNETES).status; do sleep 1; done
	cat $(ON_KUBERNETES).log; exit $$(cat $(ON_KUBERNETES).status)
else
	$(FOR_PART) $(BIN)/pytest $(OF_PART) -m "verify and not measures" --durations=20 --durations-min=30 tests/e2e
endif

# Spark's images take minutes to pack: they are there when the tests on Kubernetes come to them, which say what is wrong where they are not.
.verify-beside: .cache/ran.json .cache/spark/classes.jsa
	-nice tools/image spark >/dev/null && nice tools/image spark-operator >/dev/null
	nice $(BIN)/python -m bmq_sim --unrun --ran .cache/ran.json
	nice $(FOR_PART) $(SPARK)/pytest $(OF_PART) -n $(JOBS) --dist loadfile -m verify -c spark-apps/pyproject.toml spark-apps/tests
	nice $(FOR_PART) $(BIN)/pytest $(BESIDE) $(OF_PART) -m "verify and not seeds and not measures" --ignore tests/e2e tests $(UNIT_TESTS)

unit: setup .cache/tools/complete ## unit and property tests
	$(BIN)/pytest -n $(JOBS) $(UNIT_TESTS)

spark: .cache/spark/complete ## the environment of the Spark jobs, .cache/spark, and their tests
	$(SPARK)/pytest -c spark-apps/pyproject.toml spark-apps/tests $(ARGS)

parquet: .cache/spark/complete ## a topic as a Parquet table (ARGS="--topic orders --output ./tables/orders --once")
	@exec $(SPARK)/python spark-apps/parquet.py $(ARGS)

lint: setup ## ruff and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=spark-apps/src $(BIN)/lint-imports --no-logo --cache-dir .cache/import-linter

types: setup .cache/spark/complete ## mypy, strict
	$(BIN)/mypy
	$(SPARK)/mypy --config-file spark-apps/pyproject.toml

sim: setup ## the simulator (SEEDS=0-49 of every scenario; ARGS="--scenario cluster" for every seed of one)
	$(BIN)/python -m bmq_sim --seeds $(SEEDS) $(ARGS)

unrun: setup .cache/ran.json ## which statements of the services no seed runs, against the list of their reasons (2 minutes, up to four times)
	$(BIN)/python -m bmq_sim --unrun --ran .cache/ran.json

compat: setup .cache/tools/complete ## clients that others wrote, against bmq over a folder and over MinIO
	$(BIN)/pytest $(BESIDE) tests/compat

e2e: setup .cache/spark/complete ## the tests on Kubernetes: KUBECONFIG's, else kind, else localkube
	BMQ_E2E=required $(BIN)/pytest tests/e2e $(ARGS)

image: setup ## the container image, packed without Docker: .cache/image/bmq.tar (OCI) and its SBOM, bmq.cdx.json
	tools/image bmq

chaos: setup .cache/tools/complete ## live chaos on real processes for a while (ARGS="--seconds 300 --seed 7")
	$(BIN)/python -m tests.chaos $(ARGS)

bench: setup .cache/tools/complete ## the table of figures, against Apache Kafka on this machine
	$(BIN)/python -m benchmarks.run $(ARGS)

generated: setup ## write anew what is generated: CRDs, dashboards, the messages of gRPC, and the pages of the admin API, commands, keys, limits, metrics, resources, values
	$(BIN)/python -m bmq_resources.crd crds charts/bmq/files/crds
	$(BIN)/python -m grpc_tools.protoc -I databus/src --python_out=databus/src --pyi_out=databus/src bmq_databus/v1/databus.proto
	$(BIN)/python -m bmq_resources.reference >docs/resources.md
	$(BIN)/python -m tools.dashboards charts/bmq/files/dashboards
	$(BIN)/python -m tools.metrics_page >docs/metrics.md
	$(BIN)/python tools/chart_values.py >docs/chart-values.md
	$(BIN)/python -m bmq_controller.api.reference >docs/admin-api.md
	$(BIN)/python -m bmq_cli.reference >docs/cli.md
	$(BIN)/python -m bmq_node.configuration.limits_reference >docs/limits.md
	$(BIN)/python -m bmq_node.configuration.server_reference >docs/server-configuration.md

lock: $(UV) ## resolve the dependencies anew into requirements.lock (which names no index)
	$(UV) lock --quiet
	$(UV) export --quiet --frozen --all-packages --all-groups --no-emit-workspace --no-header --output-file requirements.lock
	$(UV) export --quiet --frozen --package bmq-cli --package bmq-operator --no-dev --no-emit-workspace --no-header --output-file requirements-runtime.lock
	$(UV) export --quiet --frozen --package bmq-spark --extra spark --no-dev --no-emit-workspace --no-header --output-file requirements-spark-runtime.lock
	$(UV) export --quiet --frozen --package bmq-spark --all-extras --no-dev --no-emit-workspace --no-header --output-file requirements-spark.lock

clean: ## remove what the other targets made, but for data
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bmq needs python3 3.11 or newer: install one, or name it: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .cache/uv
	.cache/uv/bin/pip install --quiet --disable-pip-version-check uv

.cache/setup: $(UV) requirements.lock $(wildcard */pyproject.toml services/*/pyproject.toml)
	$(UV) venv --quiet --allow-existing --no-python-downloads --python $(PYTHON) .venv
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps $(addprefix --editable ,$(MEMBERS))
	@touch $@

.cache/spark/complete: $(UV) requirements-spark.lock spark-apps/pyproject.toml tools/get
	$(UV) venv --quiet --allow-existing --no-python-downloads --python $(PYTHON) .cache/spark
	$(UV) pip sync --quiet --python $(SPARK)/python --require-hashes requirements-spark.lock
	$(UV) pip install --quiet --python $(SPARK)/python --no-deps --editable core --editable spark-apps
	tools/get java spark-jars iceberg-jars
	@touch $@

# What a JVM of Spark loads, for the many that the tests start.
.cache/spark/classes.jsa: .cache/spark/complete spark-apps/tests/archived_classes.py spark-apps/tests/quick_java.py
	$(SPARK)/python spark-apps/tests/archived_classes.py

# Which statements the seeds of `make test` run.
.cache/ran.json: $(shell find */src services/*/src -name '*.py') | setup
	$(BIN)/python -m bmq_sim --seeds $(SEEDS) --ran $@

.cache/tools/complete: tools/get
	tools/get minio helm java kafka kcat prometheus go node
	@touch $@
