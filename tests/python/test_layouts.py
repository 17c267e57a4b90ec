"""Arguments of graphs that are not contiguous: what is a view of them, and what a copy, is as in torch."""

import numpy as np
import pytest
import torch

import sluice as sl


def strided(kind, m):
    """A tensor of shape (3, 4), the same numbers for every kind."""
    values = np.arange(12.0).reshape(3, 4) + 1
    if kind == "transposed":
        return m.from_numpy(np.ascontiguousarray(values.T)).t()
    if kind == "numpy":
        return m.from_numpy(np.asfortranarray(values))
    if kind == "sliced":
        wide = np.zeros((3, 8))
        wide[:, ::2] = values
        return m.from_numpy(wide)[:, ::2]
    if kind == "rows":  # of which flatten() is a view, though it is not contiguous
        tall = np.zeros((6, 4))
        tall[::2] = values
        return m.from_numpy(tall)[::2]
    return m.from_numpy(values)


KINDS = ["contiguous", "transposed", "numpy", "sliced", "rows"]


def write_flat(m, x):
    x.flatten().mul_(0)
    return x + 0


def write_reshaped(m, x):
    y = x.reshape(2, 6)
    y[0] = 7
    return x * 1, y * 1


def write_contiguous(m, x):
    y = x.contiguous()
    y.add_(1)
    return x * 1, y * 1


def write_base(m, x):
    y = x.reshape(-1)
    x.mul_(2)
    return x * 1, y * 1


def write_half(m, x):
    x[:2].flatten().zero_()
    x.t().flatten().add_(1)
    return x * 1


def write_view_of_view(m, x):
    x.t().reshape(4, 3).square_()
    x.unsqueeze(0).flatten(0, 1).neg_()
    return x * 1


def ask(m, x):
    return x * 2 if x.is_contiguous() else x * 3


def told(m, x):
    return x * x.stride()[0]


PROGRAMS = [write_flat, write_reshaped, write_contiguous, write_base, write_half, write_view_of_view, ask, told]


def graph_of(program, **config):
    class Program(sl.nn.Graph):
        traces = 0

        def build(self, x):
            Program.traces += 1
            return program(sl, x)

    graph = Program()
    for name, value in config.items():
        getattr(graph.config, name)(value)
    return graph


def listed(result):
    return [r.tolist() for r in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_programs_equal_torch(program, kind):
    expected = listed(program(torch, strided(kind, torch)))
    assert listed(program(sl, strided(kind, sl))) == expected
    assert listed(graph_of(program)(strided(kind, sl))) == expected


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kinds", [KINDS, KINDS[::-1], KINDS[1:] + KINDS[:1]])
def test_calls_with_other_strides_are_right_too(program, kinds):
    graph = graph_of(program)
    for _ in range(2):
        for kind in kinds:
            assert listed(graph(strided(kind, sl))) == listed(program(torch, strided(kind, torch))), kind
    assert (1 if program is write_view_of_view else 2) <= type(graph).traces <= len(KINDS)


def test_where_nothing_is_written_one_plan_serves_all():
    graph = graph_of(lambda m, x: (x.flatten() + 1, x.reshape(2, 6).t(), x.contiguous().view(-1)))
    results = [listed(graph(strided(kind, sl))) for kind in KINDS]
    assert results.count(results[0]) == len(KINDS) and type(graph).traces == 1


def test_where_only_views_are_written_one_plan_serves_all():
    def program(m, x):
        x.t()[1:].mul_(3)
        x[:, 0] = 5
        return x * 1

    graph = graph_of(program)
    for kind in KINDS:
        assert listed(graph(strided(kind, sl))) == listed(program(torch, strided(kind, torch)))
    assert type(graph).traces == 1


def test_plans_of_other_strides_share_the_variables():
    class Net(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = sl.nn.Linear(4, 1)
            self.layer.weight.data.fill_(1)
            self.layer.bias.data.zero_()
            self.add_optimizer(sl.optim.SGD(self.layer.parameters(), lr=0.5))

        def build(self, x):
            x.flatten().mul_(2)
            loss = self.layer(x).sum()
            loss.backward()
            return loss

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            torch.nn.init.ones_(self.layer.weight), torch.nn.init.zeros_(self.layer.bias)

    net, reference = Net(), Reference()
    step = torch.optim.SGD(reference.parameters(), lr=0.5)
    for kind in ["contiguous", "transposed", "contiguous", "sliced", "transposed"]:
        step.zero_grad()
        x = strided(kind, torch).float() if kind == "contiguous" else strided(kind, torch)
        x = x.to(torch.float32)
        ours = strided(kind, sl).tolist()
        given = sl.tensor(ours) if kind == "contiguous" else sl.from_numpy(x.numpy().copy(order="K"))
        assert given.is_contiguous() == x.is_contiguous()
        x.flatten().mul_(2)
        loss = reference.layer(x).sum()
        loss.backward()
        step.step()
        assert net(given).item() == pytest.approx(loss.item())
    assert net.layer.weight.tolist() == reference.layer.weight.tolist()


def test_micro_batches_are_cut_as_slices():
    graph = graph_of(write_flat, set_gradient_accumulation_steps=3)
    for kind in KINDS:
        expected = torch.cat([write_flat(torch, part) for part in strided(kind, torch).split(1)])
        assert graph(strided(kind, sl)).tolist() == expected.tolist(), kind


def test_elements_that_repeat_are_not_written():
    one = sl.ones(1, 4)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        graph_of(lambda m, x: x.mul_(2) * 1)(one.expand(3, 4))


def test_view_refuses_what_torch_refuses():
    for m, x in ((torch, strided("transposed", torch)), (sl, strided("transposed", sl))):
        with pytest.raises(RuntimeError, match="view size is not compatible|is not compatible"):
            x.view(12)
    with pytest.raises(RuntimeError, match="is not compatible"):
        graph_of(lambda m, x: x.view(12))(strided("transposed", sl))


def test_bundles_say_which_strides_they_are_for(tmp_path):
    graph = graph_of(write_flat)
    graph(strided("transposed", sl))
    sl.save(graph, tmp_path / "one")
    loaded = sl.load_graph(tmp_path / "one")
    assert listed(loaded(strided("transposed", sl))) == listed(write_flat(torch, strided("transposed", torch)))
    with pytest.raises(ValueError, match=r"argument 'x' has strides \(4, 1\); expected \(1, 3\), as when the graph was compiled"):
        loaded(strided("contiguous", sl))
    graph(strided("contiguous", sl))
    with pytest.raises(NotImplementedError, match="called with 2 memory layouts of its arguments"):
        sl.save(graph, tmp_path / "two")


def test_several_shapes_and_strides():
    @sl.nn.Graph.with_dynamic_input_shape(enable_shared=False)
    class Shapes(sl.nn.Graph):
        def build(self, x):
            return write_flat(sl, x)

    graph = Shapes()
    for kind in KINDS:
        for rows in (2, 3):
            assert listed(graph(strided(kind, sl)[:rows])) == listed(write_flat(torch, strided(kind, torch)[:rows])), (kind, rows)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1), (2, 1, 0)])
def test_strided_views_of_dense_memory_in_other_orders(order):
    """What is only permuted has its memory as a whole in a graph, too, as the windows of attention over long texts ask for."""
    def windows(m, x):
        seen = m.permute(x * 1, order)
        return seen.as_strided((2, 3, 5), (7, 4, 1)) * 2, seen.as_strided((3,), (8,), 2)

    values = np.arange(24.0).reshape(2, 3, 4)
    theirs = torch.tensor(values, requires_grad=True)
    expected = windows(torch, theirs)
    sum(e.sum() for e in expected).backward()

    class Net(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.x = sl.nn.Parameter(sl.tensor(values))

        def forward(self):
            return windows(sl, self.x)

    class Train(sl.nn.Graph):
        def __init__(self, net):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=1.0))

        def build(self):
            found = self.net()
            sum(f.sum() for f in found).backward()
            return found

    net = Net()
    for got, e in zip(Train(net)(), expected):
        np.testing.assert_array_equal(got.numpy(), e.detach().numpy())
    np.testing.assert_array_equal(values - net.x.detach().numpy(), theirs.grad.numpy())
