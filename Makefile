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

.PHONY: help setup demo docs test again check catalogue format chaos mutants fuzz soak compat flink bench clean

help: ## list these targets
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv, install the locked requirements, find Java
	@scripts/setup.sh

demo: setup ## run the demonstration
	@$(WITH_JAVA) .venv/bin/holdfast demo

# Its tools have an environment of their own: nothing else needs them. With them in place it works offline.
# The variable ends a message of the theme's authors about their plans.
docs: export NO_MKDOCS_2_WARNING := 1
docs: setup .venv-docs/.stamp ## build the site of docs/ in build/site
	@$(PYTHON) scripts/reference.py build/reference
	@.venv-docs/bin/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html; search needs a server: python3 -m http.server --directory build/site"

.venv-docs/.stamp: requirements-docs.txt | setup
	@echo "making .venv-docs, once"
	@rm -rf .venv-docs
	@$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip --disable-pip-version-check --no-input install --quiet --require-hashes -r $<
	@touch $@

# Two cores for many short-lived JVMs: what they would gain from optimising themselves is lost to the optimiser.
test again compat: JVM := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData
test again chaos soak: export SPARK_SUBMIT_OPTS = $(JVM) -XX:SharedArchiveFile=$(CURDIR)/$(CLASSES)
# Many short-lived Pythons, too: none of them shall compile what another one has compiled.
test again chaos soak: export PYTHONDONTWRITEBYTECODE :=
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
	@$(PYTHON) tests/catalogue/page.py --check

catalogue: setup ## write docs/reliability-catalogue.md from the markers in the tests
	@$(PYTHON) tests/catalogue/page.py

format: setup ## format the code and repair what lint can repair
	@$(PYTHON) -m ruff format $(CODE)
	@$(PYTHON) -m ruff check --fix $(CODE)

chaos: setup $(CLASSES) ## break things for hours, with a table of it in build/chaos.md
	@scripts/test_tools.sh
	@$(WITH_JAVA) $(PYTHON) -m pytest -m chaos --timeout 3600 --chaos-table $(CHAOS_TABLE) $(if $(GO_ON),--go-on --passed-before docs/reliability.md) \
		--tables build/chaos-tables.txt tests $(PYTEST_ARGS)

mutants: setup ## plant every defect and see a test turn red, with a table of it in build/mutants.txt
	@$(PYTHON) tests/mutants/run.py
	@$(WITH_JAVA) $(PYTHON) -m pytest -q -m planted --tables build/mutants.txt tests $(PYTEST_ARGS)
	@cat build/mutants.txt

MINUTES ?= 10
fuzz: setup ## fuzz every decoder, MINUTES=10 each; findings are in build/fuzz
	@$(PYTHON) tests/fuzz/run.py --minutes $(MINUTES)

HOURS ?= 2
soak: setup $(CLASSES) ## run a mixed application under faults for HOURS=2, with figures in build/soak.md
	@$(WITH_JAVA) $(PYTHON) -m holdfast.chaos.soak --hours $(HOURS) --out build/soak.md $(if $(SEED),--seed $(SEED))

compat: setup ## a sample of the tests with each version of Spark from 4.0 on
	@$(WITH_JAVA) SPARK_SUBMIT_OPTS="$(JVM)" $(PYTHON) scripts/compat.py $(VERSIONS)

# Beside which `bench text` measures; nothing else needs it, and it takes a gigabyte.
flink: setup ## make .venv-flink with Flink, for `holdfast bench text`
	@test -x .venv-flink/bin/python || $(PYTHON) -m venv .venv-flink
	@.venv-flink/bin/python -m pip --disable-pip-version-check --no-input install --quiet apache-flink==2.3.0

bench: setup ## measure the stateless pipeline
	@$(WITH_JAVA) .venv/bin/holdfast bench stateless

clean: ## remove everything that can be made again
	@rm -rf .venv .venv-docs .venv-compat .venv-flink .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info \
		spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
