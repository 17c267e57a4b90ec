"""Graphs whose inputs and results lie on their devices: config.enable_device_ports()."""

import numpy as np
import pytest
import torch

import sluice as sl


class Net(sl.nn.Graph):
    def __init__(self, on=True):
        super().__init__()
        self.config.set_device("sim:0")
        self.config.enable_device_ports(on)

    def build(self, x, y):
        return (x @ y).relu(), x + 1


def memory_of_ports(graph):
    """The memory in which the registers of its inputs and outputs lie."""
    plan = graph.plan
    registers = [i["reg"] for i in plan["inputs"]] + [o["view"]["index"] for o in plan["outputs"]]
    arenas = [plan["arenas"][plan["buffers"][plan["registers"][r]["slots"][0]]["arena"]] for r in registers]
    return [(plan["spaces"][arena["space"]]["kind"], plan["spaces"][arena["space"]]["device"]) for arena in arenas]


def test_the_plan_has_its_ports_on_the_device_and_copies_nothing():
    x, y = np.float32(np.arange(6).reshape(2, 3) - 3), np.float32(np.arange(6).reshape(3, 2))
    expected = (torch.tensor(x) @ torch.tensor(y)).relu(), torch.tensor(x) + 1
    for on in (True, False):
        net = Net(on)
        for _ in range(3):
            for got, want in zip(net(sl.tensor(x), sl.tensor(y)), expected):
                np.testing.assert_array_equal(got.numpy(), want.numpy())
        assert (memory_of_ports(net) == [("device", "sim:0")] * 4) == on
        assert sum(k["op"] == "copy" for k in net.plan["kernels"]) == (0 if on else 4)


def test_inputs_may_lie_anywhere():
    net = Net()
    x = sl.arange(6, dtype=sl.float32).reshape(3, 2).t()  # not contiguous
    first, second = net(x, sl.ones(3, 2).to("sim:0"))
    assert first.tolist() == [[6.0, 6.0], [9.0, 9.0]] and str(first.device) == "cpu"
    assert second.tolist() == (x + 1).tolist()


@pytest.mark.parametrize("batches", [1, 4])
def test_training_gives_the_same_bits(batches):
    class Train(sl.nn.Graph):
        def __init__(self, on):
            super().__init__()
            sl.manual_seed(0)
            self.net = sl.nn.Sequential(sl.nn.Linear(16, 8), sl.nn.Dropout(0.2), sl.nn.Linear(8, 4))
            self.config.set_device("sim:0")
            self.config.enable_device_ports(on)
            self.config.set_gradient_accumulation_steps(batches)
            self.add_optimizer(sl.optim.Adam(self.net.parameters(), lr=0.1))

        def build(self, x, y):
            with sl.stream("host"):
                x = x * 2
            out = self.net(x)
            loss = ((out - y) ** 2).mean()
            loss.backward()
            return loss, out, self.net[0].weight.sum(), y

    def results(graph):
        sl.manual_seed(1)
        return [[r.numpy().copy() for r in graph(sl.rand(8, 16), sl.rand(8, 4))] for _ in range(4)]

    for there, here in zip(results(Train(True)), results(Train(False))):
        for got, want in zip(there, here):
            np.testing.assert_array_equal(got, want)


def test_what_calls_would_copy_cannot_be_donated():
    net = Net()
    net.config.donate_inputs("x")
    with pytest.raises(NotImplementedError, match="argument 'x' cannot be donated: the session copies at its ports"):
        net(sl.ones(2, 3), sl.ones(3, 2))


def test_graphs_over_a_mesh_are_refused():
    class Spread(sl.nn.Graph):
        def build(self, x):
            return x * 2

    net = Spread()
    net.config.enable_device_ports()
    with pytest.raises(NotImplementedError, match="device_ports: .* lies on a mesh of devices; must be off"):
        net(sl.ones(4, 2).to_global(sl.placement("sim", [0, 1]), sl.sbp.split(0)))
