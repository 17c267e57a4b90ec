"""Extents in training: gradients, micro-batches, devices, families."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from extent_sources import ROWS, made_of, rows_of, source


def test_what_a_buffer_keeps_must_be_all_there():
    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", sl.zeros(8, 3))

    class Net(nn.Graph):
        def __init__(self, masked):
            super().__init__()
            self.kept, self.masked = Kept(), masked

        def build(self):
            x = rows_of([3])
            self.kept.last.copy_(sl.where((sl.arange(8) < sl.extent(x, 0)).reshape(-1, 1), x, 0) if self.masked else x)
            return x

    with pytest.raises(NotImplementedError, match="variable 'kept.last': its update varies in length: axis 0 is of dim 'rows'"):
        Net(False)()
    graph = Net(True)
    assert len(graph().numpy()) == 3
    graph.synchronize()
    assert graph.kept.last.numpy()[:, 0].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]


def test_training_on_batches_of_any_length_is_as_with_each_alone():
    def one(sizes, rows, masked=True):
        sl.manual_seed(0)
        model = nn.Linear(3, 1)

        class Train(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.01))

            def build(self):
                x = sl.host_function(source(sizes), out=((rows, 3), sl.float32))
                n = sl.extent(x, 0)
                mask = (sl.arange(x.shape[0]) < n).reshape(-1, 1)
                x = sl.where(mask, x, 0) if masked else x
                errors = (self.model(x) - 1) ** 2
                loss = sl.where(mask, errors, 0).sum() / n
                loss.backward()
                return loss

        return Train(), model

    together, trained = one([5, 8, 2], ROWS)
    losses = [together().item() for _ in range(3)]
    alone = nn.Linear(3, 1)
    alone.load_state_dict(one([1], ROWS)[1].state_dict())
    optimizer = sl.optim.SGD(alone.parameters(), lr=0.01)
    for n, loss in zip([5, 8, 2], losses):
        x = sl.tensor(np.arange(1, n + 1, dtype=np.float32).reshape(n, 1).repeat(3, 1))
        expected = ((alone(x) - 1) ** 2).mean()
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        np.testing.assert_allclose(loss, expected.item(), rtol=1e-5)
    together.synchronize()
    np.testing.assert_allclose(trained.weight.detach().numpy(), alone.weight.detach().numpy(), rtol=1e-5)
    # A gradient that would take in what is not there is refused, at the line of its forward call.
    with pytest.raises(NotImplementedError, match="mixes rows of dim 'rows'"):
        one([5], ROWS, masked=False)[0]()


def test_gradients_reach_parameters_through_a_function_that_has_one():
    class Scale(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return sl.host_function(lambda a: a * 2, x, out=((ROWS, 3), sl.float32))

        @staticmethod
        def backward(ctx, grad):
            return sl.host_function(lambda a: a * 2, grad, out=((8, 3), sl.float32))

    weight = nn.Linear(3, 3, bias=False)

    class Net(nn.Graph):
        def __init__(self):
            super().__init__()
            self.fc = weight

        def build(self, x):
            y = Scale.apply(self.fc(x))
            masked = sl.where((sl.arange(8) < sl.extent(y, 0)).reshape(-1, 1), y, 0)
            masked.sum().backward()
            return y, self.fc.weight.grad

    y, grad = Net()(sl.ones(8, 3))
    assert tuple(y.shape) == (8, 3) and grad.numpy().tolist() == [[16.0] * 3] * 3


def test_micro_batches_each_have_their_own_extent():
    sizes = [3, 8, 1, 2]

    class Net(nn.Graph):
        def __init__(self, result):
            super().__init__()
            self.result = result
            self.config.set_gradient_accumulation_steps(2)

        def build(self):
            x = rows_of(sizes)
            return self.result(x)

    graph = Net(lambda x: (sl.extent(x, 0), sl.where((sl.arange(8) < sl.extent(x, 0)).reshape(-1, 1), x, 0).sum()))
    for pair in ([3, 8], [1, 2]):
        extents, sums = graph()
        assert extents.numpy().tolist() == pair
        assert sums.numpy().tolist() == [3 * n * (n + 1) / 2 for n in pair]
    with pytest.raises(NotImplementedError, match="pack: mixes rows of dim 'rows'"):
        Net(lambda x: x)()


def test_over_several_devices_of_one_process():
    place = sl.placement("sim", [0, 1])

    def build(masked):
        x = rows_of([3, 8])
        if masked:
            x = sl.where((sl.arange(8) < sl.extent(x, 0)).reshape(-1, 1), x, 0)
        return x.to_global(place, sl.sbp.split(0)).sum(), x * 2

    with pytest.raises(NotImplementedError, match="to_global: mixes rows of dim 'rows'"):
        made_of(lambda: build(False))()
    graph = made_of(lambda: build(True))
    assert [graph()[0].item() for _ in range(2)] == [18, 108]


def test_on_another_device_and_back():
    def build():
        x = rows_of([3, 8, 0])
        with sl.device("sim:0"):
            y = x * 2
            total = sl.where((sl.arange(8) < sl.extent(x, 0)).reshape(-1, 1), y, 0).sum()
        return y, total

    graph = made_of(build)
    for n in (3, 8, 0):
        y, total = graph()
        assert y.numpy().tolist() == [[2.0 * (i + 1)] * 3 for i in range(n)] and total.item() == 3 * n * (n + 1)


def test_families_have_dims_of_both_kinds():
    sizes = []

    def pick():
        return np.full((sizes[-1],), 7, np.float32)

    class Net(nn.Graph):
        def __init__(self, fit):
            super().__init__(name="both")
            self.config.set_dims({"x": {0: sl.Dim("batch", max=4, buckets=[2, 4], fit=fit)}})

        def build(self, x):
            y = sl.host_function(pick, out=((ROWS,), sl.float32))
            return x.reshape(-1, 1) * y

    graph = Net("pad")
    for n, m in [(3, 5), (1, 8), (2, 0), (4, 2)]:
        sizes.append(m)
        x = np.arange(n, dtype=np.float32)
        assert graph(sl.tensor(x)).numpy().tolist() == [[7 * v] * m for v in x]
    graph = Net("split")  # each part of a call is a step, with an extent of its own
    sizes.append(5)
    assert tuple(graph(sl.ones(4)).shape) == (4, 5)
