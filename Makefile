# `make demo` and `make test` do everything from a clean clone; they need Python 3.11 and the package index.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
CODE := recsys_cli tests scripts

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-gpu lint format type e2e bench clean

help: ## Show these targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY) ## Make .venv with the pinned packages (done once; again when pyproject.toml or constraints.txt change)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "Python 3.11 is needed here (the NVTabular extra has no newer wheels): make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[nvtabular,tune,torchrec,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps torchrec
	@touch $@

demo: $(READY) ## Download, prepare, train and evaluate on embedded synthetic data; under three minutes
	$(BIN)/recsys run configs/demo.yaml

test: $(READY) ## Run all tests that need no GPU
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-gpu: $(READY) ## Run the tests that need a GPU
	$(BIN)/python -m pytest -m gpu

e2e: $(READY) ## Run the pipeline through the real command, resume included
	$(BIN)/python -m pytest tests/e2e

lint: $(READY) type ## Check style, types and the layers of the design
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports

type: $(READY) ## Check the types of the whole package
	$(BIN)/mypy

format: $(READY) ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(READY) ## Measure us and the peers in turn (about two hours; needs ../shared/baselines)
	$(BIN)/python scripts/bench.py

clean: ## Remove what was built here; the workspace stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build dist
