"""Tests what is said about torch's names: docs/compat.md, and the report that makes it."""

import pathlib
import re

import pytest
import torch

import sluice as sl
from sluice import compat
from sluice._names.left_out import left_out

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sections():
    return compat.compare(ROOT / "tests")


def test_names_that_exist_are_not_called_missing(sections):
    by_name = {s.name: s for s in sections}
    assert "add" in by_name["torch"].names and "add" not in by_name["torch"].missing
    assert "add" in by_name["torch"].tested
    assert "Linear" in by_name["torch.nn"].tested
    for s in sections:
        assert set(s.missing) <= set(s.names) and not set(s.missing) & set(s.tested)


def test_what_is_left_out_has_a_reason():
    assert left_out("quantize_per_tensor").what == "quantized tensors"
    assert left_out("add") is left_out("softmax") is None
    with pytest.raises(AttributeError, match="no attribute 'sparse_bsr_tensor': Sluice leaves out sparse layouts beyond COO, CSR and CSC; use"):
        sl.sparse_bsr_tensor
    with pytest.raises(AttributeError, match="no attribute 'import_ir_module': .*use sluice.nn.Graph"):
        sl.import_ir_module
    with pytest.raises(AttributeError, match="^module 'sluice' has no attribute 'no_such_name'$"):
        sl.no_such_name


def test_nothing_that_is_there_is_called_left_out():
    for name in dir(sl):
        assert name.startswith("_") or left_out(name) is None, name
    with pytest.raises(AttributeError, match="'chalf': Sluice leaves out complex numbers of two float16; use complex64"):
        sl.chalf


def test_the_page_says_what_is_missing_now(sections):
    text = (ROOT / "docs" / "compat.md").read_text()
    of = re.search(r"beside torch ([\d.]+\d)", text)
    if of[1] != torch.__version__.partition("+")[0]:
        pytest.skip("the page was made beside another torch")
    again = "python -m sluice.compat --tests tests --write docs/compat.md"
    assert compat.missing(sections) in text, f"docs/compat.md is of another time; make it anew: {again}"


def test_the_command(capsys, tmp_path):
    compat.main(["--missing", "--tests", str(ROOT / "tests"), "--write", str(tmp_path / "page.md")])
    printed = capsys.readouterr().out
    assert printed.startswith("| of torch | names | here | tested |") and "`torch.fft`" in printed
    assert (tmp_path / "page.md").read_text().startswith("# What there is of torch")
