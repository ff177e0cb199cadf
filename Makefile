# Every target installs what it needs into .venv. `make help` lists the targets.
# PYTHON=... selects the interpreter for the environment (3.11 or newer).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two installations at the same time would damage the environment.
.NOTPARALLEL:

VENV := .venv
PY := $(VENV)/bin/python
# A stamp exists only after its installation succeeded, so that an interrupted one is repeated.
STAMPS := $(VENV)/stamps
# The versions to install: the direct ones, or with LOCK=lock.txt all of them, each file checked by its hash (Linux,
# x86_64, Python 3.11).
LOCK :=
PIP := $(PY) -m pip install --disable-pip-version-check --quiet
ifdef LOCK
INSTALL = $(PIP) --require-hashes -r $(LOCK) && $(PIP) --no-deps --no-build-isolation -e .
else
INSTALL = $(PIP) -c constraints.txt -e '.[$(EXTRAS)]'
endif
# Number of test processes. Two cores have time for three, since some tests wait for Slurm, workers or a browser.
WORKERS := 3
# On small tensors, several threads are slower than one.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: help demo test slow-test data paper docs notebook lint bench env faults clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(STAMPS)/paper ## Train ten seeds of the 1D study (two minutes); compare with our records and the published values
	$(PY) scripts/demo.py

test: $(STAMPS)/tests ## Run the tests, each of which takes seconds (without a GPU or a browser, their tests are skipped)
	$(ONE_THREAD) $(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not slurm" $(ARGS)

slow-test: $(STAMPS)/tests ## Run the others: injected faults, clean environments, pages followed word by word, Slurm
	$(ONE_THREAD) $(PY) -m pytest -n $(WORKERS) --dist worksteal -m "slow or slurm" $(ARGS)

data: $(STAMPS)/base ## Fetch and check the data sets
	$(PY) scripts/fetch_data.py $(ARGS)

paper: $(STAMPS)/paper ## Write tables, figures, docs/results.md and paper/report.html from the records
	$(PY) scripts/build_paper_data.py
	$(PY) scripts/build_figures.py
	$(PY) scripts/build_report.py --docs docs

docs: $(STAMPS)/tests ## Build the documentation site: build/docs/index.html
	rm -rf build/docs build/gallery
	$(ONE_THREAD) $(PY) -m sphinx -q -W --keep-going -c docs/site . build/docs

notebook: $(STAMPS)/tests ## Execute examples/smaller_cnn.ipynb in place (minutes), and draw its picture
	cd examples && $(ONE_THREAD) ../$(PY) -m jupyter execute --inplace smaller_cnn.ipynb

lint: $(STAMPS)/tests ## Run ruff, mypy and import-linter
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache

bench: $(STAMPS)/graph ## Measure the speed of training on this machine
	$(PY) benchmarks/bench.py $(ARGS)

env: $(STAMPS)/tests ## Make the environment only, with all packages for the tests

faults: $(STAMPS)/tests ## Inject every kind of fault, and write the table of docs/reliability.md
	$(ONE_THREAD) $(PY) scripts/fault_table.py

clean: ## Remove caches and build products; keep records, scratch and the environment
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## Run clean, and remove the environment and scratch/
	rm -rf $(VENV) scratch

# Takes the first interpreter that is new enough, unless PYTHON names one. An incomplete environment has no stamp, so
# it is made again.
$(STAMPS)/python:
	@new='import sys, venv; sys.exit(sys.version_info < (3, 11))'; \
	chosen='$(PYTHON)'; \
	if [ -z "$$chosen" ]; then \
	  for name in python3 python3.12 python3.11 python3.13 python; do \
	    if command -v "$$name" >/dev/null && "$$name" -c "$$new" 2>/dev/null; then chosen="$$name"; break; fi; \
	  done; \
	  if [ -z "$$chosen" ]; then \
	    echo 'Found no Python 3.11 or newer, which NGN needs. Install one, or name it: make PYTHON=/path/to/python3.11 ...' >&2; \
	    exit 1; \
	  fi; \
	fi; \
	if ! "$$chosen" -c "$$new" 2>/dev/null; then \
	  echo "NGN needs Python 3.11 or newer with its venv module; PYTHON=$$chosen is" \
	    "$$("$$chosen" --version 2>&1 || echo 'not an interpreter')." >&2; \
	  exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$chosen" --version) ($$chosen); the installation takes minutes and about 1.6 GB of"; \
	echo "disk, or several GB if pip chooses the CUDA build of torch"; \
	"$$chosen" -m venv --clear $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/base: EXTRAS = suite
$(STAMPS)/base: $(STAMPS)/python pyproject.toml constraints.txt
	$(INSTALL)
	@# an unpacked archive is compared with its commit now, before anything in it changes
	@$(PY) -c 'from experiments.store.provenance import code; code()'
	@touch $@

# One installation with all extras: each call of pip resolves all requirements again.
$(STAMPS)/tests: EXTRAS = suite,graph,paper,cluster,language,docs,dev
$(STAMPS)/tests: $(STAMPS)/python pyproject.toml constraints.txt
	$(INSTALL)
	@touch $@

$(STAMPS)/%: EXTRAS = $*
$(STAMPS)/%: $(STAMPS)/base
	$(INSTALL)
	@touch $@
