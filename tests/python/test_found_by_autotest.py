"""Generated calls have found these, once each: the generator need not draw them again."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl
from functional_oracle import agree

import sluice as sl

X = torch.tensor([[0.5, -1.5, 2.0], [1.0, 0.25, -0.75]])
INTEGERS = torch.tensor([[3, -2, 5], [1, 4, -6]])
FILL_INDEX = [1, 1, 0]
INF, NAN = float("inf"), float("nan")


def test_gradients():
    x, value, logits = X.double(), torch.tensor(2.5, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    agree(lambda m, x, v: m.index_fill(x, 1, m.tensor(FILL_INDEX), v), x, value, name="a value stands once where an index is named twice")
    for reduction in ("mean", "sum"):
        for loss in ("nll_loss", "cross_entropy"):
            def ignoring_all(m, y):
                f = getattr(m.nn.functional, loss)
                return m.nan_to_num(f(y, m.tensor([1, 1, 1]), ignore_index=1, reduction=reduction), 5.0)

            agree(ignoring_all, logits, double=False, name=f"{loss} of no sample at all, {reduction}")
    for m in (torch, sl):
        dense = m.arange(12.0).reshape(3, 4).t().detach().requires_grad_()
        (gradient,) = m.autograd.grad(dense.as_strided((2, 3), (1, 2)).sum(), [dense])
        assert gradient.tolist() == [[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]]
        expanded = m.ones(1, 2).expand(2, 2).detach().requires_grad_()
        (gradient,) = m.autograd.grad(expanded.as_strided((2,), (1,)).sum(), [expanded])
        assert gradient.tolist() == [[0.5, 0.5], [0.5, 0.5]]  # shared by elements that lie in one place
    divisors = torch.tensor([[0.5, 1.0, 0.0]], dtype=torch.float64)
    for name in ("fmod", "remainder"):  # whose quotient jumps, and is infinite at 0
        agree(lambda m, a, b: getattr(m, name)(a, b).nan_to_num(0.0), x[:1, 1:2], divisors, name=name)
        for m in (torch, sl):
            a, b = (m.tensor(v, dtype=m.float64, requires_grad=True) for v in ([-1.5], [0.0]))
            (slope,) = m.autograd.grad(getattr(m, name)(a, b).sum(), [b], create_graph=True)
            assert [g.item() for g in m.autograd.grad((slope * 1.25).sum(), [a, b])] == [0, 0], name
    for interpolation in ("linear", "midpoint"):  # q is a tensor, though it has no dims
        for name in ("quantile", "nanquantile"):
            agree(lambda m, x, q: getattr(m, name)(x, q, 1, interpolation=interpolation), x,
                  torch.tensor(0.3, dtype=torch.float64), name=f"{name} {interpolation}")
    for name in ("igamma", "igammac"):
        agree(lambda m, x: getattr(m, name)(m.tensor([1.0, 1.0, 2.0]), x), torch.tensor([-1.5, 0.5, -0.5]),
              double=False, tolerance=1e-6, name=f"{name} below 0")


@pytest.mark.parametrize("name", ["addcdiv", "addcmul"])
def test_three_operands_are_of_one_dtype(name):
    for x, a, b in [(torch.tensor([2.0]), torch.tensor([2.5], dtype=torch.float16), torch.tensor(1e-30)),
                    (torch.tensor([2.0]), torch.tensor([200], dtype=torch.uint8), torch.tensor([2.5])),
                    (torch.tensor([2.0]).double(), torch.tensor(1 / 3), torch.tensor(3e38)),
                    (torch.tensor(2.0), torch.tensor([2.5], dtype=torch.float16), torch.tensor(1e-3)),
                    (torch.tensor([2.0]).half(), torch.tensor([2.5], dtype=torch.float16), torch.tensor(1e-3))]:
        theirs = getattr(torch, name)(x, a, b, value=2.0)
        assert_same(getattr(sl, name)(to_sl(x), to_sl(a), to_sl(b), value=2.0), theirs, 1e-6)
    if name == "addcmul":  # which torch takes of integers, too
        small = torch.tensor([200], dtype=torch.uint8)
        assert_same(sl.addcmul(sl.ones(1), to_sl(small), to_sl(small)), torch.addcmul(torch.ones(1), small, small))


@pytest.mark.parametrize("x,w,options", [((2, 3, 6, 5), (5, 3, 1, 1), {}), ((2, 2, 30), (3, 2, 1), {}),
                                         ((2, 3, 3, 3, 3), (5, 3, 3, 3, 3), {"stride": 2, "padding": 1}),
                                         ((2, 1, 4, 4, 4), (2, 1, 3, 3, 3), {"stride": 3, "padding": 1})])
def test_gradients_of_convolutions_of_16_bits(x, w, options):
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randint(-4, 5, s, generator=generator).float() for s in (x, w)]  # of which every sum is exact
    gradients = []
    for m, dtype in ((torch, torch.float32), (sl, sl.bfloat16)):
        leaves = [(v.clone() if m is torch else to_sl(v)).to(dtype).requires_grad_() for v in tensors]
        getattr(m.nn.functional, f"conv{len(x) - 2}d")(*leaves, **options).sum().backward()
        gradients.append([leaf.grad.float().numpy() for leaf in leaves])
    for theirs, ours in zip(*gradients):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("bad", [-INF, INF, NAN])
def test_what_is_ignored_may_be_anything(bad, reduction):
    log_probs = torch.tensor([[bad, 1.0], [1.0, 2.0]])
    for options in ({"ignore_index": 0}, {"weight": [0.0, 1.0]}):
        def loss(m, y):
            weight = {"weight": m.tensor(options["weight"])} if "weight" in options else {}
            return m.nn.functional.nll_loss(y, m.tensor([0, 1]), reduction=reduction, **{**options, **weight})

        agree(loss, log_probs, double=False, name=str(options))


CALLS = {
    "bools stay bools whatever alpha": lambda m, x, i: m.add(i > 0, i > 3, alpha=4),
    "alpha of 0 adds nothing to bools": lambda m, x, i: m.add(i > 0, i > -9, alpha=0),
    "any with an empty list of dims": lambda m, x, i: m.any(x, ()),
    "all with an empty list of dims": lambda m, x, i: m.all(x.to(m.uint8), dim=()),
    "amax over None": lambda m, x, i: m.amax(x, dim=None),
    "diff of order 0 joins nothing": lambda m, x, i: m.diff(x, 0, append=x),
    "complex 0 to a tensor's 0": lambda m, x, i: m.view_as_real(m.pow(m.zeros(1, dtype=m.complex64), m.zeros(1, dtype=m.complex64))),
    "complex 0 to the number 0": lambda m, x, i: m.view_as_real(m.pow(m.zeros(1, dtype=m.complex64), 0)),
    "incomplete gamma functions of NaN": lambda m, x, i: m.stack([f(m.tensor([NAN, NAN, INF, INF]), m.tensor([0.0, INF, NAN, 0.0]))
                                                                 for f in (m.igamma, m.igammac)]),
    "rows with infinities, scaled by frequency": lambda m, x, i: m.nn.functional.embedding(
        m.tensor([1, 0]), m.tensor([[1.0, INF], [-INF, 2.0]]), scale_grad_by_freq=True),
    "rows of integers, scaled by frequency": lambda m, x, i: m.nn.functional.embedding(m.tensor([1]), i, scale_grad_by_freq=True),
    "gaussian_nll_loss with full as a number": lambda m, x, i: m.nn.functional.gaussian_nll_loss(x, x * 2, x.abs(), 1),
    "huber_loss of 16 bits and bools": lambda m, x, i: m.nn.functional.huber_loss(x.half(), i > 0),
    "mse_loss of floats and bools": lambda m, x, i: m.nn.functional.mse_loss(i > 0, x),
    "smooth_l1_loss of floats and bools": lambda m, x, i: m.nn.functional.smooth_l1_loss(x, i > 0, reduction="none"),
    "soft_margin_loss in the input's dtype": lambda m, x, i: m.nn.functional.soft_margin_loss(x.half(), x, reduction="none"),
    "soft_margin_loss of bools as targets": lambda m, x, i: m.nn.functional.soft_margin_loss(x, i > 0),
    "hinge_embedding_loss of integers": lambda m, x, i: m.nn.functional.hinge_embedding_loss(i, m.sign(i), margin=2.5, reduction="none"),
    "binary_cross_entropy with weights of another dtype": lambda m, x, i: m.nn.functional.binary_cross_entropy(
        x.sigmoid(), x.sigmoid(), x.abs().double()),
    "binary_cross_entropy_with_logits in the target's dtype": lambda m, x, i: m.nn.functional.binary_cross_entropy_with_logits(
        x.double(), x.sigmoid(), pos_weight=x[0].abs().double(), reduction="none"),
    "binary_cross_entropy_with_logits of an input that is broadcast": lambda m, x, i: m.binary_cross_entropy_with_logits(x[:1], x.sigmoid()),
    "multilabel_soft_margin_loss over the input's dim": lambda m, x, i: m.nn.functional.multilabel_soft_margin_loss(
        x, x[None].sigmoid(), reduction="none"),
    "multilabel_soft_margin_loss of integers as targets": lambda m, x, i: m.nn.functional.multilabel_soft_margin_loss(x.half(), (i > 0).long()),
    "multi_margin_loss of NaN": lambda m, x, i: m.nn.functional.multi_margin_loss(m.tensor([[NAN, 1.0], [0.5, NAN]]), m.tensor([0, 0]), p=2),
    "multilabel_margin_loss of NaN": lambda m, x, i: m.nn.functional.multilabel_margin_loss(m.tensor([NAN, 1.0]), m.tensor([1, -1])),
    "trapezoids with infinite ends": lambda m, x, i: m.stack([m.trapezoid(m.tensor([1.0, INF])), m.trapz(m.tensor([[1.0, INF], [2.0, 3.0]]), dx=2)[0],
                                                              m.trapezoid(m.tensor([INF, 1.0]), m.tensor([0.0, 2.0]))]),
    "cov with weights of another dtype": lambda m, x, i: m.cov(x, aweights=m.tensor([1.5, 2.0, 0.5], dtype=m.float64)),
    "trapezoids of one point at a number": lambda m, x, i: m.trapz(x[:, :1], m.tensor(-2.0)),
    "trapezoids of one point": lambda m, x, i: m.trapezoid(m.tensor([[2.5, INF, NAN]]), dim=0),
    "degrees of another dtype": lambda m, x, i: m.special.legendre_polynomial_p(x, m.tensor([2.0], dtype=m.float64)),
    "a degree as a tensor of integers without dims": lambda m, x, i: m.special.hermite_polynomial_h(x, m.tensor(2)),
    "lerp by a bool without dims": lambda m, x, i: m.lerp(x, x * 2, m.tensor(True)),
    "lerp without dims by a weight of another dtype": lambda m, x, i: m.lerp(x[0, 0].bfloat16(), x[0, 1].bfloat16(), m.tensor(1.5)),
    "linear with one number as bias": lambda m, x, i: m.nn.functional.linear(x, x, m.tensor(2.0)),
    "linear with a bias of rows": lambda m, x, i: m.nn.functional.linear(x, x, x[:, :1]),
    "linear of a vector of weights with a bias without dims": lambda m, x, i: m.nn.functional.linear(x[None], x[0], m.tensor(2.0)),
    "infinite norm of no columns": lambda m, x, i: m.linalg.norm(m.zeros(0, 1), ord=INF),
    "broadcast_shapes of None": lambda m, x, i: m.zeros(m.broadcast_shapes((2, 1), None)),
    "dot of int16": lambda m, x, i: m.dot(i[0].to(m.int16), i[1].to(m.int16)),
    "alpha of integers is cut": lambda m, x, i: m.addbmm(i[:, :2], i[None], i.t()[None], alpha=-1.32, beta=2.9),
    "alpha of indexed integers is cut": lambda m, x, i: m.index_add(i, 1, m.tensor([0]), i[:, :1], alpha=-1.7),
    "value of integers is cut": lambda m, x, i: m.addcmul(i, i, i, value=1.17),
    "rsub of integers and floats": lambda m, x, i: m.rsub(i, -0.45, alpha=-1.71),
    "integers to negative powers": lambda m, x, i: m.pow(m.tensor([4, 1, -1, -1, 0, 2]), m.tensor([-1, -5, -3, -2, -1, 3])),
    "logit with eps above a half": lambda m, x, i: m.logit(m.tensor([0.1, 0.5, 0.7, 0.9]), 0.66),
    "bincount of nothing, weighted": lambda m, x, i: m.bincount(i[:0, 0], x[:0, 0], minlength=2),
    "as_strided_scatter into memory that is not contiguous": lambda m, x, i: m.as_strided_scatter(x.t(), m.zeros(2, 2), (2, 2), (1, 2)),
    "whole numbers of arange": lambda m, x, i: m.arange(5.9, -1.2, -2.5, dtype=m.int64),
    "boundaries of another dtype": lambda m, x, i: m.bucketize(x, m.tensor([-1, 0, 1])),
    "normalized over all dims": lambda m, x, i: m.nn.functional.normalize(x, dim=None),
    "nuclear norms of a batch": lambda m, x, i: m.nuclear_norm(x[None]),
    "in place, of a tensor without elements that was expanded": lambda m, x, i: x[:0, :1].expand(0, 5).mul_(2),
    "copies into out": lambda m, x, i: m.narrow_copy(x, 1, 1, 2, out=m.empty(2, 2)),
    "where into out": lambda m, x, i: m.where(x > 0, x, x * 2, out=m.empty(2, 3)),
    "clip of bytes by numbers of two kinds": lambda m, x, i: m.clip(m.tensor([1, 0], dtype=m.uint8), -1, 0.7),
    "clip of int8 by floats beyond it": lambda m, x, i: m.clip(m.tensor([1, 0], dtype=m.int8), -200, 0.7),
    "conv_tbc with a bias of another dtype": lambda m, x, i: m.conv_tbc(x[:, :, None], m.ones(1, 1, 1), m.tensor([True])),
    "a number copied": lambda m, x, i: m.zeros(2).copy_(3),
    "drawn as they lie in memory": lambda m, x, i: (m.manual_seed(3), m.empty(3, 2).t().uniform_())[1],
    "drawn like what lies otherwise": lambda m, x, i: (m.manual_seed(3), m.rand_like(x.t()))[1],
    "integers drawn like what lies otherwise": lambda m, x, i: (m.manual_seed(3), m.randint_like(x.t(), 0, 100))[1],
}


@pytest.mark.parametrize("name", CALLS)
def test_results(name):
    call = CALLS[name]
    assert_same(call(sl, to_sl(X), to_sl(INTEGERS)), call(torch, X.clone(), INTEGERS.clone()), 1e-6)


@pytest.mark.parametrize("name, call", {
    "fill": lambda m, x: m.fill(x[0], x[0, 0]), "channel_shuffle": lambda m, x: m.channel_shuffle(x[None, None], 1),
    "pixel_shuffle": lambda m, x: m.pixel_shuffle(x[None], 1)}.items())
def test_results_have_memory_of_their_own(name, call):
    x = to_sl(X.clone())
    call(sl, x).add_(1)
    np.testing.assert_array_equal(x.numpy(), X.numpy())


def test_views_are_views():
    x = sl.arange(8.0).reshape(2, 2, 2)
    for view in (sl.linalg.diagonal(x, dim2=0), sl.einsum("ijk->kij", x), sl.einsum("aab->ab", x)):
        view.add_(100)
    y = torch.arange(8.0).reshape(2, 2, 2)
    for view in (torch.linalg.diagonal(y, dim2=0), torch.einsum("ijk->kij", y), torch.einsum("aab->ab", y)):
        view.add_(100)
    assert x.tolist() == y.tolist()
    assert sl.zeros(2, 4)[:, ::2].resize_(2, 2).stride() == torch.zeros(2, 4)[:, ::2].resize_(2, 2).stride()
    assert sl.zeros_like(x.permute(2, 0, 1)).stride() == torch.zeros_like(y.permute(2, 0, 1)).stride()


def test_every_error_is_a_runtime_error_as_most_of_torchs_are():
    for wrong, kind in ((lambda: sl.ones(2) + sl.ones(3), ValueError), (lambda: sl.ones(2)[5], IndexError), (lambda: sl.add(1), TypeError),
                        (lambda: sl.tensor(None), TypeError), (lambda: sl.ones(0).amax(), IndexError),
                        (lambda: sl.nn.functional.conv_transpose1d(sl.ones(1, 1, 1), sl.ones(1, 1, 1), padding=2), RuntimeError)):
        with pytest.raises(RuntimeError) as raised:
            wrong()
        assert isinstance(raised.value, kind) and isinstance(raised.value, sl.Error)


def test_functions_refuse_values_by_runtime_errors_whatever_language_they_are_written_in():
    for wrong in (lambda: sl.unravel_index(sl.ones(2), 3), lambda: sl.set_printoptions(profile="none"), lambda: sl.ones(2).to(3),
                  lambda: sl.nn.functional.interpolate(sl.ones(1, 1, 4), mode="linear"), lambda: sl.nn.init.calculate_gain("none")):
        with pytest.raises(RuntimeError) as raised:
            wrong()
        assert isinstance(raised.value, (ValueError, TypeError))
    folder = Path(sl.__file__).parent
    for path in (*folder.glob("_*.py"), *(folder / name for name in ("fft.py", "linalg.py", "special.py", "nn/functional.py", "nn/init.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                assert ast.unparse(node.exc.func) != "ValueError", f"{path.name}:{node.lineno}: raise _C.ValueError, which is a RuntimeError, too"


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_ormqr_of_complex_numbers(left, transpose):
    generator = torch.Generator().manual_seed(5)
    a, c = (torch.randn(4, n, dtype=torch.complex128, generator=generator) for n in (2, 3))
    a, tau = torch.geqrf(a)
    c = c if left else c.mH.resolve_conj()
    ours = sl.ormqr(*(sl.from_numpy(t.numpy()) for t in (a, tau, c)), left, transpose)
    np.testing.assert_allclose(ours.numpy(), torch.ormqr(a, tau, c, left, transpose).numpy(), atol=1e-12)


def test_complex_numbers_where_floats_are_taken():
    z = torch.tensor([1 + 2j, 3 - 1j, 0.5j], dtype=torch.complex128)
    np.testing.assert_array_equal(sl.gradient(sl.from_numpy(z.numpy()))[0].numpy(), torch.gradient(z)[0].numpy())
    for draw in (lambda m, x: x.random_(0, 5), lambda m, x: m.randint_like(x, 5)):
        for m, x in ((torch, z.clone()), (sl, sl.from_numpy(z.numpy()).clone())):
            with pytest.raises(RuntimeError, match="handles only integral, floating-point and boolean types"):
                draw(m, x)


def test_batch_norm_of_nothing_leaves_its_statistics():
    for m in (torch, sl):
        weight = m.tensor([2.0, 3.0], requires_grad=True)
        mean, var = m.zeros(2), m.ones(2)
        y = m.batch_norm(m.empty(0, 2, 3), weight, m.ones(2), mean, var, True, 0.1, 1e-5, False)
        y.sum().backward()
        assert tuple(y.shape) == (0, 2, 3) and mean.tolist() == [0, 0] and var.tolist() == [1, 1]
        m.nn.functional.batch_norm(m.empty(1, 2, 0), m.add(mean, 1, out=mean), var, training=True)
        assert mean.tolist() == [1, 1] and var.tolist() == [1, 1]
        assert weight.grad.tolist() == [0, 0]


def test_polynomials_of_degree_1_are_no_views():
    x = sl.tensor([2.5], dtype=sl.float64)
    sl.special.hermite_polynomial_he(x, 1).add_(1)
    assert x.tolist() == [2.5]


Z = [[1 + 1j, 2 - 0.5j, 0.5j], [0.25, -1 + 2j, 1.5]]
MORE_CALLS = {
    "numbers of unsigned integers are negated as such": lambda m, x: m.nn.functional.softmin(m.tensor([0, 1, 6], dtype=m.uint8), 0, dtype=m.float32),
    "bools divided by integers": lambda m, x: m.divide(m.tensor([True, False]), m.tensor([2, 1]), rounding_mode="trunc"),
    "normalized by no p": lambda m, x: m.nn.functional.normalize(x, p=None),
    "spread of x with more dims": lambda m, x: m.trapz(m.ones(3), m.arange(3.0).reshape(3, 1)),
    "copies that no view could be": lambda m, x: m.view_copy(x.t(), (6,)),
    "weights that are complex numbers": lambda m, x: m.lerp(m.tensor(Z), m.tensor(Z).flip(0), 0.25 + 1j),
    "large weights that are complex numbers": lambda m, x: m.tensor(Z).lerp_(m.tensor(Z).flip(0), 2j),
    "negative indices along a dim": lambda m, x: m.take_along_dim(x, m.tensor([[-1, 0], [1, -3]]), 1),
    "powers of a number": lambda m, x: m.linalg.vander(m.tensor(2.0), N=3),
    "sums of exponentials of complex numbers": lambda m, x: m.logsumexp(m.tensor(Z), 1),
    "running sums of exponentials of complex numbers": lambda m, x: m.logcumsumexp(m.tensor(Z), 1),
    "two exponentials of complex numbers": lambda m, x: m.logaddexp(m.tensor(Z), m.tensor(Z).flip(1) * 2),
    "covariances of complex numbers": lambda m, x: m.cov(m.tensor(Z), aweights=m.tensor([1.0, 2.0, 0.5])),
    "correlations of complex numbers": lambda m, x: m.corrcoef(m.tensor(Z)),
    "complex numbers over their root mean square": lambda m, x: m.nn.functional.rms_norm(m.tensor(Z), (3,), m.tensor([1j, 2, 1.0])),
    "reflections of complex matrices": lambda m, x: m.geqrf(m.tensor(Z).t()),
    "between whole numbers": lambda m, x: m.linspace(-3.7, 5.9, 7, dtype=m.int64),
    "between whole numbers, in float32": lambda m, x: m.linspace(0, 100, 91, dtype=m.int32),
    "powers between whole numbers": lambda m, x: m.logspace(-1.5, 5.9, 9, 2.0, dtype=m.int16),
    "distances without coordinates": lambda m, x: m.cdist(x[:, :0], x[:1, :0], float("inf")),
    "distances of rows without coordinates": lambda m, x: m.pdist(x[:, :0], float("inf")),
    "means of infinities": lambda m, x: m.var_mean(m.tensor([[-float("inf"), 1.0], [2.0, 3.0]]), 1),
    "means of one infinity": lambda m, x: m.std_mean(m.tensor([[float("inf")], [2.0]]), 1, correction=0),
    "how often nothing is repeated": lambda m, x: m.repeat_interleave(m.tensor([], dtype=m.int64), output_size=2),
    "into memory with gaps": lambda m, x: m.as_strided_scatter(m.ones(4, 8)[:, ::2], x, (2, 3), (5, 1)),
    "into memory that elements share": lambda m, x: m.as_strided_scatter(m.ones(1, 5).expand(4, 5), x, (2, 3), (5, 1)),
    "one power": lambda m, x: m.logspace(0.5, 1, 1, dtype=m.int64),
    "into memory before a view": lambda m, x: m.as_strided_scatter(m.zeros(8)[3:], x, (2, 3), (2, 1), 1),
    "through the gaps of memory": lambda m, x: m.zeros(5, 4).copy_(m.ones(5, 4))[:, ::3].as_strided((2, 3), (3, 2), 2),
    "random numbers of no dtype": lambda m, x: m.bernoulli(m.zeros(0, 2, dtype=m.complex64)),
    "windows of which only a part is there": lambda m, x: m.nn.functional.max_pool2d(
        m.arange(24.0).reshape(1, 6, 4), 3, stride=(1, 2), dilation=2, ceil_mode=True),
    "losses in the dtype of the input": lambda m, x: m.nn.functional.huber_loss(x, x.double() + 0.5),
    **{f"{name} looks at no factor of nothing, {shapes}, {factors}": lambda m, x, name=name, shapes=shapes, factors=factors: getattr(m, name)(
        *[m.ones(s, dtype=m.uint8) for s in shapes], **factors)
       for name, shapes in (("addmm", ((1, 1), (0, 1), (1, 1))), ("addbmm", ((0, 1), (1, 0, 1), (1, 1, 1))),
                            ("baddbmm", ((1, 1, 1), (0, 1, 2), (0, 2, 1))))
       for factors in ({"alpha": -1.5}, {"alpha": 1j}, {"beta": -1.5}, {"beta": 300})},
    **{f"{name} of no terms, {factors}": lambda m, x, name=name, shapes=shapes, factors=factors: getattr(m, name)(
        *[m.full(s, 3, dtype=m.uint8) for s in shapes], **factors)
       for name, shapes in (("addmm", ((2, 1), (2, 0), (0, 1))), ("addbmm", ((1, 1), (2, 1, 0), (2, 0, 1))), ("addmv", ((2,), (2, 0), (0,))),
                            ("baddbmm", ((1, 1), (2, 1, 0), (2, 0, 1))))
       for factors in ({"alpha": -1.5}, {"alpha": 1j}, {"beta": 2}, {"beta": 0.0}, *([{"beta": 300}] if name != "addmv" else []))},
    **{f"{name} of one sample and of a target with a dim": lambda m, x, name=name: getattr(m.nn.functional, name)(
        x[0], m.tensor([1]), reduction="none") for name in ("nll_loss", "cross_entropy")},
    **{f"{name} of images with weights in some shape": lambda m, x, name=name: getattr(m.nn.functional, name)(
        x[:1, :2, None], m.tensor([[1]]), m.tensor([[0.5, 2.0]]), reduction="sum") for name in ("nll_loss", "cross_entropy")},
    **{f"{name} of one complex number and of none": lambda m, x, name=name: (
        *getattr(m, name)(m.tensor(1j), -1), *getattr(m, name)(m.zeros(0, 2, dtype=m.complex64), 1)) for name in ("cummin", "cummax")},
}


@pytest.mark.parametrize("name", MORE_CALLS)
def test_results_of_more_calls(name):
    ours, theirs = (MORE_CALLS[name](m, to_sl(X) if m is sl else X.clone()) for m in (sl, torch))
    for a, b in zip(*[(y if isinstance(y, tuple) else (y,)) for y in (ours, theirs)]):
        assert_same(a, b, 1e-5)


def test_gradients_of_more_calls():
    x = X.double()
    agree(lambda m, x: m.div(x, m.tensor([[0.0, 2.0, 0.0]], dtype=m.float64), rounding_mode="trunc") + x, x, double=False)
    for m in (torch, sl):
        for y in (m.ones(2, requires_grad=True),):
            assert m.fill(y, 3).requires_grad and m.norm(y, 0).requires_grad
            (gradient,) = m.autograd.grad(m.norm(y, 0) + m.fill(y, 3).sum(), [y])
            assert gradient.tolist() == [0, 0]


def test_second_gradients_at_edges():
    agree(lambda m, x: m.special.log_ndtr(x), torch.tensor([-30.0, -1.5, 0.5, 1.25, 9.0, 65000.0], dtype=torch.float64))


def test_gradients_of_memory_seen_from_a_view_that_is_a_leaf():
    """Memory before it, and in its gaps, is seen, and gets no gradient."""
    for make, args in ((lambda m: m.arange(12.0)[3:], ((2, 2), (1, 2), 1)), (lambda m: m.arange(12.0)[3:], ((3, 2), (1, 1))),
                       (lambda m: m.arange(24.0).reshape(4, 6)[:, 1::2], ((2, 3), (4, 1), 0))):
        seen, gradients, second = [], [], []
        for m in (torch, sl):
            x = make(m).requires_grad_()
            y = x.as_strided(*args)
            (gradient,) = m.autograd.grad((y * y * m.arange(1.0, y.numel() + 1).reshape(y.shape)).sum(), [x], create_graph=True)
            seen.append(y.tolist())
            gradients.append(gradient.tolist())
            second.append(m.autograd.grad(gradient.sum(), [x])[0].tolist())
            with m.no_grad():
                y += 100
            assert x.max().item() >= 100  # a view of the same memory
        assert seen[0] == seen[1] and gradients[0] == gradients[1] and second[0] == second[1]


def test_lines_end_where_they_are_said_to():
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        for first, last, n in ((0.1, 0.7, 7), (-1, 1 / 3, 11), (3, -0.9, 14), (0.2, 0.3, 2), (5, 6, 1)):
            ours, theirs = (m.linspace(first, last, n, dtype=getattr(m, dtype)) for m in (sl, torch))
            assert (ours[0].item(), ours[-1].item()) == (theirs[0].item(), theirs[-1].item())
            exact = torch.linspace(first, last, n, dtype=torch.float64)
            assert_same(ours.double(), exact, 1e-2 if "16" in dtype else 1e-6)


def test_what_torch_refuses():
    one = (lambda m: m.ones(2), lambda m: None)
    for call, kind, message in (
            (lambda m: m.eye(1, -11), RuntimeError, "m must be greater or equal to 0, got -11"),
            (lambda m: m.addmm(m.ones(1, 1, 1), m.ones(1, 1), m.ones(1, 1)), RuntimeError, "size"),
            (lambda m: m.addbmm(*[m.ones(s, dtype=m.uint8) for s in ((1, 1), (1, 1, 1), (1, 1, 1))], alpha=-1.5), RuntimeError, "without overflow"),
            (lambda m: m.cross(m.ones(3), m.ones(1, 1)), RuntimeError, "must have the same number of dimensions"),
            (lambda m: m.norm(m.ones(3), 2, None, False, m.float64), TypeError, "norm"),
            (lambda m: m.broadcast_shapes((1,), 1.5), RuntimeError, "type ints, a tuple of ints, or a list of ints"),
            (lambda m: m.broadcast_shapes((1.5,)), TypeError, "int"),
            (lambda m: m.roll(m.ones(3), ()), RuntimeError, "`shifts` required"),
            (lambda m: m.fft.fftshift(m.ones(3), ()), RuntimeError, "`shifts` required"),
            (lambda m: m.index_add(m.ones(1, 1), 1, m.tensor([[0]]), m.ones(1, 1)), IndexError, "ndex"),
            (lambda m: m.index_copy(m.ones(1, 1), 1, m.tensor([0], dtype=m.int32), m.ones(1, 1)), RuntimeError, "Expected a long tensor"),
            (lambda m: m.index_fill(m.ones(1, 1), 1, m.tensor([[0]]), 1.0), RuntimeError, "to be a vector/scalar"),
            (lambda m: m.index_fill(m.ones(3), 0, m.tensor([0], dtype=m.int32), 1.0), IndexError, "Expected dtype int64"),
            (lambda m: m.range(-2, None, 1), TypeError, "end|range"),
            *((lambda m, given=given: m.range(*given), RuntimeError, "inconsistent with step sign|step must be nonzero|unsupported range")
              for given in ((0, 7, -9), (0, -1), (0, 5, 0), (0.0, INF, 1))),
            (lambda m: m.nn.functional.linear_cross_entropy(m.ones(1, 2), m.ones(2, 2), m.tensor([1]), linear_bias=m.tensor(0.5)),
             RuntimeError, r"expected linear_bias shape \(2,\), got \(\)"),
            *((lambda m, name=name, rank=rank: getattr(m.nn.functional, name)(m.zeros(1, 2)[0 if rank == 1 else ...], m.zeros(
                1, dtype=m.int64)[0 if rank == 1 else ...], m.ones(1, 2)), RuntimeError, "for all 2 classes or no classes but got")
              for name in ("nll_loss", "cross_entropy") for rank in (1, 2)),
            (lambda m: m.nn.functional.cross_entropy(m.zeros(1, 2), m.zeros(1, 2), m.ones(1, 2)), RuntimeError, "for all 2 classes or no"),
            (lambda m: m.unflatten(m.empty(0, 1), -1, (2, -1, 9)), RuntimeError, "don't multiply up to the size"),
            (lambda m: m.nn.functional.bilinear(m.ones(1, 1), m.ones(1, 1), m.ones(1, 1, 1), m.tensor(0.0)), IndexError, "dimensions"),
            (lambda m: m.linalg.norm(m.empty(0, 1), ord=-INF), IndexError, "amin"),
            (lambda m: m.histogramdd(m.ones(1, 1), "text"), TypeError, "histogramdd"),
            (lambda m: m.gradient(m.ones(2), edge_order=(2,)), TypeError, "edge_order|gradient"),
            (lambda m: m.logspace(0, 1, 2, dtype="none"), TypeError, "dtype|logspace"),
            (lambda m: m.randint_like(m.ones(2), 0, None), TypeError, "randint_like"),
            (lambda m: m.ones(2, dtype=m.complex64).random_(1.5, 9), TypeError, "random_"),
            (lambda m: m.unsafe_split(m.ones(3), (3,)), TypeError, "split_size"),
            (lambda m: m.nn.functional.huber_loss(m.tensor([2]), m.tensor([1.5])), RuntimeError, "result type .* can't be cast"),
            (lambda m: m.nn.functional.soft_margin_loss(m.tensor([2]), m.tensor([1])), RuntimeError, "result type .* can't be cast"),
            (lambda m: m.nn.functional.soft_margin_loss(m.ones(1), m.ones(3)), RuntimeError, "doesn't match the broadcast shape"),
            (lambda m: m.nn.functional.hinge_embedding_loss(m.tensor([2]), m.tensor([1])), RuntimeError, "dtype"),
            (lambda m: m.nn.functional.binary_cross_entropy_with_logits(m.ones(1), m.tensor([1])), RuntimeError, "can't be cast"),
            (lambda m: m.nn.functional.binary_cross_entropy_with_logits(m.ones(1), m.ones(1), m.ones(2)), RuntimeError, "broadcast shape"),
            (lambda m: m.nn.functional.linear(m.ones(2, 3), m.ones(3), m.ones(1)), RuntimeError, "must be a matrix"),
            (lambda m: m.nn.functional.multi_margin_loss(m.ones(1, 1), m.tensor([0]), weight=m.ones(1, 1)), ValueError, "one-dimensional"),
            (lambda m: m.nn.Embedding(2, 3, padding_idx=5), AssertionError, "within num_embeddings"),
            (lambda m: m.put(m.ones(3), m.tensor([0, 1]), m.ones(0)), IndexError, "source and index to have the same number"),
            (lambda m: m.repeat_interleave(m.tensor(9.0), m.tensor([1]), dim=-1), IndexError, "specified as -1 but tensor has no dim"),
            (lambda m: m.repeat_interleave(m.tensor(9.0), 2, dim=0), IndexError, "imension"),
            (lambda m: m.randperm(3, dtype="no such"), TypeError, "dtype|argument"),
            (lambda m: m.tensordot(m.ones(2), m.ones(2), 1.5), RuntimeError, "expects dims to be int or tuple"),
            *((lambda m, given=given: m.batch_norm(m.ones(3, 2), None, None, given[0](m), given[1](m), True, 0.1, 1e-5, False), ValueError,
               "running_mean and running_var must either both be None or neither") for given in (one, one[::-1])),
            (lambda m: m.zeros(2, 1).squeeze((1, 1)), RuntimeError, "dim 1 appears multiple times in the list of dims"),
            (lambda m: m.div(m.tensor([True]), m.tensor([True]), rounding_mode="trunc"), NotImplementedError, "not implemented for 'Bool'"),
            (lambda m: m.histc(m.ones(2), 4, 0, float("inf")), RuntimeError, r"range of \[0, inf\] is not finite"),
            (lambda m: m.nn.functional.binary_cross_entropy_with_logits(m.zeros(2, 3), m.zeros(3)), ValueError,
             "Target size .* must be the same as input size"),
            (lambda m: m.dot(m.ones(1), m.ones(3)), RuntimeError, "inconsistent tensor size"),
            (lambda m: m.lerp(m.ones(1), m.ones(1), 1j), RuntimeError, "value cannot be converted to type float"),
            (lambda m: m.lerp(m.tensor(Z), m.tensor(Z), m.ones(3)), RuntimeError, "for `weight` but got dtype float"),
            *((lambda m, call=call: call(m, m.uint8), RuntimeError, "result type [Ff]loat") for call in (
                lambda m, t: m.addmm(m.ones(1, 1, dtype=t), m.ones(1, 0, dtype=t), m.ones(0, 1, dtype=t), beta=2.5),
                lambda m, t: m.baddbmm(m.ones(1, 1, 1, dtype=t), m.ones(1, 1, 0, dtype=t), m.ones(1, 0, 1, dtype=t), beta=2.5))),
            (lambda m: m.addmv(m.ones(0, dtype=m.uint8), m.ones(0, 1, dtype=m.uint8), m.ones(1, dtype=m.uint8), beta=300), RuntimeError,
             "without overflow"),
            (lambda m: m.cummin(m.ones(1, dtype=m.complex64), 0), NotImplementedError, "not implemented for"),
            (lambda m: m.as_strided_scatter(m.ones(1, 1), m.ones(1, 1), "text", (5, 1)), TypeError, "argument 'size'"),
            (lambda m: m.kaiser_window(9, beta=3.0), TypeError, "invalid combination of arguments"),
            (lambda m: m.hamming_window(9, True, beta=0.5), TypeError, "invalid combination of arguments"),
            (lambda m: m.nanmean(m.ones(1, 1, dtype=m.complex64), 7), IndexError, "ut of range"),
            (lambda m: m.nanmean(m.ones(1, 1, dtype=m.int64), 7), RuntimeError, "floating point"),
            (lambda m: m.nanmean(m.ones(1, dtype=m.complex64)), RuntimeError, "does not support complex inputs"),
            (lambda m: m.nn.functional.bilinear(m.ones(1, 2), m.ones(1, 1), m.ones(2, 2, 1), m.ones(1)), RuntimeError,
             "bias size does not match weight size: got 1 but expected 2"),
            (lambda m: m.nn.Tanh(dtype=m.float32), TypeError, "unexpected keyword argument 'dtype'"),
            (lambda m: m.zeros(2, 1, 4, 5).contiguous(memory_format=m.channels_last).dim_order(
                ambiguity_check=[m.contiguous_format, m.channels_last]), RuntimeError, "does not have unique dim order")):
        for m in (torch, sl):
            with pytest.raises(kind, match=message):
                call(m)


@pytest.mark.parametrize("split", [True, False])
def test_loops_over_devices(split):
    rnn = sl.nn.RNN(3, 4, num_layers=2)
    x, on = sl.randn(5, 2, 3), sl.placement("sim", [0, 1])

    class Last(sl.nn.Graph):
        def build(self, x):
            return rnn(x)[0][-1]  # fewer outputs than a turn of the loop gives

    laid = x.to_global(on, sl.sbp.split(1) if split else sl.sbp.broadcast)
    np.testing.assert_allclose(Last()(laid).numpy(), rnn(x)[0][-1].detach().numpy(), rtol=1e-5)


def test_orders_of_dims_in_memory():
    for make in (lambda m: m.zeros(2, 3, 4, 5).contiguous(memory_format=m.channels_last),
                 lambda m: m.zeros(2, 3, 4, 5).permute(3, 1, 0, 2), lambda m: m.zeros(2, 3, 4).expand(5, 2, 3, 4), lambda m: m.zeros(2),
                 lambda m: m.zeros(3, 1, 2).transpose(0, 1), lambda m: m.zeros(2, 3, 4).mT, lambda m: m.zeros(())):
        assert make(sl).dim_order() == make(torch).dim_order()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_of_complex_numbers(dims):
    generator = torch.Generator().manual_seed(dims)
    x, w, b, w_transposed = (torch.randn(*s, 2, dtype=torch.float64, generator=generator) for s in (
        (2, 4) + (4,) * dims, (6, 2) + (3,) * dims, (6,), (4, 3) + (2,) * dims))
    for name, weight, options in (("conv", w, {"stride": 2, "padding": 1, "groups": 2}), ("conv", w, {"padding": "same", "groups": 2}),
                                  ("conv_transpose", w_transposed, {"stride": 2, "groups": 2})):
        def f(m, *parts):
            y = getattr(m.nn.functional, f"{name}{dims}d")(*[m.view_as_complex(p) for p in parts], **options)
            return m.view_as_real(y)

        agree(f, x, weight, b, graph="stride" in options)
    with pytest.raises(RuntimeError):
        sl.nn.functional.conv1d(sl.ones(1, 1, 3, dtype=sl.complex64), sl.ones(1, 1, 2))


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
@pytest.mark.parametrize("dim", [None, 1])
def test_gradients_of_products_with_zeros(zeros, dim):
    x = X.double().clone()
    x[0, :zeros] = 0
    agree(lambda m, x: m.prod(x) if dim is None else m.prod(x, dim), x)
    agree(lambda m, x: m.prod(x.reshape(3, 2).t().reshape(2, 3, 1), 1, keepdim=True), x)
