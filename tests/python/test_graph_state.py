"""The state of a graph: saved and gone on with, in this process and in a new one, before its first call and after it."""

import json
import textwrap

import pytest
import torch

import sluice as sl
import sluice.nn.functional as F
from sluice import nn

PROGRAM = textwrap.dedent("""
    import json, sys
    import sluice as sl
    import sluice.nn.functional as F
    from sluice import nn

    class Train(nn.Graph):
        def __init__(self, net, optimizer, schedule):
            super().__init__()
            self.net, self.mask = net, sl.ones(3)
            self.add_optimizer(optimizer, lr_sch=schedule)

        def build(self, x, y):
            loss = F.cross_entropy(self.net(x) * self.mask, y)
            loss.backward()
            return loss

    def made(seed, dropout=0.25):
        sl.manual_seed(seed)
        net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))
        adam = sl.optim.AdamW(net.parameters(), lr=0.02)
        return Train(net, adam, sl.optim.lr_scheduler.OneCycleLR(adam, 0.05, total_steps=60))

    def batch(i):
        g = sl.Generator().manual_seed(i)
        return sl.randn(8, 6, generator=g), sl.randint(0, 3, (8,), generator=g)

    def steps(graph, begin, end):
        return [graph(*batch(i)).item().hex() for i in range(begin, end)]
""")
exec(PROGRAM)


@pytest.fixture
def trained(tmp_path):
    """A graph's file after 12 steps, and the 20 losses that followed."""
    graph = made(3)
    graph.mask = sl.tensor([1.0, 0.5, 2.0])
    steps(graph, 0, 12)
    path = tmp_path / "state.pt"
    sl.save(graph.state_dict(), path)
    return path, steps(graph, 12, 32)


def test_a_new_process_goes_on_with_identical_losses(trained, run_script):  # NG-14
    path, losses = trained
    done = run_script(PROGRAM + f"graph = made(99)\ngraph.load_state_dict(sl.load({str(path)!r}))\nprint(json.dumps(steps(graph, 12, 32)))")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == losses and len(set(losses)) == 20


def test_its_keys_are_torchs_names(trained):  # NG-14, NG-22
    path, _ = trained
    state = torch.load(path, weights_only=False)  # torch reads it, too
    assert list(state) == ["modules", "optimizers", "schedules", "tensors", "generator"]
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(16, 3))
    net.load_state_dict(state["modules"]["net"])
    assert state["modules"]["net"]["1.num_batches_tracked"].item() == 12
    optimizer = torch.optim.AdamW(net.parameters())
    optimizer.load_state_dict(state["optimizers"][0])
    assert all(s["step"].item() == 12 and {"exp_avg", "exp_avg_sq"} <= s.keys() for s in optimizer.state.values())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=60)
    schedule.load_state_dict(state["schedules"][0])
    assert schedule.last_epoch == 12
    assert state["tensors"]["mask"].tolist() == [1.0, 0.5, 2.0]


@pytest.mark.parametrize("calls_before", [0, 3])
def test_it_is_loaded_before_the_first_call_and_after(trained, calls_before):  # NG-15
    path, losses = trained
    graph = made(5)
    steps(graph, 0, calls_before)
    state = sl.load(path)
    graph.load_state_dict(state)
    assert steps(graph, 12, 32) == losses
    graph.load_state_dict(sl.load(path))  # once more, in the middle of a run
    assert steps(graph, 12, 32) == losses


def test_a_state_in_memory_is_that_of_the_graph(trained):
    graph = made(5)
    assert list(graph.state_dict()) == ["modules", "optimizers", "schedules", "tensors"] and not graph.is_compiled
    before = graph.state_dict()
    graph.load_state_dict(before)
    steps(graph, 0, 1)
    assert before["modules"]["net"]["0.weight"].data_ptr() == graph.net[0].weight.data_ptr()


class Wide(nn.Graph):
    def __init__(self, name="net"):
        super().__init__()
        setattr(self, name, nn.Linear(2, 3))

    def build(self, x):
        return self.net(x)


def test_what_does_not_fit_is_named_and_nothing_is_written():
    graph = made(1)
    good = graph.state_dict()
    weights = graph.net[0].weight.tolist()
    for state, kind, text in [(3, TypeError, "got int; must be what state_dict"), ({"net": {}}, TypeError, "a dict with 'net'; must be"),
                              ({**good, "modules": {}}, RuntimeError, "Missing key.s. in modules: 'net'"),
                              ({**good, "more": 1}, RuntimeError, "Unexpected key.s.: 'more'"),
                              ({**good, "tensors": {"mask": sl.ones(4)}}, RuntimeError, r"size mismatch for mask: got \(4,\); the tensor has \(3,\)"),
                              ({**good, "tensors": {}}, RuntimeError, "Missing key.s. in tensors: 'mask'"),
                              ({**good, "optimizers": []}, RuntimeError, "has AdamW as optimizers, and the state has 0 of 0"),
                              ({**good, "schedules": [None]}, RuntimeError, "has OneCycleLR as schedules, and the state has 0 of 1"),
                              ({**good, "grad_scaler": {}}, RuntimeError, "has no gradient scaler")]:
        with pytest.raises(kind, match=text):
            graph.load_state_dict(state)
    assert graph.net[0].weight.tolist() == weights
    graph.load_state_dict({**good, "modules": {}, "tensors": {}}, strict=False)
    with pytest.raises(RuntimeError, match="size mismatch"):
        graph.load_state_dict({**good, "modules": {"net": {**good["modules"]["net"], "0.weight": sl.ones(2, 2)}}})


def test_captured_tensors_are_variables_and_listed():  # NG-22
    class Masked(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net, self.mask = nn.Linear(3, 3), sl.tensor([1.0, 0.0, 2.0])

        def build(self, x):
            return self.net(x) * self.mask + shift

    shift = sl.tensor([0.0, 5.0, 1.0])
    graph, x = Masked(), sl.ones(2, 3)
    expected = graph.net(x) * graph.mask + shift
    assert sl.equal(graph(x), expected)
    sizes = [v["shape"] for v in graph.plan["variables"] if v["name"].startswith("const")]
    assert sizes == [[3], [3]]
    assert graph.state_dict()["tensors"]["mask"].tolist() == [1, 0, 2]
    graph.mask.mul_(3)  # a tensor that is written is seen
    assert sl.allclose(graph(x), graph.net(x) * graph.mask + shift)
    graph.load_state_dict({**graph.state_dict(), "tensors": {"mask": sl.tensor([0.0, 1.0, 0.0])}})
    assert sl.allclose(graph(x), graph.net(x) * sl.tensor([0.0, 1.0, 0.0]) + shift)
