"""Functions of tensors with torch as the oracle: results, gradients and gradients of those, eager and in graphs."""

import numpy as np
import pytest
import torch

import sluice as sl

_g = torch.Generator().manual_seed(7)


def _normal(*shape):
    return torch.randn(shape, generator=_g, dtype=torch.float64)


X, Y, CUBE, V = _normal(3, 4), _normal(3, 4), _normal(2, 3, 4), _normal(5)
ZEROS = X.clone()
ZEROS[1, 2] = ZEROS[0, 0] = ZEROS[0, 3] = 0
INDEX, PLACES = torch.randint(0, 3, (3, 4), generator=_g), torch.tensor([2, 0, 1])
STRIDED = CUBE.transpose(0, 2)

CASES = {
    "sort": (lambda m, x: m.sort(x, 0)[0], X), "topk": (lambda m, x: m.topk(x, 2, 1)[0], X), "msort": (lambda m, x: m.msort(x), STRIDED),
    "kthvalue": (lambda m, x: m.kthvalue(x, 2, 1)[0], X), "median": (lambda m, x: m.median(x), X),
    "median of a dim": (lambda m, x: m.median(x, 1)[0], STRIDED), "mode": (lambda m, x: m.mode(x, 1)[0], X),
    "quantile": (lambda m, x: m.quantile(x, 0.3, 1), X),
    "quantiles": (lambda m, x, q: m.quantile(x, q, 0, True), X, torch.tensor([0.1, 0.5], dtype=torch.float64)),
    **{f"quantile {i}": (lambda m, x, i=i: m.quantile(x, 0.4, 1, interpolation=i), X) for i in ("lower", "higher", "nearest", "midpoint")},
    "cumprod": (lambda m, x: m.cumprod(x, 1), X), "cumprod of zeros": (lambda m, x: m.cumprod(x, 1), ZEROS),
    "cumprod of a strided": (lambda m, x: m.cumprod(x, 0), STRIDED), "cumsum": (lambda m, x: x.cumsum(0), ZEROS),
    "cummax": (lambda m, x: m.cummax(x, 1)[0], X), "cummin": (lambda m, x: m.cummin(x, 0)[0], STRIDED),
    "logcumsumexp": (lambda m, x: m.logcumsumexp(x, 1), X * 5), "aminmax": (lambda m, x: m.aminmax(x, dim=1)[0], X),
    "diag of a matrix": (lambda m, x: m.diag(x, 1), X), "diag of a vector": (lambda m, x: m.diag(x, -1), V),
    "diagonal": (lambda m, x: m.diagonal(x, 0, 1, 2), CUBE), "diag_embed": (lambda m, x: m.diag_embed(x, 1), CUBE),
    "trace": (lambda m, x: m.trace(x), X), "unfold overlaps": (lambda m, x: x.unfold(0, 3, 1), V),
    "unfold": (lambda m, x: x.unfold(1, 2, 1), STRIDED), "as_strided": (lambda m, x: m.as_strided(x, (3, 3), (1, 2), 1), X),
    "diagonal_scatter": (lambda m, x, y: m.diagonal_scatter(x, y[:, 0]), X, Y),
    "select_scatter": (lambda m, x, y: m.select_scatter(x, y[0], 0, 1), X, Y),
    "slice_scatter": (lambda m, x, y: m.slice_scatter(x, y[:, :2], 1, 0, 4, 2), X, Y),
    "einsum": (lambda m, x, y: m.einsum("ij,kj->ik", x, y), X, Y), "inner": (lambda m, x, y: m.inner(x, y), X, Y),
    "kron": (lambda m, x, y: m.kron(x, y), X, V), "cross": (lambda m, x, y: m.cross(x, y, 0), X, Y),
    "baddbmm": (lambda m, x, y: m.baddbmm(x[0, :3, :3], y, y.mT, beta=0.5, alpha=2), CUBE, CUBE),
    "addbmm": (lambda m, x, y: m.addbmm(x[0, :3, :3], y, y.mT, beta=0.5), CUBE, CUBE),
    "addr": (lambda m, x, y: m.addr(x, y[:, 0], y[0]), X, Y), "addmv": (lambda m, x, y: m.addmv(y[:, 0], x, y[0]), X, Y),
    "tensordot": (lambda m, x, y: m.tensordot(x, y, dims=([1, 0], [1, 0])), X, Y), "tensordot 1": (lambda m, x, y: m.tensordot(x, y.t(), 1), X, Y),
    "cov": (lambda m, x: m.cov(x), X), "corrcoef": (lambda m, x: m.corrcoef(x), X), "dist": (lambda m, x, y: m.dist(x, y, 3), X, Y),
    "std_mean": (lambda m, x: sum(m.std_mean(x, 1)), X), "nansum": (lambda m, x: m.nansum(x, 1), X), "nanmean": (lambda m, x: m.nanmean(x), X),
    "diff": (lambda m, x: m.diff(x, 2, 1), X), "trapezoid": (lambda m, y, x: m.trapezoid(y, x), X, Y),
    "cumulative_trapezoid": (lambda m, y: m.cumulative_trapezoid(y, dx=0.5), X),
    "gradient": (lambda m, x: m.gradient(x)[1], X), "gradient of order 2": (lambda m, x: m.gradient(x, spacing=2.0, dim=1, edge_order=2)[0], X),
    "take": (lambda m, x, i: m.take(x, i), X, INDEX), "put": (lambda m, x, i, y: m.put(x, i, y, True), X, INDEX, Y),
    **{f"scatter_reduce {r} {own}": (lambda m, x, i, y, r=r, own=own: m.scatter_reduce(x, 0, i, y, r, include_self=own), X, INDEX, Y)
       for r in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)},
    "scatter_reduce of zeros": (lambda m, x, i, y: m.scatter_reduce(x, 0, i, y, "prod"), ZEROS, INDEX, ZEROS.flip(1)),
    **{f"index_reduce {r}": (lambda m, x, i, y, r=r: m.index_reduce(x, 0, i, y, r), X, PLACES, Y) for r in ("prod", "mean", "amax", "amin")},
    "index_copy": (lambda m, x, i, y: m.index_copy(x, 0, i, y), X, PLACES, Y), "index_fill": (lambda m, x, i: m.index_fill(x, 1, i, 2.0), X, PLACES),
    "index_put": (lambda m, x, i, y: m.index_put(x, (i,), y, True), X, PLACES, Y), "masked_scatter": (lambda m, x, y: m.masked_scatter(x, x > 0, y), X, Y),
    "float_power": (lambda m, x: m.float_power(x, 2.5), X.abs() + 0.5), "nan_to_num": (lambda m, x: m.nan_to_num(x), X),
    "logit": (lambda m, x: m.logit(x), X.abs() / 4 + 0.1), "renorm": (lambda m, x: m.renorm(x, 2, 0, 1.0), X),
    "repeat_interleave": (lambda m, x: m.repeat_interleave(x, 2, 1), X), "rot90": (lambda m, x: m.rot90(x), X),
    "block_diag": (lambda m, x, y: m.block_diag(x, y), X, Y), "cartesian_prod": (lambda m, x: m.cartesian_prod(x, x), V),
    "combinations": (lambda m, x: m.combinations(x), V), "rsub": (lambda m, x, y: m.rsub(x, y, alpha=2), X, Y),
    "tensor_split": (lambda m, x: m.tensor_split(x, 3, 1)[0] * 2, X), "dstack": (lambda m, x, y: m.dstack([x, y]), X, Y),
    "maximum of ties": (lambda m, x, y: m.maximum(x, y), torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([1.0, 3.0, 3.0]).double()),
    "nonzero_static": (lambda m, x: x[m.nonzero_static(x[:, 0] != 9, size=3)[:, 0]], X),
    "memory format": (lambda m, x: x[None].contiguous(memory_format=m.channels_last).sin(), CUBE),
}


def leaves_of(tensors):
    return [t for t in tensors if t.dtype.is_floating_point]


def weights(m, y):
    return m.cos(m.arange(y.numel(), dtype=m.float64)).reshape(y.shape)


def run(m, f, tensors):
    """The result, the gradients, and those of a sum of their cubes; None where there is no such derivative."""
    for t in leaves_of(tensors):
        t.requires_grad_(True)
    y = f(m, *tensors)
    first = m.autograd.grad((y * weights(m, y)).sum(), leaves_of(tensors), create_graph=True, allow_unused=True)
    cubes = [(g**3).sum() for g in first if g is not None and g.requires_grad]
    second = m.autograd.grad(sum(cubes), leaves_of(tensors), allow_unused=True) if cubes else [None] * len(first)
    return [y, *first, *second]


def assert_equal(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        if a is None or b is None:  # no derivative is one of zeros
            assert a is b or not (b if a is None else a).any()
        else:
            assert tuple(a.shape) == tuple(b.shape)
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-6, 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_torchs(name):
    f, *tensors = CASES[name]
    mine = [sl.from_numpy(t.contiguous().numpy()).clone() for t in tensors]
    if tensors[0] is STRIDED:
        mine[0] = sl.from_numpy(CUBE.numpy()).clone().transpose(0, 2).detach()
        assert not mine[0].is_contiguous()
    assert_equal(run(sl, f, mine), run(torch, f, [t.clone() for t in tensors]))


@pytest.mark.parametrize("name", CASES)
def test_graphs_give_the_same(name):
    f, *tensors = CASES[name]

    class Derivatives(sl.nn.Graph):
        def build(self, *given):
            given = [t.detach().requires_grad_(True) if t.dtype.is_floating_point else t for t in given]
            y = f(sl, *given)
            grads = sl.autograd.grad((y * weights(sl, y)).sum(), leaves_of(given), allow_unused=True)
            return (y, *[g for g in grads if g is not None])

    expected = run(torch, f, [t.clone() for t in tensors])
    expected = expected[:1] + [g for g in expected[1:1 + len(leaves_of(tensors))] if g is not None]
    assert_equal(Derivatives()(*[sl.from_numpy(t.contiguous().numpy()) for t in tensors]), expected)


# einsum

EQUATIONS = {
    "ij,jk->ik": "ab", "ij,jk": "ab", "ij->ji": "a", "ij": "a", "ij->": "a", "ij->i": "a", "ij->j": "a", "ii": "s", "ii->i": "s",
    "i,i": "vv", "i,i->i": "vv", "i,j->ij": "vw", "i,j": "vw", "bij,bjk->bik": "CD", "bij,bjk": "CD", "bii->bi": "S", "...ii->...i": "S",
    "...ij->...ji": "C", "i...->...": "C", "bij,ij->b": "Ca", "bij,jk->bik": "Cb", "ij,kj,k->i": "aav", "a,b,c->cab": "vwv",
    "ij,ij,ij->": "aaa", "ijk,kji->": "CT", "...i,...i": "CC", "i...j,j->i...": "Cw", "ba": "a", "ij , jk -> ki": "ab", "iij->j": "S2",
    "...,...": "C1", "aB,Bc->cB": "ab",
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_is_torchs(equation):
    a, b = _normal(3, 4), _normal(4, 2)
    C, D = _normal(2, 3, 4), _normal(2, 4, 5)
    names = {"a": a, "b": b, "s": _normal(3, 3), "v": _normal(3), "w": _normal(4), "C": C, "D": D, "S": _normal(2, 3, 3), "T": C.permute(2, 1, 0),
             "2": None, "1": _normal(4)}
    tensors = [names[c] for c in EQUATIONS[equation] if names[c] is not None]
    if equation == "iij->j":
        tensors = [_normal(3, 3, 2)]
    f = lambda m, *t: m.einsum(equation, *t)  # noqa: E731
    theirs = run(torch, f, [t.clone() for t in tensors])
    assert_equal(run(sl, f, [sl.tensor(t.numpy()) for t in tensors]), theirs)
    if "..." not in equation and "->" in equation:  # which numpy has with the same rules
        np.testing.assert_allclose(theirs[0].detach().numpy(), np.einsum(equation, *[t.numpy() for t in tensors]), 1e-9)


def test_einsum_broadcasts_and_refuses_as_torch():
    x, one = _normal(2, 3), _normal(2, 1)
    ours = sl.einsum("ij,ij->i", sl.tensor(x.numpy()), sl.tensor(one.numpy()))
    assert_equal([ours], [torch.einsum("ij,ij->i", x, one)])
    mine = sl.tensor(x.numpy())
    for equation, message in {"ij": "1 operands were provided|2 operands", "ij,k": "number of subscripts", "ij,ki": "do not broadcast",
                              "ij,ij->z": "output subscript", "i.j,ij": "'.'", "i1,ij": "invalid subscript", "iji,ij": "number of subscripts"}.items():
        with pytest.raises(RuntimeError, match=message):
            sl.einsum(equation, mine, mine)
        with pytest.raises(RuntimeError):
            torch.einsum(equation, x, x)
    with pytest.raises(RuntimeError, match="repeated"):
        sl.einsum("ii", mine)


# Views share memory


def test_views_share_memory_and_strides_with_torchs():
    t, x = torch.arange(24.0).reshape(2, 3, 4), sl.arange(24.0).reshape(2, 3, 4)
    for view in (lambda v: v.diagonal(1, 1, 2), lambda v: v.unfold(2, 2, 2), lambda v: v.unfold(0, 2, 1), lambda v: v.as_strided((2, 2), (5, 3), 4),
                 lambda v: v.transpose(0, 2).unfold(0, 3, 1), lambda v: v.t_() if v.ndim < 3 else v[0].t(), lambda v: v[1].as_strided((2, 2), (1, 2)),
                 lambda v: v.diagonal(0, 0, 2)[1:], lambda v: v.adjoint(), lambda v: v.hsplit((1,))[1], lambda v: v[:, 1:].as_strided((2,), (1,))):
        ours, theirs = view(x), view(t)
        assert ours.stride() == theirs.stride() and ours.storage_offset() == theirs.storage_offset()
        assert ours.data_ptr() - x.data_ptr() == theirs.data_ptr() - t.data_ptr() and ours.tolist() == theirs.tolist()
    x.diagonal(0, 1, 2).fill_(-1)
    t.diagonal(0, 1, 2).fill_(-1)
    assert x.tolist() == t.tolist()
    with pytest.raises(RuntimeError, match="single memory location"):
        sl.ones(1).expand(3).add_(1)
    for size, stride, offset in (((5, 5), (5, 1), 0), ((2,), (1,), 23), ((1,), (1,), -1)):
        with pytest.raises(RuntimeError, match="out of bounds|bounds"):
            x.as_strided(size, stride, offset)
    with pytest.raises(RuntimeError, match="Negative strides"):
        x.as_strided((2,), (-1,))


@pytest.mark.parametrize("dim,size,step", [(0, 2, 1), (1, 3, 2), (2, 2, 2), (-1, 5, 1), (1, 1, 3), (0, 0, 1), (2, 3, 1)])
def test_windows_are_torchs_views(dim, size, step):
    t = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x = sl.tensor(t.numpy())
    ours, theirs = x.unfold(dim, size, step), t.unfold(dim, size, step)
    assert ours.data_ptr() == x.data_ptr() and ours.stride() == theirs.stride() and ours.tolist() == theirs.tolist()
    assert_equal(run(sl, lambda m, v: v.unfold(dim, size, step), [x]), run(torch, lambda m, v: v.unfold(dim, size, step), [t]))
    for wrong in ((3, 1, 1), (0, 4, 1), (0, 1, 0), (0, -1, 1)):
        for v in (x, t):
            with pytest.raises((RuntimeError, IndexError)):
                v.unfold(*wrong)


def test_writes_through_views_have_gradients():
    def f(m, x):
        y = x * 2
        y.diagonal().mul_(3)
        y.unfold(1, 2, 2)[0].fill_(0)
        y.as_strided((2,), (1,), 4).add_(x[2, 2:])
        return y

    assert_equal(run(sl, f, [sl.tensor(X.numpy())]), run(torch, f, [X.clone()]))


# Refusals while a graph is built


@pytest.mark.parametrize("call,instead", {
    "x.unique(dim=0)": "outside", "x.long().flatten().bincount()": "give minlength",
    "x.repeat_interleave(x.long()[0], 1)": "give output_size"}.items())
def test_what_has_no_shape_in_a_graph_says_what_to_write(call, instead):
    class Traced(sl.nn.Graph):
        def build(self, x):
            return eval(call, {"x": x, "sl": sl})

    with pytest.raises(RuntimeError, match=f"is traced.*{instead}|are traced.*{instead}"):
        Traced()(sl.ones(2, 3))


def test_bounds_let_them_trace():
    class Bounded(sl.nn.Graph):
        def build(self, x, times):
            return (x.nonzero_static(size=4), x.bincount(minlength=6), x.repeat_interleave(times, output_size=5),
                    x.bincount(x.double() * 0.5, minlength=6))

    x, times = torch.tensor([0, 3, 1, 0, 5]), torch.tensor([1, 0, 2, 2, 0])
    expected = (x.nonzero_static(size=4), x.bincount(minlength=6), x.repeat_interleave(times), x.bincount(x.double() * 0.5, minlength=6))
    for ours, theirs in zip(Bounded()(sl.tensor(x.numpy()), sl.tensor(times.numpy())), expected, strict=True):
        assert ours.tolist() == theirs.tolist()
