"""Shared by every Python test: soak tests, and the counts they print at the end of a run."""

import os
import signal

import pytest

os.environ.setdefault("SLUICE_CACHE", "off")  # a test that finds a plan of an earlier run would compile nothing
LONG = os.environ.get("SLUICE_LONG", "0") not in ("", "0")


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: repeats one check on many inputs: some in `make test`, all in `make test-long`")
    config.pluginmanager.register(_Counts())
    # A shell starts background jobs with Ctrl-C ignored, which they pass on; tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Counts:
    """Collects the counts from reports, which come from the processes of `pytest -n` too."""

    def __init__(self):
        self.lines = []

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            self.lines += [line for name, line in report.user_properties if name == "count"]

    def pytest_terminal_summary(self, terminalreporter):
        for line in self.lines:
            terminalreporter.write_line(line)


@pytest.fixture
def repetitions():
    """repetitions(quick, full): how often to repeat."""
    return lambda quick, full: full if LONG else quick


@pytest.fixture
def count(request):
    """count(what, n, unit): says how many of something a soak test did."""
    return lambda what, n, unit: request.node.user_properties.append(("count", f"count: {what}: {n} {unit}"))
