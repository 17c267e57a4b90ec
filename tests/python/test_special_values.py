"""NaN, infinities and numbers out of range: values, gradients and errors are torch's."""

import pytest
import torch

import sluice as sl

NAN, INF = float("nan"), float("inf")


def both(f):
    """The results of f on Sluice and on torch, an exception as its builtin kind."""
    def run(m):
        try:
            return f(m)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            return next(kind for kind in (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError) if isinstance(error, kind))

    return run(sl), run(torch)


def same(f, **close):
    ours, theirs = both(f)
    assert ours == pytest.approx(theirs, nan_ok=True, **close) if isinstance(theirs, (list, float)) else ours == theirs


def gradient(f, values):
    def run(m):
        x = m.tensor(values, dtype=m.float64, requires_grad=True)
        f(m, x).backward()
        return x.grad.flatten().tolist()

    return run


@pytest.mark.parametrize("name", ["relu", "elu", "leaky_relu", "relu6", "hardtanh", "gelu", "silu", "softplus", "sigmoid", "tanh"])
def test_gradients_of_activations(name):
    same(gradient(lambda m, x: getattr(m.nn.functional, name)(x).sum(), [NAN, -1.0, 0.0, 2.0, INF, -INF, -0.0]))


def test_relu_keeps_the_gradient_of_nan_in_graphs():
    class Net(sl.nn.Graph):
        def build(self, x):
            x.requires_grad_(True)
            sl.relu(x * 2).sum().backward()
            return x.grad

    assert Net()(sl.tensor([NAN, -1.0, 1.0])).tolist() == [2, 0, 2]


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin"])
@pytest.mark.parametrize("values", [[NAN, 1.0, 2.0], [NAN, NAN, 1.0], [1.0, 2.0, 2.0], [INF, INF, 1.0], [-INF, -INF, NAN]])
def test_extrema_share_their_gradient(name, values):
    same(gradient(lambda m, x: getattr(m, name)(x), values))
    if name[0] == "a":
        same(gradient(lambda m, x: getattr(m, name)(x, 1).sum(), [values, [3.0, 1.0, 3.0]]))


def test_gradient_of_atan2_at_the_origin():
    for a, b in ((0.0, 0.0), (NAN, 0.0), (1.0, 0.0), (0.0, -1.0)):
        same(gradient(lambda m, x: m.atan2(x[0], x[1]), [a, b]))


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"weight_decay": 0.1}, {"maximize": True},
                                     {"momentum": 0.5, "dampening": 0.1}])
def test_sgd_of_infinite_parameters_and_gradients(options):
    def run(m):
        p = m.nn.Parameter(m.tensor([INF, -INF, NAN, 1.0, 0.0, 3.0], dtype=m.float64))
        optimizer = m.optim.SGD([p], lr=0.1, **options)
        for scale in (0.5, 1, 2):
            p.grad = m.tensor([1.0, 2.0, 3.0, INF, NAN, -INF], dtype=m.float64) * scale
            optimizer.step()
        return p.tolist()

    same(run)


@pytest.mark.parametrize("name, options", [("Adam", {}), ("AdamW", {}), ("AdamW", {"weight_decay": 0.1}), ("Adam", {"amsgrad": True})])
def test_adam_of_infinite_parameters(name, options):
    def run(m):
        p = m.nn.Parameter(m.tensor([INF, -INF, NAN, 1.0], dtype=m.float64))
        optimizer = getattr(m.optim, name)([p], lr=0.1, **options)
        for scale in (0.5, 1, 2):
            p.grad = m.tensor([1.0, 2.0, 3.0, 4.0], dtype=m.float64) * scale
            optimizer.step()
        return p.tolist()

    same(run)


def test_running_statistics_stay_infinite():
    def run(m):
        norm = m.nn.BatchNorm1d(1).double()
        norm(m.tensor([[INF], [1.0], [2.0]], dtype=m.float64))
        norm(m.ones(3, 1, dtype=m.float64) * m.tensor([[1.0], [2.0], [4.0]], dtype=m.float64))
        other = m.nn.BatchNorm1d(1).double()
        other.running_mean.fill_(INF), other.running_var.fill_(INF)
        other(m.tensor([[1.0], [2.0], [3.0]], dtype=m.float64))
        return [*norm.running_mean.tolist(), *norm.running_var.tolist(), *other.running_mean.tolist(), *other.running_var.tolist()]

    same(run)


@pytest.mark.parametrize("p", [-0.1, 1.1, NAN, INF, -INF])
def test_bernoulli_takes_probabilities(p):
    for f in (lambda m: m.bernoulli(m.zeros(3), p), lambda m: m.zeros(3).bernoulli_(p), lambda m: m.bernoulli(m.full((3,), p)),
              lambda m: m.zeros(3).bernoulli_(m.full((3,), p))):
        assert both(f) == (RuntimeError, RuntimeError)
    with pytest.raises(RuntimeError, match=r"bernoulli_: expects p to be in \[0, 1\], but got"):
        sl.zeros(3).bernoulli_(p)


def test_bernoulli_of_certain_events():
    for f in (lambda m: m.bernoulli(m.tensor([0.0, 1.0, 1.0])), lambda m: m.bernoulli(m.ones(3, dtype=m.int64), 0.0), lambda m: m.zeros(2).bernoulli_(1),
              lambda m: m.bernoulli(m.zeros(0))):
        same(lambda m: f(m).tolist())


@pytest.mark.parametrize("dim", [0, -1, 1])
@pytest.mark.parametrize("call", [
    lambda m, dim: m.tensor(1.0).index_add(dim, m.tensor([0]), m.tensor([2.0])),
    lambda m, dim: m.tensor(1.0).index_add(dim, m.tensor(0), m.tensor(2.0)),
    lambda m, dim: m.tensor(1.0).index_add(dim, m.tensor([0, 0]), m.tensor([2.0, 3.0])),
    lambda m, dim: m.tensor([1.0]).index_add(dim, m.tensor(0), m.tensor(2.0)),
    lambda m, dim: m.tensor([1.0]).index_add(dim, m.tensor([0]), m.tensor([1])),
    lambda m, dim: m.tensor([1.0]).index_add(dim, m.tensor([5]), m.tensor([1.0])),
    lambda m, dim: m.take_along_dim(m.tensor(1.0), m.tensor(0), dim),
    lambda m, dim: m.take_along_dim(m.tensor(1.0), m.tensor([0]), dim),
    lambda m, dim: m.take_along_dim(m.tensor([1.0]), m.tensor([[0]]), dim),
    lambda m, dim: m.take_along_dim(m.tensor([1.0]), m.tensor([0.0]), dim),
    lambda m, dim: m.take_along_dim(m.tensor([1.0]), m.tensor([0]), dim),
])
def test_tensors_without_dims_are_indexed_as_in_torch(call, dim):
    same(lambda m: call(m, dim).tolist())


@pytest.mark.parametrize("name", ["hstack", "vstack", "row_stack"])
def test_stacks_of_tensors_without_dims(name):
    same(lambda m: getattr(m, name)([m.tensor(1.0), m.tensor(2.0)]).flatten().tolist())
    same(gradient(lambda m, x: (getattr(m, name)([x.sum(), x.prod()]) ** 2).sum(), [1.0, 2.0]))


@pytest.mark.parametrize("code", [
    "y = x ** -1; y.mul_(2)", "y = x ** -0.5; y.mul_(2)", "y = x ** 0.5; y.mul_(2)", "z = x * 1; y = z.tan(); z.add_(1)",
    "z = x * 1; y = 1 / z; z.add_(1)", "y = 3 / x; y.mul_(2)", "z = x * 1; y = 3 / z; z.add_(1)", "z = x * 1; y = z.reciprocal(); z.mul_(2)",
    "y = x.tan(); y.mul_(2)", "y = x.reciprocal(); y.mul_(2)", "z = x * 0.1; y = m.erfinv(z); z.add_(1)",
])
def test_writes_after_an_op_are_differentiated_as_in_torch(code):
    def run(m):
        scope = {"m": m, "x": m.tensor([0.5, 2.0, 3.0], dtype=m.float64, requires_grad=True)}
        exec(code, scope)
        scope["y"].sum().backward()
        return scope["x"].grad.tolist()

    same(run)


@pytest.mark.parametrize("view", ["reshape_as(t)", "view_as(t)", "squeeze(-1)", "expand_as(t)", "permute(0, 1)", "narrow(0, 0, 2)"])
def test_views_that_change_nothing_have_no_history_under_no_grad(view):
    w = sl.ones(2, 2, requires_grad=True)
    t = w * 2
    with sl.no_grad():
        same_elements = eval(f"t.{view}")
    assert same_elements.grad_fn is None and t.grad_fn is not None


def test_flatten_of_one_dim_is_the_tensor_itself():
    for m in (sl, torch):
        x = m.ones(3, 3, requires_grad=True)
        assert x.flatten(1) is x and m.flatten(x, 0, 0) is x and x.flatten() is not x
        m.nn.Flatten()(x).sum().backward()
        assert x.grad.tolist() == m.ones(3, 3).tolist()
