PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: quickstart test test-learning lint bench-decode clean

quickstart: $(READY)
	$(BIN)/dare quickstart

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses auto

test-learning: $(READY)
	$(BIN)/pytest tests/train/test_learning.py --numprocesses auto -m '' --seeds 3

lint: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

bench-decode: $(READY)
	$(BIN)/python benchmarks/decode.py

clean:
	rm -rf $(VENV) runs

# The environment is rebuilt only when what it is made of changes.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@
