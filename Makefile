# Every target installs what it needs into .venv; `make help` lists them.
# PYTHON=... selects the interpreter the environment is made from (3.11 or newer).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two pips in one environment at a time would damage it.
.NOTPARALLEL:

VENV := .venv
PY := $(VENV)/bin/python
# A stamp is made only after its install has succeeded, so that an interrupted one is done again.
STAMPS := $(VENV)/stamps
INSTALL := $(PY) -m pip install --disable-pip-version-check --quiet -c constraints.txt
# Processes that test at the same time; more than two ask for much memory.
WORKERS := 2
# On small tensors threads get into each other's way.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: help demo test fast-test data paper docs notebook lint bench latency env faults clean distclean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(STAMPS)/paper ## Ten seeds of the 1D study, trained here (two minutes), beside our records and the published values
	$(PY) scripts/demo.py

test: $(STAMPS)/tests ## All tests (those for a GPU, Slurm or a browser are skipped where there is none)
	$(ONE_THREAD) $(PY) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

fast-test: $(STAMPS)/tests ## The tests that take seconds
	$(ONE_THREAD) $(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

data: $(STAMPS)/base ## Fetch and check the data sets
	$(PY) scripts/fetch_data.py $(ARGS)

paper: $(STAMPS)/paper ## Tables, figures, docs/results.md and paper/report.html from the records
	$(PY) scripts/build_paper_data.py
	$(PY) scripts/build_figures.py
	$(PY) scripts/build_report.py --docs docs

docs: $(STAMPS)/tests ## The documentation as a site: build/docs/index.html
	rm -rf build/docs build/gallery
	$(ONE_THREAD) $(PY) -m sphinx -q -W --keep-going -c docs/site . build/docs

notebook: $(STAMPS)/tests ## Execute examples/smaller_cnn.ipynb where it lies (minutes), and draw its picture
	cd examples && $(ONE_THREAD) ../$(PY) -m jupyter execute --inplace smaller_cnn.ipynb

lint: $(STAMPS)/tests ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m mypy

bench: $(STAMPS)/graph ## Speed of training on this machine
	$(PY) benchmarks/bench.py $(ARGS)

latency: $(STAMPS)/graph ## Forward passes of the sizes in the records, timed on this machine: results/latency.json
	$(PY) scripts/measure_latency.py $(ARGS)

env: $(STAMPS)/tests ## The environment alone, with what the tests need

faults: $(STAMPS)/tests ## Inject every kind of fault and write the table of docs/reliability.md
	$(ONE_THREAD) $(PY) scripts/fault_table.py

clean: ## Remove caches and build products; records, scratch and the environment stay
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and remove the environment and everything in scratch/
	rm -rf $(VENV) scratch

# The first interpreter that is new enough, unless PYTHON names one. A half-made environment has no stamp: made anew.
$(STAMPS)/python:
	@new='import sys, venv; sys.exit(sys.version_info < (3, 11))'; \
	chosen='$(PYTHON)'; \
	if [ -z "$$chosen" ]; then \
	  for name in python3 python3.12 python3.11 python3.13 python; do \
	    if command -v "$$name" >/dev/null && "$$name" -c "$$new" 2>/dev/null; then chosen="$$name"; break; fi; \
	  done; \
	  if [ -z "$$chosen" ]; then \
	    echo 'NGN needs Python 3.11 or newer and found none. Install one, or name it: make PYTHON=/path/to/python3.11 ...' >&2; \
	    exit 1; \
	  fi; \
	fi; \
	if ! "$$chosen" -c "$$new" 2>/dev/null; then \
	  echo "NGN needs Python 3.11 or newer with its venv module; PYTHON=$$chosen is" \
	    "$$("$$chosen" --version 2>&1 || echo 'not an interpreter')." >&2; \
	  exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$chosen" --version) ($$chosen); installing torch and the rest takes minutes and"; \
	echo "about 1.6 GB of disk, or several where pip takes the CUDA build of torch"; \
	"$$chosen" -m venv --clear $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/base: $(STAMPS)/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[suite]'
	@touch $@

# One installation, as each looks at everything anew.
$(STAMPS)/tests: $(STAMPS)/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[suite,graph,paper,cluster,language,docs,dev]'
	@touch $@

$(STAMPS)/%: $(STAMPS)/base
	$(INSTALL) -e '.[$*]'
	@touch $@
