# The same commands everywhere: people, pre-commit and CI all call these targets.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-by-make
# The versions that the code supports, the tested one first.
PYTHONS := python3.11 python3.12 python3.13 python3 python

.PHONY: help setup demo test test-integration chaos test-js lint types docs bench fmt freeze

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## install everything into .venv (once; again when a pyproject.toml or constraints.txt change)

demo: $(STAMP) ## stream a real answer and show where the time went; PROMPT="..." make demo asks something else
	@$(BIN)/headrace demo $${PROMPT:+--prompt "$$PROMPT"}

test: $(STAMP) ## the whole suite, on the embedded broker; ARGS="-k name" picks some
	@HEADRACE_TEST_BROKER=embedded $(BIN)/python -m pytest $(ARGS)

test-integration: $(STAMP) ## every test that uses a broker, on a real one: HEADRACE_TEST_KAFKA, Docker, or KAFKA_HOME
	@HEADRACE_TEST_BROKER=real $(BIN)/python -m pytest $(ARGS)

chaos: $(STAMP) ## workers killed, stopped and sent away under 64 streams for three minutes; KAFKA_HOME=... makes it Apache Kafka
	@HEADRACE_TEST_CHAOS_SECONDS=$${HEADRACE_TEST_CHAOS_SECONDS:-180} $(BIN)/python -m pytest tests/chaos -s $(ARGS)

test-js: ## the JavaScript client: types, build, tests; Node 20+ (skipped without it, unless HEADRACE_REQUIRE_JS=1)
	@if ! command -v npm >/dev/null; then \
	  echo "test-js: skipped, there is no npm here: install Node 20 or newer" >&2; [ "$$HEADRACE_REQUIRE_JS" != 1 ]; exit; fi; \
	cd clients/js && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-audit --no-fund; } && \
	HEADRACE_PYTHON="$${HEADRACE_PYTHON:-$(abspath $(BIN))/python}" npm test

lint: $(STAMP) ## style, import order, forbidden calls, and the arrows between the folders
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

types: $(STAMP) ## mypy --strict on source and tests
	@$(BIN)/mypy

docs: $(STAMP) ## write docs/event-reference.md anew from the schemas and the recorded run
	@$(BIN)/python -m tests.reference

bench: $(STAMP) ## ours against its baselines, as one table; ONLY=name runs some
	@$(BIN)/python -m tests.benchmarks $${ONLY:+--only "$$ONLY"}

fmt: $(STAMP) ## format, and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

freeze: $(STAMP) ## write what is installed now to constraints.txt
	@{ sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > $(VENV)/constraints.tmp
	@mv $(VENV)/constraints.tmp constraints.txt

$(STAMP): pyproject.toml clients/python/pyproject.toml constraints.txt
	@for candidate in $(PYTHONS); do \
	  if $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then \
	    python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
	  echo "Headrace needs Python 3.11, 3.12 or 3.13, and none of $(PYTHONS) is one: install it and run make again." >&2; \
	  exit 1; fi; \
	if [ ! -x $(BIN)/python ]; then \
	  echo "Setting up $(VENV) with $$($$python -V) (once, a few minutes, about 1 GB to fetch)"; \
	  $$python -m venv $(VENV) || { echo "Python's venv module is missing: install it (Debian: python3-venv)." >&2; exit 1; }; \
	else echo "Bringing $(VENV) up to date"; fi
	@$(BIN)/python -m pip install --disable-pip-version-check --no-input -e clients/python -e '.[dev]' -c constraints.txt \
	  | sed -u -n -e 's/^ *Downloading \(.*\)/  fetching \1/p' -e 's/^ *Using cached \(.*\)/  cached   \1/p' \
	    -e 's/^Installing collected packages.*/  installing all of them/p' -e 's/^Successfully installed.*/  done/p'
	@touch $@
