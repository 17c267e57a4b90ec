"""The tool that generates calls: it finds what is wrong, says how to see it again, and leaves no name out."""

import pathlib
import re
import subprocess
import sys

import pytest
import torch

import sluice as sl
from sluice.testing.autotest import __main__ as command
from sluice.testing.autotest import exceptions, names
from sluice.testing.autotest.run import Options, drawn, run_op

ROOT = pathlib.Path(__file__).resolve().parents[2]


def failures(op, **options):
    return run_op(op, torch, Options(**{"n": 20, "seed": 3, **options})).failures


def test_a_case_is_that_of_its_seed_and_index():
    one, again, other = (drawn("add", seed, 5, torch)[0] for seed in (3, 3, 4))
    assert str(one) == str(again) != str(other)
    assert len({str(drawn("add", 3, i, torch)[0]) for i in range(20)}) == 20


def patch(monkeypatch, op, wrong):
    """op becomes wrong(op), with op's signatures."""
    made = wrong(getattr(sl, op))
    made.signatures = getattr(sl, op).signatures
    monkeypatch.setattr(sl, op, made)


# The faults that a function can have, and how they are told.
WRONG = {
    "values": ("exp", lambda f: lambda x, **o: f(x, **o) * 1.001, "eager: output 0: differs"),
    "dtype": ("exp", lambda f: lambda x, **o: f(x, **o).double(), "eager: output 0: got float64"),
    "shape": ("exp", lambda f: lambda x, **o: f(x, **o)[None], "eager: output 0: got float"),
    "gradient": ("exp", lambda f: lambda x, **o: f(x.detach(), **o) + x.sin() - x.detach().sin(), "eager: gradient 0: differs"),
    "no gradient": ("exp", lambda f: lambda x, **o: f(x.detach(), **o), "eager: gradient 0: missing"),
    "a view": ("clone", lambda f: lambda x, **o: x.view(x.shape), "eager: output 0 is a view"),
    "no view": ("t", lambda f: lambda x: f(x).clone(), "eager: output 0 has memory of its own"),
    "argument written": ("exp", lambda f: lambda x, **o: (f(x, **o), None if x.requires_grad else x.add_(1))[0], "eager: argument 0 afterwards"),
    "accepts": ("exp", lambda f: lambda x, **o: f(sl.as_tensor(0.0 if x is None else x), **o), "eager: accepted what torch refuses: TypeError"),
    "error": ("exp", lambda f: lambda x, **o: f(x, **o) if isinstance(x, sl.Tensor) else 1 / 0, "eager: refused as ZeroDivisionError"),
    "refuses": ("exp", lambda f: lambda x, **o: f(x if x.numel() else x[7], **o), "eager: refused at forward: IndexError"),
    "graph": ("exp", lambda f: lambda x, **o: f(x, **o) * (1.001 if x._traced else 1), "graph: output 0: differs"),
    "out": ("exp", lambda f: lambda x, **o: f(x * (1.01 if "out" in o else 1), **o), "exp(out=): output 0: differs"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_found(what, monkeypatch):
    op, wrong, text = WRONG[what]
    patch(monkeypatch, op, wrong)
    found = failures(op, n=300 if what in ("accepts", "error") else 60, shrink=False)
    assert any(f"{verdict.how}: {verdict.text}".startswith(text) for _, verdict, _ in found), [v.text for _, v, _ in found]


def test_a_wrong_second_gradient_is_found(monkeypatch):
    class Once(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.y = x.detach().exp()
            return x.detach().exp()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.y

    patch(monkeypatch, "exp", lambda f: lambda x, **o: Once.apply(x) if x.requires_grad else f(x, **o))
    assert any(v.text.startswith("second gradient 0: ") for _, v, _ in failures("exp", n=40, shrink=False))


@pytest.mark.parametrize("op", ["add", "softmax", "matmul", "sum", "cat", "gather", "nn.functional.conv2d", "nn.functional.layer_norm",
                                "nn.functional.cross_entropy", "nn.Linear"])
def test_graphs_over_two_devices_give_the_same(op):  # OPS-49
    assert failures(op, n=6, spread=True) == []


def test_what_is_wrong_over_two_devices_is_found(monkeypatch):
    patch(monkeypatch, "add", lambda f: lambda x, other, **o: f(x, other, **o) * (1.001 if getattr(x, "is_global", False) else 1))
    assert any(v.how == "global" for _, v, _ in failures("add", spread=True, shrink=False))


def test_failures_are_shrunk_and_told_as_a_line_that_shows_them(monkeypatch, capsys):
    atan2 = sl.atan2
    patch(monkeypatch, "atan2", lambda f: lambda x, other, **o: f(x, other, **o) + 0.1)
    assert command.main(["--ops", "atan2", "--seed", "3", "--n", "9"]) == 1
    printed = capsys.readouterr().out
    line = re.search(r"^python -m sluice.testing.autotest (--ops atan2 --seed 3 --first \d+ --n 1): eager: output 0: .*", printed, re.M)
    assert line and len(line[0]) < 500 and "torch.atan2(torch.tensor(" in line[0]
    assert command.main(line[1].split()) == 1
    assert line[0] in capsys.readouterr().out
    monkeypatch.setattr(sl, "atan2", atan2)
    assert command.main(line[1].split()) == 0


def test_every_exported_name_is_covered(capsys):
    assert command.main(["--list-uncovered"]) == 0 and capsys.readouterr().out == ""
    assert {"add", "nn.Linear", "nn.functional.relu", "linalg.inv", "Tensor.view"} <= set(names.ops(torch))


def test_a_new_name_is_uncovered(monkeypatch):
    monkeypatch.setattr(sl, "new_function", lambda x: x, raising=False)
    monkeypatch.setattr(torch, "new_function", lambda x: x, raising=False)
    assert names.uncovered(torch) == ["new_function"]


def test_exceptions_are_of_names_that_exist_and_of_tests_that_exist():
    exported = names.exported(torch)
    for pattern, why in exceptions.NOT_GENERATED:
        assert any(re.fullmatch(pattern, name) for name in exported), pattern
        for file in re.findall(r"test_\w+\.py", why):
            assert (ROOT / "tests" / "python" / file).exists(), file
    for d in exceptions.DIFFERENCES:
        assert any(re.fullmatch(d.op, name) for name in exported) and d.why, d
        re.compile(d.text)


def test_torch_is_imported_by_nothing_but_the_command():
    code = "import sys, sluice.testing.autotest.run, sluice.testing.autotest.__main__; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_says_what_is_wrong(capsys, monkeypatch):
    with pytest.raises(SystemExit):
        command.main(["--ops", "no_such_op"])
    assert "no op is named 'no_such_op'" in capsys.readouterr().err
    assert command.main(["--ops", "add,atan*", "--n", "1"]) == 0
    assert re.match(r"seed \d+\n4 ops, 4 cases", capsys.readouterr().out)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit):
        command.main([])
    assert "torch: not installed" in capsys.readouterr().err
