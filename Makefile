# Everything runs from a virtual environment in .venv, made on first use; what OpenRLHF needs, from one of its own.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# The CPU build is enough for everything here; on a machine with a GPU set TORCH to the build you want.
TORCH ?= torch==2.13.0
# Tests run in as many processes.
WORKERS ?= 2
# `make fuzz` tries as many times more specs than the tests do.
FUZZ ?= 20
# Where random searches are.
SEARCHES := tests/random tests/cases/test_findings.py tests/commands/test_editor.py $(addprefix tests/unit/test_,signal.py verify.py)
# Folders with tests; those with long files first, so that no process is left alone with one of them.
LONG := tests/trainers tests/unit tests/random
FOLDERS := $(LONG) $(filter-out $(LONG) tests/openrlhf tests/benchmarks,$(sort $(patsubst %/,%,$(dir $(wildcard tests/*/test_*.py)))))
VENV := .venv
BIN := $(VENV)/bin
OPENRLHF := .venv-openrlhf
INSTALL := -m pip install --quiet --disable-pip-version-check
PIP := $(BIN)/python $(INSTALL)
export HF_HUB_OFFLINE := 1
# Tests start Python some hundred times; where it may not write bytecode, it compiles the package each time.
unexport PYTHONDONTWRITEBYTECODE
# Tests run beside each other: threads of their own would wait for each other, which costs processor time.
export OMP_NUM_THREADS ?= 1

.PHONY: demo docs check lint test test-main browser fuzz test-openrlhf test-processors test-rounding bench clean

demo: $(VENV)/.core  ## the main job: check, compile and run the GDPO specs, count groups, compare schemes on a log
	@$(BIN)/python examples/demo.py

docs: $(VENV)/.check  ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

check: lint  ## a verdict in a minute or so, no trainers needed: lint, and the tests that take a moment
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m "not slow" $(filter-out tests/trainers tests/random,$(FOLDERS))

# Both environments are installed at once. Lint, OpenRLHF's tests and those of rounding run beside the rest; what each
# prints comes at its end.
test:  ## all tests
	$(MAKE) --jobs 2 --output-sync=target $(VENV)/.test $(OPENRLHF)/.test browser
	$(MAKE) --jobs 4 --output-sync=target lint test-main test-rounding test-openrlhf

test-main: $(VENV)/.test browser  ## the tests of one environment: all but the two below
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 25 \
		--durations-min 5 $(FOLDERS)

lint: $(VENV)/.check  ## what a linter finds, the layout of the code, and types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

# What breaks becomes a file in tests/random/seeds, which every run of the tests tries. SEED=N repeats a run.
fuzz: $(VENV)/.test  ## FUZZ times as many random specs as the tests try
	FUZZ=$(FUZZ) $(BIN)/python -m pytest --numprocesses $(WORKERS) $(SEARCHES) $(addprefix --hypothesis-seed=,$(SEED))

test-openrlhf: $(OPENRLHF)/.test  ## the OpenRLHF adapter in OpenRLHF itself
	OMP_NUM_THREADS=1 $(OPENRLHF)/bin/python -m pytest tests/openrlhf

test-rounding: $(VENV)/.test  ## tests of rounding, as processors of other kinds compute them
	$(BIN)/python tests/processors.py tests/unit/test_rounding.py

test-processors: $(VENV)/.test  ## tests of numbers, as processors of other kinds compute them
	$(BIN)/python tests/processors.py --numprocesses $(WORKERS)

# BASE is the folder of another checkout, or a revision of git.
bench: $(VENV)/.test  ## compiled GDPO against TRL's and verl's own code, in one run; BASE=main: this checkout against that
ifdef BASE
	$(BIN)/python tests/benchmarks/beside.py $(BASE)
else
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/benchmarks --override-ini=addopts= --benchmark-only -q
	$(BIN)/python tests/benchmarks/startup.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/turns.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/rollout_log.py
endif

# The tests of pages need Chromium. Where there is none, root on Debian gets its package; elsewhere they are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| test -n "$$CHROMIUM" || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get -qq update \
		&& DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends --yes chromium >/dev/null; } \
		|| echo "no browser could be installed: the tests of pages in one are skipped"

$(VENV)/.core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) --editable '.[logs]'
	touch $@

$(VENV)/.check: $(VENV)/.core
	$(PIP) --editable '.[test]'
	touch $@

$(VENV)/.test: $(VENV)/.check
	$(PIP) --editable '.[test,trainers]'
	touch $@

# OpenRLHF's pins clash with those of the other trainers. It requires kernels that are compiled for a GPU: tests have
# stubs of them, so it is installed without its requirements. DeepSpeed imports torch while it is built.
$(OPENRLHF)/.test: pyproject.toml tests/openrlhf/requirements.txt
	test -x $(OPENRLHF)/bin/python || $(PYTHON) -m venv $(OPENRLHF)
	$(OPENRLHF)/bin/python $(INSTALL) $(TORCH)
	$(OPENRLHF)/bin/python $(INSTALL) --editable . --requirement tests/openrlhf/requirements.txt
	DS_BUILD_OPS=0 $(OPENRLHF)/bin/python $(INSTALL) --no-build-isolation deepspeed==0.19.6
	$(OPENRLHF)/bin/python $(INSTALL) --no-deps openrlhf==0.11.2
	touch $@

clean:
	rm -rf $(VENV) $(OPENRLHF) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
