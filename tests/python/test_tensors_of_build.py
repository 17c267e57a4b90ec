"""Tensors that build() makes and writes to: in a graph as in torch."""

import pytest
import torch

import sluice as sl


def accumulate(m, x):
    c = m.zeros(3)
    y = x + c
    c.add_(1)
    return y, x * c, c


def fill_rows(m, x):
    out = m.zeros(2, 3)
    for i in range(2):
        out[i] = x * (i + 1)
    return out, out.sum(0)


def read_write_read(m, x):
    c = m.ones(3)
    first = x * c
    c[1:] = x[1:]
    second = x * c
    c.mul_(2)
    return first, second, c * 1


def views(m, x):
    c = m.zeros(4, 3)
    row, column = c[1], c[:, 0]
    c.add_(x)
    row.mul_(10)
    column.zero_()
    return c * 1, row * 1, column * 1


def view_written(m, x):
    c = m.arange(6.0).reshape(2, 3)
    v = c.t()
    v.add_(x[0])
    return c * 1, v * 1


def one_number(m, x):
    total = m.tensor(0.0)
    for i in range(3):
        total += x[i]
    count = m.tensor(1.0)
    y = x * count
    count.add_(1)
    return total, y, x * count


def random_start(m, x):
    c = m.empty(3)
    c.copy_(x)
    c.clamp_(min=1.5)
    return c * 1


def gradients(m, x):
    w = x * 1
    w.requires_grad_(True)
    c = m.zeros(3)
    c[0] = w[0] * 2
    c[1:] = w[:2] ** 2
    (c.sum() * 3).backward()
    return w.grad, c.detach()


def detached(m, x):
    c = m.zeros(3)
    d = c.detach()
    d.add_(x)
    return c * 1, d * 1


def saved_views(m, x):
    w = x * 1
    w.requires_grad_(True)
    c = m.ones(2, 3)
    v = c[None]
    v.add_(x)
    (v * v * w).sum().backward()
    return w.grad, c * 1, v.detach() * 1


PROGRAMS = [saved_views, accumulate, fill_rows, read_write_read, views, view_written, one_number, random_start, gradients, detached]


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_equal_torch(program):
    class Program(sl.nn.Graph):
        def build(self, x):
            return program(sl, x)

    graph = Program()
    for step in range(3):  # every step begins with what build() made
        numbers = [1.0 + step, 2.0, -3.0 * step]
        expected = [t.tolist() for t in program(torch, torch.tensor(numbers))]
        assert [t.tolist() for t in program(sl, sl.tensor(numbers))] == expected
        assert [t.tolist() for t in graph(sl.tensor(numbers))] == expected


def test_saved_values_are_guarded():
    def program(m, x):
        w = x * 1
        w.requires_grad_(True)
        c = m.ones(3)
        y = w * c
        c.add_(x)
        y.sum().backward()
        return w.grad

    class Program(sl.nn.Graph):
        def build(self, x):
            return program(sl, x)

    for call in (lambda: program(torch, torch.ones(3)), lambda: program(sl, sl.ones(3)), lambda: Program()(sl.ones(3))):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            call()


def test_what_was_there_before_is_not_written():
    outside = sl.zeros(3)

    class Program(sl.nn.Graph):
        def build(self, x):
            y = x + outside
            outside.add_(x)
            return y

    with pytest.raises(RuntimeError, match="in-place write inside graph .* to a tensor that is not part of it"):
        Program()(sl.ones(3))
    assert outside.tolist() == [0, 0, 0]


def test_contents_do_not_leave_the_graph_unreturned():
    kept = []

    class Program(sl.nn.Graph):
        def build(self, x):
            c = sl.zeros(3)
            c[0] = x[0]
            kept.append(c)
            return c

    assert Program()(sl.ones(3)).tolist() == [1, 0, 0]
    for use in (lambda c: c.tolist(), lambda c: c + 1, lambda c: c.add_(1), lambda c: c.numpy(), repr):
        with pytest.raises(RuntimeError, match="a tensor that build\\(\\) made and wrote to was used outside of the graph"):
            use(kept[0])
