"""docs/plan-viz.md teaches the tool on a run that is slower than it could be: its commands run in order, and find what they are said to."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import sluice as sl
from sluice._base.tools import find_tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "plan-viz.md"
COMMANDS = [line.split(" #")[0].strip() for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.S) for line in block.splitlines()]
DIFFERS = "plan-viz diff"  # its exit status says so


def run(command, folder):
    tools = [os.path.dirname(find_tool("plan-viz")), os.path.dirname(sys.executable)]
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder,
                          env={**os.environ, "PATH": os.pathsep.join([*tools, os.environ["PATH"]]), "PYTHONPATH": path})
    assert done.returncode == int(command.startswith(DIFFERS)), f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    """The folder in which all commands have run, and what each has printed."""
    folder = tmp_path_factory.mktemp("lesson")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder, {command: run(command, folder) for command in COMMANDS}


def of_json(folder, *words):
    return json.loads(run(" ".join(["plan-viz", *words, "--json"]), folder))


def test_the_training_learns_with_one_slot_and_with_two(lesson):
    told = [text for command, text in lesson[1].items() if "slow_digits.py" in command]
    assert len(told) == 2
    for text in told:
        first, last = map(float, re.search(r"loss ([\d.]+), at the end ([\d.]+)", text).groups())
        assert last < first / 3


def test_blame_says_that_the_input_waits_for_its_only_slot(lesson):
    (row,) = [row for row in of_json(lesson[0], "blame", "before.slt")["rows"] if row["name"] == "cpu:0/host0"]
    assert row["total_ns"] == sum(row[name] for name in row if name.endswith("_ns") and name != "total_ns")
    assert row["credit_ns"] > 0 and row["run_ns"] > 0
    assert [wait for wait in row["waits"] if wait["for"] == "credit" and wait["whom"] == "a slot of 'host_function'" and wait["ns"] > 0]


def test_bottleneck_says_what_a_slot_gains_and_it_is_gone_when_there_are_two(lesson):
    told = {name: of_json(lesson[0], "bottleneck", f"{name}.slt") for name in ("before", "after")}
    (slot,) = [one for one in told["before"]["slots"] if one["register"] == "host_function"]
    assert slot["period_ns"] < 0.97 * told["before"]["period_ns"]
    assert not [one for one in told["after"]["slots"] if one["register"] == "host_function"]
    assert "slots               1 of 16.0 KiB" in lesson[1]["plan-viz why before.slt host_function"]
    assert "slow_digits.py:" in lesson[1]["plan-viz why before.slt host_function"]


def test_the_plans_differ_by_one_slot_and_its_memory(lesson):
    told = lesson[1]["plan-viz diff before.json after.json"]
    assert re.search(r"^~ register host_function +quota: 1 -> 2$", told, re.M)
    assert set(re.findall(r"^[~+-] (\w+ \S+)", told, re.M)) == {"register host_function", "arena registers/host"}


def test_the_page_has_pictures_that_are_there(lesson):
    for picture in re.findall(r"\]\((images/slow-run-\w+\.png)\)", PAGE.read_text()):
        assert (PAGE.parent / picture).stat().st_size < 150_000
    assert (lesson[0] / "before.html").read_text().startswith("<!doctype html>")
