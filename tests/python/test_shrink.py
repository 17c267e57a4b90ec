"""sluice.testing.shrink: a program that a plan computes wrongly becomes a small script; patterns that compute something else stand for passes with
a defect."""

import subprocess
import sys

import pytest

import sluice as sl
from sluice import nn
from sluice.nn import functional as F
from sluice.testing import shrink

WRONG = 'config.add_pattern("wrong", lambda x, y: (x + y).sigmoid(), lambda x, y: (x + y).sigmoid() * 1.01, torch.ones(1, 1), torch.ones(1, 1))'


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.scale = nn.Parameter(sl.rand(size))

    def forward(self, x):
        y = self.narrow(F.gelu(self.wide(self.norm(x)))) * self.scale
        left, right = y.chunk(2, 1)
        return x + sl.cat([right, left], 1)


class Net(nn.Module):
    """Four blocks around the two ops that the wrong pattern finds."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Sequential(Block(8), Block(8)), nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.before(x)
        gate = (x + x.flip(1)).sigmoid()
        x = self.after(x * gate)
        return {"scores": F.log_softmax(self.head(x), 1), "mean": x.mean()}


def run(script, folder):
    (folder / "shrunk.py").write_text(script)
    return subprocess.run([sys.executable, "shrunk.py"], capture_output=True, text=True, cwd=folder)


def test_a_defect_of_a_pass_becomes_a_script_of_few_calls(tmp_path):  # PT-21
    sl.manual_seed(0)
    net, x = Net().eval(), sl.randn(4, 8)
    before = {name: value.tolist() for name, value in net.state_dict().items()}
    found = shrink(net, x, setup=WRONG)
    assert found.calls <= 3, found.script
    assert "sigmoid()" in found.script and "Tensor-likes are not close" in found.failure and "gelu" not in found.script and "Linear" not in found.script
    done = run(found.script, tmp_path)
    assert done.returncode == 1 and "AssertionError: Tensor-likes are not close" in done.stderr, found.script + done.stderr
    right = run(found.script.replace("* 1.01", "* 1.0"), tmp_path)
    assert right.returncode == 0, "once the pass is mended, the script ends well: " + right.stderr
    assert {name: value.tolist() for name, value in net.state_dict().items()} == before
    with sl.no_grad(), pytest.raises(AssertionError):  # the small program, without the script
        graph = nn.Graph()
        graph.build = found.module.forward
        exec(WRONG, {"torch": sl, "config": graph.config})
        sl.testing.assert_close(graph(*found.args), found.module(*found.args))


def test_modules_stay_where_the_defect_needs_them(tmp_path):
    sl.manual_seed(0)
    setup = 'config.add_pattern("wrong", lambda x, w, b: torch.nn.functional.linear(x, w, b).tanh(), lambda x, w, b: torch.nn.functional.linear(x, w, b).tanh() + 0.1,\n    torch.ones(2, 3), torch.ones(4, 3), torch.ones(4))'
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).eval()
    found = shrink(net, sl.randn(4, 6), setup=setup)
    assert found.calls == 2 and "nn.Linear(in_features=6, out_features=5, bias=True)" in found.script and "nn.Tanh()" in found.script
    assert run(found.script, tmp_path).returncode == 1


def test_a_plan_that_cannot_be_made_is_a_failure_too(tmp_path):
    found = shrink(lambda x: (x.exp() + 1).sigmoid() * x.sum().item() + x.tanh(), sl.ones(3))
    assert ".item()" in found.script and found.calls == 2 and not found.failure.startswith("Tensor-likes")
    done = run(found.script, tmp_path)
    for told in (found.failure, done.stderr):
        assert "item: the tensor is traced and has no value while a graph is built" in told
    assert done.returncode == 1


def test_numbers_that_matter_are_kept(tmp_path):
    """The defect shows where a number is far from others only: random ones would not show it."""
    setup = 'config.add_pattern("wrong", lambda x: x.sigmoid(), lambda x: torch.where(x > 50, x, x.sigmoid()), torch.ones(1))'
    found = shrink(lambda x: (x + 1).sigmoid() * 2, sl.tensor([1.0, 100.0]), setup=setup)
    assert found.calls == 1 and "101.0" in found.script
    assert run(found.script, tmp_path).returncode == 1


def test_what_does_not_fail_is_refused():
    with pytest.raises(ValueError, match="shrink: the plan of the whole program gives what eager code gives"):
        shrink(Net().eval(), sl.randn(4, 8))
    with pytest.raises(ValueError, match="gives what eager code gives"):
        shrink(Net().eval(), sl.randn(4, 8), setup=WRONG, atol=1.0, rtol=1.0)
