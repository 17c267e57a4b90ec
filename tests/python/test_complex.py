"""Complex numbers: numbers, gradients and errors as torch's, eager and in graphs."""

import io
import pickle
import warnings

import numpy as np
import pytest
import torch

import sluice as sl

UNARY = ["neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan",
         "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sinc", "sgn", "angle", "square", "conj",
         "conj_physical", "sigmoid", "real", "imag", "view_as_real", "isnan", "isinf", "isfinite", "isreal", "logical_not",
         "nan_to_num", "positive", "resolve_conj", "resolve_neg"]
BINARY = ["add", "sub", "mul", "div", "pow", "eq", "ne", "logical_and", "logical_or", "logical_xor"]
WITHOUT_GRADIENT = {"eq", "ne", "logical_and", "logical_or", "logical_xor", "isnan", "isinf", "isfinite", "isreal", "logical_not", "nan_to_num"}


def numbers(seed, shape, dtype=np.complex128):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def same(ours, theirs, tolerance=None):
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    assert tuple(ours.shape) == tuple(theirs.shape)
    tolerance = tolerance or (2e-5 if theirs.dtype in (torch.complex64, torch.float32) else 1e-10)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().resolve_conj().resolve_neg().numpy(), tolerance, tolerance)


def loss(lib, y, seed=99):
    w = numbers(seed, tuple(y.shape))
    if y.is_complex():
        product = y * lib.from_numpy(np.asarray(w)).to(y.dtype)
        return (product.real + product.imag * 0.3).sum()
    return (y * lib.from_numpy(np.asarray(w.real)).to(y.dtype)).sum()


def derivatives(lib, f, arrays, second=True):
    """The result, its gradients and those of the gradients."""
    xs = [lib.from_numpy(a.copy()).requires_grad_() if a.dtype.kind in "fc" else lib.from_numpy(a.copy()) for a in arrays]
    leaves = [x for x in xs if x.requires_grad]
    y = f(lib, *xs)
    results = [y]
    first = lib.autograd.grad(loss(lib, y), leaves, create_graph=second)
    results += first
    if second and any(g.requires_grad for g in first):
        total = sum(loss(lib, g, 7 + i) for i, g in enumerate(first))
        results += [g for g in lib.autograd.grad(total, leaves, allow_unused=True) if g is not None]
    return results


def compare(f, arrays, second=True, tolerance=1e-8):
    ours, theirs = derivatives(sl, f, arrays, second), derivatives(torch, f, arrays, second)
    nonzero = [t for t in theirs[1:] if t.abs().max() > 0]
    assert len(ours) >= 1 + len(nonzero)
    for a, b in zip(ours, theirs):
        same(a, b, tolerance)


def in_graph(f):
    class Net(sl.nn.Graph):
        def build(self, *xs):
            return f(sl, *xs)

    return Net()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand_are_torchs(name, dtype):
    for shape in [(), (5,), (3, 4), (0, 3)]:
        x = numbers(len(name), shape, dtype)
        theirs = getattr(torch, name)(torch.from_numpy(np.asarray(x)))
        same(getattr(sl, name)(sl.from_numpy(np.asarray(x))), theirs)
    x = numbers(1, (4, 6), dtype)
    f = lambda lib, x: getattr(lib, name)(x.t()[::2])  # noqa: E731
    same(f(sl, sl.from_numpy(x)), f(torch, torch.from_numpy(x)))
    same(in_graph(f)(sl.from_numpy(x)), f(torch, torch.from_numpy(x)))
    if name not in WITHOUT_GRADIENT:
        compare(lambda lib, x: getattr(lib, name)(x) * 1, [numbers(3, (3, 2))])


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_are_torchs(name):
    for a, b in [((), ()), ((3, 4), (4,)), ((3, 1), (2, 1, 4)), ((0, 2), (2,))]:
        for kinds in [(np.complex64, np.complex64), (np.complex64, np.complex128), (np.complex64, np.float32),
                      (np.float64, np.complex64), (np.int64, np.complex64)]:
            x, y = (numbers(i + 1, s, np.complex128) for i, s in enumerate((a, b)))
            x, y = (np.asarray(v if np.dtype(k).kind == "c" else v.real * 3).astype(k) for v, k in zip((x, y), kinds))
            f = lambda lib, x, y: getattr(lib, name)(x, y)  # noqa: E731
            same(f(sl, sl.from_numpy(x), sl.from_numpy(y)), f(torch, torch.from_numpy(x), torch.from_numpy(y)), 5e-5)
    if name not in WITHOUT_GRADIENT:
        compare(lambda lib, x, y: getattr(lib, name)(x, y), [numbers(4, (3, 2)), numbers(5, (2,))])
        compare(lambda lib, x, y: getattr(lib, name)(x, y), [numbers(4, (3, 2)), np.random.default_rng(0).uniform(1, 2, (3, 2))])
        compare(lambda lib, x, y: getattr(lib, name)(y, x), [numbers(4, (3, 2)), np.random.default_rng(0).uniform(1, 2, (3, 2))])


SCALARS = ["x + 1j", "1j - x", "x * (2 - 1j)", "x / (1 + 1j)", "(1 + 2j) / x", "x ** 2", "x ** 3", "x ** -1", "x ** 0.5", "x ** (1 + 1j)",
           "(2 + 1j) ** x", "2 ** x", "x == 1", "x != 0j", "x * np.complex128(2j)", "lib.add(x, x, alpha=2j)",
           "lib.sub(x, 1, alpha=2j)", "lib.addcmul(x, x, x, value=1j)", "lib.where(x == x, x, 1j)", "x.masked_fill(x == x, 1 - 1j)",
           "lib.full((2,), 1j)", "lib.full_like(x, 2 + 1j)", "lib.ones(2, dtype=lib.cfloat) * 1j", "x.lerp(x * 2, 0.25)",
           "lib.float_power(x, 2)", "lib.complex(x.real, x.imag)", "lib.polar(x.abs(), x.angle())",
           "lib.nn.functional.silu(x)", "lib.tensor(2.0) * 1j", "lib.arange(3) * 1j", "lib.linspace(0, 1j, 3)",
           "lib.eye(2, dtype=lib.complex64)", "lib.zeros(2, dtype=lib.cdouble)"]


@pytest.mark.parametrize("text", SCALARS)
def test_numbers_of_python_are_operands(text):
    for dtype in (np.complex64, np.complex128):
        x = numbers(2, (3, 2), dtype)
        same(eval(text, {"lib": sl, "np": np, "x": sl.from_numpy(x)}), eval(text, {"lib": torch, "np": np, "x": torch.from_numpy(x)}),
             5e-5)


REDUCTIONS = ["x.sum()", "x.sum(0)", "x.sum((0, 1), keepdim=True)", "x.mean()", "x.mean(1)", "x.prod()", "x.prod(1)", "x.cumsum(0)",
              "x.cumprod(1)", "x.var()", "x.std(0)", "x.norm()", "x.norm(1)", "lib.linalg.vector_norm(x, 3)",
              "lib.linalg.norm(x)", "lib.linalg.vector_norm(x, dim=1)"]


@pytest.mark.parametrize("text", REDUCTIONS)
def test_reductions(text):
    f = lambda lib, x: eval(text, {"lib": lib, "x": x})  # noqa: E731
    compare(f, [numbers(6, (4, 3))])
    x = numbers(8, (70, 40), np.complex64)
    same(f(sl, sl.from_numpy(x)[::2].t()), f(torch, torch.from_numpy(x)[::2].t()), 1e-3)
    x = numbers(8, (4, 3), np.complex64)
    same(in_graph(f)(sl.from_numpy(x)), f(torch, torch.from_numpy(x)))


def test_any_and_all_ask_both_parts():
    x = np.array([[0, 1j], [0, 0]])
    for name in ("any", "all"):
        for args in [(), (0,), (1, True)]:
            assert getattr(sl.from_numpy(x), name)(*args).tolist() == getattr(torch.from_numpy(x), name)(*args).tolist()


PRODUCTS = [("x @ y", (3, 4), (4, 2)), ("lib.mm(x, y)", (3, 4), (4, 2)), ("lib.bmm(x, y)", (2, 3, 4), (2, 4, 2)),
            ("lib.mv(x, y)", (3, 4), (4,)), ("lib.dot(x, y)", (4,), (4,)), ("lib.vdot(x, y)", (4,), (4,)),
            ("lib.outer(x, y)", (3,), (4,)), ("lib.einsum('ij,jk->ik', x, y)", (3, 4), (4, 2)), ("x @ y", (2, 1, 3, 4), (5, 4, 2)),
            ("lib.addmm(x[:3, :2], x, y, beta=2j, alpha=1 - 1j)", (3, 4), (4, 2)), ("lib.kron(x, y)", (2, 2), (1, 3)),
            ("lib.nn.functional.linear(x, y)", (3, 4), (2, 4)), ("x.mH @ y", (4, 3), (4, 2)), ("x.H @ y.conj()", (4, 3), (4, 2)),
            ("lib.tensordot(x, y, 1)", (3, 4), (4, 2)), ("lib.inner(x, y)", (3, 4), (2, 4))]


@pytest.mark.parametrize("text, a, b", PRODUCTS)
def test_products(text, a, b):
    f = lambda lib, x, y: eval(text, {"lib": lib, "x": x, "y": y})  # noqa: E731
    compare(f, [numbers(1, a), numbers(2, b)])
    x, y = numbers(1, a, np.complex64), numbers(2, b, np.complex64)
    same(in_graph(f)(sl.from_numpy(x), sl.from_numpy(y)), f(torch, torch.from_numpy(x), torch.from_numpy(y)))


MOVES = ["x.t()", "x.reshape(-1)", "x[1]", "x[:, ::2]", "x[lib.tensor([0, 2, 0])]", "lib.cat([x, x.conj()], 1)", "lib.stack([x, x])",
         "x.flip(0)", "x.roll(1, 0)", "lib.nn.functional.pad(x, (1, 2))", "x.expand(2, *x.shape)", "x.repeat(2, 1)", "x.diag()",
         "x.tril()", "x.gather(0, lib.tensor([[0, 1, 2, 0]]))", "x.index_select(1, lib.tensor([3, 0]))",
         "x.index_add(0, lib.tensor([0, 0]), x[1:])", "x.scatter_add(0, lib.tensor([[0, 1, 2, 0]]), x[:1])", "x.unfold(1, 2, 1)",
         "lib.where(x.real > 0, x, x.conj())", "x.masked_fill(x.real > 0, 2j)", "x.t().contiguous()", "x.clone()", "x.real", "x.imag",
         "lib.view_as_real(x)[1:]", "lib.view_as_complex(lib.view_as_real(x) * 2)", "x.to(lib.complex64).to(lib.complex128)",
         "x.real.to(lib.complex128)", "x.movedim(0, 1)", "x.trace()", "x.cumsum(0)[1:]", "x.take(lib.tensor([1, 5]))"]


@pytest.mark.parametrize("text", MOVES)
def test_elements_are_moved_whole(text):
    f = lambda lib, x: eval(text, {"lib": lib, "x": x})  # noqa: E731
    compare(f, [numbers(3, (3, 4))])
    for dtype in (np.complex64, np.complex128):
        x = numbers(5, (3, 4), dtype)
        same(f(sl, sl.from_numpy(x)), f(torch, torch.from_numpy(x)))
        same(in_graph(f)(sl.from_numpy(x)), f(torch, torch.from_numpy(x)))


def test_parts_are_views():
    for lib in (sl, torch):
        z = lib.zeros(2, 3, dtype=lib.complex128)
        z.real[0] = 1
        z.imag[:, 1] = 2
        lib.view_as_real(z)[1, 2, 1] = 5
        z[0].real += 1
        p = lib.zeros(4, 2)
        lib.view_as_complex(p)[1:3] = 3 - 1j
        z.imag = z.imag * 2
        result = (z.tolist(), p.tolist(), lib.view_as_real(z).stride(), z.real.stride(), z[1:].imag.storage_offset())
        assert result == ([[2, 2 + 4j, 2], [0, 4j, 10j]], [[0, 0], [3, -1], [3, -1], [0, 0]], (6, 2, 1), (6, 2), 7)


def test_writes_through_views_are_differentiated():
    def f(lib, x, y):
        z = x * 1
        z.real[0] = y
        lib.view_as_real(z)[1, 0, 1] *= 3
        return z * z

    compare(f, [numbers(1, (2, 3)), np.random.default_rng(2).normal(size=3)])


def test_writes_through_views_in_a_graph():
    def f(lib, x):
        z = x * 1
        z.real[0] = 4
        z.imag *= 2
        z.mul_(1j)
        return z, lib.view_as_real(z)

    x = numbers(1, (2, 3), np.complex64)
    for ours, theirs in zip(in_graph(f)(sl.from_numpy(x)), f(torch, torch.from_numpy(x))):
        same(ours, theirs)


def test_training_in_a_graph():
    """A step of descent on complex parameters gives torch's."""
    def net(lib):
        w = lib.nn.Parameter(lib.from_numpy(numbers(1, (4, 3), np.complex64)))
        b = lib.nn.Parameter(lib.from_numpy(np.linspace(0, 1, 3, dtype=np.float32)))
        return w, b

    x, y = numbers(2, (5, 4), np.complex64), numbers(3, (5, 3), np.complex64)

    def step(lib, w, b, x, y):
        return ((x @ w + b - y).abs() ** 2).mean()

    w, b = net(torch)
    step(torch, w, b, torch.from_numpy(x), torch.from_numpy(y)).backward()
    ours_w, ours_b = net(sl)

    class Gradients(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.w, self.b = ours_w, ours_b

        def build(self, x, y):
            return sl.autograd.grad(step(sl, self.w, self.b, x, y), (self.w, self.b))

    gw, gb = Gradients()(sl.from_numpy(x), sl.from_numpy(y))
    same(gw, w.grad)
    same(gb, b.grad)
    step(sl, ours_w, ours_b, sl.from_numpy(x), sl.from_numpy(y)).backward()
    same(ours_w.grad, w.grad)


REPRS = ["lib.tensor([1 + 2j, 3.5 - 1e-5j])", "lib.tensor([[1 + 2j, 3], [0, -1j]])", "lib.tensor(1.5 - 2j)",
         "lib.zeros(0, dtype=lib.complex128)", "lib.tensor([1e10 + 1j, 2])", "lib.tensor([1 + 2j, complex('nan-infj')])",
         "lib.tensor([1j], dtype=lib.complex128)", "lib.tensor([1j]).requires_grad_()", "lib.linspace(0, 10, 1200).to(lib.complex64)",
         "lib.tensor([[0.001 + 100j, 3]])", "lib.zeros(2, 0, dtype=lib.cfloat)", "lib.tensor([-0.0 - 0.0j])"]


@pytest.mark.parametrize("text", REPRS)
def test_they_are_printed_as_torch_prints_them(text):
    assert repr(eval(text, {"lib": sl})).replace("sluice.", "torch.") == repr(eval(text, {"lib": torch}))


def test_dtypes():
    names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
    for a in names:
        for b in ("complex64", "complex128"):
            assert sl.promote_types(getattr(sl, a), getattr(sl, b)).name == str(torch.promote_types(getattr(torch, a), getattr(torch, b)))[6:]
            assert sl.can_cast(getattr(sl, a), getattr(sl, b)) == torch.can_cast(getattr(torch, a), getattr(torch, b))
            assert sl.can_cast(getattr(sl, b), getattr(sl, a)) == torch.can_cast(getattr(torch, b), getattr(torch, a))
    for name in ("complex64", "complex128"):
        ours, theirs = getattr(sl, name), getattr(torch, name)
        assert (ours.itemsize, ours.is_complex, ours.is_floating_point, ours.to_real().name) == \
            (theirs.itemsize, theirs.is_complex, theirs.is_floating_point, str(theirs.to_real())[6:])
        assert (sl.finfo(ours).max, sl.finfo(ours).bits, sl.finfo(ours).dtype) == (torch.finfo(theirs).max, torch.finfo(theirs).bits,
                                                                                    torch.finfo(theirs).dtype)
        x = sl.zeros(2, dtype=ours)
        assert x.is_complex() and sl.is_complex(x) and not x.is_floating_point() and not x.is_conj()
        assert x.type() == torch.zeros(2, dtype=theirs).type() and x.element_size() == theirs.itemsize
    assert sl.float32.to_complex() is sl.complex64 and sl.float64.to_complex() is sl.complex128
    for a, b in [("tensor([1.])", "1j"), ("tensor([1])", "1j"), ("tensor([1.]).double()", "1j"), ("tensor([1j])", "tensor(1.).double()"),
                 ("tensor([1.])", "tensor(1j).to(lib.complex128)"), ("tensor([1])", "tensor(1j).to(lib.complex128)")]:
        got = [str(eval(f"lib.result_type(lib.{a}, {b if b[0] == '1' else 'lib.' + b})", {"lib": lib})).split(".")[1] for lib in (sl, torch)]
        assert got[0] == got[1], (a, b)


def test_casts_warn_where_a_part_is_lost():
    for lib in (sl, torch):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert lib.tensor([3.5 + 2j, 1j]).to(lib.int64).tolist() == [3, 0]
            assert lib.tensor([3.5 + 2j, 1j]).bool().tolist() == [True, True]
    with pytest.warns(UserWarning, match="discards the imaginary part"):
        sl.tensor([1j]).to(sl.float32)
    assert sl.tensor([1.5]).cfloat().tolist() == [1.5 + 0j] and sl.tensor([1.5]).cdouble().dtype is sl.complex128


def test_data_goes_out_and_comes_in():
    assert sl.tensor([1, 2j]).tolist() == [1, 2j] and sl.tensor(2j).item() == 2j and complex(sl.tensor(2j)) == 2j
    assert float(sl.tensor(2 + 0j)) == 2.0
    with pytest.raises(RuntimeError, match="without overflow"):
        float(sl.tensor(1j))
    for dtype in (np.complex64, np.complex128):
        a = numbers(1, (3, 4), dtype)
        t = sl.from_numpy(a)
        t[0, 0] = 5j
        assert a[0, 0] == 5j and np.shares_memory(t.numpy(), a) and t.numpy().dtype == dtype
        assert np.asarray(memoryview(t)).dtype == dtype
        assert np.array_equal(torch.from_dlpack(t).numpy(), a) and np.array_equal(sl.from_dlpack(torch.from_numpy(a)).numpy(), a)
        assert np.array_equal(sl.tensor(a[:, ::2]).numpy(), a[:, ::2]) and sl.tensor(a).dtype is t.dtype
        assert np.array_equal(pickle.loads(pickle.dumps(t)).numpy(), a)
        for save, load in [(sl.save, torch.load), (torch.save, sl.load), (sl.save, sl.load)]:
            file = io.BytesIO()
            save(t if save is sl.save else torch.from_numpy(a), file)
            file.seek(0)
            assert np.array_equal(load(file).numpy(), a)
    assert sl.tensor([1, 2j]).dtype is sl.complex64 and sl.tensor([1], dtype=complex).dtype is sl.complex128


def test_random_numbers_are_torchs():
    for dtype in ("complex64", "complex128"):
        for name in ("rand", "randn"):
            sl.manual_seed(3)
            torch.manual_seed(3)
            same(getattr(sl, name)(3, 7, dtype=getattr(sl, dtype)), getattr(torch, name)(3, 7, dtype=getattr(torch, dtype)), 1e-6)


REFUSED = ["x < 1", "x >= x", "x.floor()", "x.sign()", "lib.maximum(x, x)", "x.max()", "x.argmax()", "x.sort()", "x.clamp(0)",
           "x.relu()", "x.erf()", "x.softmax(0)", "x // 1", "x % 1", "lib.arange(3, dtype=lib.complex64)", "x.real.mul_(1j)",
           "lib.tensor([1.]).imag", "lib.full((2,), 1j, dtype=lib.float32)", "lib.complex(x.real, x.real.double())",
           "lib.complex(lib.ones(2).int(), lib.ones(2).int())", "lib.view_as_complex(lib.zeros(3))", "lib.view_as_real(lib.zeros(3))",
           "lib.view_as_complex(lib.zeros(5)[1:].view(2, 2))", "lib.zeros(2).add_(x)", "lib.atan2(x, x)", "x.round()", "x.cummax(0)",
           "lib.add(x.real, 1, alpha=1j)", "lib.xlogy(x, x)", "x.requires_grad_().sum().backward()", "lib.heaviside(x, x)",
           "lib.zeros(2)[0].fill_(1j)", "lib.bitwise_and(x, x)", "x.amax()", "lib.polar(x.real, x.real.double())"]


@pytest.mark.parametrize("text", REFUSED)
def test_refused_as_torch_refuses(text):
    for lib in (torch, sl):
        with pytest.raises((RuntimeError, TypeError)):
            eval(text, {"lib": lib, "x": lib.tensor([1 + 2j, 3])})


def test_special_values():
    values = [0j, -0.5 + 0j, complex("inf"), complex("nan"), complex(0, float("inf")), 1e30 + 1e30j, 1e-30j, -1 - 0j]
    ours, theirs = sl.tensor(values), torch.tensor(values)
    for name in ["abs", "angle", "sgn", "isnan", "isinf", "isfinite", "reciprocal", "sqrt", "exp", "neg", "conj", "log"]:
        mine, wanted = getattr(ours, name)().numpy(), getattr(theirs, name)().resolve_conj().numpy()
        np.testing.assert_array_equal(np.isnan(mine), np.isnan(wanted), err_msg=name)
        for part in (np.real, np.imag):  # NumPy compares the bits of the other part where one is infinite
            np.testing.assert_allclose(part(mine[~np.isnan(mine)]), part(wanted[~np.isnan(mine)]), 1e-5, 1e-6, err_msg=name)
    assert (ours / (3e20 + 4e20j)).isfinite().tolist() == (theirs / (3e20 + 4e20j)).isfinite().tolist()
    z = sl.zeros(2, dtype=sl.complex128, requires_grad=True)
    (z.abs().sum() + z.sgn().real.sum() + z.angle().sum()).backward()
    assert z.grad.tolist() == [0, 0]


def test_large_tensors_use_threads():
    x, y = numbers(1, (300, 500), np.complex64), numbers(2, (500,), np.complex64)
    a, b = sl.from_numpy(x), sl.from_numpy(y)
    np.testing.assert_allclose((a.t().contiguous() * b[:, None]).sum(1).numpy(), (x.T * y[:, None]).sum(1), 1e-4, 1e-4)
    np.testing.assert_allclose((a @ b).numpy(), x @ y, 1e-4, 1e-3)


def test_functions_of_autograd_take_complex():
    x = numbers(1, (3,))

    class Twice(sl.autograd.Function):
        @staticmethod
        def forward(ctx, z):
            return z * 2j

        @staticmethod
        def backward(ctx, g):
            return g * -2j

    z = sl.from_numpy(x).requires_grad_()
    Twice.apply(z).abs().sum().backward()
    t = torch.from_numpy(x).requires_grad_()
    (t * 2j).abs().sum().backward()
    same(z.grad, t.grad)


@pytest.mark.parametrize("dtype", [sl.complex64, sl.complex128])
def test_graphs_read_complex_inputs_that_lie_apart(dtype):
    class Twice(sl.nn.Graph):
        def build(self, x):
            return x * 2

    x = sl.tensor(np.arange(12).reshape(3, 4) * (1 + 2j), dtype=dtype)
    assert np.array_equal(Twice()(x.t()).numpy(), 2 * x.t().numpy())
    assert np.array_equal(Twice()(x[:, ::2]).numpy(), 2 * x[:, ::2].numpy())


BASES = [0.0, -0.0, -2.0, 1.5, 0j, -2 + 0j, 1 + 1j, 1j]
EXPONENTS = [0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -1.5, 2.5, 0j, 1j, -1j, 1 + 1j, -1 + 1j, 2 + 0j, 0.5 + 0j, 2 + 1j, -2 + 0j, 1 + 0j]


def power_and_gradients(lib, base, exponent, tensors, shape):
    """A power, its gradients, and those of the sum of their squares, of which operands are tensors."""
    def tensor(value):
        dtype = lib.complex128 if isinstance(value, complex) else lib.float64
        return lib.full(shape, value, dtype=dtype).requires_grad_()
    operands = [tensor(value) if is_tensor else value for value, is_tensor in zip((base, exponent), tensors)]
    given = [x for x, is_tensor in zip(operands, tensors) if is_tensor]
    y = lib.pow(*operands)
    g = lib.full(shape, 1 + 0.5j if y.is_complex() else 1.5, dtype=y.dtype).requires_grad_()
    first = lib.autograd.grad(y, given, g, create_graph=True)
    square = sum((d * d.conj()).real.sum() if d.is_complex() else (d * d).sum() for d in first)
    second = lib.autograd.grad(square, [*given, g], allow_unused=True) if square.requires_grad else []
    return [y, *first], second


@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("tensors", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("base", BASES)
def test_powers_have_torchs_gradients_at_zero_and_elsewhere(base, tensors, shape):
    def as_array(x):
        return np.zeros(shape) if x is None else x.detach().resolve_conj().numpy()
    for exponent in EXPONENTS:
        ours, theirs = [power_and_gradients(lib, base, exponent, tensors, shape) for lib in (sl, torch)]
        for mine, its in zip(ours[0], theirs[0]):
            finite = np.isfinite(as_array(its))
            np.testing.assert_array_equal(np.isfinite(as_array(mine)), finite, err_msg=str(exponent))
            np.testing.assert_allclose(as_array(mine)[finite], as_array(its)[finite], 1e-9, 1e-9, err_msg=str(exponent))
        # torch makes NaN of the second gradients of what `where` leaves out.
        for mine, its in zip(ours[1], theirs[1]):
            finite = np.isfinite(as_array(its))
            np.testing.assert_allclose(as_array(mine)[finite], as_array(its)[finite], 1e-9, 1e-9, err_msg=str(exponent))
