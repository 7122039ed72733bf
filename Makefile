.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
UV := .cache/uv/bin/uv

.PHONY: help setup up test lint types sim compat bench lock

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

setup: .cache/setup ## make .venv with the command .venv/bin/bmq

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bmq needs python3 >= 3.11: install one, or name it: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .cache/uv
	.cache/uv/bin/pip install --quiet --disable-pip-version-check uv

MEMBERS := core services/controller services/broker services/proxy cli sim

.cache/setup: $(UV) requirements.lock $(wildcard */pyproject.toml services/*/pyproject.toml)
	$(UV) venv --quiet --allow-existing --no-python-downloads --python $(PYTHON) .venv
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps $(addprefix --editable ,$(MEMBERS))
	@touch $@

lock: $(UV) ## resolve the dependencies anew into requirements.lock (which names no index)
	$(UV) lock --quiet
	$(UV) export --quiet --frozen --all-packages --all-groups --no-emit-workspace --no-header --output-file requirements.lock
