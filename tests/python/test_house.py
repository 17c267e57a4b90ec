"""tools/check_layers.py and tools/check_readmes.py: circles of rooms, crowded folders and stale READMEs are found."""

import importlib
import pathlib
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


def test_the_tree_passes():
    assert importlib.import_module("check_layers").check(ROOT) == []
    assert importlib.import_module("check_readmes").check(ROOT) == []
