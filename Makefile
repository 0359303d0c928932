# holdfast: the everyday commands. `make help` lists them.

SHELL := bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON := .venv/bin/python
PYTEST_ARGS ?=
# Three processes on two cores: many tests wait for others' processes. A file stays together, with what it shares.
SIDE_BY_SIDE ?= -n 3 --dist loadfile --no-loadscope-reorder
CHAOS_TABLE ?= build/chaos.md
CODE := $(wildcard holdfast tests examples scripts)
# Most of a short-lived JVM's life goes into loading the same classes of Spark; here they lie ready.
CLASSES := .venv/spark-classes.jsa

# Spark starts its Python workers with this interpreter.
export PYSPARK_PYTHON := $(CURDIR)/$(PYTHON)
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(PYTHON)

# scripts/setup.sh records a Java only when the environment does not offer a
# good one by itself. It may do so during this very run, hence the shell.
WITH_JAVA = if [[ -s .venv/holdfast-java-home ]]; then \
	export JAVA_HOME="$$(<.venv/holdfast-java-home)"; fi;

.PHONY: help setup demo test again check format chaos compat bench clean

help: ## list these targets
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv, install the locked requirements, find Java
	@scripts/setup.sh

demo: setup ## run the demonstration
	@$(WITH_JAVA) .venv/bin/holdfast demo

# Two cores for many short-lived JVMs: what they would gain from optimising themselves is lost to the optimiser.
test again compat: JVM := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData
test again chaos: export SPARK_SUBMIT_OPTS = $(JVM) -XX:SharedArchiveFile=$(CURDIR)/$(CLASSES)
# Many short-lived Pythons, too: none of them shall compile what another one has compiled.
test again chaos: export PYTHONDONTWRITEBYTECODE :=
test: check $(CLASSES) ## run the checks, then all tests but the chaos ones
	@$(WITH_JAVA) $(PYTHON) -m pytest $(SIDE_BY_SIDE) --durations=10 $(PYTEST_ARGS)

# One by one, with the draws of HOLDFAST_SAMPLE; fails if nothing had failed, for then something else was wrong.
again: setup ## run once more, alone, what failed in the last `make test`
	@$(WITH_JAVA) $(PYTHON) -m pytest --last-failed --last-failed-no-failures none -v

$(CLASSES): requirements.txt | setup
	@echo "making a class archive for the tests' JVMs, once"
	@$(WITH_JAVA) SPARK_SUBMIT_OPTS="$(JVM)" $(PYTHON) scripts/class_archive.py $@ 2>/dev/null \
		|| echo "there is none; the JVMs start more slowly"

check: setup ## check formatting, lint and types
	@$(PYTHON) -m ruff format --check $(CODE)
	@$(PYTHON) -m ruff check $(CODE)
	@$(PYTHON) -m mypy --strict

format: setup ## format the code and repair what lint can repair
	@$(PYTHON) -m ruff format $(CODE)
	@$(PYTHON) -m ruff check --fix $(CODE)

chaos: setup $(CLASSES) ## break things for hours, with a table of it in build/chaos.md
	@scripts/test_tools.sh
	@$(WITH_JAVA) $(PYTHON) -m pytest -m chaos --timeout 3600 --chaos-table $(CHAOS_TABLE) $(if $(GO_ON),--go-on) \
		--tables build/chaos-tables.txt tests $(PYTEST_ARGS)

compat: setup ## a sample of the tests with each version of Spark from 4.0 on
	@$(WITH_JAVA) SPARK_SUBMIT_OPTS="$(JVM)" $(PYTHON) scripts/compat.py $(VERSIONS)

bench: setup ## measure the stateless pipeline
	@$(WITH_JAVA) .venv/bin/holdfast bench stateless

clean: ## remove everything that can be made again
	@rm -rf .venv .venv-compat .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info \
		spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
