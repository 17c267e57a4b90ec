"""jit.to_static(): Python's control flow on values of a graph. The functions as Python runs them are the oracle."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn


class Calls(nn.Graph):
    def __init__(self, function):
        super().__init__(name="calls")
        self.function = sl.jit.to_static(function)

    def build(self, *inputs):
        return self.function(*inputs)


def branches(x, n):
    if x.sum() > 0:
        y = x * 2
    elif n > 2:
        y = x - n
    else:
        y = -x
    return y


def one_sided(x, n):
    y = x
    if n % 2 == 0:
        y = y + 1
        x = y * y
    return x + y


def early_return(x, n):
    if x.sum() > 0:
        return x * 2
    if n > 2:
        return x + n
    x = x * x
    return x - 1


def numbers_become_tensors(x, n):
    sign, shift = 1, 0.5
    if x.mean() < 0:
        sign = -1
        shift = 2
    return x * sign + shift


def while_values(x, n):
    steps = 0
    while x.abs().max() > 1:
        x = x / 2
        steps += 1
    return x, steps


def while_with_break(x, n):
    i = 0
    while True:
        x = x + 1
        i += 1
        if x.sum() > 10 or i >= n:
            break
    return x, i


def while_with_continue(x, n):
    i, odd = 0, 0
    while i < n:
        i += 1
        if i % 2 == 0:
            continue
        odd = odd + i
        x = x + odd
    return x, odd


def returns_from_a_loop(x, n):
    i = 0
    while i < 10:
        if x.sum() + i > n:
            return x * i
        i += 1
    return x - 100


def for_in_range(x, n):
    total = x
    for i in range(n):
        total = total * 0.5 + i
    return total


def for_in_range_backwards(x, n):
    for i in range(n + 5, n, -2):
        x = x + i
    return x


def for_rows(x, n):
    largest = x[0]
    for value in x:
        if value > largest:
            largest = value
    return largest


def for_with_break_and_continue(x, n):
    seen = 0
    for i in range(8):
        if i == 1:
            continue
        if i > n:
            break
        seen = seen + i
    return x + seen


def nested_loops(x, n):
    total = 0
    for i in range(n):
        j = 0
        while j < i:
            if (i + j) % 3 == 0:
                j += 2
                continue
            total = total + i * j
            j += 1
    return x + total


def nested_with_break(x, n):
    found = -1
    for i in range(n):
        for j in range(i):
            if i * j > n:
                found = i * 10 + j
                break
        if found > 0:
            break
    return x + found


def returns_from_nested_loops(x, n):
    for i in range(n):
        for j in range(n):
            if i + j > 3:
                return x + i * 10 + j
    return x - 1


def logic(x, n):
    if x.sum() > 0 and not (n > 3) or n == 0:
        return x + 1
    return x - 1


def chained(x, n):
    return x * 2 if 1 < n <= 4 else x * 3


def python_stays_python(x, n, flag=True, names=("a", "b")):
    out = {}
    for name in names:
        if flag and name != "c":
            out[name] = x + len(out)
    assert len(out) == 2, "two"
    return out["a"] + out["b"]


def tuples(x, n):
    pair = (x, n)
    if n > 1:
        pair = (x + 1, n - 1)
    a, b = pair
    return a * b


def defines_functions(x, n):
    def clipped(v):
        if v.sum() > n:
            return v - 1
        return v

    k = 0
    while k < 3:
        x = clipped(x + k)
        k += 1
    return x


def greatest_common_divisor(x, n):
    a, b = n + 12, n * 0 + 18
    while b != 0:
        a, b = b, a % b
    return x * a


FUNCTIONS = [branches, one_sided, early_return, numbers_become_tensors, while_values, while_with_break, while_with_continue,
             returns_from_a_loop, for_in_range, for_in_range_backwards, for_rows, for_with_break_and_continue, nested_loops,
             nested_with_break, returns_from_nested_loops, logic, chained, python_stays_python, tuples, defines_functions,
             greatest_common_divisor]


def flat(value):
    return [np.asarray(v.numpy() if isinstance(v, sl.Tensor) else v)
            for v in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_graph_does_what_python_does(function):  # PS-03
    graph, translated = Calls(function), sl.jit.to_static(function)
    for seed, n in [(0, 0), (1, 1), (2, 3), (3, 6), (4, 4)]:
        x = sl.from_numpy((np.random.RandomState(seed).randn(4) * 3).astype(np.float32))
        expected = flat(function(x, n))
        for got in (flat(translated(x, n)), flat(graph(x, sl.tensor(n)))):
            for mine, theirs in zip(got, expected, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_gradients_flow_through_branches():
    w = nn.Parameter(sl.tensor([1.0, -2.0]))

    @sl.jit.to_static
    def loss(x):
        y = w * x
        if y.sum() > 0:
            return y.sum()
        return (y * y).sum()

    class Gradient(nn.Graph):
        def __init__(self):
            super().__init__()
            self.w = w

        def build(self, x):
            return sl.autograd.grad(loss(x), self.w)[0]

    graph = Gradient()
    for x in ([3.0, 1.0], [1.0, 3.0]):
        x = sl.tensor(x)
        (expected,) = sl.autograd.grad(loss(x), w)
        assert graph(x).tolist() == expected.tolist()


def test_print_and_assert_run_when_the_graph_runs(capfd):
    def function(x):
        assert x.sum() > 0, "must be positive"
        if x.sum() > 5:
            print("large:", x.sum(), "!")
        return x + 1

    graph = Calls(function)
    assert graph(sl.tensor([2.0])).item() == 3
    graph(sl.tensor([8.0])).item()
    graph.synchronize()
    assert capfd.readouterr().out == "large: tensor(8.) !\n"
    with pytest.raises(Exception, match="must be positive"):
        graph(sl.tensor([-1.0])).item()


class Counted(nn.Module):
    @sl.jit.to_static
    def forward(self, x):
        """Halves."""
        count = 0
        while x.sum() > 1:
            x = x / 2
            count += 1
        return count

    @property
    def other(self):
        return super().training


def test_methods():
    module = Counted()
    assert Counted.forward.__doc__ == "Halves." and module(sl.tensor([9.0])) == 4

    class Graph(nn.Graph):
        def __init__(self):
            super().__init__()
            self.inner = module

        def build(self, x):
            return self.inner(x)

    assert Graph()(sl.tensor([9.0])).item() == 4


def with_else(x):
    while x.sum() > 0:
        x = x - 1
    else:
        x = x + 1
    return x


def returns_in_with(x):
    with sl.no_grad():
        if x.sum() > 0:
            return x
    return x


def generates(x):
    yield x


def sets_global(x):
    global COUNT
    if x.sum() > 0:
        COUNT = 1
    return x


@pytest.mark.parametrize("function, message", [(with_else, "loop with else"), (returns_in_with, "return inside of with"),
                                               (generates, "is a generator"), (sets_global, "sets 'COUNT' of another scope")])
def test_what_has_no_form_is_refused_with_its_line(function, message):
    with pytest.raises(SyntaxError, match=message) as error:
        sl.jit.to_static(function)
    assert error.value.filename == __file__ and error.value.lineno >= function.__code__.co_firstlineno


def test_errors_say_what_to_do():
    with pytest.raises(TypeError, match="must be a function or a method"):
        sl.jit.to_static(3)

    def unset(x):
        if x.sum() > 0:
            y = x
            z = 1
        return z + 1

    def shapes(x):
        if x.sum() > 0:
            x = x[:1]
        return x

    def kinds(x):
        y = "a"
        if x.sum() > 0:
            y = "b"
        return x

    for function, error, message in ((shapes, TypeError, "tensors of shapes"),
                                     (kinds, TypeError, "between tensors and numbers"),
                                     (unset, UnboundLocalError, "'z' has no value here")):
        with pytest.raises(error, match=message):
            Calls(function)(sl.ones(2))
