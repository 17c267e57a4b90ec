"""Kernels of 8-bit integers against exact sums."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import sluice as sl
from sluice import _C
from quantizing import VNNI


def integers(random, shape, kind, low=None, high=None):
    info = np.iinfo(kind)
    return random.integers(info.min if low is None else low, (info.max if high is None else high) + 1, shape).astype(kind)


def zero_point(value):
    return sl.tensor([value], dtype=sl.int32) if value else None


def finished(sums, scale, shift, residual, residual_scale, activation, dtype):
    """What follows the exact sums, in float64."""
    rows = (-1, *(1 for _ in sums.shape[2:]))
    y = sums * scale.double().reshape(rows)
    if shift is not None:
        y = y + shift.double().reshape(rows)
    if residual is not None:
        y = y + residual.double() * (1.0 if residual_scale is None else residual_scale.double())
    if activation == "relu":
        y = y.relu()
    if dtype is None:
        return y, None
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    return y, y.round().clamp(low, high)


def check(got, exact, rounded, dtype):
    if dtype is None:
        assert got.dtype == sl.float32
        torch.testing.assert_close(torch.from_numpy(got.numpy()).double(), exact, rtol=2e-5, atol=2e-4)
        return
    off = torch.from_numpy(got.numpy()).double() - rounded
    assert off.abs().max() <= 1
    ties = ((exact - exact.floor()) - 0.5).abs()
    assert (ties[off != 0] < 1e-3).all()  # nothing else is rounded another way


CONVS = [  # x, weight, stride, padding, dilation, groups
    ((2, 16, 9, 8), (32, 16, 3, 3), 1, 1, 1, 1),
    ((2, 3, 11, 13), (7, 3, 3, 5), 2, 2, 1, 1),
    ((1, 24, 7, 7), (40, 24, 1, 1), 1, 0, 1, 1),
    ((3, 8, 10, 9), (8, 1, 3, 3), 1, 1, 1, 8),
    ((2, 12, 8, 8), (18, 4, 3, 3), 2, 1, 2, 3),
    ((2, 5, 30), (6, 5, 4), 3, 2, 1, 1),
    ((1, 4, 5, 6, 7), (9, 4, 3, 2, 3), 1, 1, 1, 1),
    ((1, 300, 6, 6), (20, 300, 3, 3), 1, 1, 1, 1),
]


@pytest.mark.parametrize("case", range(len(CONVS)))
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_int8_convolutions_are_those_of_exact_sums(case, kind):
    """Groups, strides, padding around a zero point other than 0, ranges that saturate, residuals of every type."""
    shape, weights, stride, padding, dilation, groups = CONVS[case]
    dims, random = len(shape) - 2, np.random.default_rng(case)
    x, w = integers(random, shape, kind), integers(random, weights, "int8", -127)
    conv = getattr(torch.nn.functional, f"conv{dims}d")
    spread = 60 * np.prod(weights[1:]) ** 0.5 * 70
    for zero, dtype, activation, rest in [(0, None, "none", None), (0, "uint8", "relu", None), (7, "int8", "none", "uint8"),
                                          (-3, None, "relu", "int8"), (128, "uint8", "relu", "float32"),
                                          (5, "int8", "relu", None)]:
        centred = torch.from_numpy(x).double() - zero
        sums = conv(centred, torch.from_numpy(w).double(), None, stride, padding, dilation, groups)
        scale = torch.from_numpy(random.uniform(0.5, 2, weights[0]).astype("float32")) * (150 / spread)
        shift = torch.from_numpy(random.uniform(-9, 9, weights[0]).astype("float32")) if rest != "int8" else None
        residual = step = None
        if rest == "float32":
            residual = torch.from_numpy(random.normal(0, 40, sums.shape).astype("float32"))
        elif rest:
            residual, step = torch.from_numpy(integers(random, sums.shape, rest)), torch.tensor([0.31])
        exact, rounded = finished(sums, scale, shift, residual, step, activation, dtype)
        ours = [None if t is None else sl.from_numpy(t.numpy()) for t in (scale, shift, residual, step)]
        got = _C.ops.int8_conv(sl.from_numpy(x), sl.from_numpy(w), ours[0], ours[1], zero_point(zero), ours[2], ours[3],
                               activation=activation, dtype=dtype and getattr(sl, dtype), stride=[stride] * dims,
                               padding=[padding] * dims, dilation=[dilation] * dims, groups=groups)
        check(got, exact, rounded, dtype)
        if dtype == "uint8":
            assert (rounded == 0).any() and (rounded == 255).any()  # both ends were reached


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 100), (70,), (1, 512), (129, 33), (0, 16)])
def test_int8_products_are_those_of_exact_sums(shape):
    random = np.random.default_rng(sum(shape))
    for kind, zero, dtype, activation in [("uint8", 0, None, "none"), ("int8", 9, "uint8", "relu"),
                                          ("uint8", 131, "int8", "none")]:
        x, w = integers(random, shape, kind), integers(random, (19, shape[-1]), "int8", -127)
        sums = (torch.from_numpy(x).double() - zero) @ torch.from_numpy(w).double().T
        scale = torch.from_numpy(random.uniform(0.5, 2, 19).astype("float32")) / (40 * shape[-1] ** 0.5)
        shift = torch.from_numpy(random.uniform(-9, 9, 19).astype("float32"))
        exact, rounded = finished(sums.reshape(-1, 19), scale, shift, None, None, activation, dtype)
        got = _C.ops.int8_linear(sl.from_numpy(x), sl.from_numpy(w), sl.from_numpy(scale.numpy()),
                                 sl.from_numpy(shift.numpy()), zero_point(zero), activation=activation,
                                 dtype=dtype and getattr(sl, dtype))
        assert tuple(got.shape) == (*shape[:-1], 19)
        if got.numel():
            check(got.reshape(-1, 19), exact, rounded, dtype)


SHAPES = """
import sluice as sl
from sluice import _C
for rows, columns in ((1, 2048), (2, 64), (64, 512)):
    for zero in (None, sl.tensor([3], dtype=sl.int32)):
        x, w = sl.zeros(rows, columns, dtype=sl.uint8), sl.zeros(10, columns, dtype=sl.int8)
        _C.ops.int8_linear(x, w, sl.ones(10), sl.ones(10), zero)
for dims, size, groups in ((1, 9, 1), (2, 1, 1), (2, 9, 16), (3, 5, 1)):
    for kind in (sl.uint8, sl.int8):
        for residual in (None, sl.zeros(1, 16, *[size] * dims, dtype=sl.uint8)):
            x, w = sl.zeros(1, 16, *[size] * dims, dtype=kind), sl.zeros(16, 16 // groups, *[1] * dims, dtype=sl.int8)
            _C.ops.int8_conv(x, w, sl.ones(16), sl.ones(16), None, residual, None if residual is None else sl.ones(1),
                             stride=[1] * dims, padding=[0] * dims, dilation=[1] * dims, groups=groups)
"""


@pytest.mark.skipif(not VNNI, reason="the processor has no VNNI")
def test_no_shape_is_left_to_the_librarys_plain_loops():
    done = subprocess.run([sys.executable, "-c", SHAPES], capture_output=True, text=True,
                          env={**os.environ, "SLUICE_LOG": "debug"})
    chosen = re.findall(r"oneDNN: (\S+) for", done.stdout + done.stderr)
    assert done.returncode == 0 and len(chosen) >= 20, done.stderr
    assert not [name for name in chosen if name.startswith("ref")]


def test_quantize_and_dequantize_follow_torch():
    random = np.random.default_rng(0)
    x = random.normal(0, 40, (4, 6, 5)).astype("float32")
    x[0, 0, :4] = [0.05, 0.15, 1e9, -1e9]  # halves go to even, and what is out of range stays at its end
    q = _C.ops.quantize(sl.from_numpy(x), sl.tensor([0.1]), sl.tensor([3], dtype=sl.int32), dtype=sl.uint8)
    want = torch.quantize_per_tensor(torch.from_numpy(x), 0.1, 3, torch.quint8)
    np.testing.assert_allclose(q.numpy(), want.int_repr().numpy(), atol=1)  # torch multiplies by 1 / 0.1
    exact = np.clip(np.rint(x / np.float32(0.1)) + 3, 0, 255)
    np.testing.assert_array_equal(q.numpy(), exact)
    scales = np.array([0.5, 1.0, 2.0, 0.25, 3.0, 0.125], "float32")
    q = _C.ops.quantize(sl.from_numpy(x), sl.from_numpy(scales), axis=1, dtype=sl.int8)
    want = torch.quantize_per_channel(torch.from_numpy(x), torch.from_numpy(scales), torch.zeros(6, dtype=torch.int64), 1,
                                      torch.qint8)
    back = _C.ops.dequantize(q, sl.from_numpy(scales), axis=1).numpy()
    powers = scales != 3  # by which dividing is exact either way
    np.testing.assert_array_equal(back[:, powers], want.dequantize().numpy()[:, powers])
    np.testing.assert_allclose(back, want.dequantize().numpy(), atol=3.0)


@pytest.mark.parametrize("call, message", [
    (lambda x, w: _C.ops.int8_conv(x.float(), w, sl.ones(4), stride=[1], padding=[0], dilation=[1]),
     "int8_conv: operands: got float32(1, 3, 5) and int8(4, 3, 2); x must be uint8 or int8, weight int8"),
    (lambda x, w: _C.ops.int8_conv(x, w, sl.ones(3), stride=[1], padding=[0], dilation=[1]),
     "int8_conv: scale: got float32(3,); must be float32(4,), an element for each output channel"),
    (lambda x, w: _C.ops.int8_conv(x, w, sl.ones(4), stride=[1], padding=[0], dilation=[1], dtype=sl.int32),
     "int8_conv: dtype is int32; must be uint8 or int8, or none for a result in floats"),
    (lambda x, w: _C.ops.int8_linear(x, w[0], sl.ones(3)),
     "int8_linear: operands do not fit: x is (1, 3, 5), weight is (3, 2); weight must be (out_features, x.shape[-1])"),
    (lambda x, w: _C.ops.quantize(x.float(), sl.ones(2), axis=1),
     "quantize: scale does not fit: float32(2,); must have one element, or 3 for axis 1 of float32(1, 3, 5)"),
    (lambda x, w: _C.ops.quantize(x.float(), sl.ones(1), sl.ones(1)), "quantize: zero_point: got float32(1,); must be int32"),
    (lambda x, w: _C.ops.dequantize(x.float(), sl.ones(1)), "dequantize: q: got float32(1, 3, 5); must be uint8 or int8"),
])
def test_operands_that_do_not_fit_are_named(call, message):
    with pytest.raises(RuntimeError if "dtype is" not in message else ValueError) as error:
        call(sl.zeros(1, 3, 5, dtype=sl.uint8), sl.zeros(4, 3, 2, dtype=sl.int8))
    assert message in str(error.value)
