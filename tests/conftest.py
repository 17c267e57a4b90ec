"""Shared by every Python test: soak tests, and the counts they print at the end of a run."""

import os
import signal

import pytest

LONG = os.environ.get("SLUICE_LONG", "0") not in ("", "0")
COUNTS = pytest.StashKey[list[str]]()


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: repeats one check on many inputs: some in `make test`, all in `make test-long`")
    config.stash[COUNTS] = []
    # A shell starts background jobs with Ctrl-C ignored, which they pass on; tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash[COUNTS]:
        terminalreporter.write_line(line)


@pytest.fixture
def repetitions():
    """repetitions(quick, full): how often to repeat."""
    return lambda quick, full: full if LONG else quick


@pytest.fixture
def count(request):
    """count(what, n, unit): says how many of something a soak test did."""
    return lambda what, n, unit: request.config.stash[COUNTS].append(f"count: {what}: {n} {unit}")
