# Everything a person does here. `make help` prints this file's own comments.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PROTOS := $(shell find proto -name '*.proto')
PYTEST_ARGS ?=
KILLS ?= 200
SEED ?=

.DEFAULT_GOAL := help
.PHONY: help setup run demo test chaos fuzz lint types arch proto settings-doc surface protocol-check authorization-doc breaking bench clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.stamp gen/.stamp ## Build .venv from the lock file and generate the gRPC stubs (every target does this by itself)

run: setup ## Serve on this machine: stores and services, http://localhost:3050 (SEED_AGENTS_HTTP_PORT, SEED_AGENTS_DATA_DIR)
	@exec $(BIN)/seed-agents up

demo: setup ## A first conversation against a scripted model provider, token by token
	@exec $(BIN)/seed-agents demo

test: setup ## Run the tests (PYTEST_ARGS="tests/stack -k lock" to choose)
	$(BIN)/pytest $(PYTEST_ARGS)

chaos: setup ## Kill parts under load and check the history (KILLS=200, SEED= for one that was printed)
	$(BIN)/python -m tests.chaos --kills $(KILLS) $(if $(SEED),--seed $(SEED))

fuzz: setup ## Send FUZZ=1000000 mutated and replayed envelopes to two edges; FUZZ_SEED repeats a run
	$(BIN)/python -m tests.fuzz

lint: setup arch ## Check style, formatting, the protos and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/buf lint
	$(BIN)/python tools/settings_doc.py --check
	$(BIN)/python tools/protocol_surface.py --check
	$(BIN)/python tools/authorization_doc.py --check

types: setup ## Check types
	$(BIN)/pyright libs services

arch: setup ## Check the import rules of the house
	$(BIN)/lint-imports --no-logo

proto: gen/.stamp ## Generate gen/seed/<service>/v1 from proto/

settings-doc: setup ## Write docs/settings.md from what the services declare
	$(BIN)/python tools/settings_doc.py

authorization-doc: setup ## Write docs/authorization.md from the table that the authorization test runs
	$(BIN)/python tools/authorization_doc.py

surface: setup ## Write proto/surface.json, the inventory of the public protocol
	$(BIN)/python tools/protocol_surface.py

protocol-check: setup ## Compare the public protocol with main's: what breaks a client needs a version and a changelog line
	$(BIN)/python tools/protocol_surface.py --check --against

breaking: setup ## Compare the protos of this branch with those of main: no change may break a running peer
	@tools/buf-breaking $(BIN)/buf

bench: setup ## Measure against the floors of this machine and write bench/README.md's table
	$(BIN)/python -m bench

clean: ## Remove what was generated; data/ stays
	rm -rf gen $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.stamp: pyproject.toml requirements.lock tools/install
	PYTHON="$(PYTHON)" tools/install $(VENV)
	@touch $@

gen/.stamp: $(VENV)/.stamp $(PROTOS) tools/generate.py
	$(BIN)/python tools/generate.py proto gen
	@touch $@
