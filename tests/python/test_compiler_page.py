"""docs/compiler.md: every pass in its order, and pictures of what the passes do now."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/images"))
import draw_passes  # noqa: E402

PAGE = (ROOT / "docs/compiler.md").read_text()


def test_the_page_has_every_pass_in_the_order_in_which_they_run():
    named = []
    for path in ("compiler/passes/list.cpp", "compiler/lowering/list.cpp"):
        named += re.findall(r'^    \{"(\w+)", +"[^"]', (ROOT / path).read_text(), re.M)  # what runs again says nothing
    assert len(named) > 15 and re.findall(r"^### (\w+)$", PAGE, re.M) == named
    assert re.findall(r"images/passes/(\w+)\.svg", PAGE) == named, "one picture each"


@pytest.mark.parametrize("name", re.findall(r"images/passes/(\w+)\.svg", PAGE))
def test_pictures_are_of_the_graphs_that_the_tests_hold(name):
    picture = (draw_passes.OUT / f"{name}.svg").read_text()
    assert draw_passes.mark(draw_passes.drawing(name)) in picture, "draw them anew: python docs/images/draw_passes.py"
