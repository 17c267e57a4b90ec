"""Complete programs written for torch run with nothing changed but the import, and give torch's numbers; so do their graphs.

The programs are in tests/torch_scripts; the command that changes the import is the one of docs/migrating-from-pytorch.md.
"""

import contextlib
import functools
import io
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

import sluice as sl

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = {path.stem: path for path in sorted((ROOT / "tests/torch_scripts").glob("*.py"))}
WITH_GRAPHS = [name for name, path in SCRIPTS.items() if "--graph" in path.read_text()]
SED = re.search(r"^sed -E -i '(.*)' script\.py$", (ROOT / "docs/migrating-from-pytorch.md").read_text(), re.M)[1]
COUNT_GRAPHS = """
import sys
from sluice._graph import graph
print(next(graph._counter), file=sys.stderr)
"""

def lines(text):
    return [line.split() for line in text.splitlines()]


@functools.cache
def torchs(name):
    out = io.StringIO()
    argv, sys.argv = sys.argv, [str(SCRIPTS[name])]
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        sys.argv = argv
    return lines(out.getvalue())


@functools.cache
def changed(name):
    done = subprocess.run(["sed", "-E", SED, SCRIPTS[name]], capture_output=True, text=True, check=True)
    assert not re.search(r"^ *(import|from) torch", done.stdout, re.M)
    return done.stdout


def is_number(word):
    return re.fullmatch(r"-?\d.*", word) is not None


def assert_close(got, expected, tolerance):
    assert len(got) == len(expected) > 8
    for ours, theirs in zip(got, expected):
        assert len(ours) == len(theirs), (ours, theirs)
        for a, b in zip(ours, theirs):
            if is_number(b) and not b.isdigit():  # a loss; steps, tokens and words are equal
                assert abs(float(a) - float(b)) <= tolerance * abs(float(b)), (ours, theirs)
            else:
                assert a == b, (ours, theirs)


@pytest.fixture(scope="module")
def eager():
    return {}


def eager_lines(name, eager, run_script):
    if name not in eager:
        done = run_script(changed(name))
        assert done.returncode == 0, done.stderr
        eager[name] = lines(done.stdout)
    return eager[name]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_gives_torchs_numbers(name, eager, run_script):
    assert_close(eager_lines(name, eager, run_script), torchs(name), 1e-4)


@pytest.mark.parametrize("name", WITH_GRAPHS)
def test_its_graph_gives_the_eager_numbers(name, eager, run_script):
    expected = eager_lines(name, eager, run_script)
    done = run_script(changed(name) + COUNT_GRAPHS, arguments=["--graph"])
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) > 0, "no graph was made"
    assert_close(lines(done.stdout), expected, 1e-5)


def test_there_are_twelve_scripts_and_ten_graphs():
    assert len(SCRIPTS) >= 12 and len(WITH_GRAPHS) >= 10


def rows_of_messages():
    page = (ROOT / "docs/migrating-from-pytorch.md").read_text()
    table = page[page.index("| you wrote |"):].splitlines()[2:]
    return [tuple(re.findall(r"`([^`]+)`", cell)[0] for cell in row.split("|")[1:3]) for row in table]


@pytest.mark.parametrize("code, message", rows_of_messages())
def test_a_message_of_the_page_is_what_is_said(code, message):
    class Branch(sl.nn.Graph):
        def build(self, x):
            return x if x.sum() > 0 else -x

    class Double(sl.nn.Graph):
        def build(self, x):
            return x * 2

    w = sl.ones(2, requires_grad=True)
    names = {"torch": sl, "model": sl.nn.Linear(2, 2), "branch": Branch(), "double": Double(), "x": sl.ones(2), "w": w,
             "loss": w.exp().sum()}
    with pytest.raises((sl.Error, RuntimeError, AttributeError)) as raised:
        exec(code, names)
    assert message in str(raised.value)
