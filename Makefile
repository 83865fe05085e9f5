# The developer's and the first user's whole interface. `make` alone lists it.
# Variables: FORCE=1 (make down, with beads running), SCHOOL_HOME (default ~/.hermes), PYTHON (an interpreter >= 3.11).

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: up demo test check bench soak escape down clean help

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# `make test` never touches a home of the user's; an engine that it starts keeps its log here.
TEST_HOME := $(CURDIR)/build/test-home

up: $(READY) ## bring the school up: engine, images, gateway, gate, rehearsal, both teachers
	@$(BIN)/school up

demo: $(READY) ## bring it up and take one task through it, on a sample repository with a scripted model
	@$(BIN)/school up
	@$(BIN)/school demo

test: $(READY) ## all tests, unit and integration, on a real engine, in homes of their own
	@$(BIN)/python -m orchestrator.engine.provision --home $(TEST_HOME) >/dev/null
	@$(BIN)/python -m pytest tests/unit -n 2
	@$(BIN)/python -m pytest tests/conformance tests/integration tests/crash tests/escape

check: $(READY) ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(READY) ## measure against the raw engine
	@$(BIN)/python -m orchestrator.engine.provision --home $(TEST_HOME) >/dev/null
	@$(BIN)/python -m tests.bench

soak: $(READY) ## 300 beads with random kills (BEADS=, SEED=); nothing may be left, and memory stays flat
	@$(BIN)/python -m orchestrator.engine.provision --home $(TEST_HOME) >/dev/null
	@SOAK_BEADS=$(or $(BEADS),300) SOAK_SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q -s tests/crash/test_soak.py

escape: $(READY) ## carry out every attack of the catalogue, and print it with what held each one
	@$(BIN)/python -m orchestrator.engine.provision --home $(TEST_HOME) >/dev/null
	@$(BIN)/python -m tests.escape

down: $(READY) ## stop this home's standing parts (refuses while beads run, unless FORCE=1)
	@$(BIN)/school down $(if $(FORCE),--force)

clean: ## down, then remove this home's containers, volumes, images and .venv (never ledger, bookbags, archive)
	@if [ -x $(BIN)/school ]; then $(BIN)/school clean; fi
	@rm -rf $(VENV)

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Made again when the dependencies change; a second run only compares two times.
$(READY): pyproject.toml tools/venv.sh
	@sh tools/venv.sh $(VENV)
	@touch $@
