# make demo   train the digits net, write out/digits/, check it in C++, on two devices and on two ranks
# make test   C++ and Python tests          make bench [ONLY=prefix]   benchmarks against the peers
# make check  everything a change must pass  make deps [DRY_RUN=1]      install (or print) what is needed
# make test-long  the soak tests in full      make fuzz [SECONDS_EACH=60] coverage-guided fuzzing of every input format
# make asan, make tsan  the C++ tests under sanitizers
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
PYTHON := .venv/bin/python
export PYTHONPATH := $(CURDIR)/$(BUILD)/python
export SLUICE_BUILD := $(CURDIR)/$(BUILD)

.PHONY: all deps build demo test test-long fuzz bench check asan tsan format clean help
all: build

help:
	@sed -n 's/^# //p' Makefile

deps:
	@DRY_RUN=$(DRY_RUN) tools/setup.sh

build: deps
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET) -j $(JOBS)

demo: build
	$(PYTHON) examples/train_digits.py
	$(PYTHON) -m sluice.distributed.launch --nproc_per_node 2 examples/distributed_digits.py

test: build
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	$(PYTHON) -m pytest -q tests/python tests/distributed tests/packaging
	@grep -h '^count: ' $(BUILD)/Testing/Temporary/LastTest.log | sort

test-long: build
	tools/test_long.sh $(BUILD)

fuzz:
	tools/fuzz.sh $(or $(SECONDS_EACH),60)

bench: build
	$(PYTHON) benchmarks/run.py $(if $(ONLY),--only $(ONLY))

check: build
	tools/check.sh $(BUILD)

asan tsan: deps
	@test -f build/$@/build.ninja || cmake --preset $@
	@cmake --build --preset $@ -j $(JOBS)
	ctest --test-dir build/$@ --output-on-failure

format:
	git ls-files '*.h' '*.cpp' | xargs clang-format -i

clean:
	rm -rf build out
