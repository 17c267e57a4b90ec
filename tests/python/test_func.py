"""torch.func: derivatives, vmap and modules as functions; torch is the oracle."""

import pytest
import torch
from conftest import assert_same, to_sl
from torch.utils import _pytree

import sluice as sl

X = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
M = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def ours_of(nest):
    return _pytree.tree_map(lambda v: to_sl(v) if isinstance(v, torch.Tensor) else v, nest)


def assert_equal(ours, theirs, tolerance=1e-9):
    if isinstance(theirs, torch.Tensor):
        assert_same(ours, theirs, tolerance)
        assert ours.requires_grad == theirs.requires_grad
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_equal(ours[key], theirs[key], tolerance)
    elif isinstance(theirs, (tuple, list)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            assert_equal(a, b, tolerance)
    else:
        assert ours == theirs


def same(case, *args):
    """`case(lib, *args)` gives the same with either library."""
    theirs = case(torch, *_pytree.tree_map(torch.clone, args))
    assert_equal(case(sl, *ours_of(args)), theirs)


def fails(case, *args, kind=(RuntimeError, ValueError, TypeError, IndexError)):
    """It is refused in both, with an error of the same kind."""
    for lib, given in ((torch, args), (sl, ours_of(args))):
        with pytest.raises(kind):
            case(lib, *given)


DERIVATIVES = {
    "grad": lambda lib, x, m: lib.func.grad(lambda x: (x.sin() * x).sum())(x),
    "grad of two": lambda lib, x, m: lib.func.grad(lambda x, m: (x @ m).exp().sum(), argnums=(0, 1))(x, m),
    "grad of the last": lambda lib, x, m: lib.func.grad(lambda x, m: (x @ m).exp().sum(), argnums=-1)(x, m),
    "grad of grad": lambda lib, x, m: lib.func.grad(lambda v: lib.func.grad(lambda u: u**4)(v) * v)(x[0]),
    "third": lambda lib, x, m: lib.func.grad(lib.func.grad(lib.func.grad(lambda u: u.tanh() * u**3)))(x[2]),
    "grad of a dict": lambda lib, x, m: lib.func.grad(lambda d: (d["x"] @ d["m"][0]).sum())({"x": x, "m": [m, x]}),
    "aux": lambda lib, x, m: lib.func.grad(lambda x: ((x * x).sum(), {"y": x * 2, "n": [x]}), has_aux=True)(x),
    "grad and value": lambda lib, x, m: lib.func.grad_and_value(lambda x: (x * x).sum())(x),
    "grad and value, aux": lambda lib, x, m: lib.func.grad_and_value(lambda x: ((x * x).sum(), x * 3), has_aux=True)(x),
    "keyword": lambda lib, x, m: lib.func.grad(lambda x, *, k: (x * k).sum())(x, k=x * 3),
    "vjp": lambda lib, x, m: (lambda out, pull: (out, pull(out * 2)))(*lib.func.vjp(lambda x, m: x @ m, x, m)),
    "vjp of a tuple": lambda lib, x, m: lib.func.vjp(lambda x: (x * 2, x.sum()), x)[1]((x, x[0])),
    "vjp twice": lambda lib, x, m: (lambda pull: (pull(x), pull(x * 2)))(lib.func.vjp(lambda x: x**3, x)[1]),
    "vjp, aux": lambda lib, x, m: (lambda out, pull, aux: (out, pull(x), aux))(*lib.func.vjp(lambda x: (x**3, x * 2), x, has_aux=True)),
    "jvp": lambda lib, x, m: lib.func.jvp(lambda x, m: (x @ m, x.sum()), (x, m), (x * 2, m * 3)),
    "jvp of a constant": lambda lib, x, m: lib.func.jvp(lambda x: (x * 2, lib.ones(2)), (x,), (x,)),
    "jvp, aux": lambda lib, x, m: lib.func.jvp(lambda x: (x.exp(), x), (x,), (x * 2,), has_aux=True),
    "jvp of grad": lambda lib, x, m: lib.func.jvp(lib.func.grad(lambda x: x.tanh().sum() * x.sum()), (x,), (x * 2,))[1],
    "grad of jvp": lambda lib, x, m: lib.func.grad(lambda t: lib.func.jvp(lambda x: x.sigmoid() * x, (t,), (x,))[1].sum())(x),
    "linearize": lambda lib, x, m: (lambda out, push: (out, push(x, m), push(x * 2, m * 0)))(*lib.func.linearize(
        lambda x, m: (x @ m).sin(), x, m)),
    "jacrev": lambda lib, x, m: lib.func.jacrev(lambda x, m: (x @ m, {"s": x.sum()}), argnums=(0, 1))(x, m),
    "jacfwd": lambda lib, x, m: lib.func.jacfwd(lambda x, m: (x @ m, {"s": x.sum()}), argnums=(0, 1))(x, m),
    "jacrev, independent": lambda lib, x, m: lib.func.jacrev(lambda x: (x.exp(), lib.ones(2)))(x),
    "jacfwd, aux": lambda lib, x, m: lib.func.jacfwd(lambda x: (x.exp(), x), has_aux=True)(x),
    "jacrev of a matrix": lambda lib, x, m: lib.func.jacrev(lambda m: m.t() @ m, chunk_size=2)(m),
    "hessian": lambda lib, x, m: lib.func.hessian(lambda x: (x.prod() + x.exp().sum()))(x),
    "hessian of two": lambda lib, x, m: lib.func.hessian(lambda x, m: (x @ m).sin().sum(), argnums=(0, 1))(x, m),
    "hessian of a vector": lambda lib, x, m: lib.func.hessian(lambda x: x**3)(x),
    "jacrev of jacfwd": lambda lib, x, m: lib.func.jacrev(lib.func.jacfwd(lambda x: x.sigmoid() * x.sum()))(x),
    "without gradients": lambda lib, x, m: lib.no_grad()(lib.func.grad(lambda x: (x * x).sum()))(x),
    "without gradients inside": lambda lib, x, m: lib.func.grad(lambda x: (x * lib.no_grad()(lambda: x * x)()).sum())(x),
    "0-d": lambda lib, x, m: lib.func.jacfwd(lib.sin)(x[1]),
    "empty": lambda lib, x, m: lib.func.jacrev(lambda x: x[:0] * 2)(x),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_equal_torch(name):
    same(DERIVATIVES[name], X, M)


@pytest.mark.parametrize("name", ["grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian"])
def test_derivatives_have_gradients_by_arguments_and_by_what_else_is_read(name):
    def case(lib, x, w):
        x, w = x.requires_grad_(True), w.requires_grad_(True)

        def f(x):
            return (x**3 * w).sum() if name in ("grad", "hessian") else x**3 * w

        for given in (x, x.detach()):
            if name in ("grad", "jacrev", "jacfwd", "hessian"):
                found = getattr(lib.func, name)(f)(given)
            elif name == "vjp":
                found = lib.func.vjp(f, given)[1](w)[0]
            else:
                found = lib.func.jvp(f, (given,), (w,))[1]
            (found**2).sum().backward()
        return x.grad, w.grad

    same(case, X, X * 0.3 + 1)


def test_history_is_kept_only_where_it_leads_somewhere():
    x = to_sl(X)
    for f in (sl.func.grad(lambda x: (x * x).sum()), sl.func.jacrev(sl.exp), sl.func.jacfwd(sl.exp), lambda x: sl.func.jvp(
            sl.exp, (x,), (x,))[1], lambda x: sl.func.vjp(sl.exp, x)[1](x)[0], lambda x: sl.func.vjp(sl.exp, x)[0]):
        assert not f(x).requires_grad
        assert f(x.requires_grad_(True)).requires_grad
        with sl.no_grad():
            assert not f(x).requires_grad
        x = to_sl(X)


def test_misuse_of_derivatives():
    fails(lambda lib, x: lib.func.grad(lambda x: x * 2)(x), X)
    fails(lambda lib, x: lib.func.grad(lambda x: 3.0)(x), X)
    fails(lambda lib, x: lib.func.grad(lambda x: (x.sum(), x.sum()))(x), X)
    fails(lambda lib, x: lib.func.grad(lambda x: x.sum(), argnums=2)(x), X)
    fails(lambda lib, x: lib.func.grad(lambda x: x.sum(), argnums=())(x), X)
    fails(lambda lib, x: lib.func.grad(lambda x: x.sum(), argnums=(0, 0))(x), X)
    fails(lambda lib, x: lib.func.grad(lambda x: x.sum(), has_aux=True)(x), X)
    fails(lambda lib, x: lib.func.grad(lambda x: x.sum())((x > 0).sum()), X)
    fails(lambda lib, x: lib.func.grad(lambda x: lib.ones(()))("text"), X)
    fails(lambda lib, x: lib.func.vjp(lambda x: x * 2, x)[1]((x, x)), X)
    fails(lambda lib, x: lib.func.vjp(lambda x: x * 2, x)[1](x[:2]), X)
    fails(lambda lib, x: lib.func.jvp(lambda x: x * 2, x, x), X)
    fails(lambda lib, x: lib.func.jvp(lambda x: x * 2, (x,), (x, x)), X)
    fails(lambda lib, x: lib.func.jvp(lambda x: x * 2, (x,), (x[:2],)), X)
    fails(lambda lib, x: lib.func.jacrev(lambda x: x * 2, chunk_size=0)(x), X)
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        sl.func.nothing_of_that_name  # noqa: B018


@pytest.mark.parametrize("name", ["grad", "jvp", "jacrev", "hessian", "vjp", "jacfwd"])
def test_derivatives_in_a_graph(name):
    cases = {"grad": lambda lib, x: lib.func.grad(lambda x: x.sin().sum())(x), "hessian": lambda lib, x: lib.func.hessian(
        lambda x: x.prod())(x), "jvp": lambda lib, x: lib.func.jvp(lib.tanh, (x,), (x * 2,)), "vjp": lambda lib, x: lib.func.vjp(
            lib.tanh, x)[1](x), "jacrev": lambda lib, x: lib.func.jacrev(lambda x: x.sum() * x)(x),
             "jacfwd": lambda lib, x: lib.func.jacfwd(lambda x: x.sum() * x)(x)}

    class Derive(sl.nn.Graph):
        def build(self, x):
            return cases[name](sl, x)

    assert_equal(Derive()(to_sl(X)), cases[name](torch, X))


# vmap

B = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
VMAPS = {
    "one": lambda lib, x, b: lib.vmap(lambda r: r.sum())(b),
    "two": lambda lib, x, b: lib.vmap(lib.dot)(b, b * 2),
    "a whole argument": lambda lib, x, b: lib.vmap(lambda r, x: r * x, in_dims=(0, None))(b, x),
    "dims": lambda lib, x, b: lib.vmap(lambda r, c: r @ c, in_dims=(1, -1), out_dims=0)(b, b),
    "out_dims": lambda lib, x, b: lib.vmap(lambda r: (r * 2, r.sum()), out_dims=(1, 0))(b),
    "negative out_dims": lambda lib, x, b: lib.vmap(lambda r: r * 2, out_dims=-1)(b),
    "nested": lambda lib, x, b: lib.vmap(lib.vmap(lambda s: s * s))(b),
    "outer product": lambda lib, x, b: lib.vmap(lib.vmap(lambda a, b: a * b, (None, 0)), (0, None))(x, x),
    "dict": lambda lib, x, b: lib.vmap(lambda d: {"s": d["r"].sum() * d["x"]}, in_dims=({"r": 0, "x": None},))({"r": b, "x": x}),
    "list": lambda lib, x, b: lib.vmap(lambda l: l[0] + l[1], in_dims=([0, 1],))([b, b.t()]),
    "a number": lambda lib, x, b: lib.vmap(lambda r, n: r * n, in_dims=(0, None))(b, 3),
    "keyword": lambda lib, x, b: lib.vmap(lambda r, *, k: r * k)(b, k=b),
    "per-sample gradients": lambda lib, x, b: lib.vmap(lib.func.grad(lambda x, r: (x @ r).sin()), in_dims=(None, 0))(x, b),
    "jacobian by vmap": lambda lib, x, b: lib.vmap(lambda v: lib.func.vjp(lambda x: b @ x, x)[1](v)[0])(lib.eye(4, dtype=lib.float64)),
    "jacrev of vmap": lambda lib, x, b: lib.func.jacrev(lambda b: lib.vmap(lambda r: r.prod())(b))(b),
    "softmax": lambda lib, x, b: lib.func.vmap(lambda r: r.softmax(0), chunk_size=2)(b),
    "constant": lambda lib, x, b: lib.vmap(lambda r: lib.ones(2))(b),
}


@pytest.mark.parametrize("name", VMAPS)
def test_vmap_equals_torch(name):  # JAX-08
    same(VMAPS[name], X, B)


C = torch.randn(3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))  # three samples of 2 x 4
OF_SAMPLES = {
    **{name: lambda lib, r, name=name: getattr(lib, name)(r)
       for name in ("abs", "neg", "exp", "sin", "cos", "tanh", "sigmoid", "erf", "floor", "sign", "square", "relu", "flatten", "sum", "mean", "prod", "amax",
                    "amin", "argmax", "var", "std", "norm", "t", "ravel", "diagonal", "tril", "triu", "trace", "isnan", "any", "count_nonzero")},
    **{name: lambda lib, r, name=name: getattr(lib, name)(r, 0)
       for name in ("softmax", "log_softmax", "logsumexp", "cumsum", "cumprod", "sort", "argsort", "max", "min", "median", "unsqueeze", "squeeze", "unbind",
                    "all", "std_mean")},
    **{name: lambda lib, r, name=name: getattr(lib, name)(r, r.flip(1))
       for name in ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "eq", "lt", "logical_and", "fmod", "hypot")},
    **{f"F.{name}": lambda lib, r, name=name: getattr(lib.nn.functional, name)(r)
       for name in ("gelu", "silu", "softplus", "elu", "leaky_relu", "hardtanh", "logsigmoid")},
    "matmul": lambda lib, r: r @ r.mT, "mv": lambda lib, r: r @ r[0], "outer": lambda lib, r: lib.outer(r[0], r[1]), "clamp": lambda lib, r: r.clamp(-0.5, 0.5),
    "pow": lambda lib, r: r**3, "where": lambda lib, r: lib.where(r > 0, r, r * 2), "masked_fill": lambda lib, r: r.masked_fill(r > 0, 1.0),
    "cat": lambda lib, r: lib.cat([r, r * 2], 1), "stack": lambda lib, r: lib.stack([r, r * 2]), "chunk": lambda lib, r: lib.chunk(r, 2, 1),
    "reshape": lambda lib, r: r.reshape(4, 2), "permute": lambda lib, r: r.permute(1, 0), "expand": lambda lib, r: r[:, :1].expand(2, 5),
    "index": lambda lib, r: r[1, 1:3], "index of a list": lambda lib, r: r[:, [0, 3]], "flip": lambda lib, r: r.flip(1), "roll": lambda lib, r: r.roll(1, 1),
    "narrow": lambda lib, r: r.narrow(1, 1, 2), "pad": lambda lib, r: lib.nn.functional.pad(r, (1, 2)), "topk": lambda lib, r: r.topk(2),
    "gather": lambda lib, r: r.gather(1, r.argsort(1)), "cast": lambda lib, r: r.to(lib.float32), "einsum": lambda lib, r: lib.einsum("ij,kj->ik", r, r),
    "F.linear": lambda lib, r: lib.nn.functional.linear(r, r * 2, r[:, 0]), "F.mse_loss": lambda lib, r: lib.nn.functional.mse_loss(r, r.flip(0)),
    "F.layer_norm": lambda lib, r: lib.nn.functional.layer_norm(r, (4,)), "F.conv1d": lambda lib, r: lib.nn.functional.conv1d(r[None], r[None, :, :2]),
    "F.avg_pool1d": lambda lib, r: lib.nn.functional.avg_pool1d(r, 2), "F.cosine_similarity": lambda lib, r: lib.nn.functional.cosine_similarity(r, r.flip(0)),
    "linalg.inv": lambda lib, r: lib.linalg.inv(r @ r.mT), "linalg.det": lambda lib, r: lib.linalg.det(r @ r.mT),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", OF_SAMPLES)
def test_vmap_of_an_op_is_the_op_of_each_sample(name):  # JAX-08
    def results(lib, x):
        made = OF_SAMPLES[name](lib, x)
        return tuple(made) if isinstance(made, (tuple, list)) else (made,)  # those with names are of other types in torch

    same(lambda lib, c: lib.vmap(lambda r: results(lib, r))(c), C)
    made = sl.vmap(lambda r: results(sl, r))(to_sl(C))
    for got, *alone in zip(made, *(results(sl, to_sl(r)) for r in C), strict=True):
        assert_same(got, torch.stack([torch.from_numpy(t.numpy()) for t in alone]), 1e-12)


def test_gradients_flow_through_vmap():
    def case(lib, x, b):
        x.requires_grad_(True), b.requires_grad_(True)
        lib.vmap(lambda r, x: (r * x).sin().sum(), in_dims=(0, None))(b, x).pow(2).sum().backward()
        return x.grad, b.grad

    same(case, X.clone(), B.clone())


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_randomness_of_vmap(randomness):
    rows = sl.vmap(lambda r: r * 0 + sl.rand(3), randomness=randomness)(sl.ones(4, 3))
    assert len({tuple(row) for row in rows.tolist()}) == (1 if randomness == "same" else 4)
    dropped = sl.vmap(lambda r: sl.nn.functional.dropout(r), randomness=randomness)(sl.ones(4, 100))
    assert len({tuple(row) for row in dropped.tolist()}) == (1 if randomness == "same" else 4)
    assert sl.rand(3).tolist() != rows[0].tolist()


def test_misuse_of_vmap():
    fails(lambda lib, b: lib.vmap(lambda r: r)(b, b[:2]), B)
    fails(lambda lib, b: lib.vmap(lambda r, s: r)(b, b[:2]), B)
    fails(lambda lib, b: lib.vmap(lambda: 1)(), B)
    fails(lambda lib, b: lib.vmap(lambda r: r, in_dims=None)(b), B)
    fails(lambda lib, b: lib.vmap(lambda r: r, in_dims=(None,))(b), B)
    fails(lambda lib, b: lib.vmap(lambda r: r, in_dims=2)(b), B)
    fails(lambda lib, b: lib.vmap(lambda r: r, in_dims=(0, 0))(b), B)
    fails(lambda lib, b: lib.vmap(lambda r, n: r)(b, 3), B)
    fails(lambda lib, b: lib.vmap(lambda r: 3)(b), B)
    fails(lambda lib, b: lib.vmap(lambda r: r, out_dims=(0, 0))(b), B)
    fails(lambda lib, b: lib.vmap(lambda r: r, out_dims=5)(b), B)
    fails(lambda lib, b: lib.vmap(lambda r: r, randomness="some")(b), B)
    fails(lambda lib, b: lib.vmap(lambda r: r, chunk_size=0)(b), B)
    fails(lambda lib, b: lib.vmap(lambda r: r + lib.rand(3))(b), B)
    with pytest.raises(ValueError, match="mapped dimension is empty"):
        sl.vmap(lambda r: r)(sl.ones(0, 3))


def test_vmap_in_a_graph():
    class Map(sl.nn.Graph):
        def build(self, x, b):
            return sl.vmap(sl.func.grad(lambda x, r: (x @ r).sin()), in_dims=(None, 0))(x, b), sl.vmap(
                lambda r: sl.rand(2), randomness="different")(b)

    gradients, drawn = Map()(to_sl(X), to_sl(B))
    assert_equal(gradients, VMAPS["per-sample gradients"](torch, X, B))
    assert len({tuple(row) for row in drawn.tolist()}) == 4


# Modules


def nets(lib):
    lib.manual_seed(5)
    return lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Tanh(), lib.nn.Linear(4, 2)).double()


def pair():
    theirs, ours = nets(torch), nets(sl)
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    return ours, theirs


@pytest.mark.parametrize("train", [True, False])
def test_functional_call_equals_torch(train):
    ours, theirs = pair()

    def case(lib, net, b):
        net.train(train)
        params = {k: p.detach() * 2 for k, p in net.named_parameters()}
        buffers = {k: t.clone() for k, t in net.named_buffers()}
        before = {k: t.clone() for k, t in net.state_dict().items()}
        found = lib.func.functional_call(net, (params, buffers), (b,)).detach()
        if not train:
            found = lib.func.grad(lambda p: lib.func.functional_call(net, (p, buffers), (b,)).square().sum())(params)
        part = lib.func.functional_call(net, {"0.weight": params["0.weight"]}, b)
        left = {k: (t - before[k]).abs().sum() for k, t in net.state_dict().items() if "running" not in k and "batches" not in k}
        return found, part.detach(), left

    assert_equal(case(sl, ours, to_sl(B)), case(torch, theirs, B), 1e-8)


def test_functional_call_ties_and_refuses():
    def case(lib, x):
        net = lib.nn.Sequential(lib.nn.Linear(3, 3, bias=False), lib.nn.Linear(3, 3, bias=False)).double()
        net[1].weight = net[0].weight
        w = x.new_ones(3, 3)
        found = [lib.func.functional_call(net, {"0.weight": w}, x), lib.func.functional_call(net, {"0.weight": w * 2, "1.weight": w}, x,
                                                                                             tie_weights=False)]
        assert net[0].weight is net[1].weight
        for options, given in (({}, {"0.weight": w, "1.weight": w * 2}), ({"strict": True}, {"0.weight": w, "lost": w}),
                               ({"strict": True}, {}), ({}, ({"0.weight": w}, {"0.weight": w})), ({}, {"0.weight": 3}), ({}, [3])):
            with pytest.raises((RuntimeError, ValueError, TypeError)):
                lib.func.functional_call(net, given, x, **options)
        assert net[0].weight is net[1].weight
        return found

    same(case, X)


def test_ensembles_by_vmap():
    models = [nets(sl)[0] for _ in range(3)]
    params, buffers = sl.func.stack_module_state(models)
    assert not buffers and params["weight"].shape == (3, 4, 3) and params["weight"].requires_grad and params["weight"].is_leaf
    out = sl.vmap(lambda p, x: sl.func.functional_call(models[0], p, x), in_dims=(0, None))(params, to_sl(B))
    assert out.allclose(sl.stack([m(to_sl(B)) for m in models]))
    out.sum().backward()
    assert params["weight"].grad.shape == (3, 4, 3)
    with pytest.raises(RuntimeError, match="same class"):
        sl.func.stack_module_state([models[0], sl.nn.Tanh()])
    with pytest.raises(RuntimeError, match="at least one model"):
        sl.func.stack_module_state([])
