# Everything runs from a virtual environment in .venv, made on first use.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# The CPU build is enough for everything here; on a machine with a GPU set TORCH to the build you want.
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export HF_HUB_OFFLINE := 1

.PHONY: demo test bench clean

demo: $(VENV)/.core  ## the main job: check, compile and run the GDPO specs, count advantage groups
	@$(BIN)/python examples/demo.py

test: $(VENV)/.test  ## all tests
	$(BIN)/python -m pytest

bench: $(VENV)/.test  ## compiled GDPO against TRL's and verl's own code, in one run
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/benchmarks --override-ini=addopts= --benchmark-only -q

$(VENV)/.core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) --editable .
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(PIP) --editable '.[test,trainers]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .hypothesis .benchmarks
