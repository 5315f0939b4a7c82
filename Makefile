# The way to everything, also on a fresh machine: Python >= 3.11 and make, nothing else; no root.

# Any Python >= 3.11; say PYTHON=... to choose one.
PYTHON ?= $(shell for python in python3 python3.15 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
STAMP := .venv/.set-up
# The classes that Spark's JVM loads, for those that the tests start.
CLASSES := .venv/.spark-classes
# The whole environment if it is there, else a small one.
DOCS_STAMP := $(if $(wildcard $(STAMP)),$(STAMP),.venv-docs/.set-up)
DOCS_BIN := $(patsubst %/.set-up,%/bin,$(DOCS_STAMP))
QUICK_STAMP := $(if $(wildcard $(STAMP)),$(STAMP),.venv-quick/.set-up)
QUICK_BIN := $(patsubst %/.set-up,%/bin,$(QUICK_STAMP))
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Debian's names of what the interoperability tests and the benchmarks want besides Python packages.
PEERS := amqp-tools busybox-static chromium cpio g++ gcc golang-github-eclipse-paho.mqtt.golang-dev golang-github-rabbitmq-amqp091-go-dev \
	golang-github-streadway-amqp-dev golang-go iproute2 libc6-dev libjeromq-java libmono-rabbitmq4.0-cil libpaho-mqtt-dev librabbitmq-client-java \
	libusrsctp2 libzmq3-dev mono-mcs mono-runtime mosquitto mosquitto-clients nagios-plugins-rabbitmq nftables php-amqplib php-cli php-stomp prometheus \
	qemu-system-x86 rabbitmq-server redis-server ruby-bunny tshark uuid-dev \
	$(if $(shell command -v javac),,default-jdk-headless) $(if $(shell command -v npm),,nodejs npm)
# Processes that share the tests (WORKERS=2 for fewer): most of the time tests wait, for servers and clocks.
PARALLEL := --numprocesses $(or $(WORKERS),6) --dist loadgroup --no-loadscope-reorder
# Quick ones hardly wait, and each process has to import all of them.  None shares a server, and handing out each by itself
# would take longer than many a test.
STEALING := --numprocesses $(or $(WORKERS),3) --dist worksteal
# Tests start some hundred processes of Python: let them find compiled what the first has compiled.
unexport PYTHONDONTWRITEBYTECODE
NODE_PEERS := tests/interop/node
LINUX_PEER := tests/plugins/protocols/sctp/linux
SUITES := tests/interop/suites

.PHONY: help setup lock demo test quick check bench soak peers suites docs changelog clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile

setup: $(STAMP) ## .venv with the project (editable), every extra and all development tools

$(STAMP): pyproject.toml requirements/dev.lock
	@test -n "$(PYTHON)" || { echo "make setup: no Python >= 3.11 found; say PYTHON=/path/to/python" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { rm -rf .venv && $(PYTHON) -m venv .venv; } || { rm -rf .venv; \
		echo "make setup: $(PYTHON) cannot make environments (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PIP) install --quiet --requirement requirements/dev.lock
	@rm -rf messaging_kernel.egg-info # a stale one in this folder would hide the entry points of the new
	PYTHONWARNINGS=ignore $(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

lock: ## write requirements/dev.lock anew from pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --universal --python-version 3.11 --all-extras --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --output-file requirements/dev.lock pyproject.toml

demo: setup ## real AMQP clients, a broker, a bridge, a second kernel and Spark; ends with a table
	@$(BIN)/python -m examples.demo

test: setup $(CLASSES) ## every test whose peers are there, with a quarter of the random courses; CI tries all (KERNEL_SEEDS=1)
	KERNEL_SEEDS=$${KERNEL_SEEDS:-0.25} $(BIN)/python -m pytest $(PARALLEL)

$(CLASSES): $(STAMP)
	@$(BIN)/kernel pipeline prepare || echo "test: without this archive each JVM of Spark takes some seconds more"
	@touch $@

quick: $(QUICK_STAMP) ## the tests that need no peer and take little time, with a tenth of the random courses: under a minute; without .venv it needs no Spark
	KERNEL_SEEDS=$${KERNEL_SEEDS:-0.1} $(QUICK_BIN)/python -m pytest $(STEALING) -m "not slow and not peer"

check: setup ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## against the peers, in the same run; writes benchmarks/results.json and docs/measured.md
	@$(BIN)/python -m benchmarks

soak: setup ## real clients on one broker for an hour (SOAK="--seconds 60"); every message accounted for, memory looked at
	$(BIN)/python -m tests.soak $(SOAK)

peers: ## what interoperability tests want from Debian (root) and npm
	@if dpkg -s $(PEERS) >/dev/null 2>&1; then echo "peers: all there: $(PEERS)"; \
	elif ! command -v apt-get >/dev/null; then echo "peers: no apt-get here; install yourself: $(PEERS)"; \
	elif [ "$$(id -u)" -ne 0 ]; then echo "peers: not root, nothing done; as root: apt-get install $(PEERS)"; \
	else apt-get update -q && DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends $(PEERS); fi
	@if command -v apt-get >/dev/null; then \
		sh $(LINUX_PEER)/fetch.sh || echo "peers: no kernel for the guest in $(LINUX_PEER)"; fi
	@if ! command -v npm >/dev/null; then echo "peers: no npm here; Node's clients are missing"; \
	else npm install --silent --no-audit --no-fund --no-package-lock --prefix $(NODE_PEERS) \
		|| echo "peers: npm could not install Node's clients"; fi

suites: setup ## the suites of AMQP and MQTT clients and of pyzmq, from their source distributions, programs that use pyzmq, and an old libzmq; tests run them here
	@sh $(SUITES)/fetch.sh $(CURDIR)/$(BIN)/python || echo "suites: pip could not fetch the source distributions"
	@sh $(SUITES)/programs.sh $(CURDIR)/$(BIN)/python || echo "suites: pip could not install the programs"
	@sh $(SUITES)/libzmq2.sh $(CURDIR)/$(BIN)/python || echo "suites: libzmq 2.1 could not be fetched or built"

docs: $(DOCS_STAMP) ## site/ from docs/; without .venv it needs only what makes the pages
	$(DOCS_BIN)/python -m kernel.topology.reference > docs/config_reference.md
	NO_MKDOCS_2_WARNING=1 $(DOCS_BIN)/mkdocs build --quiet --strict

.venv-docs/.set-up: WHAT := mkdocs mkdocs-material --editable .
.venv-quick/.set-up: WHAT := --editable .[dev,interop,demo,curve,inspect,journal,otel,sctp,web]

.venv-docs/.set-up .venv-quick/.set-up: pyproject.toml requirements/dev.lock
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 found; say PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(@D)
	@# The versions of the lock file without its hashes: with them pip installs no folder.
	@sed -e 's/ \\$$//' -e '/--hash/d' requirements/dev.lock > $(@D)/versions.txt
	PYTHONWARNINGS=ignore $(@D)/bin/python -m pip --disable-pip-version-check install --quiet --constraint $(@D)/versions.txt $(WHAT)
	@touch $@

changelog: setup ## move the fragments in changes/ to CHANGELOG.md, as a section of the version in pyproject.toml
	@version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	if ! ls changes/*.*.md >/dev/null 2>&1; then echo "changelog: there are no fragments in changes/"; \
	elif grep -q "^## $$version " CHANGELOG.md; then \
		echo "changelog: CHANGELOG.md has a section $$version already: raise the version in pyproject.toml" >&2; exit 1; \
	else $(BIN)/towncrier build --yes --version "$$version"; fi

clean: ## all that can be made again, but for .venv
	rm -rf .venv-docs .venv-quick build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
