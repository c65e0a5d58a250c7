# `make demo` and `make test` are the only set-up: they make the environment and install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help demo test check static docs clean install system install-spank

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# PyTorch is installed before everything else, so that no other package brings another build of it.
TORCH ?= torch==2.13.0
# COMMAND:DEBIAN-PACKAGE, or a file without its first slash. git: snapshots leave out what .gitignore names; mount, unshare: tests fill and hang disks that only
# they see; Slurm, MPI, cc: tests put up a Slurm of their own, some with accounting, start MPI programs in it, and compile a
# fake NVML library, one of faults and the SPANK plugin; chromium: the pages are tested in it; the rest: images and containers.
SYSTEM_PACKAGES := git:git mount:mount unshare:util-linux \
  slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge \
  slurmdbd:slurmdbd mariadbd:mariadb-server-core my_print_defaults:mariadb-client-core \
  mpirun:openmpi-bin mpicc:libopenmpi-dev cc:build-essential usr/include/slurm/spank.h:libslurm-dev \
  podman:podman runc:runc newuidmap:uidmap skopeo:skopeo zstd:zstd mksquashfs:squashfs-tools squashfuse:squashfuse fuse-overlayfs:fuse-overlayfs \
  busybox:busybox-static chromium:chromium

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

demo: install  ## Train a small GPT on two nodes of this machine, kill a rank, go on with four; the last line is the report
	@bash scripts/demo.sh "$(VENV)"

check: install static  ## Style, types and the fast tests, in under two minutes
	$(BIN)/pytest -q -n 2 --dist loadfile -m "not slow"

test: install static  ## All tests, which build the documentation too; CORDEE_FORBID_SKIPS=1 makes a skip a failure
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder

static: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install  ## Build the documentation into docs/_build/html
	$(BIN)/sphinx-build -q -W -b html docs docs/_build/html

install-spank: install  ## Build Slurm's plugin for --environment and install it; ARGS="--destdir ..." as its command has them
	$(BIN)/cordee env install-spank $(ARGS)

clean:  ## Remove the environment and everything that was built
	rm -rf "$(VENV)" build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

install: system $(STAMP)

system:
	@bash scripts/system-packages.sh $(SYSTEM_PACKAGES)

$(STAMP): pyproject.toml scripts/make-venv.sh scripts/find-python.sh
	@bash scripts/make-venv.sh "$(VENV)" "$(TORCH)"
	@touch "$(STAMP)"
