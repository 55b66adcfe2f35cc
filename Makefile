# One door to everything. Needs Python >= 3.11 (with venv and headers) and a C compiler; the rest goes into .venv.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The first interpreter that can do the work, python3 preferred. Running it is the only honest test: a version
# manager's shim may exist and refuse to start. Override with `make PYTHON=...`.
PROBE := import ensurepip, os, sys, sysconfig, venv; \
    sys.exit(sys.version_info < (3, 11) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
    $$p -c '$(PROBE)' >/dev/null 2>&1 && echo $$p && break; done)

BIN := .venv/bin
STAMP := .venv/.setup-dev
# What running the broker needs, without the tools and Spark that tests want.
RUN_STAMP := .venv/.setup-run
KERNEL := $(wildcard $(addprefix src/goqueue/record/,*.pyx *.pxd *.pxi *.h))

DATA ?= ./data
TESTS ?= tests
WORKERS ?= 2
SEEDS ?= 100
SECONDS ?= 60

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help setup run test check bench bench-spark sim sim-groups fuzz fuzz-asan clean distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## create .venv and build the native kernel

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 with venv and C headers found; set PYTHON=..." >&2; exit 1; }
	@echo "venv    .venv ($$($(PYTHON) --version))"
	@$(PYTHON) -m venv .venv

# Build requirements are read from pyproject.toml and installed into .venv, so a rebuild of the kernel needs no
# isolated environment and takes seconds.
$(RUN_STAMP): pyproject.toml setup.py $(KERNEL) | $(BIN)/python
	@echo "install goqueue into .venv"
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	    > .venv/build-requires.txt
	@$(BIN)/python -m pip install --quiet -r .venv/build-requires.txt
	@$(BIN)/python -m pip install --quiet --no-build-isolation --editable .
	@touch $@

$(STAMP): $(RUN_STAMP)
	@echo "install goqueue[dev] into .venv (tests also run Spark: about 500 MB the first time)"
	@$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[dev]'
	@touch $@

run: $(RUN_STAMP) ## start the broker on its default ports with DATA (default ./data)
	@echo "try     $(BIN)/goqueue topic create hello && $(BIN)/goqueue produce hello world && $(BIN)/goqueue consume hello"
	@$(BIN)/goqueue serve --data $(DATA)

test: $(STAMP) ## all tests; TESTS=path and PYTEST_ARGS=... narrow them
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile $(PYTEST_ARGS) $(TESTS)

check: $(STAMP) ## format, lint, types, layers
	@echo "format"; $(BIN)/ruff format --check --quiet .
	@echo "lint"; $(BIN)/ruff check --quiet .
	@echo "types"; $(BIN)/mypy --no-error-summary
	@echo "layers"; $(BIN)/python -m pytest -q --no-header tests/test_layers.py

bench: $(STAMP) ## benchmarks; BENCH_ARGS=... is passed on
	@$(BIN)/python -m bench $(BENCH_ARGS)

bench-spark: $(STAMP) ## benchmarks of the Spark source, local[2]
	@$(BIN)/python -m bench spark $(BENCH_ARGS)

sim: $(STAMP) ## simulate SEEDS=100 runs, or the one run SEED=n
	@$(BIN)/python -m goqueue.testing.simulate $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

sim-groups: $(STAMP) ## simulate consumer groups, SEEDS=100 runs, or the one run SEED=n
	@$(BIN)/python -m goqueue.testing.simulate_groups $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

fuzz: $(STAMP) ## feed damaged bytes to the kernel for SECONDS=60
	@$(BIN)/python -m goqueue.testing.fuzz --seconds $(SECONDS)

fuzz-asan: $(STAMP) ## the same with the kernel under address and undefined-behaviour sanitizers
	@PYTHON=$(BIN)/python scripts/fuzz_asan.sh --seconds $(SECONDS)

clean: ## remove build products, keep .venv
	@rm -rf build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis $(STAMP) $(RUN_STAMP)
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@find src -name '*.so' -delete

distclean: clean ## remove .venv too
	@rm -rf .venv
