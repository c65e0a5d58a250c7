# `make demo` and `make test` are the only set-up: they make the environment and install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help demo check test test-all static warm docs kubernetes test-kubernetes clean install install-demo install-spank system system-demo

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
# PyTorch is installed before everything else, so that no other package brings another build of it.
TORCH ?= torch==2.13.0
# A service that `make test-all` deploys; it wants an older FastAPI than the tests have.
PREFECT ?= prefect>=3.9
PREFECT_STAMP := $(VENV)/prefect/.installed
# COMMAND:DEBIAN-PACKAGE, or a file without its first slash. git: snapshots leave out what .gitignore names; squashfuse: a user's images are mounted by it.
DEMO_PACKAGES := git:git squashfuse:squashfuse
# mount, unshare: tests fill and hang disks that only they see; Slurm, MPI, cc: tests put up a Slurm of their own, some with
# accounting, start MPI programs in it, and compile a fake NVML library, one of faults and the SPANK plugin; chromium: the
# pages are tested in it; nginx: the front door of services, and before several servers of a model; pg_ctlcluster (it comes
# with PostgreSQL), redis-server: services that tests deploy; the rest: images and containers.
SYSTEM_PACKAGES := $(DEMO_PACKAGES) mount:mount unshare:util-linux nft:nftables ip:iproute2 \
  slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge \
  slurmdbd:slurmdbd mariadbd:mariadb-server-core my_print_defaults:mariadb-client-core \
  mpirun:openmpi-bin mpicc:libopenmpi-dev cc:build-essential usr/include/slurm/spank.h:libslurm-dev \
  podman:podman runc:runc newuidmap:uidmap slirp4netns:slirp4netns skopeo:skopeo zstd:zstd mksquashfs:squashfs-tools fuse-overlayfs:fuse-overlayfs \
  busybox:busybox-static nginx:nginx-light openssl:openssl sshd:openssh-server chromium:chromium ssh-keygen:openssh-client \
  pg_ctlcluster:postgresql redis-server:redis-server mmdebstrap:mmdebstrap docker-registry:docker-registry buildah:buildah

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

demo: install-demo  ## Train a small GPT on two nodes of this machine, kill a rank, go on with four; the last line is the report
	@bash scripts/demo.sh "$(VENV)"

check: install warm static  ## Style, types and the quick unit tests, in under 90 seconds on two cores
	$(BIN)/pytest -q -n 2 --dist loadfile --quick -m "not real and not campaign"

test: install warm static  ## What must pass before anything lands: unit tests and the real ones of the gate; CORDEE_FORBID_SKIPS=1 makes a skip a failure
	$(BIN)/pytest -n 5 --dist loadfile --no-loadscope-reorder -m "(gate or not real) and not campaign" $(ARGS)

test-all: install $(PREFECT_STAMP) warm static  ## All tests: also long campaigns, fuzzers and frameworks; ARGS="--record-durations" notes what they took
	$(BIN)/pytest -n 5 --dist loadfile --no-loadscope-reorder $(ARGS)

# Compiles Cordée and the tests once, while style and types are looked at, so that not every process of the tests does it.
warm: install
	@(unset PYTHONDONTWRITEBYTECODE; $(BIN)/python -m compileall -q src; $(BIN)/pytest --collect-only -qq) >/dev/null 2>&1 &

static: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install  ## Build the documentation into docs/_build/html
	$(BIN)/sphinx-build -q -W -b html docs docs/_build/html

# The API server is built outside of the tree, once; it serves no other test.
KUBERNETES ?= $(HOME)/.cache/cordee/kubernetes
KUBERNETES_PACKAGES := usr/lib/go-1.19/bin/go:golang-1.19-go rsync:rsync jq:jq dpkg-source:dpkg-dev etcd:etcd-server kubectl:kubernetes-client

kubernetes:  ## Build Kubernetes' API server from Debian's source package, for test-kubernetes: about 15 minutes, once
	@PATH="$$PATH:$(KUBERNETES)" bash scripts/system-packages.sh $(KUBERNETES_PACKAGES)
	@bash scripts/build-kubernetes.sh "$(KUBERNETES)"

test-kubernetes: install kubernetes  ## Apply every blueprint to a real API server, twice, with changes, pruning and rollback
	CORDEE_KUBERNETES="$(KUBERNETES)" $(BIN)/pytest -n 0 $(ARGS) tests/systems/services/real_cluster.py

install-spank: install  ## Build Slurm's plugin for --environment and install it; ARGS="--destdir ..." as its command has them
	$(BIN)/cordee env install-spank $(ARGS)

clean:  ## Remove the environment and everything that was built
	rm -rf "$(VENV)" build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# What the demo needs is less than what the tests need: an environment of the tests serves the demo too.
install-demo: system-demo $(DEMO_STAMP)
install: system $(STAMP)

system:
	@bash scripts/system-packages.sh $(SYSTEM_PACKAGES)

system-demo:
	@bash scripts/system-packages.sh $(DEMO_PACKAGES)

$(DEMO_STAMP): pyproject.toml scripts/make-venv.sh scripts/find-python.sh
	@bash scripts/make-venv.sh "$(VENV)" "$(TORCH)" torch,web
	@touch "$(DEMO_STAMP)"

$(STAMP): pyproject.toml scripts/make-venv.sh scripts/find-python.sh
	@bash scripts/make-venv.sh "$(VENV)" "$(TORCH)" torch,web,frameworks,docs,dev
	@touch "$(DEMO_STAMP)" "$(STAMP)"

$(PREFECT_STAMP): $(STAMP)
	@$(BIN)/python -m venv "$(VENV)/prefect"
	@"$(VENV)/prefect/bin/python" -m pip install -q "$(PREFECT)"
	@touch "$(PREFECT_STAMP)"
