"""tools/test.sh, test_report.py and check_features.py: every phase of `make test` runs, and no skip or figure hides a promise."""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
pytestmark = pytest.mark.skipif(not (TOOLS / "test.sh").exists(), reason="not a checkout")

CPP = """<testsuite name="Linux-c++">
<testcase name="plan.Deadlock.IsFound" classname="plan.Deadlock.IsFound" status="run"><system-out>fine</system-out></testcase>
<testcase name="ops.All/EveryOp.RunsOn/conv2d" classname="x" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>[ RUN      ] All/EveryOp.RunsOn/conv2d
tests/ops/device_test.cpp:23: Skipped
no kernel

[  SKIPPED ] All/EveryOp.RunsOn/conv2d</system-out></testcase>
%s</testsuite>"""
PYTHON = """<testsuites><testsuite name="pytest">
<testcase classname="tests.python.test_a" name="test_one[x]" file="tests/python/test_a.py"/>
<testcase classname="tests.python.test_a" name="test_two" file="tests/python/test_a.py">
<skipped type="pytest.skip" message="torchvision is not installed">tests/python/test_a.py:1: torchvision is not installed</skipped></testcase>
<testcase classname="" name="tests.packaging.test_b"><skipped message="collection skipped">('test_b.py', 2, 'Skipped: no dpkg')</skipped></testcase>
%s</testsuite></testsuites>"""
NOT_BUILT = """<testcase name="sim_tests_NOT_BUILT" status="notrun"><skipped message="Unable to find executable"/></testcase>"""
FAILED = '<testcase classname="c" name="test_bad" file="tests/python/test_a.py"><failure message="no"/></testcase>'


@pytest.fixture
def tool(monkeypatch):
    """tool(name): a module of tools/."""
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module


@pytest.fixture
def phases(tmp_path):
    """phases(failing, silent): runs tools/test.sh with programs in place of ctest and pytest, which fail in the phases of such
    names, or write no report there."""
    build = tmp_path / "build"
    (build / "Testing/Temporary").mkdir(parents=True)
    (build / "Testing/Temporary/LastTest.log").write_text("count: plans: 7 of 7\n")
    stand_in = tmp_path / "bin/ctest"
    stand_in.parent.mkdir()
    stand_in.write_text(f"""#!{sys.executable}
import os, pathlib, runpy, sys
if sys.argv[1].endswith("test_report.py"):
    sys.argv.pop(0)
    runpy.run_path(sys.argv[0], run_name="__main__")
report = pathlib.Path(next(a for a in sys.argv if a.endswith(".xml")))
failing = report.stem in os.environ["FAILING"].split()
if report.stem not in os.environ["SILENT"].split():
    report.write_text(({CPP!r} % {NOT_BUILT!r} if failing else {CPP!r} % "") if report.stem == "cpp" else
                      {PYTHON!r} % ({FAILED!r} if failing else ""))
sys.exit(failing)
""")
    stand_in.chmod(0o755)

    def run(failing="", silent=""):
        env = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}", "PYTHON": str(stand_in), "FAILING": failing, "SILENT": silent}
        done = subprocess.run([TOOLS / "test.sh", build, "1"], capture_output=True, text=True, env=env)
        return done.returncode, done.stdout.splitlines()

    return run


def test_every_phase_runs_though_one_fails_and_the_last_lines_name_it(phases):
    status, lines = phases(failing="cpp python packaging", silent="packaging")
    assert status == 1 and lines[-1] == "test: FAILED: cpp python packaging report"
    assert [line for line in lines if line.startswith("== ") and ":" not in line] == [f"== {p}" for p in "cpp python ecosystem programs packaging".split()]
    assert "count: plans: 7 of 7" in lines and "failed: python: tests/python/test_a.py::test_bad" in lines
    assert any(line.startswith("failed: packaging: no report ") for line in lines) and "failed: cpp: sim_tests_NOT_BUILT" in lines


def test_skips_are_counted_by_reason(phases):
    status, lines = phases()
    assert status == 0 and lines[-1] == "test: all phases passed"
    skipped = [line for line in lines if line.startswith("skipped: ")]
    assert skipped == ["skipped:    4 ecosystem packaging programs python: torchvision is not installed",
                       "skipped:    4 ecosystem packaging programs python: no dpkg", "skipped:    1 cpp: no kernel"]
    assert lines[-2] == "tests: 5 passed, 0 failed, 9 skipped"


@pytest.fixture
def outcomes(tool, tmp_path):
    """The outcomes in the two reports, by test."""
    report = tool("test_report")
    for name, text in (("cpp", CPP % ""), ("python", PYTHON % "")):
        (tmp_path / f"{name}.xml").write_text(text)
    return report.by_test(r for name in ("cpp", "python") for r in report.read(tmp_path / f"{name}.xml"))


@pytest.mark.parametrize("checks,problem", [
    (["tests/python/test_a.py::test_one"], None),
    (["tests/python/test_a.py::test_one", "tests/python/test_a.py::test_two"], None),
    (["tests/python/test_a.py::test_two"], "all its tests were skipped"),
    (["tests/python/test_a.py::test_two", "tests/ops/device_test.cpp::EveryOp.RunsOn"], "all its tests were skipped"),
    (["tests/plan/a_test.cpp::Deadlock.IsFound"], None),
    (["tests/python/test_a.py"], None),
    (["tests/python/test_a.py::test_gone"], "did not run"),
    (["examples/cpp_runner/main.cpp"], None),
    (["tests/torch_scripts/resnet18.py", "tests/ops/gradients_test.cpp"], None),
])
def test_a_row_of_skipped_tests_is_refused(tool, outcomes, checks, problem):
    found = list(tool("check_features").not_run(checks, outcomes))
    assert (problem in found[0]) if problem else not found


PAGE = """
Measured on 2030-01-02 on 2 cores: `make bench ONLY=a`

| workload | ours | peer | ratio | n | spread | unit | the peer |
|---|---:|---:|---:|---:|---:|---|---|
| a.one | 2.14 | 1.676 | 0.7847 | 15 | 2.0% | us | torch |
| a.two | 3 | 9 | 3 | 15 | 2.0% | ms/image | torch |
| a.two | 3 | 6 | 2 | 15 | 2.0% | ms/image | another |
| a.alone | 0.5 |  |  | 3 | 0.0% | s |  |
"""


@pytest.mark.parametrize("what,kept,said", [
    ("`a.one` <= 2.5 us", [True], "2.14 us, measured on 2030-01-02 on 2 cores"),
    ("`a.one` <= 2 us, and more", [False], "a.one <= 2 us: 2.14 us, measured on 2030-01-02 on 2 cores: BROKEN"),
    ("`a.one` <= 2 ms", [False], "the figure's unit is us"),
    ("`a.one` <= 2 u", [False], "the figure's unit is us"),
    ("(`a.two` >= 2.5x)", [False], "a.two >= 2.5x: a.two, of 2: 2x, measured"),
    ("`a.two` <= 3 ms/image; `a.alone` <= 1 s", [True, True], "a.alone <= 1 s"),
    ("`a.alone` >= 1x", [False], "no ratio"),
    ("`a.three` >= 1x", [False], "no such line; measure it by `make bench ONLY=a.three`"),
    ("`a.t*` <= 3.5", [True], "a.t* <= 3.5: a.two, of 2: 3, measured"),
    ("`a.*` <= 2.5", [False], "a.* <= 2.5: a.two, of 4: 3, measured on 2030-01-02 on 2 cores: BROKEN"),
    ("`a.one` <= 3 us, a.two >= 1x", [False, True], "1 bounds cannot be read"),
    ("at most 2 us", [], ""),
])
def test_bounds_of_rows_are_held_against_the_figures(tool, what, kept, said):
    features = tool("check_features")
    found = list(features.bounds_of(what, features.figures(PAGE)))
    assert [ok for _, ok in found] == kept and (not said or any(said in text for text, _ in found))


def test_a_row_without_a_test_must_say_a_bound(tool, tmp_path):
    features = tool("check_features")
    (tmp_path / "Makefile").write_text("bench:\n")
    row = "| A-01 | It is fast%s | `make bench` |\n"
    check = lambda end: features.check_page(row % end, features.figures(PAGE), None, tmp_path)  # noqa: E731
    errors, told, rows = check("")
    assert rows == 1 and "A-01: neither a test nor a bound" in errors[0] and not told
    errors, told, _ = check(": `a.one` <= 3 us")
    assert not errors and told == ["A-01: a.one <= 3 us: 2.14 us, measured on 2030-01-02 on 2 cores"]
    errors, told, _ = check(": `a.one` <= 1 us")
    assert len(errors) == 1 and "BROKEN" in errors[0] and not told

