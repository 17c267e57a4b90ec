"""features(): every feature says its stage, has names that exist, and stands on the page that is made of the table."""

import pathlib
import subprocess
import sys

import sluice as sl
from sluice._names.features import STAGES, find, page

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_feature_has_a_stage_names_and_a_page():  # NG-33
    features = sl.features()
    assert len(features) > 20 and len({f.name for f in features}) == len(features)
    assert list(STAGES) == ["Pre-alpha", "Alpha", "Beta", "RC", "Stable"]
    for f in features:
        assert f.stage in STAGES and f.what and f.names, f
        assert (ROOT / f.page).exists(), f
        for name in f.names:
            assert find(name) is not None


def test_it_prints_as_a_table():  # NG-33
    lines = repr(sl.features()).splitlines()
    assert len(lines) == len(sl.features()) and all(f.name in line and f.stage in line for f, line in zip(sl.features(), lines))


def test_the_page_is_made_of_the_table():  # NG-33
    assert (ROOT / "docs/stages.md").read_text() == page(), "run: python -m sluice._names.features > docs/stages.md"
    done = subprocess.run([sys.executable, "-m", "sluice._names.features"], capture_output=True, text=True, check=True)
    assert done.stdout == page()
