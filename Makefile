# The two commands of the README: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CYTHON := $(shell find lsmkv_ext bench/native -name '*.pyx' -o -name '*.px[di]')
STUBS  := $(shell find lsmkv_ext bench/native -name '*.pyi')

.PHONY: run test test-diskcache test-plyvel test-migration test-integrations build lint clean bench bench-full pictures crash fuzz fuzz-guided soak planted planted-integrations coverage asan asan-cut tsan dist-check wheels docs types

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip "setuptools>=77" wheel "cython>=3.1"
	LSMKV_ONLY=none $(BIN)/python -m pip install -q --no-build-isolation -e ".[test]"
	touch $(STAMP)

# In place, where the editable install finds the modules. pip itself would rebuild all of them each time.
$(VENV)/.built: $(STAMP) $(CYTHON) setup.py
	$(BIN)/python setup.py -q build_ext --inplace -j2
	touch $@

build: $(VENV)/.built

run: build
	$(BIN)/python -m lsmkv_bench.demo

# One worker more than processors: many tests wait for a child process or the disk.
JOBS ?= $(shell expr $$(nproc) + 1)
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test: build
	$(PYTEST)

# diskcache's own tests on lsmkv.Cache. Downloads its sdist.
test-diskcache: build
	$(BIN)/python tests/diskcache_adapter/run.py

# plyvel's own tests on lsmkv.compat.plyvel. Downloads its sdist.
test-plyvel: build
	$(BIN)/python tests/plyvel_suite/run.py

# The pictures of the tool and its report in docs/images. Needs Chromium.
pictures: build
	$(BIN)/python tests/tool/pictures.py

# The README's table and picture: 1M keys, three interleaved runs, about five minutes. RUNS=1 is quicker.
RUNS ?= 3
PEERS := lsmkv,rocksdb,leveldb,lmdb

$(VENV)/.bench: $(STAMP)
	$(BIN)/python -m pip install -q rocksdict plyvel lmdb rbloom diskcache matplotlib
	touch $@

bench: build $(VENV)/.bench
	$(BIN)/lsmkv-bench --suite=table --engines=$(PEERS) --num=1000000 --runs=$(RUNS) \
		--slim-json=bench/results/table-1m.json --markdown=bench/results/table-1m.md --figure=docs/images/ratios.svg

# 10M keys with a block cache of an eighth of the data, then the same workloads at 100k, 1M and 10M keys.
bench-full: build $(VENV)/.bench
	$(BIN)/lsmkv-bench --suite=full --engines=lsmkv,rocksdb,leveldb --num=10000000 --runs=$(RUNS) --cache-size=145MB \
		--slim-json=bench/results/full-10m.json --markdown=bench/results/full-10m.md
	for n in 100000 1000000 10000000; do \
		$(BIN)/lsmkv-bench --suite=scale --engines=$(PEERS) --num=$$n \
			--slim-json=bench/results/scale-$$n.json --markdown=bench/results/scale-$$n.md || exit 1; \
	done

# The crash and fuzz tests at the size of `make test`, with their figures.
crash: build
	LSMKV_FIGURES=1 $(PYTEST) tests/crash

fuzz: build
	LSMKV_FIGURES=1 $(PYTEST) tests/fuzz

# The same at full size: about four hours on two cores. LSMKV_SOAK_SCALE=0.01 runs a hundredth of it. An interrupted soak continues
# where it stopped, until the code changes or build/soak-passed is removed. python tests/soak.py prints the results so far.
soak: build
	LSMKV_SOAK=1 $(PYTEST) tests/crash tests/fuzz

# Plants known mistakes one by one and shows which instrument notices each: about an hour. Continues an interrupted run.
planted: build
	cd tests && LSMKV_FIGURES=1 ../$(BIN)/python -m planted.run

# Which lines of both planes the tests run, in build/coverage.
coverage: build
	$(BIN)/python -m pip install -q coverage
	cd tests && ../$(BIN)/python -m covered.run

# Coverage-guided fuzzing of every parser, SECONDS each. atheris has wheels for CPython 3.11 to 3.13.
SECONDS ?= 120

fuzz-guided: build
	$(BIN)/python -m pip install -q atheris
	cd tests && ../$(BIN)/python -m fuzz.guided --seconds $(SECONDS)

# The programs of the migration pages, on the stores they are written for. `make test` skips those that are not installed.
test-migration: build
	$(BIN)/python -m pip install -q diskcache lmdb plyvel rocksdict sqlitedict
	$(BIN)/python -m pytest -rs tests/unit/test_migration_pages.py

# Against real servers and engines on loopback, in an environment of their own.
INTEGRATIONS := .venv-integrations
ENGINES := "moto[server]" s3fs "dask[dataframe,distributed]" zarr pytest-asyncio "ray[data]" faust-streaming confluent-kafka \
	scrapy torch==2.13.0

$(INTEGRATIONS)/.installed: pyproject.toml
	test -x $(INTEGRATIONS)/bin/python || $(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install -q --upgrade pip "setuptools>=77" wheel "cython>=3.1"
	LSMKV_ONLY=none $(INTEGRATIONS)/bin/python -m pip install -q --no-build-isolation -e ".[test]"
	$(INTEGRATIONS)/bin/python -m pip install -q $(ENGINES)
	touch $@

test-integrations: build $(INTEGRATIONS)/.installed
	LSMKV_INTEGRATIONS=1 $(INTEGRATIONS)/bin/python -m pytest -n $(JOBS) -o asyncio_mode=auto tests/integrations

# Plants mistakes in the adapters, as `make planted` does elsewhere: about half an hour.
planted-integrations: build $(INTEGRATIONS)/.installed
	cd tests && LSMKV_INTEGRATIONS=1 ../$(INTEGRATIONS)/bin/python -m planted.run

asan: build
	tests/crash/sanitize.sh address -n $(JOBS) --dist worksteal tests

# The part that CI runs: parsers, tables, log, engine, and a sample of the kills, the damage and the races. Not optimized, because
# the build takes a third of the time. Without tests that open a database for every byte, and tests of time limits.
ASAN_CUT := tests/unit tests/fuzz tests/golden $(patsubst %,tests/crash/test_%.py,corruption damage kill lifetime metamorphic reentrancy)
ASAN_SKIP := every_ or flips or cut_anywhere or thousand or more_tables or Machine or solved_rate or busy or interrupt or forked_child

asan-cut: build
	LSMKV_OPTIMIZE=0 LSMKV_CUT=0.03 tests/crash/sanitize.sh address -n $(JOBS) --dist worksteal $(ASAN_CUT) \
		--ignore=tests/unit/test_large.py -k "not ($(ASAN_SKIP))"

# Without the test that counts threads, because ThreadSanitizer has one of its own; the largest values, of which it keeps several
# copies; and tests that start programs other than Python.
TSAN_SUITE := tests/unit tests/model tests/golden $(patsubst %,tests/crash/test_%.py,lifetime kill corruption metamorphic regressions exit)

tsan: build
	tests/crash/sanitize.sh thread -n $(JOBS) --dist worksteal $(TSAN_SUITE) \
		--ignore=tests/unit/test_large.py -k "not threads_come_back"

# Checks that the sdist and the wheel install and work elsewhere. Builds everything three times, which takes minutes.
dist-check:
	$(PYTHON) tests/packaging/check.py

# The site, in build/site. Its environment needs the network once, the build does not.
DOCS := .venv-docs

$(DOCS)/.installed: pyproject.toml
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install -q --upgrade pip "setuptools>=77" wheel "cython>=3.1"
	LSMKV_ONLY=none $(DOCS)/bin/python -m pip install -q --no-build-isolation -e ".[docs]"
	touch $@

docs: build $(DOCS)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build -q --strict
	$(DOCS)/bin/python .ci/check_site.py

# A manylinux wheel in dist/wheels for every CPython at hand, each tested in an environment of its own. Minutes per version.
wheels:
	$(PYTHON) tests/packaging/wheels.py

# Programs that type checkers must accept, and mistakes that they must find.
types: build
	$(BIN)/python -m pip install -q mypy "pyright[nodejs]"
	$(BIN)/mypy --strict tests/typed
	$(BIN)/pyright -p tests/typed --pythonpath $(BIN)/python

lint: build types
	$(BIN)/python -m pip install -q ruff cython-lint mypy import-linter
	$(BIN)/ruff check lsmkv lsmkv_ext bench tools tests .ci setup.py
	$(BIN)/ruff format --check lsmkv lsmkv_ext bench tools tests .ci setup.py
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint $(CYTHON)
	$(BIN)/mypy
	mkdir -p build/packages && ln -sfn ../../bench build/packages/lsmkv_bench
	MYPYPATH=build/packages $(BIN)/python -m mypy.stubtest --allowlist stubtest-allowlist.txt --ignore-unused-allowlist \
	    $(subst /,.,$(patsubst bench/%,lsmkv_bench/%,$(STUBS:.pyi=)))
	$(BIN)/lint-imports
	$(BIN)/python .ci/check_cimports.py
	$(BIN)/python .ci/check_reentrancy.py

clean:
	rm -rf $(VENV) build dist *.egg-info
	find lsmkv_ext bench/native \( -name '*.c' -o -name '*.so' -o -name '*.html' \) -delete
