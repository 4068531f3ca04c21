# Two commands do everything: `make demo` and `make test`. Both set up .venv themselves; nothing is done twice.
# Stamps of what was done are in .make/.

PYTHON ?= python3
BIN := .venv/bin
export CARGO_TARGET_DIR ?= $(CURDIR)/target
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# It would look for make's jobs, of which it is none.
CARGO := env -u MAKEFLAGS -u MFLAGS cargo

# Tests and benchmarks start many processes: what was compiled once is kept for them, as it is where pcitrace is installed.
export PYTHONDONTWRITEBYTECODE :=

# Test builds need line numbers, not variables: half the time and a quarter of the disk.
export CARGO_PROFILE_DEV_DEBUG ?= line-tables-only

KERNEL := Cargo.toml Cargo.lock pcitrace/kernel/Cargo.toml $(shell find pcitrace/kernel/src -name '*.rs')
CAPTURE := $(addprefix capture/,pyproject.toml setup.py framegen/Cargo.toml) $(shell find capture/framegen/src -name '*.rs')

# What `make test` goes through. Of the first ones two run at a time, for each keeps one processor busy for most of its time;
# `lint` and `rust` need no kernel and begin while it is compiled, then the longest comes first. The others want all
# processors. Later parts of the project add theirs here.
BESIDE := lint rust package types docs
ALONE := python capture
TESTS := $(BESIDE) $(ALONE)

# What `make wheel` builds for: x86_64-unknown-linux-gnu, or aarch64- after `rustup target add aarch64-unknown-linux-gnu`.
WHEEL_FOR ?= x86_64-unknown-linux-gnu

.PHONY: help demo demo-decode demo-derive demo-network demo-capture test $(TESTS) wheel soak kills format validate bench clean

help:
	@echo "make demo     decode a capture, simulate and analyse figure 3.1, record a replay; writes demo/"
	@echo "make test     everything CI runs: $(TESTS)"
	@echo "make wheel    a wheel for any Linux with glibc 2.28 or later: dist/"
	@echo "make format   format Python and Rust"
	@echo "make soak     an hour of hostile frames against framegen"
	@echo "make kills    200 senders killed at random moments"
	@echo "make validate  random simulated runs and cards against their truth, into docs/validation.md and docs/network-validation.md"
	@echo "make clean    remove what was built, .venv too"

# ---- set-up ---------------------------------------------------------------------------------------------------------

.make/prerequisites-%: tools/prerequisites.sh
	@mkdir -p .make
	@PYTHON=$(PYTHON) tools/prerequisites.sh $*
	@touch $@

# One apt at a time.
.make/prerequisites-test: | .make/prerequisites-demo

.make/venv: | .make/prerequisites-demo
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1' 'maturin>=1.9,<2'
	@touch $@

# The kernel, compiled in place.
.make/kernel: $(KERNEL) | .make/venv
	$(BIN)/maturin develop --quiet --release --locked --skip-install
	@touch $@

# The library in editable form.
.make/pcitrace: pyproject.toml .make/kernel
	PIP_QUIET=1 $(BIN)/maturin develop --quiet --release --locked --extras plot,network
	@touch $@

# The capture tooling in editable form, with its frame generator.
.make/pcicap: $(CAPTURE) | .make/venv
	$(BIN)/pip install -qq --editable capture
	@touch $@

# What tests and site are made with: fetched, in `make test`, while the kernel is compiled. Compiling all of its Python takes
# twice as long as all else, and most is never imported.
.make/packages: pyproject.toml | .make/venv .make/prerequisites-test
	$(BIN)/pip install --quiet --no-compile --group dev --group docs
	@touch $@

# One pip at a time changes .venv.
.make/dev: pyproject.toml $(CAPTURE) .make/kernel .make/packages
	$(MAKE) .make/pcitrace .make/pcicap
	@touch $@

# ---- the main job on data of the repository -------------------------------------------------------------------------

TRACE := fixtures/traces/blue33_seq6/bus.vcd.gz
FAULT := fixtures/faults/missing-turnaround.sr

demo: demo-decode demo-derive demo-network demo-capture
	@echo; echo "== to look at in a browser: demo/fig3.1.html (the numbers), demo/view.html (all of the run, to zoom into)"

# A capture file to transactions.
demo-decode: .make/pcitrace
	@mkdir -p demo
	@echo "== $(TRACE): transactions, data phases, and what happened on the bus"
	$(BIN)/pcitrace decode $(TRACE) -o demo/transactions.csv --data-phases demo/data_phases.csv
	@cut -d, -f3,8,10,12,13,14,16,20,21 demo/transactions.csv | sed -n '1p;300,306p' | tr , '\t' | expand -t 12,20,44,56,68,76,86,102
	@echo; echo "== the same as a listing, around 200 us: what went on, and what was wrong"
	$(BIN)/pcitrace list $(TRACE) --around 200us,1us
	$(BIN)/pcitrace stats $(TRACE)
	@echo; echo "== what is wrong with $(FAULT), line by line, and by the rules of the bus"
	$(BIN)/pcitrace list $(FAULT) --around 10.9us,0.5us
	$(BIN)/pcitrace check $(FAULT)

# Figure 3.1, simulated, back to the constants that were put in.
demo-derive: .make/pcitrace
	@mkdir -p demo
	@echo; echo "== two simulated hosts with ACEnic cards, as in figure 3.1: what the traces give back"
	$(BIN)/python tools/demo.py demo

# Figure 3.2, on the emulated switch: a latency line through it and one without.
demo-network: .make/pcitrace .make/pcicap
	@mkdir -p demo/network
	@echo; echo "== two hosts and a switch, emulated, as in figure 3.2: what the switch adds"
	$(BIN)/python tools/demo_network.py demo/network

# The same as figure 3.1 through the capture tooling: an emulated analyser that the real sigrok-cli acquires from, real frames.
demo-capture: .make/pcitrace .make/pcicap
	@echo; echo "== recorded: the capture replayed to sigrok-cli while frames pass between two network namespaces"
	@if ! command -v sigrok-cli >/dev/null 2>&1; then \
	    echo "left out: sigrok-cli is not installed (apt-get install sigrok-cli)"; \
	elif ! unshare $$([ $$(id -u) = 0 ] || echo --map-root-user) --net true 2>/dev/null; then \
	    echo "left out: this system allows no network namespaces; run it as root"; \
	else \
	    rm -rf demo/source demo/recorded && \
	    $(BIN)/pcitrace simulate acenic-fig3.1 -o demo/source --set analyser.wires=control14 && \
	    PATH=$(CURDIR)/$(BIN):$$PATH capture/demo.sh demo/source demo/recorded && \
	    $(BIN)/pcitrace report demo/recorded -o demo/recorded.html; \
	fi

# ---- tests ----------------------------------------------------------------------------------------------------------

test:
	$(MAKE) --jobs=2 --output-sync=target $(BESIDE)
	$(MAKE) --jobs=1 $(ALONE)
	@echo "all passed: $(TESTS)"

lint: .make/packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings

types: .make/dev
	$(BIN)/mypy
	tsc --noEmit --allowJs --checkJs --strict --target es2022 --lib es2022,dom,dom.iterable pcitrace/view/assets/*.js
	$(BIN)/python -m mypy.stubtest pcitrace._kernel

rust: .make/packages
	$(CARGO) test --quiet --locked --workspace

python: .make/dev
	$(BIN)/pytest -n auto --dist worksteal --ignore tests/capture

# By themselves, three at a time: they time frames and stop processes, which a full machine would disturb, and mostly wait.
capture: .make/dev
	$(BIN)/pytest -n 3 --dist worksteal tests/capture

# An hour of hostile frames at both ends of a test with a key; `make capture` has a minute of it.
soak: .make/dev
	SOAK_SECONDS=3600 $(BIN)/pytest -n 0 tests/capture/test_soak.py

# 200 senders killed at random moments; `make capture` kills 40.
kills: .make/dev
	KILLS=200 $(BIN)/pytest -n 0 tests/capture/test_framegen_faults.py -k killed_at_random_moments

# The site and the manual page; tables and figures are made from the code, and a warning is an error.
docs: .make/dev
	$(BIN)/sphinx-build -q -W docs docs/_build
	$(BIN)/sphinx-build -q -W -b man docs/man docs/_build/man

# Wheel and sdist as a user gets them, each installed into a clean environment and tried there.
package: .make/dev
	rm -rf dist
	$(BIN)/maturin build --quiet --release --locked --compatibility linux --out dist
	$(BIN)/maturin sdist --out dist
	$(BIN)/python tools/check_package.py dist
	PYTHON=$(BIN)/python capture/check-package.sh dist/capture

# A wheel for any Linux with glibc 2.28 or later (2018), as a release has it; zig is the linker that can. It finds itself by python3.
wheel: | .make/venv
	$(BIN)/pip install --quiet 'maturin[zig]>=1.9,<2'
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/maturin build --release --locked --zig --compatibility manylinux_2_28 \
	    --target $(WHEEL_FOR) --out dist

# ---- the rest -------------------------------------------------------------------------------------------------------

format: .make/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cargo fmt --all

# Random simulated runs and cards against their truth; up to three hours. All parts run, then a limit not kept fails it.
validate: .make/dev
	status=0; \
	$(BIN)/python tools/validate.py --runs 200 -o docs/validation.md || status=1; \
	$(BIN)/python tools/validate_cards.py --seeds 20 -o docs/validation.md || status=1; \
	$(BIN)/python tools/validate_network.py --seeds 200 --loss-seeds 2000 -o docs/network-validation.md || status=1; \
	exit $$status

bench: .make/dev
	$(BIN)/pip install --quiet --group bench
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/spectrum.py
	$(BIN)/python benchmarks/paths.py
	$(BIN)/python benchmarks/long.py
	$(BIN)/python benchmarks/instrument.py
	$(BIN)/python benchmarks/analysis.py
	$(BIN)/python benchmarks/export.py
	$(BIN)/python benchmarks/view.py
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/recorder.py
	$(BIN)/python benchmarks/framegen.py --framegen $(BIN)/framegen # wants root and two free CPUs
	$(BIN)/python benchmarks/framegen_peers.py --framegen $(BIN)/framegen # the same, and iperf3, nuttcp, trafgen, sockperf

clean:
	rm -rf .make .venv dist demo target docs/_build docs/jupyter_execute capture/*.egg-info capture/build
	find pcitrace tests -name '__pycache__' -prune -exec rm -rf {} +
