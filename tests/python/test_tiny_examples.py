"""examples/tiny_*.py: small machines that learn while they work."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import sluice as sl
from test_tiny import arm, check

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples are not here")


def shares(told, when):
    old, new = re.search(rf"^{when}: ([\d.]+)% of 0 to 4, ([\d.]+)% of 5 to 9$", told, re.M).groups()
    return float(old), float(new)


def ran(example, *words):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    done = subprocess.run([sys.executable, EXAMPLES / example, *map(str, words)], text=True, capture_output=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_new_digits_are_learned_while_the_net_answers(tmp_path, count):
    told = ran("tiny_digits.py", "--steps", 800, "--known", 3, "--out", tmp_path)
    (old_before, new_before), (old, new) = (shares(told, when) for when in ("before", "after"))
    count("% right of new digits after learning on the machine", new, f"{new_before} before; {old} of old ones, {old_before} before")
    assert new_before < 1 and new > 75 and old > old_before - 20
    windows = re.findall(r"right before learning:\s+([\d.]+)% of new,\s+([\d.]+)% of old", told)
    assert len(windows) == 8 and float(windows[-1][0]) > float(windows[0][0]) + 20  # it answers all the time, better and better
    assert all(float(known) > 80 for _, known in windows)
    assert check(tmp_path, "check") == 3


def numbers(told, pattern):
    return [float(number) for number in re.search(pattern, told).groups()]


@pytest.fixture(scope="module")
def keywords(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keywords")
    return folder, ran("tiny_keywords.py", "--sounds", 900, "--epochs", 5, "--known", 6, "--out", folder)


def test_words_are_heard_without_floats_between_layers(keywords, count):
    folder, told = keywords
    floats, integers = numbers(told, r"not heard before: ([\d.]+)% in floats, ([\d.]+)% in integers")
    count("% right of words that were not heard before, as integers", integers, f"{floats} in floats")
    assert floats > 85 and integers > floats - 3
    assert check(folder, "sanitized") == 6
    assert "requantized_i" in (folder / "keywords.c").read_text()


@arm
def test_words_are_heard_on_a_microcontroller(keywords):
    assert check(keywords[0], "run-cortex-m4") == 6


@pytest.fixture(scope="module")
def anomaly(tmp_path_factory):
    folder = tmp_path_factory.mktemp("anomaly")
    return folder, ran("tiny_anomaly.py", "--steps", 600, "--known", 10, "--out", folder)


def test_a_pump_is_learned_by_the_machine_that_watches_it(anomaly, count):
    folder, told = anomaly
    home, before = numbers(told, r"told apart: ([\d.]+) at the pump it knows, ([\d.]+) at the other one")
    after, = numbers(told, r"told apart: ([\d.]+) after learning")
    first, last = numbers(told, r"mean error: ([\d.]+) in the first \d+ steps, ([\d.]+) in the last ones")
    count("share of pairs of well and ill pumps that are told apart after learning", after, f"{before} before, {home} at the first pump")
    assert home > 0.9 and after > 0.9 and after > before + 0.05 and last < 0.6 * first
    assert check(folder, "sanitized") == 10


@arm
def test_a_pump_is_learned_on_a_microcontroller(anomaly):
    assert check(anomaly[0], "run-cortex-m4") == 10
