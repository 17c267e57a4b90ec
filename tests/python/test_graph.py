"""nn.Graph: building, sharing, training, pruning."""

import copy
import time

import pytest
import torch
from conftest import assert_same

import sluice as sl
import sluice.nn as nn
import sluice.nn.functional as F


def net(seed=0):
    sl.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))


class Forward(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, x):
        return self.model(x)


class Train(nn.Graph):
    def __init__(self, model, optim, loss_fn=F.cross_entropy):
        super().__init__()
        self.model, self.loss_fn = model, loss_fn
        self.add_optimizer(optim)

    def build(self, x, y):
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        return loss


def batch():
    return sl.randn(8, 1, 6, 6), sl.randint(0, 5, (8,))


def kernels(graph):
    return [k["op"] for k in graph.plan["kernels"]]


def test_first_call_compiles():  # NG-01
    class Deep(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(40)])

        def build(self, x):
            return self.layers(x)

    graph, x = Deep(), sl.ones(2, 8)
    assert not graph.is_compiled
    start = time.perf_counter()
    graph(x).numpy()
    first = time.perf_counter() - start
    assert graph.is_compiled
    later = []
    for _ in range(5):
        start = time.perf_counter()
        graph(x).numpy()
        later.append(time.perf_counter() - start)
    assert first >= 3 * min(later)


def test_graph_and_eager_share_parameters_both_ways():  # NG-02
    model = net()
    train = Train(model, sl.optim.SGD(model.parameters(), lr=0.5))
    x, y = batch()
    before = model[0].weight.clone()
    train(x, y)
    assert not model[0].weight.equal(before)  # the plan wrote it
    forward = Forward(model.eval())
    assert forward(x).numpy() == pytest.approx(model(x).detach().numpy(), abs=1e-6)
    with sl.no_grad():
        model[4].bias.add_(100.0)
    assert forward(x).numpy().min() > 50  # eager wrote it
    assert forward.model is model and train.model is model


def test_inference_graph_over_the_trained_module():  # NG-03
    model = net()
    train = Train(model, sl.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        train(*batch())
    forward, x = Forward(train.model.eval()), batch()[0]
    assert_same(forward(x), torch.from_numpy(model(x).detach().numpy()), 1e-6)


def test_input_gradient_without_weight_gradients():  # NG-05
    class InputGrad(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def build(self, x):
            x.requires_grad_()
            self.model(x).square().sum().backward()
            return x.grad

    theirs = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 3))
    ours = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    a = torch.randn(2, 2, 8, 8, requires_grad=True)
    theirs(a).square().sum().backward()
    graph = InputGrad(ours)
    assert_same(graph(sl.tensor(a.detach().numpy())), a.grad, 1e-4)
    assert not [k for k in kernels(graph) if "weight_grad" in k or "update" in k]
    assert "conv_input_grad" in kernels(graph)


def test_unused_results_are_cut_from_the_plan():  # NG-06
    class Wasteful(nn.Graph):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)
            self.config.set_granularity("op")

        def build(self, x):
            self.unused(x).exp().sum()
            self.used(x)
            return self.used(x)

    graph = Wasteful()
    graph(sl.ones(2, 4))
    assert kernels(graph) == ["linear"]
    assert all("unused" not in v["name"] for v in graph.plan["variables"])


def test_plain_functions_serve_as_losses():  # NG-07
    model = net()
    def loss_fn(logits, y):
        return F.cross_entropy(logits, y) * 2

    train = Train(model, sl.optim.SGD(model.parameters(), lr=0.0), loss_fn)
    x, y = batch()
    model.train()
    assert train(x, y).item() == pytest.approx(loss_fn(model(x), y).item(), rel=1e-5)


def test_train_and_eval_graphs_of_one_model_alternate():  # NG-08
    ours, plain = net(), net()
    optim = sl.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    other = sl.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    train, x = Train(ours.train(), optim), batch()[0]
    train.compile(*batch())
    evaluate = Forward(ours.eval()).compile(x)
    for _ in range(2):
        for _ in range(10):
            data = batch()
            train(*data)
            other.zero_grad()
            F.cross_entropy(plain.train()(data[0]), data[1]).backward()
            other.step()
        assert evaluate(x).numpy() == pytest.approx(plain.eval()(x).detach().numpy(), abs=1e-4)


def test_training_mode_before_the_first_call_selects_the_logic():  # NG-31
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.BatchNorm1d(64))
    x = sl.ones(8, 4)
    train = Forward(model.train())
    assert not train(x).equal(train(x))
    mean = model[2].running_mean.clone()
    evaluate = Forward(model.eval())
    assert evaluate(x).equal(evaluate(x))
    train(x)
    assert not model[2].running_mean.equal(mean)
    assert int(model[2].num_batches_tracked) == 3


def test_dropout_in_a_graph_draws_anew_and_repeats_by_seed():
    def run():
        sl.manual_seed(5)
        graph = Forward(nn.Dropout(0.5))
        return [graph(sl.ones(50)).tolist() for _ in range(3)]

    first = run()
    assert first == run() and first[0] != first[1]


def test_clipping_zero_grad_and_schedule_are_in_the_plan():  # NG-24
    class Clipped(nn.Graph):
        def __init__(self, model, optim):
            super().__init__()
            self.model = model
            self.add_optimizer(optim, sl.optim.lr_scheduler.StepLR(optim, 2, 0.5))

        def build(self, x, y):
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            return loss

    ours = net()
    theirs = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                                 torch.nn.Linear(144, 5))
    theirs.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in ours.state_dict().items()})
    other = torch.optim.SGD(theirs.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(other, 2, 0.5)
    graph = Clipped(ours, sl.optim.SGD(ours.parameters(), lr=0.5))
    for _ in range(6):
        x, y = batch()
        graph(x, y)
        other.zero_grad()
        torch.nn.functional.cross_entropy(theirs(torch.from_numpy(x.numpy())), torch.from_numpy(y.numpy())).backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.1)
        other.step()
        schedule.step()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert_same(p, q, 1e-4)
    names = {k["module"] for k in graph.plan["kernels"]}
    assert "optimizer0" in names
    assert graph.stats()["submitted"] == 6 and all(p.grad is None for p in ours.parameters())


def test_eager_gradients_survive_tracing():
    model = net()
    model(batch()[0]).sum().backward()
    before = model[0].weight.grad.clone()
    Train(model, sl.optim.SGD(model.parameters(), lr=0.1))(*batch())
    assert model[0].weight.grad.equal(before)


def test_several_optimizers_update_their_own_parameters():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    class Two(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(sl.optim.SGD(model[0].parameters(), lr=0.0))
            self.add_optimizer(sl.optim.Adam(model[1].parameters(), lr=0.1))

        def build(self, x):
            self.model(x).sum().backward()

    before = copy.deepcopy(model)
    graph = Two()
    assert graph(sl.ones(1, 3)) is None
    graph.synchronize()
    assert model[0].weight.equal(before[0].weight) and not model[1].weight.equal(before[1].weight)


def test_placement_per_op_inserts_copies():  # MS-02
    class Mixed(nn.Graph):
        def build(self, x):
            with sl.device("sim:0"):
                y = (x @ x).relu()
            with sl.device("cpu"):
                return y + 1

    graph, x = Mixed(), sl.randn(4, 4)
    assert_same(graph(x), (torch.from_numpy(x.numpy()) @ torch.from_numpy(x.numpy())).relu() + 1)
    assert {s["device"] for s in graph.plan["streams"]} == {"cpu:0", "sim:0"}
    assert {"copy_in", "copy_out"} <= {s["kind"] for s in graph.plan["streams"]}


def test_misuse_is_named():
    with pytest.raises(AttributeError, match="super"):
        class Early(nn.Graph):
            def __init__(self):
                self.x = 1
        Early()
    with pytest.raises(NotImplementedError, match="build"):
        nn.Graph()(sl.ones(1))
    with pytest.raises(TypeError, match="add_optimizer: got int"):
        nn.Graph().add_optimizer(3)
    graph = Forward(nn.Identity())
    with pytest.raises(RuntimeError, match="not compiled"):
        graph.plan
    graph(sl.ones(1))
    with pytest.raises(RuntimeError, match="after the graph was compiled"):
        graph.config.set_outputs_buffer_size(3)

    class Reads(nn.Graph):
        def build(self, x):
            return x if x.sum().item() > 0 else -x

    with pytest.raises(RuntimeError, match="traced"):
        Reads()(sl.ones(2))
