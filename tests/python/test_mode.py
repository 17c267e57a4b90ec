"""set_mode("eager"): graphs run build() op by op, with the results and effects of their plans. And Graph.trace, graphs of functions."""

import asyncio
import json
import math

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn.functional as F
from sluice import nn


@pytest.fixture(autouse=True)
def graph_mode():
    yield
    sl.set_mode("graph")


SCRIPT = """
import json, os
import sluice as sl
import sluice.nn.functional as F
from sluice import nn

sl.set_mode(os.environ["MODE"])
sl.manual_seed(0)

class Train(nn.Graph):
    def __init__(self, net, optimizers, schedule):
        super().__init__()
        self.net = net
        self.add_optimizer(optimizers[0], lr_sch=schedule)
        self.add_optimizer(optimizers[1])

    def build(self, x, y):
        scores = self.net(x)
        loss = F.cross_entropy(scores, y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        return {"loss": loss, "right": (scores.argmax(1) == y).sum()}

class Infer(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net.eval()

    def build(self, x):
        return self.net(x).softmax(-1)

net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 3))
biases = [p for n, p in net.named_parameters() if n.endswith("bias")]
rest = [p for n, p in net.named_parameters() if not n.endswith("bias")]
adam = sl.optim.AdamW([{"params": rest[:1], "lr": 0.01}, {"params": rest[1:]}], lr=0.03)
sgd = sl.optim.SGD(biases, lr=0.1, momentum=0.9)
train = Train(net, [adam, sgd], sl.optim.lr_scheduler.OneCycleLR(adam, [0.02, 0.05], total_steps=40))
x, y = sl.randn(64, 6), sl.randint(0, 3, (64,))
losses = [{k: v.item() for k, v in train(x[i % 4::4], y[i % 4::4]).items()} for i in range(25)]
scores = Infer(net)(x)
print(json.dumps([[l["loss"] for l in losses], [l["right"] for l in losses], scores.tolist(), [g["lr"] for g in adam.param_groups],
                  net[1].num_batches_tracked.item(), net[1].running_mean.tolist(), train.is_compiled, [p.grad is None for p in net.parameters()]]))
"""


def test_one_switch_and_the_same_script_gives_the_same(run_script):  # MS-05
    runs = {}
    for mode in ("graph", "eager"):
        done = run_script(SCRIPT, MODE=mode)
        assert done.returncode == 0, done.stderr
        runs[mode] = json.loads(done.stdout)
    graph, eager = runs["graph"], runs["eager"]
    assert graph[6] is True and eager[6] is False
    np.testing.assert_allclose(eager[0], graph[0], rtol=2e-5)
    assert eager[1] == graph[1] and eager[4] == graph[4] == 25 and eager[7] == graph[7] and all(graph[7])
    for i in (2, 3, 5):
        np.testing.assert_allclose(eager[i], graph[i], rtol=1e-4, atol=1e-6)


class Steps(nn.Graph):
    """Steps by itself: the optimizer's in build(), the schedule's by the graph, or the other way round."""

    def __init__(self, who, scaler=None):
        super().__init__()
        sl.manual_seed(0)
        self.net, self.who, self.scaler = nn.Linear(3, 2), who, scaler
        self.optimizer = sl.optim.SGD(self.net.parameters(), lr=0.5, momentum=0.5)
        self.schedule = sl.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.add_optimizer(self.optimizer, lr_sch=self.schedule)
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x, factor=1.0):
        loss = (self.net(x) ** 2).sum() * factor
        if "scale" in self.who:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
        if "optimizer" in self.who:
            self.optimizer.step()
        if "schedule" in self.who:
            self.schedule.step()
        return loss, self.net.weight

    def run(self, factors):
        losses = [(self(sl.ones(1, 3) * 0.3, sl.tensor(f))[0].item()) for f in factors]
        return losses, self.net.weight.tolist(), self.optimizer.param_groups[0]["lr"], self.schedule.last_epoch, self.scaler and self.scaler.get_scale()


@pytest.mark.parametrize("who", [[], ["optimizer"], ["schedule"], ["optimizer", "schedule"]])
def test_steps_are_made_once_whoever_makes_them(who):  # MS-05
    expected = Steps(who).run([1.0] * 7)
    with sl.set_mode("eager"):
        assert sl.get_mode() == "eager"
        got = Steps(who).run([1.0] * 7)
    assert sl.get_mode() == "graph"
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-5)
    assert got[2:] == expected[2:]
    # Half of the steps each: what one does the other goes on with.
    both = Steps(who)
    for i in range(7):
        sl.set_mode("eager" if i % 2 else "graph")
        last = both.run([1.0])
    np.testing.assert_allclose(last[1], expected[1], rtol=1e-5)
    assert last[2:] == expected[2:]


@pytest.mark.parametrize("who", [[], ["scale"]])
def test_scalers_leave_out_steps_in_both_modes(who):  # MS-05, NG-27
    factors = [1.0, math.inf, 1.0, 1.0, 1.0, math.nan]
    runs = []
    for mode in ("graph", "eager"):
        with sl.set_mode(mode):
            runs.append(Steps(who, sl.amp.GradScaler(init_scale=4.0, growth_interval=2)).run(factors))
    np.testing.assert_allclose(runs[1][0], runs[0][0], rtol=1e-5)
    np.testing.assert_allclose(runs[1][1], runs[0][1], rtol=1e-5)
    assert runs[0][2:] == runs[1][2:] and runs[0][4] == 2.0


def test_build_may_look_at_values_and_arguments_stay():  # MS-05
    seen = []

    class Looks(nn.Graph):
        def build(self, x, options):
            x += 1
            seen.append(x.sum().item())
            if x.sum() > 5:
                x = x * options["factor"]
            return [x, None, (options["factor"], x[:0])]

    x = sl.ones(2, requires_grad=True)
    given = x.detach()
    with sl.set_mode("eager"):
        nest = Looks()(given, {"factor": 3})
        assert isinstance(nest, list) and nest[0].tolist() == [2, 2] and nest[1] is None and nest[2][0] == 3 and nest[2][1].shape == (0,)
        assert Looks()(given * 2, {"factor": 3})[0].tolist() == [9, 9]
        assert not nn.Graph.trace(lambda x: x * 2)(x).requires_grad
    assert seen == [4.0, 6.0] and given.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="has no value while a graph is built"):
        Looks()(given, {"factor": 3})


def test_results_are_of_before_the_update_and_gradients_of_others_stay():  # MS-05
    graph = Steps([])
    graph.net.weight.grad = sl.full((2, 3), 7.0)
    before = graph.net.weight.tolist()
    with sl.set_mode("eager"):
        _, weight = graph(sl.ones(1, 3), sl.tensor(1.0))
        assert weight.tolist() == before != graph.net.weight.tolist() and weight.data_ptr() != graph.net.weight.data_ptr()
        with pytest.raises(RuntimeError, match="feature counts differ"):
            graph(sl.ones(1, 5), sl.tensor(1.0))
    assert graph.net.weight.grad.tolist() == [[7.0] * 3] * 2
    assert graph(sl.ones(1, 3), sl.tensor(1.0))[1].tolist() == weight.tolist() or graph.is_compiled


def test_other_calls_of_eager_graphs():  # MS-05
    graph = Steps([])
    with sl.set_mode("eager"):
        assert graph.try_call(sl.ones(1, 3), sl.tensor(1.0)) is not None and not graph.is_compiled
        asyncio.run(graph.run_async(sl.ones(1, 3), sl.tensor(1.0)))
        graph.synchronize()
        assert graph.schedule.last_epoch == 2 and not graph.is_compiled
        assert graph.compile(sl.ones(1, 3), sl.tensor(1.0)).is_compiled
        graph(sl.ones(2, 3), sl.tensor(1.0))  # of any shape
    micro = Steps([])
    micro.config.set_gradient_accumulation_steps(2)
    with sl.set_mode("eager"), pytest.raises(NotImplementedError, match="2 micro-batches, which eager mode does not have"):
        micro(sl.ones(2, 3), sl.tensor(1.0))
    for wrong in ("Graph", None, True):
        with pytest.raises(ValueError, match="must be 'graph' or 'eager'"):
            sl.set_mode(wrong)
    assert sl.get_mode() == "graph"


# Graph.trace


def test_a_decorated_function_is_the_function():  # NG-13
    @nn.Graph.trace
    def f(x, y=2.0, *, scale=1):
        """Doc."""
        return {"sum": (x * y + 1) * scale, "parts": [x.relu(), None]}

    for shape in [(3,), ()]:
        x = torch.randn(shape)
        g = nn.Graph.trace(f.function)
        got, expected = g(to_sl(x), scale=3), f.__wrapped__(x, scale=3)
        assert_same(got["sum"], expected["sum"])
        assert_same(got["parts"][0], expected["parts"][0])
        assert got["parts"][1] is None
    assert f.__name__ == "f" and f.__doc__ == "Doc." and f.name == "f" and isinstance(f, nn.Graph)
    f(sl.ones(2))
    with pytest.raises(ValueError, match=r"argument 'x' has shape \(3,\); expected \(2,\)"):
        f(sl.ones(3))
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        f()
    with sl.set_mode("eager"):
        assert f(sl.ones(5))["sum"].tolist() == [3] * 5


def test_a_module_and_tensors_outside_are_read_as_they_are():  # NG-13, NG-22
    net, shift = nn.Linear(3, 2), sl.tensor([1.0, 2.0])
    module = nn.Graph.trace(net)
    assert sl.equal(module(sl.ones(1, 3)), net(sl.ones(1, 3)))

    @nn.Graph.trace(name="shifted")
    def f(x):
        return net(x) + shift

    assert sl.equal(f(sl.ones(1, 3)), net(sl.ones(1, 3)) + shift) and f.name == "shifted"
    with sl.no_grad():
        net.weight.add_(1)
        shift.mul_(2)
    assert sl.allclose(f(sl.ones(1, 3)), net(sl.ones(1, 3)) + shift) and sl.allclose(module(sl.ones(1, 3)), net(sl.ones(1, 3)))


@pytest.mark.parametrize("explicit", [True, False])
def test_a_whole_training_step_in_one_call(explicit):  # MLX-02
    def made(lib):
        lib.manual_seed(0)
        net = lib.nn.Sequential(lib.nn.Linear(4, 8), lib.nn.Tanh(), lib.nn.Linear(8, 2))
        optimizer = lib.optim.Adam(net.parameters(), lr=0.05, weight_decay=0.01)
        return net, optimizer, lib.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

    def step(net, optimizer, schedule, x, y, functional):
        optimizer.zero_grad()
        loss = functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    ours, theirs = made(sl), made(torch)

    @nn.Graph.trace(state=ours, dynamic=True)
    def train(x, y):
        if explicit:
            return step(*ours, x, y, F)
        loss = F.mse_loss(ours[0](x), y)
        loss.backward()
        return loss

    for i in range(12):  # of three sizes
        x, y = torch.randn(4 + i % 3, 4), torch.randn(4 + i % 3, 2)
        assert_same(train(to_sl(x), to_sl(y)), step(*theirs, x, y, torch.nn.functional).detach(), 1e-4)
    assert len(train.members) == 3
    for p, q in zip(ours[0].parameters(), theirs[0].parameters()):
        assert_same(p, q, 1e-4)
    assert ours[2].last_epoch == 12 and ours[1].param_groups[0]["lr"] == pytest.approx(theirs[1].param_groups[0]["lr"])
    roles = {k["provenance"]["role"] for k in train.plan["kernels"] if "provenance" in k}
    assert not roles or "update" in roles
    assert list(train.state_dict()["modules"]) == ["state0"]


def test_misuse_of_trace_is_named():  # NG-13
    net = nn.Linear(2, 2)
    optimizer = sl.optim.SGD(net.parameters(), lr=1.0)
    schedules = [sl.optim.lr_scheduler.StepLR(optimizer, 1) for _ in range(2)]
    for call, kind, text in [(lambda: nn.Graph.trace(3), TypeError, "got int; expected a function or a module"),
                             (lambda: nn.Graph.trace(nn.Linear), TypeError, "got the class Linear"),
                             (lambda: nn.Graph.trace(print, state=[3]), TypeError, "state 'state0' is int"),
                             (lambda: nn.Graph.trace(print, state={"build": net}), ValueError, "named 'build'"),
                             (lambda: nn.Graph.trace(print, state={"a b": net}), ValueError, "named 'a b'"),
                             (lambda: nn.Graph.trace(lambda x: x, state=[optimizer, *schedules]), ValueError, "2 schedules; join them"),
                             (lambda: nn.Graph.trace(lambda x: x, state=schedules[0]), ValueError, "not its optimizer"),
                             (lambda: nn.Graph.trace(lambda x: (net(x).sum().backward(), optimizer.step()))(sl.ones(1, 2)), RuntimeError,
                              "does not have the optimizer; .* state of Graph.trace")]:
        with pytest.raises(kind, match=text):
            call()

    class Model(nn.Module):
        @nn.Graph.trace
        def forward(self, x):
            return x

    with pytest.raises(TypeError, match="'forward' is a method of Model; trace the module"):
        Model()(sl.ones(1))
