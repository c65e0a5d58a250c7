# `make demo` and `make test` are the only set-up: they make the environment and install what is missing.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := torch==2.13.0
SYSTEM_COMMANDS := git:git tar:tar ps:procps script:bsdutils

.DEFAULT_GOAL := help
.PHONY: help demo test check docs clean install system

help:  ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

system:
	@bash scripts/system-packages.sh $(SYSTEM_COMMANDS)

$(STAMP): pyproject.toml scripts/make-venv.sh
	@bash scripts/make-venv.sh "$(VENV)" "$(TORCH)"
	@touch "$(STAMP)"

install: system $(STAMP)

demo: install  ## Train a small GPT on two nodes of this machine and render its report
	$(BIN)/cordee run examples/char-gpt

check: install  ## Style, types, layers and the fast tests, in under two minutes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2 -m "not slow"

test: install  ## All tests and the documentation; CORDEE_FORBID_SKIPS=1 makes a skip a failure
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory docs
	$(BIN)/pytest -n 2 --dist loadfile

docs: install  ## Build the documentation into docs/_build/html
	$(BIN)/sphinx-build -q -W -b html docs docs/_build/html

clean:  ## Remove the environment and everything that was built
	rm -rf "$(VENV)" build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
