# Each target makes .venv and installs by itself, and again when pyproject.toml changed.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
ARGS ?=

.PHONY: train test check bench format clean

train: $(INSTALLED)  ## Train under APES on the embedded digits: ten thousand users, forty rounds
	$(BIN)/apes train --out runs/$$(date +%Y%m%d-%H%M%S) $(ARGS)

test: $(INSTALLED)  ## Run all tests
	$(BIN)/python -m pytest $(ARGS)

check: $(INSTALLED)  ## Lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)  ## Measure speed and memory, as ratios against NumPy in the same process
	$(BIN)/python -m benchmarks $(ARGS)

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
