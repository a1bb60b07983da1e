# `make demo` and `make test` do everything from a clean clone; they need the package index, and Python 3.11, 3.12 or 3.13. The extra
# torchrec and the environment .venv-numpy1 are for 3.11 alone. A python on the PATH may be a launcher of a release that is not
# there, so each is started before it is taken.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c $(SUPPORTED) 2>/dev/null && { command -v $$python; break; }; done)
SUPPORTED := 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
READY := .venv/.ready
READY_DEV := .venv/.ready-dev
IS_311 := $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'
NUMPY1 := .venv-numpy1
CODE := recsys_cli tests scripts

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo serve docs test test-core test-numpy1 test-gpu lint format type e2e soak bench clean

help: ## Show these targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY) ## Make .venv with what the commands need (done once; again when pyproject.toml or constraints.txt change)

$(READY): pyproject.toml constraints.txt
	@$(or $(PYTHON),false) -c $(SUPPORTED) || \
		{ echo "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

setup-dev: $(READY_DEV) ## Add the extras, and the tools for tests and lint

$(READY_DEV): $(READY)
	if $(IS_311); then $(PIP) -e '.[dask,ray,tune,torchrec,dev]' && $(PIP) --no-deps torchrec; \
	else $(PIP) -e '.[dask,ray,tune,dev]'; fi
	@touch $@

# NVTabular and the Triton server need numpy 1, which would take the place of the current one.
$(NUMPY1)/.ready: pyproject.toml constraints-numpy1.txt
	@$(or $(PYTHON),false) -c $(SUPPORTED) || { echo "Python 3.11 is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(NUMPY1)
	$(NUMPY1)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-numpy1.txt \
		-e '.[nvtabular,triton]' pytest pytest-timeout pytest-xdist hypothesis
	@touch $@

demo: $(READY) ## Download, prepare, train, evaluate and recommend on embedded synthetic data; under three minutes
	$(BIN)/recsys run configs/demo.yaml
	$(BIN)/recsys recommend --user 42 --k 5
	@echo; echo 'Next: make serve, a page with these recommendations'

serve: $(READY) ## Serve the demo on a page: http://127.0.0.1:8000
	$(PIP) -e '.[serve]'
	$(BIN)/recsys run configs/demo.yaml --quiet
	$(BIN)/recsys export --out workspace/bundles/demo --force --quiet
	$(BIN)/recsys serve workspace/bundles/demo

docs: $(READY) ## Build the site of docs/ in build/docs; open build/docs/index.html
	$(PIP) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

test: $(READY_DEV) ## Run all tests that need no GPU; on Python 3.11 those of NVTabular and Triton too
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 25 -m 'not numpy1'
	@if $(IS_311); then $(MAKE) --no-print-directory test-numpy1; fi

test-core: $(READY_DEV) ## Run the tests that take less than a few seconds each
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not slow and not gpu and not numpy1'

test-numpy1: $(NUMPY1)/.ready ## Make .venv-numpy1, and run the tests of NVTabular and Triton in it (Python 3.11)
	$(NUMPY1)/bin/python -m pytest -n 2 --dist loadfile -m numpy1 \
		$$(grep -rlE 'mark.numpy1|tests.engines import' tests --include='test_*.py')

test-gpu: $(READY_DEV) ## Run the tests that need a GPU
	$(BIN)/python -m pytest -m gpu

e2e: $(READY_DEV) ## Run the pipeline through the real command, resume included
	$(BIN)/python -m pytest tests/e2e

soak: $(READY_DEV) ## Kill, damage, fill the disk and run at once, at random (an hour; prints the seed that repeats it)
	$(BIN)/python -m scripts.soak

lint: $(READY_DEV) type ## Check style, types, the layers of the design and the budget of lines
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports
	$(BIN)/python scripts/budget.py

type: $(READY_DEV) ## Check the types of the whole package
	$(BIN)/mypy

format: $(READY_DEV) ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(READY_DEV) ## Measure us and the peers in turn (about two hours; needs ../shared/baselines)
	$(BIN)/python scripts/bench.py

clean: ## Remove what was built here; the workspace stays
	rm -rf .venv .venv-numpy1 .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build dist
