"""The page of plan-viz looks as its kept pictures do. `python tests/python/test_page_pictures.py` takes them anew; look at them before you keep them."""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from browser import Browser
from PIL import Image
from synthetic_plan import synthetic_plan

from sluice._base.tools import find_tool

KEPT = pathlib.Path(__file__).resolve().parents[1] / "golden" / "page"
SIZE = (1400, 900)
SMALL = (280, 180)  # kept so: letters are of other fonts elsewhere, and what is drawn is not
BLOCK = 10          # of the small picture; within a block only the mean colour counts
MOST_BLOCKS, FAR, MOST_MEAN = 0.03, 20.0, 2.5  # share of blocks that may be far off; of 255; of 255, of all

VIEWS = {
    "lanes": "", "lanes-cycle": "#cycle=1", "lanes-window": "#t=20000-60000&kernel=40", "graph": "#view=graph&fold=stream", "graph-open": "#view=graph&fold=nothing&actor=3",
    "memory": "#view=memory", "replay": "#at=30000", "compare": "#view=compare",
}
SHOTS = [*((name, "light") for name in VIEWS), ("lanes", "dark"), ("graph", "dark")]


def page(folder):
    plan, other = synthetic_plan(60, name="sixty"), synthetic_plan(60, name="sixty")
    other["registers"][7]["quota"] = 1
    other["registers"][7]["slots"] = other["registers"][7]["slots"][:1]
    other["kernels"][20]["cost_ns"] = "99000"
    for name, one in (("plan", plan), ("other", other)):
        (folder / f"{name}.json").write_text(json.dumps(one))
    done = subprocess.run([find_tool("plan-viz"), "html", "plan.json", "--beside", "other.json", "-o", "page.html", "--source", str(folder)],
                          cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "page.html"


def shot(browser, path, name, theme, picture):
    browser.theme(theme)
    browser.open(path, VIEWS[name])
    browser.screenshot(picture)
    return Image.open(picture).convert("RGB").resize(SMALL, Image.BOX)


def blocks(picture):
    return np.asarray(picture, "float32").reshape(SMALL[1] // BLOCK, BLOCK, SMALL[0] // BLOCK, BLOCK, 3).mean((1, 3))


def difference(a, b):
    """The share of blocks that are far off, and the mean of all."""
    apart = np.abs(blocks(a) - blocks(b)).max(-1)
    return float((apart > FAR).mean()), float(apart.mean())


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    path = page(folder)
    with Browser(*SIZE) as browser:
        return {(name, theme): shot(browser, path, name, theme, folder / f"{name}-{theme}.png") for name, theme in SHOTS}


@pytest.mark.parametrize("name, theme", SHOTS)
def test_it_looks_as_it_was_kept(pictures, name, theme):
    kept = KEPT / f"{name}-{theme}.png"
    assert kept.exists(), "take it by python tests/python/test_page_pictures.py"
    far, mean = difference(pictures[name, theme], Image.open(kept).convert("RGB"))
    assert far <= MOST_BLOCKS and mean <= MOST_MEAN, f"{100 * far:.1f} % of {kept.name} look different, by {mean:.1f} in the mean"


def test_pictures_that_differ_are_told_apart(pictures):
    names = list(VIEWS)
    for i, a in enumerate(names):
        for b in names[i + 1:]:
            far, mean = difference(pictures[a, "light"], pictures[b, "light"])
            assert far > MOST_BLOCKS or mean > MOST_MEAN, (a, b)
    assert difference(pictures["lanes", "light"], pictures["lanes", "dark"])[0] > 0.5


if __name__ == "__main__":
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work, Browser(*SIZE) as browser:
        path = page(pathlib.Path(work))
        for name, theme in SHOTS:
            shot(browser, path, name, theme, pathlib.Path(work) / "full.png").save(KEPT / f"{name}-{theme}.png", optimize=True)
    sys.exit(0)
