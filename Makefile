# Each target makes .venv and installs what it needs by itself, and again when pyproject.toml changed.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
# Where this is set, as in many containers, every process would compile all of Python's sources anew.
unexport PYTHONDONTWRITEBYTECODE
# Extras of pyproject.toml to install beside what the tests always have: make test EXTRAS=torch,ray
EXTRAS ?=

# One stamp per set of extras installed: the core alone, dev, or dev and what EXTRAS names.
comma := ,
SET := $(subst $(eval) ,$(comma),$(strip dev $(sort $(subst $(comma), ,$(EXTRAS)))))
CORE := .venv/.core
DEV := .venv/.$(SET)
SITE := $(subst $(eval) ,$(comma),$(strip docs $(filter-out docs,$(sort $(subst $(comma), ,$(EXTRAS))))))
DOCS := .venv/.$(SITE)

# The compiled loops are in numba's cache, for the sources as they are.
LOOPS := .venv/.loops

.PHONY: train test quick exhaustive faults check bench docs dist lock format clean
.NOTPARALLEL:

train: $(CORE)  ## Train under APES on the embedded digits: ten thousand users, forty rounds
	$(BIN)/apes train --out runs/$$(date +%Y%m%d-%H%M%S) $(ARGS)

# Tests of a file run on one worker, beside those of other files; the costly levels begin.
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

test: $(DEV) $(LOOPS)  ## Run the tests of the levels unit, service and process (tests/levels.py)
	$(PYTEST) -n auto $(ARGS)

quick: $(DEV) $(LOOPS)  ## Run the unit tests, while writing
	$(PYTEST) -n logical --levels unit $(ARGS)

exhaustive: $(DEV) $(LOOPS)  ## Run the rest: large grids, enumerations, tests of high power; then, alone, those of time
	$(PYTEST) -n logical --levels exhaustive -m "not alone" $(ARGS) || [ $$? -eq 5 ]
	$(PYTEST) -n 0 --levels exhaustive -m alone $(ARGS) || [ $$? -eq 5 ]

faults: $(DEV) $(LOOPS)  ## Put seeded faults into copies of the sources, and ask whether the tests notice (tests/faults)
	$(BIN)/python -m tests.faults $(ARGS)

check: $(DEV)  ## Lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(DEV)  ## Measure speed and memory, as ratios against NumPy in the same process
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(DOCS)  ## Build the site, its tutorials run: docs/_build/html/index.html; a warning or a dead link is an error
	$(BIN)/python -m sphinx -W --keep-going -b html $(ARGS) docs docs/_build/html

dist: $(DEV)  ## Build the source archive, and the wheel from it: dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

# What containers install: the core, the extras of the parties, and what builds the package; for every system.
LOCK := deploy/requirements.txt
LOCKED := service flower postgres
BUILD_REQUIRES := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

lock: $(DEV)  ## Renew the versions and hashes that containers install: deploy/requirements.txt
	$(BIN)/python -c '$(BUILD_REQUIRES)' | $(BIN)/uv pip compile --quiet --no-config --upgrade --universal \
	  --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" \
	  $(addprefix --extra ,$(LOCKED)) --output-file $(LOCK) $(ARGS) pyproject.toml -

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis dist docs/_build
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

$(LOOPS): $(DEV) $(shell grep -rlE "import.* (compiled|compiled_reordering|inlined)" src --include=*.py)
	$(BIN)/python tests/compile_loops.py
	@touch $@

$(DOCS): pyproject.toml tests/constraints.txt
	$(call install,[$(SITE)],--constraint tests/constraints.txt)
	@touch $(CORE) $@
