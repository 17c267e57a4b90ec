"""sluice.tiny.draw: a step of training in three colours."""

import xml.etree.ElementTree as xml
from collections import Counter
from types import SimpleNamespace

import pytest

import sluice as sl
from sluice.tiny import TrainStep
from sluice.tiny._picture import COLOURS, nodes_of
from test_tiny import pictures
from test_tiny_int8 import integers

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("scheme, layers", [("full", {"0", "2", "5"}), ("last-only", {"5"})])
def test_a_step_is_drawn_in_three_colours(scheme, layers, tmp_path, count):
    """A box for each kernel. What the loss depends on is forward, what writes weights update; a layer that does not change has none."""
    step = TrainStep(integers(), lr=0.1, scheme=scheme)
    step.compile(*next(pictures(1)))
    sl.tiny.draw(step, tmp_path / "step.svg")
    boxes = [group for group in xml.parse(tmp_path / "step.svg").getroot().iter(f"{SVG}g")]
    assert len(boxes) == len(step.plan["kernels"])
    of_part = Counter(box.get("class") for box in boxes)
    assert set(of_part) == set(COLOURS) and all(box.find(f"{SVG}rect").get("fill") == COLOURS[box.get("class")] for box in boxes)
    ops = {part: {box.find(f"{SVG}title").text for box in boxes if box.get("class") == part} for part in COLOURS}
    assert sum("int8_conv" in title for title in ops["forward"]) == 2 and any("cross_entropy" in title for title in ops["forward"])
    gradients = [title for title in ops["backward"] if "conv_weight_grad" in title]
    assert len(gradients) == len(layers & {"0", "2"})
    count(f"kernels of a step under the scheme {scheme}", len(boxes), dict(of_part))


def test_boxes_stand_right_of_what_they_read():
    step = TrainStep(integers(), lr=0.1)
    step.compile(*next(pictures(1)))
    nodes = nodes_of(step.plan)
    assert all(nodes[source].depth < node.depth and source < at for at, node in enumerate(nodes) for source in node.inputs)
    assert sum(len(node.inputs) for node in nodes) >= len(nodes) - 8


def test_a_step_that_computes_nothing_is_refused(tmp_path):
    empty = {"certificate": [], "actors": [], "kernels": [], "registers": [], "outputs": []}
    with pytest.raises(ValueError, match="tiny.draw: the plan has no kernels"):
        sl.tiny.draw(SimpleNamespace(plan=empty), tmp_path / "x.svg")
