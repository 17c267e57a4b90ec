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


# What can be wrong with a function, and how it is told.
WRONG = {
    "values": (lambda exp: lambda x: exp(x) * 1.001, "eager: output 0: differs"),
    "dtype": (lambda exp: lambda x: exp(x).double(), "eager: output 0: got float64"),
    "shape": (lambda exp: lambda x: exp(x)[None], "eager: output 0: got float"),
    "gradient": (lambda exp: lambda x: exp(x.detach()) + 0 * x if x.is_floating_point() else exp(x), "eager: gradient 0: differs"),
    "memory": (lambda exp: lambda x: x.copy_(exp(x.double())).view(x.shape) if not x.requires_grad and x.is_floating_point() else exp(x),
               "eager: "),
    "refusal": (lambda exp: lambda x: exp(sl.as_tensor(x)), "eager: accepted what torch refuses: TypeError"),
    "error": (lambda exp: lambda x: exp(x) if isinstance(x, sl.Tensor) else 1 / 0, "eager: refused as ZeroDivisionError"),
    "refuses": (lambda exp: lambda x: exp(x if x.numel() else x[0]), "eager: refused at forward: IndexError"),
    "graph": (lambda exp: lambda x: exp(x) * (1.001 if x._traced else 1), "graph: output 0: differs"),
    "out": (lambda exp: lambda x, **options: exp(x, **options) * (1.001 if options else 1), "exp(out=): output 0: differs"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_found(what, monkeypatch):
    wrong, text = WRONG[what]
    monkeypatch.setattr(sl, "exp", wrong(sl.exp))
    found = failures("exp", n=60)
    assert any(f"{verdict.how}: {verdict.text}".startswith(text) for _, verdict, _ in found), [v.text for _, v, _ in found]


def test_a_wrong_second_gradient_is_found(monkeypatch):
    exp = sl.exp

    class Once(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.y = exp(x.detach())
            return exp(x.detach())

        @staticmethod
        def backward(ctx, g):
            return g * ctx.y

    monkeypatch.setattr(sl, "exp", lambda x, **options: Once.apply(x) if x.requires_grad else exp(x, **options))
    assert any(v.text.startswith("second gradient 0: ") for _, v, _ in failures("exp", n=40))


def test_failures_are_shrunk_and_told_as_a_line_that_shows_them(monkeypatch, capsys):
    atan2 = sl.atan2
    monkeypatch.setattr(sl, "atan2", lambda x, other, **options: atan2(x, other, **options) + 0.1)
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
    assert re.match(r"seed \d+\n5 ops, 5 cases", capsys.readouterr().out)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit):
        command.main([])
    assert "torch: not installed" in capsys.readouterr().err
