"""jit.to_static(): and, or, not, comparisons in a row, conditional expressions, :=, any and all, as plain Python has them."""

import importlib.util
import inspect
import itertools
import random

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn


class Calls(nn.Graph):
    def __init__(self, function, *more):
        super().__init__()
        self.function, self.more = sl.jit.to_static(function), more

    def build(self, *inputs):
        return self.function(*inputs, *self.more)


def plain(value):
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value.tolist() if isinstance(value, sl.Tensor) else value


VALUES = [-1.0, 0.0, 2.0]


def agree(function, *names):
    """A graph of the function gives for all arguments what Python gives; numbers that a value decided about are tensors."""
    graph = Calls(function)
    for values in itertools.product(VALUES, repeat=function.__code__.co_argcount):
        expected = plain(function(*map(sl.tensor, values)))
        got = plain(graph(*map(sl.tensor, values)))
        np.testing.assert_array_equal(np.array(got, float), np.array(expected, float), err_msg=f"{function.__name__}{values}")


def value_of_or(x, y):
    return x or y


def value_of_and(x, y):
    return x and y


def three(x, y, z):
    return x or y and z or x


def numbers(x, y):
    return x and 3.0, y or 7.0, x > 0 or 5.0


def of_calls(x, y):
    return x.sum() or y.abs(), (x > 0).any() and y.exp() > 1


def negations(x, y):
    return not x, not (x and y), not (x or not y)


def rows_of_comparisons(x, y):
    return x < y < 2, x <= y != 0 > x, 0 <= x + y < x * 3 + 1, x < y.abs() < 2


def conditional(x, y):
    return (x if x > 0 and y.abs() > 0 else y), (1.0 if x or y else y), (x if not y else x + y if x > y else -x)


def any_of(x, y):
    return any(v > 0 for v in (x, y)), all([x > 0, y > 0]), any(v for v in (False, x)), all(v + 1 for v in (x, y)), any([]), all([])


def any_of_rows(x, y):
    rows = sl.stack([x, y])
    return any(rows), all(rows), any(r > 1 for r in rows)


def walrus(x, y):
    a = b = x * 0 + 5
    if x > 0 and (a := y + 1) > 0:
        b = a * 2
    c = x or (b := y + 3)
    d = (e := x * 2) + 1
    return a, b, c, d, e


def walrus_of_conditional(x, y):
    a = x * 0
    b = (a := x + 1) if x > 0 else (a := y - 1)
    c = not (x and (a := y))
    return a, b, c


def walrus_in_while(x, y):
    n = x * 0
    while (n := n + 1) < 4:
        y = y + n
    return y


def walrus_in_while_test(x, y):
    n, steps = x * 0, 0
    while (n := n + 1) < 3 and (y := y + 1) < 4:
        steps += 1
    return y, steps


def operands_in_loops(x, y):
    i = 0
    while i < 6 and not (x.sum() > 4 and i > 2):
        if x > 1 or y.sum() > 0:
            x = x + 1
        i += 1
    return x, i


def asserts(x, y):
    assert x > -2 or y > 100
    assert x < 100 and y < 100, "never"
    return x + y


FUNCTIONS = [value_of_or, value_of_and, three, numbers, of_calls, negations, rows_of_comparisons, conditional, any_of, any_of_rows,
             walrus, walrus_of_conditional, walrus_in_while, walrus_in_while_test, operands_in_loops, asserts]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_graph_does_what_python_does(function):
    agree(function)


def put(v):
    v[0] = 9.0
    return v[0] > 0


def in_if(x, y):
    if x > 0 and put(y):
        pass
    return y


def in_or(x, y):
    return x > 0 or put(y)


def in_while(x, y):
    while x > 0 and put(y):
        x = x - 1
    return x


def in_assert(x, y):
    assert x > 0 or put(y)
    return y


def in_not(x, y):
    return not (x > 0 and put(y))


def in_conditional(x, y):
    return x if x > 0 and put(y) else -x


def in_a_row(x, y):
    return 0 < x < put(y)


def in_any(x, y):
    return any(test() for test in (lambda: x > 0, lambda: put(y)))


class OnACopy(Calls):
    def build(self, x, y):
        y = y + 0
        return self.function(x, y), y


@pytest.mark.parametrize("function", [in_if, in_or, in_while, in_assert, in_not, in_conditional, in_a_row, in_any], ids=lambda f: f.__name__)
def test_what_an_operand_changes_is_refused_where_a_value_decides_about_it(function):
    with pytest.raises(RuntimeError, match="cond: a branch|while_loop"):
        OnACopy(function)(sl.tensor(1.0), sl.tensor([1.0, 2.0]))
    for x in (1.0, -1.0):  # Python decides: it is done, or not
        eager, graph = sl.tensor([1.0, 2.0]), sl.jit.to_static(function)
        if function is in_while and x > 0:
            continue
        graph(sl.tensor(x), eager)
        expected = sl.tensor([1.0, 2.0])
        function(sl.tensor(x), expected)
        assert sl.equal(eager, expected)


def test_operands_that_are_not_computed_give_no_error_and_values_are_pythons():
    def function(x, rows):
        return rows is None or x > 0, x and (rows is None or rows[5])

    assert plain(Calls(function, None)(sl.tensor(1.0))) == [True, 1.0]
    assert sl.jit.to_static(function)(sl.tensor(1.0), None) == (True, True)


def test_a_name_that_an_inner_operand_sets_is_refused_with_its_line():
    def function(x):
        return sl.relu(x and (y := x + 1)) + y

    with pytest.raises(SyntaxError, match="sets a name by := in an operand that is not always computed"):
        sl.jit.to_static(function)


def test_the_names_any_and_all_may_be_the_users():
    any = lambda items: sum(items)  # noqa: A001, E731

    def function(x):
        return any([x, x])

    assert Calls(function)(sl.tensor(2.0)).item() == 4


# Drawn expressions.

OPERANDS = ["x", "y", "z", "x > 0", "y <= z", "x + 1", "z * y", "y.abs()", "2.0", "0.0", "(x - y).sum()", "n", "n > 1"]


def draw(r, depth):
    if depth == 0:
        return r.choice(OPERANDS)
    kind = r.choice(["and", "or", "and", "or", "not", "row", "if", "any", "operand"])
    inner = lambda: f"({draw(r, depth - 1)})"
    if kind in ("and", "or"):
        return f" {kind} ".join(inner() for _ in range(r.randint(2, 3)))
    if kind == "not":
        return f"not {inner()}"
    if kind == "row":
        return " ".join([inner(), r.choice(["<", "<=", "!=", ">"]), inner(), r.choice(["<", ">=", "=="]), inner()])
    if kind == "if":
        return f"{inner()} if {inner()} else {inner()}"
    if kind == "any":
        return f"{r.choice(['any', 'all'])}(v for v in [{inner()}, {inner()}])"
    return draw(r, 0)


def test_drawn_expressions(tmp_path):
    check_drawn(tmp_path, seed=7, count=60)


@pytest.mark.soak
def test_many_drawn_expressions(tmp_path):
    check_drawn(tmp_path, seed=8, count=1500)


def check_drawn(tmp_path, seed, count):
    r = random.Random(seed)
    text = "".join(f"def f{i}(x, y, z, n):\n    return {draw(r, 3)}\n\n\ndef g{i}(x, y, z, n):\n    if {draw(r, 2)}:\n"
                   f"        x = x + 1\n    return x\n\n\n" for i in range(count))
    file = tmp_path / "drawn.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("drawn", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases = 0
    for i in range(count):
        for function in (getattr(module, f"f{i}"), getattr(module, f"g{i}")):
            graphs = {n: Calls(function, n) for n in (0, 2)}
            for values in r.sample(list(itertools.product(VALUES, repeat=3)), 6):
                for n, graph in graphs.items():
                    expected = plain(function(*map(sl.tensor, values), n))
                    got = plain(graph(*map(sl.tensor, values)))
                    assert float(got) == float(expected), f"{function.__name__}{values}, n = {n}:\n{inspect.getsource(function)}"
                    cases += 1
    print(f"count: {2 * count} drawn functions, {cases} calls as Python's")
