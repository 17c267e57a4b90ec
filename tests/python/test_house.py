"""What tools/check_*.py and tools/check_threads.sh refuse: circles of rooms, crowded folders, stale READMEs,
forgotten locks, and what is too long."""

import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
pytestmark = pytest.mark.skipif(not (TOOLS / "check_layers.py").exists(), reason="not a checkout")


@pytest.fixture(autouse=True)
def tools_on_the_path(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])


def write(root, **files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_an_include_up_the_rooms_is_refused(tmp_path):
    layers = importlib.import_module("check_layers")
    write(tmp_path, **{"plan/plan.h": '#include "plan/json/json.h"\n', "plan/json/json.h": '#include "plan/plan.h"\n',
                       "plan/verify/quota.h": '#include "plan/pack/packing.h"\n', "plan/pack/packing.h": ""})
    found = layers.check(tmp_path)
    assert "plan/plan.h:1: plan may not include plan/json, which stands above it" in found
    assert "plan/verify/quota.h:1: plan/verify may not include plan/pack, which stands beside it" in found
    assert not any(error.startswith("plan/json/json.h:1") for error in found)


def test_a_room_without_a_floor_and_a_crowded_one_are_refused(tmp_path):
    layers = importlib.import_module("check_layers")
    write(tmp_path, **{"plan/attic/old.h": ""}, **{f"plan/time/file_{i}.cpp": "" for i in range(layers.MOST_SOURCES + 1)})
    found = layers.check(tmp_path)
    assert "plan/attic/old.h: plan/attic has no floor; ROOMS in tools/check_layers.py must name it" in found
    assert "plan/time: 61 sources; at most 60: divide them into rooms" in found


def test_a_readme_that_names_what_is_gone_is_refused(tmp_path):
    readmes = importlib.import_module("check_readmes")
    write(tmp_path, **{"plan/time/README.md": "`costs.h` and `gone.h`, `verify_<concern>.cpp`, `json_{read,write}.cpp`\n",
                       "plan/time/costs.h": "", "plan/time/json_write.cpp": "", "plan/pack/packing.h": "",
                       "plan/json/README.md": "line\n" * 26})
    found = readmes.check(tmp_path)
    assert "plan/time/README.md:1: `gone.h` is no file" in found
    assert "plan/time/README.md:1: `verify_<concern>.cpp` is no file" in found
    assert "plan/pack: no README.md; it must say what is here, its main types, and where to begin" in found
    assert "plan/json/README.md: 26 lines; at most 25" in found
    assert not any("costs.h" in error or "json_" in error for error in found)


def test_a_long_file_and_a_long_function_are_refused(tmp_path):
    sizes = importlib.import_module("check_sizes")
    body = "".join(f"  call({i});\n" for i in range(79))
    member = "class Engine {\n public:\n  void run(int steps) {\n" + body.replace("  c", "    c") + "  }\n};\n"
    python = "class Engine:\n    def run(self, steps):\n" + "        call()\n" * 80
    write(tmp_path, **{"plan/short.cpp": "void run() {\n" + body[:-len("  call(78);\n")] + "}\n",
                       "plan/long.cpp": "namespace sluice {\n\nvoid Engine::run(\n    int steps) {\n" + body + "}\n\n}\n",
                       "plan/member.h": member, "sluice/long.py": python,
                       "plan/many.cpp": "int x;\n" * 501, "tests/many.cpp": "int x;\n" * 501})
    subprocess.run("git init -q . && git add .", shell=True, cwd=tmp_path, check=True)
    assert sizes.check(tmp_path) == ([
        "plan/long.cpp:3: Engine::run: 82 lines; at most 80: split it into steps with names",
        "plan/many.cpp: 501 lines; at most 500: split it along what it holds",
        "plan/member.h:3: run: 81 lines; at most 80: split it into steps with names",
        "sluice/long.py:2: run: 81 lines; at most 80: split it into steps with names"], 6, 4)


def test_the_tree_passes():
    assert importlib.import_module("check_layers").check(ROOT) == []
    assert importlib.import_module("check_readmes").check(ROOT) == []


def test_what_is_not_implemented_says_what_must_be():
    bare = [f"{file.relative_to(ROOT)}:{number}" for file in sorted((ROOT / "python/sluice").rglob("*.py"))
            for number, line in enumerate(file.read_text().splitlines(), 1) if re.search(r"raise NotImplementedError(\(\))?\s*$", line)]
    assert bare == []


COUNTER = """#include "base/mutex.h"

namespace sluice {
class Counter {
 public:
  int next() {
    LOCK
    return ++count_;
  }

 private:
  Mutex mutex_;
  int count_ SLUICE_GUARDED_BY(mutex_) = 0;
};
}  // namespace sluice
"""


def threads_checked(root, path=None):
    """What tools/check_threads.sh says of a checkout that has the locks and a counter."""
    for name in ["base/mutex.h", "base/pause.h", "base/thread_annotations.h", "tools/check_threads.sh"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    subprocess.run("git init -q && git add .", shell=True, cwd=root, check=True)
    done = subprocess.run(["bash", root / "tools/check_threads.sh"], capture_output=True, text=True,
                          env={**os.environ, **({"PATH": str(path)} if path else {})})
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(not any(re.fullmatch(r"clang\+\+(-\d+)?", file.name) for folder in os.get_exec_path()
                            for file in pathlib.Path(folder).glob("clang++*")), reason="clang++ is not installed")
def test_a_field_that_is_read_without_its_lock_is_refused(tmp_path):
    good = write(tmp_path / "good", **{"memory/counter.h": COUNTER.replace("LOCK", "const MutexLock lock(mutex_);")})
    assert threads_checked(good) == (0, "threads: ok (2 headers, 0 sources)\n")
    bad = write(tmp_path / "bad", **{"memory/counter.h": COUNTER.replace("LOCK", "")})
    status, said = threads_checked(bad)
    assert status == 1 and "memory/counter.h: a lock is not held where it must be" in said
    assert "requires holding mutex 'mutex_'" in said


def test_locks_are_not_looked_at_where_clang_is_not_installed(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ["bash", "dirname", "grep", "sort", "tail"]:
        (programs / name).symlink_to(shutil.which(name))
    write(tmp_path / "tree", **{"memory/counter.h": COUNTER.replace("LOCK", "")})
    status, said = threads_checked(tmp_path / "tree", programs)
    assert status == 0 and said == "threads: skipped: there is no clang++ (tools/setup.sh installs it)\n"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git must know the files")
def test_the_trees_files_and_functions_are_short():
    sizes = importlib.import_module("check_sizes")
    bad, _, functions = sizes.check(ROOT)
    assert bad == []
    assert functions > 10_000
