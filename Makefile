# The two commands of the README: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SOURCES := $(wildcard lsmkv_ext/*.pyx lsmkv_ext/*.pxd) setup.py

.PHONY: run test build lint clean

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip "setuptools>=77" wheel "cython>=3.1"
	$(BIN)/python -m pip install -q --no-build-isolation -e ".[test]"
	touch $(STAMP) $(VENV)/.built

# A changed source rebuilds in place; the editable install picks it up.
$(VENV)/.built: $(STAMP) $(SOURCES)
	$(BIN)/python setup.py -q build_ext --inplace -j2
	touch $@

build: $(VENV)/.built

run: build
	$(BIN)/python -m lsmkv_bench.demo

test: build
	$(BIN)/python -m pytest

lint: build
	$(BIN)/python -m pip install -q -e ".[lint]" --no-build-isolation --no-deps ruff cython-lint mypy
	$(BIN)/ruff check lsmkv lsmkv_ext bench tools tests setup.py
	$(BIN)/cython-lint lsmkv_ext/*.pyx lsmkv_ext/*.pxd
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info lsmkv_ext/*.c lsmkv_ext/*.so lsmkv_ext/*.html
