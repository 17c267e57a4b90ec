"""Every code block of README and docs runs."""

import pathlib
import re
import shutil
import subprocess

import pytest

import sluice as sl
from sluice._tools import find_tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language):
    for page in PAGES:
        for i, text in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)):
            yield pytest.param(text, id=f"{page.name}-{i}")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    class Small(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = sl.nn.Linear(4, 2)

        def build(self, x):
            return self.net(x).relu()

    graph = Small()
    graph(sl.ones(3, 4))
    path = tmp_path_factory.mktemp("docs") / "bundle"
    sl.save(graph, path)
    return path


@pytest.mark.parametrize("source", list(blocks("python")))
def test_python_block_runs(source, run_script, tmp_path):
    for folder in ("docs", "tools"):  # blocks run at the tree's root, but write elsewhere
        (tmp_path / folder).symlink_to(ROOT / folder)
    done = run_script(source)
    assert done.returncode == 0, done.stderr


def test_plans_of_the_docs_are_verified(tmp_path):
    plans = [param.values[0] for param in blocks("json") if '"schema_version"' in param.values[0]]
    assert plans
    for text in plans:
        (tmp_path / "plan.json").write_text(text)
        done = subprocess.run([find_tool("plan-viz"), "verify", tmp_path / "plan.json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def commands():
    for param in blocks("sh"):
        for i, line in enumerate(param.values[0].splitlines()):
            yield pytest.param(line.split("#")[0].strip(), id=f"{param.id}-{i}")


@pytest.mark.parametrize("line", list(commands()))
def test_shell_line_runs(line, bundle, tmp_path):
    words = line.split()
    if words[0] == "make":  # the target is there; running it is what a person does
        target = re.compile(rf"^[\w ]*\b{words[1]}\b[\w ]*:", re.M)
        assert target.search((ROOT / "Makefile").read_text())
    elif pathlib.Path(words[0]).name in ("plan-viz", "sluice-info"):
        arguments = [str(bundle) if w == "out/digits/bundle" else w for w in words[1:]]
        done = subprocess.run([find_tool(pathlib.Path(words[0]).name), *arguments], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    else:  # a program of the tree with options
        program = next(w for w in words if "=" not in w and not w.startswith(".venv"))
        assert (ROOT / program).exists() or program.startswith("build/release/tests/"), line


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_dot_is_drawn_by_graphviz(bundle):
    text = subprocess.run([find_tool("plan-viz"), "dot", str(bundle)], capture_output=True, check=True).stdout
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True)
    assert drawn.returncode == 0 and b"<svg" in drawn.stdout
