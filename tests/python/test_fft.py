"""torch.fft, stft and istft: numbers, gradients and errors as torch's, eager and in graphs."""

import numpy as np
import pytest
import torch
from conftest import to_sl
from test_complex import compare, in_graph, numbers, same

import sluice as sl

LINES = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
SEVERAL = [name + end for name in LINES for end in "2n"]
OF_REAL = {"rfft", "ihfft"}
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 19, 25, 30, 31, 49, 64, 97, 100, 121, 128, 169, 202, 210, 211, 437, 1000, 1009,
           1054, 2021, 2046, 2419, 3422, 3599, 4087]


def sample(name, seed, shape, dtype):
    x = numbers(seed, shape, np.complex128)
    if name.rstrip("2n") in OF_REAL:
        x = x.real
    single = np.float32 if x.dtype.kind == "f" else np.complex64
    return np.ascontiguousarray(x.astype(single) if dtype == "single" else x)


def exact(name, x):
    """NumPy's transform in long double: torch's is off by up to 2e-14 itself where a length has large prime factors."""
    y = getattr(np.fft, name)(x.astype(np.longdouble if x.dtype.kind == "f" else np.clongdouble))
    assert y.dtype in (np.longdouble, np.clongdouble), "NumPy transforms in long double from 2.0 on"
    return y


@pytest.mark.parametrize("dtype", ["single", "double"])
@pytest.mark.parametrize("name", LINES)
def test_lines_of_any_length(name, dtype):
    for n in LENGTHS:
        x = sample(name, n, (2, n), dtype)
        if name in ("irfft", "hfft") and n == 1:
            continue
        ours, theirs = getattr(sl.fft, name)(sl.from_numpy(x)), getattr(torch.fft, name)(torch.from_numpy(x))
        assert ours.dtype.name == str(theirs.dtype)[6:] and tuple(ours.shape) == tuple(theirs.shape)
        wanted = exact(name, x)
        error = np.abs(ours.numpy() - wanted).max() / np.abs(wanted).max()
        assert error < (1e-6 if dtype == "single" else 2e-15), n


def test_the_oracle_of_lines_is_the_sum():
    for n in (5, 97, 2021):
        x = numbers(n, (n,), np.complex128).astype(np.clongdouble)
        k = np.arange(n, dtype=np.longdouble)
        for row in (0, 1, n // 2, n - 1):  # exact integers below n, so that the angle is as exact as its type
            angle = -2 * np.arccos(np.longdouble(-1)) * ((k * row) % n) / n
            sum_ = (x * (np.cos(angle) + 1j * np.sin(angle))).sum()
            assert abs(exact("fft", x)[row] - sum_) < 1e-17 * n


@pytest.mark.parametrize("name", LINES)
def test_arguments_of_lines(name):
    x = sample(name, 3, (4, 5, 6), "double")
    for n in (None, 1, 3, 6, 9, 14):
        for dim in (-1, 0, 1):
            for norm in (None, "backward", "ortho", "forward"):
                f = lambda lib, x: getattr(lib.fft, name)(x, n=n, dim=dim, norm=norm)  # noqa: E731
                same(f(sl, sl.from_numpy(x)), f(torch, torch.from_numpy(x)), 1e-12)
    f = lambda lib, x: getattr(lib.fft, name)(x.transpose(0, 2)[:, ::2], 4, 1)  # noqa: E731
    same(f(sl, sl.from_numpy(x)), f(torch, torch.from_numpy(x)), 1e-12)
    same(in_graph(f)(sl.from_numpy(x)), f(torch, torch.from_numpy(x)), 1e-12)
    if name not in OF_REAL:
        same(getattr(sl.fft, name)(sl.from_numpy(x.real.copy())), getattr(torch.fft, name)(torch.from_numpy(x.real.copy())), 1e-12)
    whole = np.arange(12).reshape(3, 4)
    same(getattr(sl.fft, name)(sl.from_numpy(whole)), getattr(torch.fft, name)(torch.from_numpy(whole)), 1e-5)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_dims(name):
    x = sample(name, 5, (4, 5, 6), "double")
    cases = [{}, {"s": (3, 8)}, {"s": (3, 8), "dim": (0, 1)}, {"dim": (1, 0)}, {"norm": "ortho"}, {"norm": "forward", "dim": (0, 2)}]
    if name.endswith("n"):
        cases += [{"dim": (1,)}, {"s": (7,)}, {"s": (4, -1, 5)}, {"dim": (2, 0, 1)}]
    for options in cases:
        f = lambda lib, x: getattr(lib.fft, name)(x, **options)  # noqa: E731
        same(f(sl, sl.from_numpy(x)), f(torch, torch.from_numpy(x)), 1e-12)
    same(in_graph(lambda lib, x: getattr(lib.fft, name)(x))(sl.from_numpy(x)), getattr(torch.fft, name)(torch.from_numpy(x)), 1e-12)


@pytest.mark.parametrize("name", LINES + SEVERAL)
def test_gradients(name):
    for shape, options in [((3, 6), {}), ((3, 7), {"norm": "ortho"})] + ([((3, 5), {"n": 8}), ((3, 5), {"n": 4}), ((3, 5), {"n": 3, "dim": 0})]
                                                                          if name in LINES else [((3, 4, 5), {"s": (4, 6)})]):
        compare(lambda lib, x: getattr(lib.fft, name)(x, **options) ** 2, [sample(name, 1, shape, "double")])


def test_gradients_in_a_graph():
    def f(lib, x, w):
        y = lib.fft.irfft(lib.fft.rfft(x) * w)
        return lib.autograd.grad((y ** 3).sum(), (x, w))

    x, w = np.random.default_rng(0).normal(size=(3, 10)), numbers(4, (3, 6))
    given = [torch.from_numpy(v).requires_grad_() for v in (x, w)]

    class Net(sl.nn.Graph):
        def build(self, x, w):
            return f(sl, x.detach().requires_grad_(), w.detach().requires_grad_())

    for ours, theirs in zip(Net()(sl.from_numpy(x), sl.from_numpy(w)), f(torch, *given)):
        same(ours, theirs, 1e-10)


def test_frequencies_and_shifts():
    for n in (0, 1, 4, 5, 12):
        for d in (1.0, 0.25, 3):
            for name in ("fftfreq", "rfftfreq"):
                same(getattr(sl.fft, name)(n, d) if n else sl.zeros(1), getattr(torch.fft, name)(n, d) if n else torch.zeros(1))
                same(getattr(sl.fft, name)(n or 1, d, dtype=sl.float64), getattr(torch.fft, name)(n or 1, d, dtype=torch.float64))
    x = np.arange(60.0).reshape(3, 4, 5)
    for name in ("fftshift", "ifftshift"):
        for dim in (None, 0, (1, 2), (-1,)):
            same(getattr(sl.fft, name)(sl.from_numpy(x), dim=dim), getattr(torch.fft, name)(torch.from_numpy(x), dim=dim))
        compare(lambda lib, x: getattr(lib.fft, name)(x), [x])


def test_out():
    x, out = sl.randn(3, 4), sl.zeros(3, 4, dtype=sl.complex64)
    assert sl.fft.fft(x, out=out) is out and out.abs().sum() > 0


REFUSED = ["fft.fft(lib.ones(3).half())", "fft.fft(lib.tensor(1.))", "fft.fft(lib.zeros(0))", "fft.rfft(lib.tensor([1j]))",
           "fft.fft(lib.ones(3), norm='x')", "fft.fftn(lib.ones(2, 2), s=(2, 2, 2))", "fft.fftn(lib.ones(2, 2), dim=(0, 0))",
           "fft.irfft(lib.ones(1))", "fft.fft2(lib.ones(2))", "fft.rfftn(lib.ones(2, 2), dim=())", "fft.fft(lib.ones(3), n=0)",
           "fft.fft(lib.ones(3), dim=1)", "fft.fft(lib.ones(3), n=-2)", "fft.fftn(lib.ones(2, 2), s=(2,), dim=(0, 1))",
           "fft.ihfft(lib.tensor([1j]))", "fft.fft('x')", "fft.fftfreq(4, dtype=lib.int64)", "stft(lib.ones(8), 4)",
           "stft(lib.ones(8), 40, return_complex=True)", "stft(lib.ones(2, 2, 8), 4, return_complex=True)",
           "stft(lib.ones(8), 4, hop_length=0, return_complex=True)", "stft(lib.ones(8), 4, window=lib.ones(3), return_complex=True)",
           "istft(lib.ones(3, 5), 4)", "istft(lib.ones(3, 5).cfloat(), 8)"]


@pytest.mark.parametrize("text", REFUSED)
def test_refused_as_torch_refuses(text):
    for lib in (torch, sl):
        with pytest.raises((RuntimeError, TypeError, IndexError)):
            eval("lib." + text, {"lib": lib})


STFT = [{}, {"hop_length": 3}, {"win_length": 6}, {"window": True}, {"center": False}, {"normalized": True}, {"onesided": False},
        {"pad_mode": "constant"}, {"window": True, "hop_length": 4, "win_length": 7}, {"return_complex": False}]


@pytest.mark.parametrize("options", STFT, ids=str)
@pytest.mark.parametrize("shape", [(40,), (3, 40)], ids=str)
def test_stft(shape, options):
    def f(lib, x):
        given = {"return_complex": True, **options}
        if given.pop("window", False):
            given["window"] = lib.hann_window(given.get("win_length", 10), dtype=lib.float64)
        return lib.stft(x, 10, **given)

    compare(f, [np.random.default_rng(1).normal(size=shape)], second=False)
    x = np.random.default_rng(2).normal(size=shape)
    same(in_graph(f)(sl.from_numpy(x)), f(torch, torch.from_numpy(x)), 1e-10)


@pytest.mark.parametrize("options", [{}, {"window": True}, {"length": 37}, {"length": 45}, {"normalized": True}, {"center": False},
                                     {"onesided": False}, {"hop_length": 5}], ids=str)
def test_istft(options):
    def f(lib, z):
        given = dict(options)
        if given.pop("window", False):
            given["window"] = lib.hann_window(10, dtype=lib.float64)
        return lib.istft(z, 10, **given)

    bins = 10 if options.get("onesided") is False else 6
    compare(f, [numbers(3, (bins, 21))], second=False)
    compare(f, [numbers(4, (2, bins, 21))], second=False)


def test_istft_is_the_inverse_of_stft():
    x = sl.from_numpy(np.random.default_rng(1).normal(size=(2, 64)))
    z = x.stft(16, 4, window=sl.hann_window(16, dtype=sl.float64), return_complex=True)
    y = z.istft(16, 4, window=sl.hann_window(16, dtype=sl.float64), length=64)
    np.testing.assert_allclose(y.numpy(), x.numpy(), 1e-10, 1e-10)


def test_kaiser_window():
    for n in (0, 1, 2, 7, 16):
        for periodic in (True, False):
            for beta in (12.0, 3.5, 0.0):
                same(sl.kaiser_window(n, periodic, beta), torch.kaiser_window(n, periodic, beta))


def test_many_lines_on_threads():
    x = numbers(1, (64, 509, 8), np.complex64)
    np.testing.assert_allclose(sl.fft.fft(sl.from_numpy(x), dim=1).numpy(), np.fft.fft(x, axis=1), 1e-3, 2e-3)
    x = numbers(1, (64, 512), np.complex64)
    np.testing.assert_allclose(sl.fft.fft2(sl.from_numpy(x)).numpy(), np.fft.fft2(x), 1e-3, 1e-2)


@pytest.mark.parametrize("length", [60, 64, 61, 1000])
def test_many_lines_do_not_touch_each_other(length):
    torch.manual_seed(0)
    x = torch.randn(37, length)
    x[5, 3], x[20, 1], x[21] = float("nan"), float("inf"), x[21] * 1e-20
    for name, of in (("rfft", lambda m, v: m.fft.rfft(v)), ("fft", lambda m, v: m.fft.fft(v)),
                     ("irfft", lambda m, v: m.fft.irfft(m.complex(v, v.flip(1)))), ("rfft, dim 0", lambda m, v: m.fft.rfft(v.t(), dim=0).t())):
        ours, theirs = of(sl, to_sl(x)), of(torch, x)
        finite = [i for i in range(37) if i not in (5, 20)]
        scale = theirs[finite].abs().amax(1, keepdim=True).numpy()
        np.testing.assert_allclose(ours.numpy()[finite] / scale, theirs.numpy()[finite] / scale, atol=1e-6, err_msg=name)
        assert np.isnan(ours.numpy()[5]).all() and not np.isfinite(ours.numpy()[20]).any()
