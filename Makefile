# Each target makes its own .venv, and refreshes it when pyproject.toml, setup.py, the version, the C sources or the
# Python change.
#
#   make demo       trains the tutorial's model        make test       runs a part of every file of tests
#   make bench      writes docs/performance.md         make test-all   runs all tests
#   make lint       formatting, lint, types            make costs      the same, and writes tests/costs.txt
#   make sanitize   the C runtimes under sanitizers    make cross      other CPUs' code, in emulators
#   make fuzz       exported trainers, by libFuzzer    make clean      removes what these made
#   make wheels     wheels for Linux, in dist/         make exported   exported libraries, in emulators and browsers
#   make docs       the site, in build/site

PYTHON ?= python3
CC ?= cc
NATIVE := pullback/runtime/native
PY := .venv/bin/python
C_SOURCES := $(sort $(wildcard $(NATIVE)/*.[ch]))
DEPLOY_SOURCES := $(sort $(wildcard pullback/deploy/native/*.[ch]))
PYTEST_ARGS ?= -n 2 --dist worksteal

# Two fingerprints: of the interpreter and the place, for the environment; of the sources, for what is installed in it.
PYTHON_STAMP := .venv/.python-$(shell $(PYTHON) -c 'import sys, zlib; assert sys.version_info >= (3, 10); \
	print(zlib.crc32(repr((sys.version, sys.base_prefix, "$(CURDIR)")).encode()))' 2>/dev/null)
CONTENTS := $(shell cat pyproject.toml setup.py pullback/version.py $(C_SOURCES) | cksum | tr ' ' -)

.PHONY: demo test test-all costs bench lint sanitize sanitize-exported fuzz pool cross cross-runtime exported wheels
.PHONY: wheel-test clean venv docs
.DELETE_ON_ERROR:

demo: .venv/.demo-$(CONTENTS)
	$(PY) -m pullback demo

test: .venv/.test-$(CONTENTS)
	$(PY) -m pytest --quick $(PYTEST_ARGS) tests

test-all: .venv/.test-$(CONTENTS)
	$(PY) -m pytest $(PYTEST_ARGS) tests

# From an empty cache of object code, as tests have it in a fresh clone.
costs: .venv/.test-$(CONTENTS)
	rm -rf build/costs
	PULLBACK_CACHE_DIR=$(CURDIR)/build/costs $(PY) -m pytest --update-costs $(PYTEST_ARGS) tests

bench: .venv/.bench-$(CONTENTS)
	$(PY) -m benchmarks all

venv: .venv/.test-$(CONTENTS)

lint: .venv/.test-$(CONTENTS)
	$(PY) -m ruff format --check
	$(PY) -m ruff check
	$(PY) -m mypy

# A link that leads nowhere, or a page that no menu has, is an error.
docs: .venv/.test-$(CONTENTS) .venv/.docs-$(CONTENTS)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

# .venv/.EXTRA-CONTENTS says that the package with that extra is installed.
.venv/.%-$(CONTENTS): $(PYTHON_STAMP)
	$(PY) -m pip install --quiet --quiet --disable-pip-version-check --editable '.[$*]'
	@rm -f .venv/.$*-*
	@touch $@

# Without ensurepip (Debian's python3 without python3-venv), virtualenv or the interpreter's own pip will do.
$(PYTHON_STAMP):
	@case '$@' in *-) echo 'error: $(PYTHON) is missing or older than 3.10; try make PYTHON=python3.12'; exit 1;; esac
	@rm -rf .venv
	@$(PYTHON) -m venv .venv 2>/dev/null \
	|| { rm -rf .venv; $(PYTHON) -m virtualenv --quiet .venv 2>/dev/null; } \
	|| { rm -rf .venv; $(PYTHON) -m venv --without-pip .venv 2>/dev/null \
	     && $(PYTHON) -m pip --python $(PY) install --quiet pip setuptools 2>/dev/null; } \
	|| { rm -rf .venv; echo 'error: $(PYTHON) can make no virtual environment.' \
	     'Install one of: the system package python3-venv, or `$(PYTHON) -m pip install --user virtualenv`.'; exit 1; }
	@touch $@

SANITIZERS := address undefined thread

sanitize: $(SANITIZERS:%=sanitize-%) sanitize-exported

sanitize-%: tests/runtime/native/test_rt.c tests/runtime/native/test_epoch.c tests/runtime/native/test_pools.c \
		tests/runtime/native/test_flights.c tests/runtime/native/test_ranks.c \
		$(C_SOURCES) tests/deploy/threads.c tests/deploy/fake_model.c $(DEPLOY_SOURCES)
	@mkdir -p build/sanitize
	$(CC) -O1 -g -std=c11 -pthread -Wall -Wextra -Werror -fsanitize=$* -fno-sanitize-recover=all -I$(NATIVE) \
		$< $(NATIVE)/one.c -o build/sanitize/test_rt-$*
	build/sanitize/test_rt-$*
	$(CC) -O1 -g -std=c11 -D_DEFAULT_SOURCE -pthread -Wall -Wextra -Werror -fsanitize=$* -fno-sanitize-recover=all \
		tests/deploy/threads.c -lm -o build/sanitize/threads-$*
	build/sanitize/threads-$*

# Tests of the exported trainers' runtime: Python gets gcc's sanitizers before it loads what is compiled with them.
EXPORTED := model checkpoint run order

sanitize-exported: .venv/.test-$(CONTENTS)
	CC='gcc -fsanitize=address,undefined -fno-sanitize-recover=all' ASAN_OPTIONS=detect_leaks=0 \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		$(PY) -m pytest $(EXPORTED:%=tests/deploy/test_%.py)

# Needs clang. What is found is printed, and the input for it is kept.
MINUTES ?= 10

fuzz: .venv/.test-$(CONTENTS)
	$(PY) -m tests.deploy.fuzz --minutes $(MINUTES)

pool: benchmarks/pool.c $(C_SOURCES)
	@mkdir -p build
	$(CC) -O3 -std=c11 -pthread -Wall -Wextra -Werror -I$(NATIVE) $< $(NATIVE)/one.c -o build/pool
	build/pool

# Needs qemu-user and node (Debian: apt-get install qemu-user nodejs). MACHINES="sse2 neon" runs some of them.
cross: cross-runtime exported
	$(PY) -m tests.cross $(MACHINES)

# Exported libraries on other machines, in node and in Chromium, whose tests are skipped where these are missing (Debian:
# apt-get install qemu-user qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi nodejs chromium).
exported: .venv/.test-$(CONTENTS) .venv/.deploy-$(CONTENTS)
	PULLBACK_REQUIRE_TOOLS=1 $(PY) -m pytest tests/deploy tests/examples/test_web.py tests/docs

# The C runtime's tests on AArch64, and whether it compiles for macOS.
cross-runtime: .venv/.cross-$(CONTENTS)
	@mkdir -p build/cross
	$(PY) -m ziglang cc -target aarch64-linux-musl -O2 -std=c11 -pthread -DEMULATED -I$(NATIVE) \
		tests/runtime/native/test_rt.c $(NATIVE)/one.c -o build/cross/test_rt
	qemu-aarch64 build/cross/test_rt
	for machine in aarch64 x86_64; do $(PY) -m ziglang cc -target $$machine-macos -O3 -std=c11 -fPIC -shared -pthread \
		-Wall -Wextra -Werror $(NATIVE)/one.c -o build/cross/$$machine.dylib || exit 1; done

# Compiled by zig for glibc 2.17 and newer. No file of an older build may get in.
WHEELS := x86_64 aarch64

wheels: $(WHEELS:%=wheel-%)

$(WHEELS:%=wheel-%): wheel-%: .venv/.wheels-$(CONTENTS)
	rm -rf build/lib* build/bdist* dist/*_$*.whl
	CC='$(CURDIR)/$(PY) -m ziglang cc -target $*-linux-gnu.2.17' $(PY) -m pip wheel --quiet --no-deps \
		--no-build-isolation --disable-pip-version-check --config-settings='--build-option=--plat-name=manylinux_2_17_$*' --wheel-dir dist .
	rm -rf build/lib* build/bdist*
	$(PY) -m auditwheel show dist/pullback-*-py3-none-manylinux_2_17_$*.whl | tr '\n' ' ' \
	| grep --only-matching 'is consistent with .*"manylinux_2_17_$*"\.'

# In a new environment, where no compiler is found, the wheel for this machine trains.
wheel-test: wheel-$(shell uname -m)
	rm -rf build/wheel-test
	$(PY) -m venv build/wheel-test
	build/wheel-test/bin/python -m pip install --quiet --disable-pip-version-check dist/*_$(shell uname -m).whl
	cd build && env -i HOME='$(CURDIR)/build' PULLBACK_CACHE_DIR=cache PULLBACK_OFFLINE=1 PATH=/nowhere \
		wheel-test/bin/python -m pullback demo --no-picture --epochs 1

clean:
	rm -rf .venv build dist *.egg-info $(NATIVE)/*.so $(NATIVE)/*.dylib
