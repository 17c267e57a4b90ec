"""docs/adding-an-op.md: its example is an op like any other, and takes the files that the page names and no more."""

import pathlib
import re
import subprocess

import numpy as np
import pytest
import sluice as sl
from sluice import _C

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding-an-op.md").read_text().split("## An elementwise op")[1]
BLOCKS = re.findall(r"```cpp\n(.*?)```", PAGE, re.S)
EXAMPLE = "sinc"
ENTRY, DEFINITION = "base/scalar/unary.inc", "graph/ops/elementwise/unary.cpp"
SECOND_NAME = "graph/ops/elementwise/special_forms.cpp"  # torch.special.sinc
IN_ONNX = "onnx/export/functions.cpp"  # without an entry there, it could not be exported


def entries():
    """Every entry of the tables of functions of tensors, by name."""
    for table in ("unary", "binary", "comparison"):
        text = (ROOT / "base" / "scalar" / f"{table}.inc").read_text()
        yield from re.findall(r"^[A-Z]+[12]\((\w+),", text, re.M)


def test_the_page_quotes_the_sources():
    sources = "".join((ROOT / path).read_text() for path in [ENTRY, DEFINITION])
    assert len(BLOCKS) == 2
    for block in BLOCKS:
        assert block.strip() in sources


def test_the_example_takes_two_files():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    where = ["*.cpp", "*.h", "*.inc", "*.py", "*.txt", "*.cmake", ":!tests"]
    found = subprocess.run(["git", "grep", "-lw", EXAMPLE, "--", *where], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == {ENTRY, DEFINITION, SECOND_NAME, IN_ONNX}


@pytest.mark.parametrize("name", sorted(entries()))
def test_every_entry_is_an_op_with_a_name_in_python(name):
    assert name in _C.ops.__all__
    assert callable(getattr(sl, name)) and callable(getattr(sl.Tensor, name))
    assert getattr(_C.ops, name).__doc__.count("torch.") == 1


def test_the_example_is_there_in_every_form():
    x = sl.tensor([0.0, 0.25, -1.5])
    np.testing.assert_allclose(sl.sinc(x).numpy(), np.sinc(x.numpy()), rtol=1e-6, atol=1e-7)
    assert x.sinc().tolist() == sl.sinc(x).tolist()
    assert sl.sinc(sl.tensor([1, 2])).dtype == sl.float32
    assert "torch.sinc" in sl.Tensor.sinc.__doc__
