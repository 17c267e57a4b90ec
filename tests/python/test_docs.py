"""Every code block of README and docs runs; links lead somewhere; pages stay short."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl
from sluice._base.tools import find_tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN_TEST = {"getting-started.md", "serving.md", "serving-more.md"}  # run as a whole: tests/packaging, tests/serving/python
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


# Lines that need the machine or a quarter of an hour: what runs them.
RUN_ELSEWHERE = {
    "make wheel": "tests/packaging/test_wheel.py",                  # builds a wheel, and installs it as the next line does
    "pip install dist/sluice-*.whl": "tests/packaging/test_wheel.py",
    "make build": "Makefile",                                       # has built what runs this test
    ". ./activate": "tests/python/test_docs.py",                    # below
    "SLUICE_DUMP_IR=out/ir python examples/train_digits.py --epochs 1": "tests/packaging/test_wheel.py",  # without the variable
}


@pytest.mark.parametrize("line", list(commands()))
def test_shell_line_runs(line, bundle, tmp_path):
    """As written, on a small bundle in place of the reader's, with the programs of this build."""
    if line in RUN_ELSEWHERE:
        assert (ROOT / RUN_ELSEWHERE[line]).exists()
        if line.startswith("make "):
            assert re.search(rf"^[\w ]*\b{line.split()[1]}\b[\w ]*:", (ROOT / "Makefile").read_text(), re.M)
        return
    for name in ("train.py", "serve.py"):  # the reader's
        (tmp_path / name).write_text("import sluice.distributed as dist\n\ndist.init()\ndist.barrier()\ndist.destroy()\n")
    np.save(tmp_path / "digits.npy", np.linspace(-1, 1, 24, dtype="float32").reshape(6, 4))  # rows for the bundle
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shutil.copy(bundle / "plan.json", tmp_path)
    links = next(param.values[0] for param in blocks("json") if '"links"' in param.values[0])
    (tmp_path / "links.json").write_text(links)
    command = re.sub(r"\bout/(digits/bundle|train|mlp)\b", str(bundle), line)
    build = pathlib.Path(find_tool("plan-viz")).parents[1]
    if "build/release/tests/" in command and not (build / "tests").is_dir():
        pytest.skip("the C++ tests are not built")
    command = command.replace("build/release/", f"{build}/")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=in_build(), timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


# Says who runs the blocks of a page: by language, and by page and language.
RUN_BY = {
    "python": "tests/python/test_docs.py", "sh": "tests/python/test_docs.py", "json": "tests/python/test_docs.py",
    ("getting-started.md", "*"): "tests/packaging/test_getting_started.py",
    **{(page, "*"): "tests/serving/python/test_serving_page.py" for page in ("serving.md", "serving-more.md")},
    ("plan-viz.md", "bash"): "tests/python/test_lesson.py",
    ("recordings.md", "bash"): "tests/python/test_recordings.py",
    ("recordings.md", "sql"): "tests/python/test_perfetto.py",
    ("adding-a-device.md", "bash"): "tests/packaging/test_adding_a_device.py",
    ("adding-an-op.md", "cpp"): "tests/python/test_adding_an_op.py",
    ("adding-an-option.md", "cpp"): "tests/python/test_adding_an_option.py",
    **{(page, language): "tests/packaging/test_embedding.py"
       for page in ("embedding.md", "compiling-in-cpp.md", "custom-ops.md", "sessions-as-actors.md")
       for language in ("bash", "cmake", "c", "cpp", "py")},
    ("backends.md", "c"): "tests/python/test_foreign_backends.py",
    ("parallel.md", "py"): "tests/python/test_parallel_transformers.py",
    **{("small-machines.md", language): "tests/packaging/test_c_output.py" for language in ("bash", "c")},
    **{(page, "c++"): "tests/packaging/test_embedding.py" for page in ("embedding.md", "serving-embedded.md")},
}
# Blocks marked `text`, or not at all, are no programs, but for these, which are run otherwise than as they stand.
NOT_RUN_AS_THEY_STAND = {
    "backends.md": "a library of the reader's; tests/python/test_foreign_backends.py configures with one",
    "ecosystem.md": "timm, which lies beside the environment; tests/ecosystem and tests/python/test_vision.py run it there",
    "migrating-from-pytorch.md": "the reader's script, and torchvision; tests/torch_scripts has such",
    "getting-started.md": "a server that stays; tests/serving/python/test_serving_page.py starts one",
    "serving.md": "installs packages; tests/packaging/test_debs.py builds and unpacks them",
}
PROGRAM = re.compile(r"^(python|sluice-\w+|plan-viz|make|apt|pip|curl|sed|cmake|import|from|api::|#include)\b", re.M)


def fenced():
    for page in PAGES:
        for language, text in re.findall(r"^ *```([\w+]*)\n(.*?)^ *```", page.read_text(), re.S | re.M):
            yield page, language, text


def test_every_block_has_a_test_that_runs_it():  # MLX-06
    """No page may gain a program that no test runs; what is not run as it stands is listed with the reason."""
    excused = set()
    for page, language, text in fenced():
        if language in ("text", ""):
            if PROGRAM.search(text):
                assert page.name in NOT_RUN_AS_THEY_STAND, (page.name, text)
                excused.add(page.name)
            continue
        runner = RUN_BY.get((page.name, "*")) or RUN_BY.get((page.name, language)) or RUN_BY.get(language)
        assert runner is not None, f"{page.name}: a block of {language} that no test runs:\n{text}"
        assert (ROOT / runner).exists()
    assert excused == set(NOT_RUN_AS_THEY_STAND)


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
    assert page.name in ("features.md", "figures.md") or len(page.read_text().splitlines()) <= 250  # those are tables


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_dot_is_drawn_by_graphviz(bundle):
    text = subprocess.run([find_tool("plan-viz"), "dot", str(bundle)], capture_output=True, check=True).stdout
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True)
    assert drawn.returncode == 0 and b"<svg" in drawn.stdout
