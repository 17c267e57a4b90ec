"""Plans that are made to fit: what is computed again without being told, and budgets."""

import re

import numpy as np
import pytest

import sluice as sl
from sluice import nn

MODES = ("Disable", "Slight", "Moderate", "Heavy")


class Train(nn.Graph):
    def __init__(self, net, mode=None, budget=None):
        super().__init__(name="train")
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9))
        if mode:
            self.config.enable_auto_memory(mode)
        if budget:
            self.config.set_memory_budget(budget)

    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


def tower():
    """Activations are most of its memory."""
    return nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32))])


def convolutions():
    return nn.Sequential(*[layer for i in range(6) for layer in (nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU())])


def noisy():
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.3))])


class Partly(nn.Module):
    """A part of this module has a checkpoint of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = tower(), tower()

    def forward(self, x):
        return sl.utils.checkpoint.checkpoint(self.second, self.first(x))


NETS = {"tower": (tower, (256, 32)), "convolutions": (convolutions, (4, 3, 16, 16)), "noisy": (noisy, (256, 32)), "partly": (Partly, (256, 32)),
        "transformer": (lambda: nn.Sequential(*[nn.TransformerEncoderLayer(16, 2, 64, batch_first=True) for _ in range(3)]), (8, 16, 16))}


def trained(graph, x, steps=3):
    return [graph(x).item() for _ in range(steps)] + [p.detach().numpy() for p in graph.net.parameters()]


def same(a, b):
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", NETS)
def test_every_mode_gives_the_same_bits_in_less_memory(kind):  # CFG-23
    make, shape = NETS[kind]
    x = sl.randn(*shape)
    results, temp, again = {}, {}, {}
    for mode in MODES:
        sl.manual_seed(4)
        graph = Train(make(), mode)
        results[mode] = trained(graph, x)
        temp[mode] = graph.memory()["temp"]
        again[mode] = sum(k.get("role") == "recompute" for k in graph.plan["kernels"])
        assert (graph.config.report()["choose_regions"] > 0) == (mode != "Disable")
        graph.close()
    for mode in MODES:
        same(results[mode], results["Disable"])
    assert temp["Slight"] < temp["Disable"] and again["Slight"] > again["Disable"], (temp, again)
    if kind != "partly":
        assert temp["Heavy"] < temp["Moderate"] < temp["Disable"], temp
        assert again["Heavy"] > again["Moderate"] > 0, again


def test_slight_keeps_products_and_convolutions():
    graph = Train(tower(), "Slight")
    graph.compile(sl.randn(8, 32))
    assert {k["op"] for k in graph.plan["kernels"] if k.get("role") == "recompute"}.isdisjoint({"linear", "matmul"})
    heavy = Train(tower(), "Heavy")
    heavy.compile(sl.randn(8, 32))
    assert "linear" in {k["op"] for k in heavy.plan["kernels"] if k.get("role") == "recompute"}


class Infer(nn.Graph):
    def __init__(self, mode):
        super().__init__(name="infer")
        self.net = tower()
        self.config.enable_auto_memory(mode)

    def build(self, x):
        return self.net(x)


def test_without_a_backward_pass_nothing_changes():
    graphs = [Infer(mode).compile(sl.randn(8, 32)) for mode in ("Disable", "Heavy")]
    assert graphs[0].plan["kernels"] == graphs[1].plan["kernels"]


def test_adaptive_fits_where_disable_refuses():  # CFG-23
    x = sl.randn(256, 32)

    def needs(mode):
        graph = Train(tower(), mode)
        graph.compile(x)
        return graph.memory()["total"]

    budget = needs("Moderate")
    with pytest.raises(MemoryError, match="over its memory budget"):
        Train(tower(), "Disable", budget).compile(x)
    graph = Train(tower(), "Adaptive", budget)
    graph.compile(x)
    assert graph.memory()["total"] <= budget < needs("Disable")
    options = graph.plan["options"]
    assert options["auto_memory"] == "adaptive" and options["auto_memory.chosen"] in ("slight", "moderate")
    easy = Train(tower(), "Adaptive", 2 * needs("Disable"))
    easy.compile(x)
    assert "auto_memory.steps_in_flight" in easy.plan["options"] and easy.plan["options"]["auto_memory.chosen"] == "disable"
    assert not any(k.get("role") == "recompute" for k in easy.plan["kernels"])


def smallest_of(graph, x):
    """The smallest budget, as the error of one that is too small says."""
    with pytest.raises(MemoryError) as refused:
        graph.compile(x, memory=1000)
    text = str(refused.value)
    return int(re.search(r"smallest budget that works is (\d+) bytes", text)[1]), text


@pytest.mark.parametrize("kind", ["tower", "convolutions", "noisy"])
def test_the_smallest_budget_works_and_less_is_refused(kind):  # C-02
    make, shape = NETS[kind]
    x = sl.randn(*shape)
    plain = Train(make())
    plain.compile(x)
    whole = plain.memory()["total"]
    smallest, _ = smallest_of(Train(make()), x)
    assert smallest < 0.7 * whole, (smallest, whole)
    with pytest.raises(MemoryError, match=f"smallest budget that works is {smallest} bytes"):
        Train(make()).compile(x, memory=smallest - 1)
    with pytest.raises(MemoryError):
        Train(make()).compile(x, memory=int(smallest * 0.99))
    results = []
    for budget in (smallest, f"{smallest / 1024 + 1:.0f}KiB", (smallest + whole) // 2, whole, f"{10 * whole}B"):
        sl.manual_seed(6)
        graph = Train(make()).compile(x, memory=budget)
        results.append(trained(graph, x))
        limit = budget if isinstance(budget, int) else 10 * whole if budget.endswith("0B") else smallest + 2048
        assert graph.memory()["total"] <= limit
        graph.close()
    sl.manual_seed(6)
    free = trained(Train(make()), x)
    for result in results:
        same(result, free)


class Many(nn.Graph):
    """With seven results, each in a register of its own."""

    def build(self, x):
        return [x[: 8 * (i + 1)] * i for i in range(7)]


def test_the_refusal_names_the_five_largest_registers():  # C-02
    _, text = smallest_of(Many(), sl.randn(64, 16))
    blamed = text.split("largest registers: ")[1].split("\n")[0]
    assert re.findall(r"'([^']+)' \(\d+ slots? of ", blamed) == ["x", "output6", "output5", "output4", "output3"], text


def test_budgets_are_numbers_with_units():
    config = nn.Graph().config
    for given, expected in (("512MiB", 512 * 2**20), ("1.5 KiB", 1536), ("2GB", 2 * 10**9), ("7", 7), (7, 7), ("0B", 0)):
        config.set_memory_budget(given)
        assert config._options["memory_budget"] == expected
    for wrong in ("much", "5 parsecs", "-3MiB", -3, ""):
        with pytest.raises(ValueError, match="set_memory_budget: got "):
            config.set_memory_budget(wrong)
    with pytest.raises(ValueError, match="enable_auto_memory: got 'Some'; must be one of"):
        config.enable_auto_memory("Some")


def test_adaptive_wants_a_budget():
    with pytest.raises(ValueError, match='auto_memory: "adaptive" without a memory_budget'):
        Train(tower(), "Adaptive").compile(sl.randn(8, 32))


class Named(nn.Graph):
    def build(self, memory):
        return memory * 2


def test_an_argument_called_memory_is_the_graphs():
    graph = Named().compile(memory=sl.ones(3))
    assert graph(memory=sl.ones(3)).tolist() == [2, 2, 2]
