"""examples/tiny_*.py: small machines that learn while they work."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import sluice as sl
from test_tiny import check

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples are not here")


def shares(told, when):
    old, new = re.search(rf"^{when}: ([\d.]+)% of 0 to 4, ([\d.]+)% of 5 to 9$", told, re.M).groups()
    return float(old), float(new)


def test_new_digits_are_learned_while_the_net_answers(tmp_path, count):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    done = subprocess.run([sys.executable, EXAMPLES / "tiny_digits.py", "--steps", "800", "--known", "3", "--out", tmp_path], text=True,
                          capture_output=True, timeout=600, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    (old_before, new_before), (old, new) = (shares(done.stdout, when) for when in ("before", "after"))
    count("% right of new digits after learning on the machine", new, f"{new_before} before; {old} of old ones, {old_before} before")
    assert new_before < 1 and new > 75 and old > old_before - 20
    windows = re.findall(r"right before learning:\s+([\d.]+)% of new,\s+([\d.]+)% of old", done.stdout)
    assert len(windows) == 8 and float(windows[-1][0]) > float(windows[0][0]) + 20  # it answers all the time, better and better
    assert all(float(known) > 80 for _, known in windows)
    assert check(tmp_path, "check") == 3
