# make book   build the book and print where to open it
# make live   the same with a kernel behind it, so that cells run in the page
# make pdf    print the whole book as _build/book.pdf (needs Chromium)
# make test   run every check
# They set up .venv from requirements.lock by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BUILD := _build/html

# Jupyter and Matplotlib read per-user settings; the book must come out the same for everybody.
export JUPYTER_PREFER_ENV_PATH := 1
export PYTHONNOUSERSITE := 1
# A backend set for scripts would keep notebooks from storing their figures.
unexport MPLBACKEND
export JUPYTER_PLATFORM_DIRS := 1

.PHONY: help book live pdf test test-slow bench bench-torch serve execute headline lock clean setup

help:
	@sed -n '1,5p' Makefile

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(READY)

book: $(READY)
	@rm -rf _build
	@$(BIN)/jupyter-book build . -n -W --keep-going -q
	@test -f $(BUILD)/index.html
	@echo "The book is ready. Open $(CURDIR)/$(BUILD)/index.html"

serve: book
	@echo "Serving on http://127.0.0.1:8000 (Ctrl-C stops)"
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory $(BUILD) 8000

live: book
	@$(BIN)/python book/_live/serve.py $(BUILD)

pdf: book
	@$(BIN)/python book/_pdf/typeset.py $(BUILD) _build/book.pdf

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m pytest -n 2 --dist loadfile --nbval -p nbval_numbers \
	  --nbval-kernel-name python3 --nbval-cell-timeout 600 --override-ini addopts=-ra notebooks

test-slow: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m slow

execute: $(READY)
	$(BIN)/python tests/store_notebooks.py $(CHAPTERS)

# Peers are optional: PEERS=FOLDER of clones, TORCH=PYTHON or once `make bench-torch`.
TORCH ?= $(wildcard .venv-bench/bin/python)
bench: $(READY)
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python benchmarks/suite.py \
	  $(if $(TORCH),--torch $(TORCH)) $(if $(PEERS),--peers $(PEERS)) $(BENCH)

bench-torch:
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet -r benchmarks/requirements.txt

headline: $(READY)
	$(BIN)/python benchmarks/headline.py

lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra test --no-emit-package aimlib \
	  --custom-compile-command "make lock" pyproject.toml -o requirements.lock

clean:
	rm -rf _build $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
