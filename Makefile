# Each target makes .venv and installs what it needs by itself, and again when pyproject.toml changed.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
# Extras of pyproject.toml to install beside what the tests always have: make test EXTRAS=torch,ray
EXTRAS ?=

# One stamp per set of extras installed: the core alone, dev, or dev and what EXTRAS names.
comma := ,
SET := $(subst $(eval) ,$(comma),$(strip dev $(sort $(subst $(comma), ,$(EXTRAS)))))
CORE := .venv/.core
DEV := .venv/.$(SET)

.PHONY: train test quick check bench format clean
.NOTPARALLEL:

train: $(CORE)  ## Train under APES on the embedded digits: ten thousand users, forty rounds
	$(BIN)/apes train --out runs/$$(date +%Y%m%d-%H%M%S) $(ARGS)

test: $(DEV)  ## Run all tests, on all cores
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

quick: $(DEV)  ## Run what takes no more than a moment, while writing
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not slow" $(ARGS)

check: $(DEV)  ## Lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(DEV)  ## Measure speed and memory, as ratios against NumPy in the same process
	$(BIN)/python -m benchmarks $(ARGS)

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call install,extras,options) adds to what is there and removes nothing.
define install
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3"; exit 1; }
@test -x $(BIN)/python || $(PYTHON) -m venv .venv
$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.$(1)' $(2)
endef

$(CORE): pyproject.toml
	$(call install,)
	@touch $@

$(DEV): pyproject.toml tests/constraints.txt
	$(call install,[$(SET)],--constraint tests/constraints.txt)
	@touch $(CORE) .venv/.dev $@
