# flymono: `make demo` shows K1 and a whole layer right on both archs; `make test` and then `make slow` run every test.
# Each sets up .venv first.
# Variables: PYTHON=python3.12  VENV=.venv  JOBS=2  TORCH_ARGS="--index-url ..."  PYTEST_ARGS="-k spec -x"

VENV ?= .venv
PYTHON ?=
JOBS ?= auto
TORCH_ARGS ?=
PYTEST_ARGS ?=

BIN := $(VENV)/bin
# an editable installation knows its modules by name: a module that comes or goes needs a new one
PACKAGES := cli emulator gen mono reference runtime specs
MODULES := $(shell find $(PACKAGES) -name '*.py' | LC_ALL=C sort | cksum | cut -d ' ' -f 1)
READY := $(VENV)/.flymono-ready-$(MODULES)
# a change of one of these needs a new installation; Python, YAML and template files are used in place
INPUTS := pyproject.toml constraints.txt CMakeLists.txt $(wildcard emulator/core/*.cpp emulator/core/*.hpp emulator/core/*.def)

.PHONY: help setup demo test slow vllm-test lint format goldens clean distclean
.DELETE_ON_ERROR:

help:
	@echo "make demo     K1 and a whole layer from specs to judged results, gfx942 and gfx950"
	@echo "make test     the tests, under 25 minutes on two cores; make slow: those marked slow, as long again"
	@echo "make vllm-test  vLLM's own code with the plugin, on a CPU, in an environment of its own (scripts/vllm_env.sh)"
	@echo "make lint     ruff, mypy, import contracts, spec check"
	@echo "make goldens  rewrite tests/golden and docs/findings.md after a change that is meant"
	@echo "make setup    only .venv (PYTHON=..., VENV=...)"
	@echo "make clean    build products and caches; make distclean: .venv too"

setup: $(READY)

$(READY): $(INPUTS)
	VENV="$(VENV)" PYTHON="$(PYTHON)" TORCH_ARGS="$(TORCH_ARGS)" sh scripts/setup.sh
	@touch $@

demo: $(READY)
	$(BIN)/flymono demo

test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

slow: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow $(PYTEST_ARGS)

vllm-test:
	VENV="$(VENV)-vllm" PYTHON="$(PYTHON)" TORCH_ARGS="$(TORCH_ARGS)" sh scripts/vllm_env.sh $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p flymono
	PYTHONPATH=src $(BIN)/lint-imports --no-cache
	$(BIN)/flymono spec check
	$(BIN)/flymono spec schema --check

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

goldens: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) -m "slow or not slow" --update-goldens $(PYTEST_ARGS)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -not -path "./$(VENV)/*" -prune -exec rm -rf {} +
	rm -f emulator/_core.*.so

distclean: clean
	rm -rf "$(VENV)"
