# Everything a contributor types. Needs python3 and pip, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Works without ensurepip, which some distributions package separately.
PIP := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

# The browser of `make test-report`; Debian's package is called chromium.
CHROMIUM ?= chromium

.PHONY: reproduce test test-all test-report check bench docs notebooks clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -m venv --without-pip $(VENV)

# One stamp per extra: an install is repeated only when its inputs changed.
$(VENV)/.extra-%: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e '.[$*]'
	touch $@

reproduce: $(VENV)/.extra-models
	$(BIN)/multidraft models fetch smollm2
	$(BIN)/multidraft record
	$(BIN)/multidraft reproduce

check: $(VENV)/.extra-dev
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/basedpyright

test: check
	$(PYTEST)

test-all: check
	$(PYTEST) -m ""

test-report: $(VENV)/.extra-dev
	@command -v $(CHROMIUM) >/dev/null || { echo "test-report needs $(CHROMIUM): apt-get install chromium"; exit 1; }
	MULTIDRAFT_CHROMIUM=$(CHROMIUM) $(BIN)/python -m pytest tests/browser

bench: $(VENV)/.extra-dev
	for name in full-vocabulary solvers verifiers global-resolution; do $(BIN)/multidraft bench $$name || exit 1; done

docs: $(VENV)/.extra-docs
	$(BIN)/python -m sphinx -W -b html docs docs/_build

# Executes the scripts in notebooks/ and writes what they show to the .ipynb beside each;
# `make notebooks NAME=03_max_flow` does one.
notebooks: $(VENV)/.extra-dev
	$(BIN)/python tests/notebook_files.py $(NAME)

clean:
	rm -rf $(VENV) build dist docs/_build docs/_api docs/gallery .pytest_cache .ruff_cache .hypothesis .benchmarks src/*.egg-info toolkit/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
