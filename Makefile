# make demo   train the digits net, write out/digits/, check it in C++, on two devices and on two ranks; photographs; serve it
# make test   C++ and Python tests          make bench [ONLY=prefix]   benchmarks against the peers
# make wheel [PYTHONS="3.12 3.13"|all]  wheels in dist/, to install anywhere   . ./activate   use the build in this shell
# make deb    hardened Debian packages in dist/
# make docs   these pages and the reference as a site, in build/docs/html
# make check  everything a change must pass  make deps [DRY_RUN=1]      install (or print) what is needed
# make test-long [ONLY=prefix]   the soak tests in full, for hours
# make fuzz [SECONDS_EACH=60]    coverage-guided fuzzing of every input format
# make asan, make tsan  the C++ tests under sanitizers   make build-times  where the time of the last builds went
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
PYTHON := .venv/bin/python
export PYTHONPATH := $(CURDIR)/$(BUILD)/python
export SLUICE_BUILD := $(CURDIR)/$(BUILD)

.PHONY: all deps build build-times demo wheel deb test test-long fuzz bench docs check asan tsan format clean help
all: build

help:
	@sed -n 's/^# //p' Makefile

deps:
	@DRY_RUN=$(DRY_RUN) tools/setup.sh

# What `make demo` configured is without tests.
build: deps
	@grep -qs '^SLUICE_TESTS:BOOL=ON' $(BUILD)/CMakeCache.txt || \
	  cmake --preset $(PRESET) -DSLUICE_TESTS=ON -DSLUICE_BENCHMARKS=ON -DSLUICE_SERVING=ON
	@cmake --build --preset $(PRESET) -j $(JOBS)

# The first result soon: the server, and what it needs, come after it.
demo:
	@tools/setup.sh demo
	@test -f $(BUILD)/build.ninja || \
	  cmake --preset $(PRESET) -DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF -DSLUICE_SERVING=OFF
	@cmake --build --preset $(PRESET) -j $(JOBS) --target sluice_python plan-viz cpp_runner
	$(PYTHON) examples/train_digits.py
	$(PYTHON) -m sluice.distributed.launch --nproc_per_node 2 examples/distributed_digits.py
	$(PYTHON) examples/train_photographs.py
	@tools/setup.sh serving
	@grep -qs '^SLUICE_SERVING:BOOL=ON' $(BUILD)/CMakeCache.txt || cmake --preset $(PRESET) -DSLUICE_SERVING=ON
	@cmake --build --preset $(PRESET) -j $(JOBS) --target sluice-serve
	$(PYTHON) examples/serving/demo.py

wheel: deps
	$(PYTHON) tools/packages/wheels.py --python $(PYTHONS)

deb: deps
	@cmake --preset deb
	@cmake --build --preset deb -j $(JOBS)
	cpack --config build/deb/CPackConfig.cmake -B dist
	rm -rf dist/_CPack_Packages
	python3 tools/packages/check.py dist/*_$$(dpkg --print-architecture).deb

test: build
	@tools/test.sh $(BUILD) $(JOBS)

test-long: build
	tools/test_long.sh $(BUILD) $(ONLY)

fuzz:
	tools/fuzz.sh $(or $(SECONDS_EACH),60)

build-times:
	@python3 tools/build_times.py $(BUILD)

bench: build
	@tools/setup.sh bench || echo "bench: peers of serve.* could not be installed; their columns stay empty" >&2
	$(PYTHON) benchmarks/run.py $(if $(ONLY),--only $(ONLY))

# The reference is made from the Python module, so one is built where there is none.
docs:
	@tools/setup.sh docs
	@test -d $(BUILD)/python/sluice || { cmake --preset $(PRESET) -DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF && \
	  cmake --build --preset $(PRESET) -j $(JOBS) --target sluice_python plan-viz; }
	$(PYTHON) tools/docs/build.py

check: build
	tools/check.sh
	@$(MAKE) test
	@python3 tools/check_features.py --report $(BUILD)/test_report

asan tsan: deps
	@test -f build/$@/build.ninja || cmake --preset $@
	@cmake --build --preset $@ -j $(JOBS)
	ctest --test-dir build/$@ --output-on-failure -j $(JOBS)

format:
	git ls-files '*.h' '*.cpp' | xargs .venv/bin/clang-format -i

clean:
	rm -rf build out
