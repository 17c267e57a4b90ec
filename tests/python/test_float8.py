"""Floats of 8 bits as storage: casts with torch's bits, copies, files, and errors that say what to use."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch

import sluice as sl
from sluice.utils import safetensors

NAMES = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
SOURCES = ["float32", "float16", "bfloat16"]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def of(name):
    return getattr(sl, name), getattr(torch, name)


def bits(t):
    return t.view(sl.uint8).numpy() if isinstance(t, sl.Tensor) else t.view(torch.uint8).numpy()


def all_codes(name):
    ours, theirs = of(name)
    codes = np.arange(256, dtype=np.uint8)
    return sl.from_numpy(codes.copy()).view(ours), torch.from_numpy(codes.copy()).view(theirs)


@pytest.mark.parametrize("to", ["float32", "float64", "float16", "bfloat16"])
def test_all_256_values_are_torchs(name, to):
    ours, theirs = all_codes(name)
    got, expected = ours.to(getattr(sl, to)).double().numpy(), theirs.to(getattr(torch, to)).double().numpy()
    assert np.array_equal(got, expected, equal_nan=True)
    known = ~np.isnan(expected)
    assert np.array_equal(np.signbit(got[known]), np.signbit(expected[known]))


def sixteen_bits(source):
    """All numbers of a dtype of 16 bits, of both libraries."""
    codes = np.arange(65536, dtype=np.uint16).view(np.int16)
    return sl.from_numpy(codes.copy()).view(getattr(sl, source)), torch.from_numpy(codes.copy()).view(getattr(torch, source))


@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_all_numbers_of_16_bits_are_rounded_as_torch_does(name, source):
    (ours, theirs), (x, y) = of(name), sixteen_bits(source)
    assert np.array_equal(bits(x.to(ours)), bits(y.to(theirs)))


def test_float32_is_rounded_as_torch_does(name):
    """Every number halfway between two neighbours, its neighbours in float32, and many besides: ties, overflow, denormals, no numbers."""
    ours, theirs = of(name)
    values = all_codes(name)[1].float().numpy()
    values = np.unique(values[np.isfinite(values)])
    halves = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    most = np.float32([values[-1] * f for f in (1, 1.03125, 1.0357143, 1.0625, 1.07, 1.125, 1.2, 2, 1e9)] + [np.inf, np.nan, 0.0, 1e-12, 1e-40])
    draw = np.random.default_rng(0)
    some = np.concatenate([draw.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32), draw.standard_normal(100_000).astype(np.float32)])
    exact = np.concatenate([values, halves, most])
    x = np.concatenate([exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf)), some])
    x = np.concatenate([x, -x])
    assert np.array_equal(bits(sl.from_numpy(x.copy()).to(ours)), bits(torch.from_numpy(x.copy()).to(theirs)))
    assert np.array_equal(bits(sl.from_numpy(x.astype(np.float64)).to(ours)), bits(torch.from_numpy(x.astype(np.float64)).to(theirs)))


def test_casts_between_them_and_from_integers(name):
    ours, theirs = of(name)
    x, y = all_codes(name)
    for other in NAMES:
        assert np.array_equal(bits(x.to(getattr(sl, other))), bits(y.to(getattr(torch, other)))), other
    numbers = np.arange(-300, 300)
    assert np.array_equal(bits(sl.from_numpy(numbers.copy()).to(ours)), bits(torch.from_numpy(numbers.copy()).to(theirs)))
    assert sl.tensor([1.0, 2.5]).to(ours).to(sl.int64).tolist() == [1, 2]


def test_range(name):
    ours, theirs = of(name)
    got, expected = sl.finfo(ours), torch.finfo(theirs)
    facts = "bits dtype max min tiny smallest_normal" + ("" if name == "float8_e5m2fnuz" else " eps")  # torch's is that of three bits
    assert [getattr(got, f) for f in facts.split()] == [getattr(expected, f) for f in facts.split()]
    assert ours.itemsize == 1 and ours.is_floating_point and ours.is_signed and not ours.is_complex and isinstance(ours, sl.dtype)
    assert str(ours).partition(".")[2] == str(theirs).partition(".")[2] and pickle.loads(pickle.dumps(ours)) is ours
    with pytest.raises(TypeError, match="requires an integer input type"):
        sl.iinfo(ours)


def test_they_are_made_as_others_are(name):
    ours, _ = of(name)
    assert sl.zeros(2, 3, dtype=ours).tolist() == [[0] * 3] * 2 and sl.ones(2, dtype=ours).tolist() == [1, 1]
    assert sl.tensor([1.0, 2.0], dtype=ours).tolist() == [1, 2] and sl.full((2,), 3.0, dtype=ours).tolist() == [3, 3]
    assert sl.empty(4, dtype=ours).shape == (4,) and sl.tensor(2, dtype=ours).item() == 2
    x = sl.ones(2, 3).to(ours)
    assert isinstance(x, sl.Tensor) and x.dtype is ours and x.to(ours) is x and x.float().dtype is sl.float32
    assert sl.zeros_like(x).dtype is ours and sl.zeros_like(x, dtype=sl.float32).dtype is sl.float32
    with pytest.raises(RuntimeError, match="value cannot be converted to type .* without overflow"):
        sl.full((2,), 1e9, dtype=ours)


def test_shapes_and_copies_are_those_of_tensors(name):
    ours, _ = of(name)
    x = sl.arange(6.0).reshape(2, 3).to(ours)
    assert x.shape == (2, 3) and x.numel() == 6 and x.nbytes == 6 and x.element_size() == 1 and x.is_contiguous() and len(x) == 2
    assert x.t().tolist() == [[0, 3], [1, 4], [2, 5]] and x[1].tolist() == [3, 4, 5] and x.view(3, 2).shape == (3, 2)
    assert sl.cat([x, x], 1).shape == (2, 6) and sl.stack([x, x]).dtype is ours and [row.tolist() for row in x] == [[0, 1, 2], [3, 4, 5]]
    y = x.clone()
    y[0] = sl.tensor([8.0, 8.0, 8.0])
    assert x[0].tolist() == [0, 1, 2] and y[0].tolist() == [8, 8, 8] and not sl.equal(x, y) and sl.equal(x, x.clone())
    x[1].copy_(sl.full((3,), 7.0))
    assert x.tolist() == [[0, 1, 2], [7, 7, 7]], "a row is a view"
    dense = sl.zeros(2, 3)
    assert dense.copy_(x).tolist() == x.tolist()
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.dtype is ours and other.tolist() == x.tolist()
    assert (x == 7).tolist() == [[False] * 3, [True] * 3] and not x.isnan().any() and "float8" in repr(x)


def test_files_are_torchs_both_ways(name, tmp_path):
    ours, theirs = of(name)
    values = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    x, y = sl.from_numpy(values.copy()).to(ours), torch.from_numpy(values.copy()).to(theirs)
    sl.save({"w": x, "view": x.t(), "b": sl.ones(2), "dtype": ours}, tmp_path / "ours.pt")
    got = torch.load(tmp_path / "ours.pt")
    assert got["w"].dtype is theirs and np.array_equal(bits(got["w"]), bits(y)) and np.array_equal(bits(got["view"]), bits(y.t()))
    assert got["dtype"] is theirs and got["b"].tolist() == [1, 1] and got["w"].data_ptr() == got["view"].data_ptr()
    torch.save({"w": y, "view": y.t(), "row": y[1], "empty": y[:0]}, tmp_path / "theirs.pt")
    back = sl.load(tmp_path / "theirs.pt")
    assert back["w"].dtype is ours and np.array_equal(bits(back["w"]), bits(y)) and np.array_equal(bits(back["view"]), bits(y.t()))
    assert back["row"].tolist() == y[1].float().tolist() and back["empty"].shape == (0, 4)


@pytest.mark.parametrize("name", NAMES[:2])
def test_safetensors_have_them(name, tmp_path):
    st = pytest.importorskip("safetensors.torch")
    ours, theirs = of(name)
    x, y = sl.arange(6.0).reshape(2, 3).to(ours), torch.arange(6.0).reshape(2, 3).to(theirs)
    safetensors.save_file({"w": x, "b": sl.ones(3)}, tmp_path / "ours.safetensors")
    got = st.load_file(tmp_path / "ours.safetensors")
    assert got["w"].dtype is theirs and np.array_equal(bits(got["w"]), bits(y))
    st.save_file({"w": y, "b": torch.ones(3)}, tmp_path / "theirs.safetensors")
    back = safetensors.load_file(tmp_path / "theirs.safetensors")
    assert back["w"].dtype is ours and np.array_equal(bits(back["w"]), bits(y)) and back["b"].tolist() == [1, 1, 1]


def test_safetensors_lack_the_others():
    with pytest.raises(TypeError, match="safetensors: 'w' has dtype .*float8_e4m3fnuz; must be one of float64, "):
        safetensors.save({"w": sl.ones(2).to(sl.float8_e4m3fnuz)})


def test_a_buffer_is_kept_and_decoded_in_graphs(name):
    ours, _ = of(name)

    class Net(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", sl.arange(6.0).reshape(2, 3).to(ours))

        def forward(self, x):
            return x.to(ours).to(x.dtype) @ self.weight.to(x.dtype).t()

    net, other, x = Net(), Net(), sl.randn(4, 3)
    expected = (x.to(ours).float() @ net.weight.float().t()).tolist()
    graph = sl.nn.Graph.trace(net)
    assert net(x).tolist() == expected and graph(x).tolist() == expected
    other.weight.zero_()
    other.load_state_dict(net.state_dict())
    assert other.weight.tolist() == net.weight.tolist()
    buffer = io.BytesIO()
    sl.save(net.state_dict(), buffer)
    buffer.seek(0)
    assert sl.load(buffer)["weight"].dtype is ours


def test_products_are_made_by_conversion():
    a, b = sl.randn(4, 16).to(sl.float8_e4m3fn), sl.randn(8, 16).to(sl.float8_e4m3fn).t()
    scale_a, scale_b = sl.tensor(0.5), sl.tensor(2.0)
    x, y = (torch.from_numpy(bits(t.contiguous()).copy()).view(torch.float8_e4m3fn) for t in (a, b.t()))
    expected = torch._scaled_mm(x, y.t(), torch.tensor(0.5), torch.tensor(2.0), out_dtype=torch.float32)
    got = sl._scaled_mm(a, b, scale_a, scale_b, out_dtype=sl.float32)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)
    assert sl._scaled_mm(a, b, scale_a, scale_b, bias=sl.ones(8).bfloat16(), out_dtype=sl.bfloat16).dtype is sl.bfloat16
    with pytest.raises(TypeError, match="_scaled_mm: got .*float32 and .*; must be two matrices of 8-bit floats"):
        sl._scaled_mm(a.float(), b, scale_a, scale_b)


@pytest.mark.parametrize("use", [lambda x: x + 1, lambda x: 1 * x, lambda x: x @ x.t(), lambda x: sl.relu(x), lambda x: sl.matmul(x, x.t()),
                                 lambda x: x.sum(), lambda x: sl.add(x, x), lambda x: sl.ones(2, 2) + x, lambda x: x.mul_(2)])
def test_what_computes_is_refused_and_says_what_to_use(use):
    with pytest.raises(NotImplementedError, match="not implemented for 'Float8_e5m2': floats of 8 bits are for storage here; use to"):
        use(sl.ones(2, 2).to(sl.float8_e5m2))


def test_gradients_and_parameters_are_refused():
    d = sl.float8_e5m2
    with pytest.raises(RuntimeError, match="the tensor requires grad, which floats of 8 bits do not pass on; use detach"):
        sl.ones(2, requires_grad=True).to(d)
    with pytest.raises(RuntimeError, match="requires_grad_: a tensor of .*float8_e5m2; must be False"):
        sl.ones(2).to(d).requires_grad_()
    with pytest.raises(TypeError, match="Parameter: data is of .*float8_e5m2"):
        sl.nn.Parameter(sl.ones(2).to(d))
    with pytest.raises(TypeError, match="float8_e5m2"):
        sl.nn.Linear(2, 2).to(d)
    with pytest.raises(TypeError, match="use to.float32., or view.uint8. for the bits"):
        sl.ones(2).to(d).numpy()
    with pytest.raises(TypeError, match="must be real: use t.real"):
        sl.ones(2, dtype=sl.complex64).to(d)
