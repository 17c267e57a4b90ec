"""Optimizers added with is_sparse: steps touch the rows of tables that were looked up, as torch's do with sparse gradients."""

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn.functional as F
from sluice import nn

# SparseAdam adds eps before it corrects the bias, Adam afterwards; here it does not count.
MAKERS = {"SGD": (lambda o, p: o.SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
          "Adam": (lambda o, p: o.Adam(p, lr=0.1, eps=1e-14), lambda p: torch.optim.SparseAdam(p, lr=0.1, eps=1e-14)),
          "LazyAdam": (lambda o, p: o.LazyAdam(p, lr=0.1, eps=1e-14), lambda p: torch.optim.SparseAdam(p, lr=0.1, eps=1e-14)),
          "Adagrad": (lambda o, p: o.Adagrad(p, lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1))}


class Bags(nn.Module):
    """Two lookups of one table, and a layer."""

    def __init__(self, padding=None, rows=50):
        super().__init__()
        self.table, self.head = nn.Embedding(rows, 6, padding_idx=padding), nn.Linear(6, 2)

    def forward(self, first, second):
        return self.head(self.table(first).sum(1) * self.table(second))


class Train(nn.Graph):
    def __init__(self, net, table, rest):
        super().__init__()
        self.net = net
        self.add_optimizer(table, is_sparse=True)
        self.add_optimizer(rest)

    def build(self, first, second, y):
        loss = F.cross_entropy(self.net(first, second), y)
        loss.backward()
        return loss


def batches(n):
    g = torch.Generator().manual_seed(0)
    return [(torch.randint(0, 12, (8, 3), generator=g) * 4, torch.randint(0, 6, (8,), generator=g) * 3, torch.randint(0, 2, (8,), generator=g))
            for _ in range(n)]


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize("padding", [None, 4])
@pytest.mark.parametrize("name", MAKERS)
def test_steps_are_those_of_torchs_sparse_gradients(name, padding, mode):  # NG-26
    ours, (mine, theirs_of) = Bags(padding), MAKERS[name]
    table, head = torch.nn.Embedding(50, 6, padding_idx=padding, sparse=True), torch.nn.Linear(6, 2)
    table.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.table.state_dict().items()})
    head.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.head.state_dict().items()})
    graph = Train(ours, mine(sl.optim, ours.table.parameters()), sl.optim.SGD(ours.head.parameters(), lr=0.1))
    optimizers = [theirs_of(table.parameters()), torch.optim.SGD(head.parameters(), lr=0.1)]
    start, seen = ours.table.weight.detach().clone(), set()
    with sl.set_mode(mode):
        for first, second, y in batches(8):
            loss = torch.nn.functional.cross_entropy(head(table(first).sum(1) * table(second)), y)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            assert_same(graph(to_sl(first), to_sl(second), to_sl(y)), loss, 1e-4)
            seen |= {*first.flatten().tolist(), *second.tolist()} - {padding}
    assert_same(ours.table.weight, table.weight, 1e-4)
    assert_same(ours.head.weight, head.weight, 1e-4)
    changed = (ours.table.weight.detach() != start).any(1)
    assert {i for i, c in enumerate(changed.tolist()) if c} == seen  # and nothing else
    state = graph._optimizers[0][0].state_dict()["state"].get(0, {})
    for value in state.values():
        if value.ndim == 2:
            untouched = [i for i in range(50) if i not in seen]
            assert (value[untouched] == value[untouched][0]).all() and sl.unique(value[untouched]).numel() == 1


def test_no_kernel_is_as_large_as_the_table():  # NG-26
    sizes = []
    for rows in (100, 1_000_000):
        net = Bags(rows=rows)
        graph = Train(net, sl.optim.Adam(net.table.parameters()), sl.optim.SGD(net.head.parameters(), lr=0.1))
        first, second, y = batches(1)[0]
        graph(*map(to_sl, (first, second, y)))
        plan = graph.plan
        tables = {i for i, v in enumerate(plan["variables"]) if v["shape"] == [rows, 6]}
        assert len(tables) == 3  # with what Adam remembers
        written = [v for k in plan["kernels"] for v in k["outputs"] if v["shape"] == [rows, 6]]
        assert len(written) == 3 and all(v["base"] == "variable" and v["index"] in tables for v in written)
        assert {k["op"] for k in plan["kernels"] if any(v["shape"] == [rows, 6] for v in k["inputs"])} <= {"index_select", "scatter"}
        sizes.append((graph.memory()["total"] - sum(4 * rows * 6 for _ in tables), [k["op"] for k in plan["kernels"]]))
    assert sizes[0][1] == sizes[1][1] and abs(sizes[0][0] - sizes[1][0]) < 1024


def test_tables_that_are_not_looked_up_stay_and_dense_parameters_train():  # NG-26
    net = Bags()
    graph = Train(net, sl.optim.Adam([{"params": net.table.parameters()}, {"params": [net.head.bias], "lr": 0.5}], lr=0.1),
                  sl.optim.SGD([net.head.weight], lr=0.1))
    graph.build = lambda x: (loss := net.head(x).square().sum(), loss.backward())[0]
    before = net.table.weight.tolist(), net.head.bias.tolist(), net.head.weight.tolist()
    graph(sl.ones(1, 6))
    assert net.table.weight.tolist() == before[0] and net.head.bias.tolist() != before[1] and net.head.weight.tolist() != before[2]
    none = Train(Bags(), sl.optim.SGD(Bags().table.parameters(), lr=1.0), sl.optim.SGD(Bags().head.parameters(), lr=1.0))
    first, second, y = (t[:0] for t in batches(1)[0])
    none.build = lambda a, b, y: (loss := none.net(a, b).sum(), loss.backward())[0]
    assert none(to_sl(first), to_sl(second), to_sl(y)).item() == 0  # an empty batch


def test_what_is_not_of_rows_is_refused():  # NG-26
    first, second, y = map(to_sl, batches(1)[0])

    def refused(text, change=lambda graph: None, optimizer=sl.optim.SGD, **options):
        net = Bags()
        with pytest.raises(NotImplementedError, match=text):
            graph = Train(net, optimizer(net.table.parameters(), lr=0.1, **options), sl.optim.SGD(net.head.parameters(), lr=0.1))
            change(graph)
            graph(first, second, y)

    refused("RMSprop does not update row by row; SGD", optimizer=sl.optim.RMSprop)
    refused("with micro-batches or a gradient scaler", lambda graph: graph.config.set_gradient_accumulation_steps(2))
    refused("with micro-batches or a gradient scaler", lambda graph: graph.set_grad_scaler(sl.amp.GradScaler()))
    refused("max_norm or scale_grad_by_freq", lambda graph: setattr(graph.net.table, "max_norm", 1.0))
    refused("local, float32 or float64", lambda graph: graph.net.half())
    refused("others than nn.Embedding", lambda graph: setattr(graph, "build", lambda a, b, y: (
        loss := graph.net(a, b).sum() + (graph.net.table.weight * 2).sum(), loss.backward())[0]))
    with pytest.raises(IndexError, match="index out of range: 132"):
        net = Bags()
        Train(net, sl.optim.SGD(net.table.parameters(), lr=0.1), sl.optim.SGD(net.head.parameters(), lr=0.1))(first + 100, second, y).item()
