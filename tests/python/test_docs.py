"""Every code block of README and docs runs; links lead somewhere; pages stay short."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import sluice as sl
from sluice._tools import find_tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN_TEST = {"getting-started.md", "serving.md"}  # run as a whole: tests/packaging, tests/serving/python
LINKING = [*PAGES, ROOT / "examples/README.md", ROOT / "examples/serving/README.md", *sorted((ROOT / "docs/adr").glob("*.md"))]


def blocks(language):
    for page in PAGES:
        if page.name in OWN_TEST:
            continue
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
            yield pytest.param(line.split(" #")[0].strip(), id=f"{param.id}-{i}")


def in_build():
    """The environment after `. ./activate`."""
    folders = [str(pathlib.Path(find_tool("plan-viz")).parent), str(pathlib.Path(sys.executable).parent)]
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    return {**os.environ, "PATH": os.pathsep.join([*folders, os.environ["PATH"]]), "PYTHONPATH": path}


@pytest.mark.parametrize("line", list(commands()))
def test_shell_line_runs(line, bundle, tmp_path):
    words = [w for w in line.split() if not re.match(r"[A-Z_]+=", w)]
    program = pathlib.Path(words[0]).name
    if program == "make":  # the target is there; running it is what a person does
        target = re.compile(rf"^[\w ]*\b{words[1]}\b[\w ]*:", re.M)
        assert target.search((ROOT / "Makefile").read_text())
    elif program in ("plan-viz", "sluice-info", "sluice-compile", "python", "taskset") and "examples/" not in line:
        for name in ("train.py", "serve.py"):  # the reader's
            (tmp_path / name).write_text("import sluice.distributed as dist\n\ndist.init()\ndist.barrier()\ndist.destroy()\n")
        shutil.copy(bundle / "plan.json", tmp_path)
        links = next(param.values[0] for param in blocks("json") if '"links"' in param.values[0])
        (tmp_path / "links.json").write_text(links)
        command = re.sub(r"\bout/(digits/bundle|train)\b", str(bundle), line)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=in_build())
        assert done.returncode == 0, done.stderr
    elif line == ". ./activate":  # has a test of its own
        assert (ROOT / "activate").exists()
    elif program == "pip":  # of what `make wheel` makes; tests/packaging/test_wheel.py installs it
        assert line == "pip install dist/sluice-*.whl" and "-w dist" in (ROOT / "Makefile").read_text()
    else:  # a program of the tree with options
        path = next(w for w in words if "=" not in w and w != "python")
        assert (ROOT / path).exists() or path.startswith("build/release/tests/"), line


SHELLS = [pytest.param(shell, marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed"))
          for shell in ("bash", "zsh")]


@pytest.fixture
def tree(tmp_path):
    """A source tree with this build, in a folder whose name has a space."""
    tree = tmp_path / "a tree"
    (tree / "build").mkdir(parents=True)
    (tree / "build/release").mkdir()
    (tree / "build/release/python").symlink_to(pathlib.Path(sl.__file__).parents[1])
    (tree / "build/release/tools").symlink_to(pathlib.Path(find_tool("plan-viz")).parent)
    (tree / ".venv").mkdir()
    (tree / ".venv/bin").symlink_to(pathlib.Path(sys.executable).parent)
    shutil.copy(ROOT / "activate", tree / "activate")
    return tree


def in_shell(shell, command, cwd, **env):
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), **env}
    return subprocess.run([shutil.which(shell), "-c", command], capture_output=True, text=True, cwd=cwd, env=bare)


@pytest.mark.parametrize("shell", SHELLS)
def test_activate_makes_the_build_usable(shell, tree):
    use = "python -c 'import sluice; print(sluice.ones(2).sum().item())' && plan-viz --help && sluice-info && sluice-compile --help"
    for command, cwd in ((f". ./activate && {use}", tree), (f". '{tree}/activate' && {use}", "/")):
        done = in_shell(shell, command, cwd)
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert done.stdout.startswith("2.0\n") and "plan_schema" in done.stdout and "--to" in done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_activate_keeps_what_is_set_and_may_be_repeated(shell, tree):
    once = in_shell(shell, '. ./activate; echo "$PATH|$PYTHONPATH"', tree, PYTHONPATH="/mine")
    twice = in_shell(shell, '. ./activate; . ./activate; echo "$PATH|$PYTHONPATH"', tree, PYTHONPATH="/mine")
    assert once.stdout == twice.stdout and ":/usr/bin:/bin|" in once.stdout and once.stdout.endswith(":/mine\n")
    strict = in_shell(shell, "set -u; . ./activate", tree)
    assert strict.returncode == 0 and not strict.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_activate_without_a_build_says_what_to_do(shell, tree):
    done = in_shell(shell, '. ./activate; echo "$? $PATH"', tree, PRESET="nosuch")
    assert "run 'make build' first" in done.stderr and done.stdout == "1 /usr/bin:/bin\n"


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", t)).strip().lower().replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_short(page):
    assert page.name == "features.md" or len(page.read_text().splitlines()) <= 250  # features.md is a table


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_dot_is_drawn_by_graphviz(bundle):
    text = subprocess.run([find_tool("plan-viz"), "dot", str(bundle)], capture_output=True, check=True).stdout
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True)
    assert drawn.returncode == 0 and b"<svg" in drawn.stdout
