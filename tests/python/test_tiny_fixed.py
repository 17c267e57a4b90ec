"""Integers alone between layers: against a definition in Python's integers, TFLite's reference kernels, and in C."""

import importlib.util
import re
import shutil
import subprocess

import numpy as np
import pytest

import sluice as sl
import tflite_layers
from sluice import _C
from sluice.tiny import TrainStep, quantize
from sluice.tiny._scales import fixed_point
from test_tiny import STRICT, arm, check, losses_in, pictures
from test_tiny_int8 import network
from tflite_layers import computed, factors, operands


def rounded_half_away(numerator, power):
    """numerator / 2^power to the nearest integer."""
    whole, rest = divmod(abs(numerator), 1 << power)
    whole += 2 * rest >= 1 << power
    return whole if numerator >= 0 else -whole


def requantized(value, multiplier, exponent):
    """Two roundings: of value * 2^left * multiplier / 2^31, and of that divided by 2^right. The first is that of gemmlowp, in
    which a half below 0 goes up."""
    product = max(-2 ** 31, min(2 ** 31 - 1, value << max(exponent, 0))) * multiplier
    high = product + 2 ** 30 >> 31 if product >= 0 else -(-product + 2 ** 30 - 1 >> 31)
    return rounded_half_away(min(high, 2 ** 31 - 1), max(-exponent, 0))


def sums_of(one):
    """int64, in TFLite's order of axes."""
    x, w = one.x.astype(np.int64) - one.x_zero, one.weight.astype(np.int64)
    if one.kind == "linear":
        return x @ w.T + one.bias
    x = np.pad(x, ((0, 0), *one.padding, (0, 0)))
    if one.kind == "depthwise":
        x = np.repeat(x, w.shape[3] // one.x.shape[3], 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[1:3], (1, 2))[:, ::one.stride, ::one.stride]
    return np.einsum("nyxchw,hwc->nyxc" if one.kind == "depthwise" else "nyxchw,ohwc->nyxo", windows,
                     w[0] if one.kind == "depthwise" else w) + one.bias


def defined(one):
    pairs = factors(one)
    scaled = [[requantized(int(v), *pairs[c]) for c, v in enumerate(row)] for row in sums_of(one).reshape(-1, len(pairs))]
    return np.clip(np.array(scaled).reshape(one.shape) + one.y_zero, *one.range).astype(np.int8)


def test_layers_have_the_bits_of_tflites_reference_kernels(count):
    """And those of the definition. TFLite's results are the recorded ones, or its own where it is installed."""
    live = importlib.util.find_spec("ai_edge_litert") is not None
    recorded = tflite_layers.recorded()
    assert len(recorded) == tflite_layers.COUNT and len(set(recorded)) > 190
    ends = 0
    for index, told in enumerate(recorded):
        one = tflite_layers.layer(index)
        want = defined(one)
        ends += int(((want == one.range[0]) | (want == one.range[1])).sum())
        np.testing.assert_array_equal(computed(one, *operands(one)).numpy(), want, err_msg=f"layer {index}")
        assert tflite_layers.checksum(want) == told, f"layer {index}"
        if live:
            np.testing.assert_array_equal(tflite_layers.tflite(one), want, err_msg=f"layer {index}")
    assert ends > 100
    count("layers with the bits of TFLite's reference kernels", len(recorded), "computed now" if live else "by recorded checksums")


def test_scaling_is_that_of_the_definition_for_all_sums():
    """Also where it saturates, and for factors that TFLite never makes."""
    random = np.random.default_rng(0)
    edges = [-2 ** 31, -2 ** 31 + 1, -2 ** 30, -3, -2, -1, 0, 1, 2, 3, 2 ** 30, 2 ** 31 - 1]
    sums = np.concatenate([np.array(edges), random.integers(-2 ** 31, 2 ** 31, 200), random.integers(-300, 300, 200)])
    pairs = [(m, e) for m in (-2 ** 31, -2 ** 30, 2 ** 30, 1518500250, 2 ** 31 - 1, 0) for e in (-40, -32, -31, -22, -8, -1, 0, 1, 7, 31, 40)]
    given = [sl.tensor(np.array(v, np.int32)) for v in (np.tile(sums[:, None], len(pairs)), *zip(*pairs))]
    got = _C.ops.requantize(*given, zero_point=3).numpy()
    want = [[max(-128, min(127, requantized(int(v), m, max(min(e, 31), -32)) + 3)) for m, e in pairs] for v in sums]
    far = np.array([e < -31 for _, e in pairs])  # all of them round to 0
    np.testing.assert_array_equal(got[:, ~far], np.array(want)[:, ~far])
    assert (got[:, far] == 3).all()


@pytest.mark.parametrize("real", [1.0, 0.5, 2 ** 31 - 1e-7, 0.9999999999, 1e-3, 3.7e-9, 1e-11, 17.0])
def test_a_number_becomes_a_multiplier_and_a_power(real):
    multiplier, exponent = fixed_point(real)
    assert multiplier == 0 or 2 ** 30 <= multiplier < 2 ** 31
    assert abs(multiplier * 2.0 ** (exponent - 31) - real) <= real * 2 ** -31 + 2 ** -32


class Layers(sl.nn.Graph):
    def __init__(self, indices):
        super().__init__()
        self.layers = [tflite_layers.layer(i) for i in indices]
        self.operands = [operands(one) for one in self.layers]

    def build(self, *xs):
        return tuple(computed(one, [x, *given[1:]], keywords) for one, x, (given, keywords) in zip(self.layers, xs, self.operands))

    def inputs(self):
        return tuple(given[0] for given, _ in self.operands)


def exported(begin, folder):
    """Twenty layers as C, with what the engine computes for them on its device c:0."""
    graph = Layers(range(begin, begin + 20))
    for one, got in zip(graph.layers, graph(*graph.inputs())):
        np.testing.assert_array_equal(got.numpy(), defined(one))
    sl.tiny.export(graph, folder, name="layers", samples=[graph.inputs()])
    return graph, folder


@pytest.fixture(scope="module")
def in_c(tmp_path_factory):
    return exported(0, tmp_path_factory.mktemp("layers"))


def results(folder):
    """What vectors.h has, in the order of the layers."""
    arrays = re.findall(r"uint8_t out_(\w+)\[\] = \{(.*?)\}", (folder / "vectors.h").read_text(), re.S)
    return [np.array([int(word, 16) for word in text.replace(",", " ").split()], np.uint8).view(np.int8) for _, text in arrays]


@pytest.mark.soak
def test_soak_layers_in_c_have_the_same_bits(in_c, repetitions, count, tmp_path):
    layers = 0
    for begin in range(0, repetitions(20, tflite_layers.COUNT), 20):
        graph, folder = exported(begin, tmp_path / str(begin)) if begin else in_c
        assert check(folder, "sanitized") == 1
        for one, got in zip(graph.layers, results(folder), strict=True):
            np.testing.assert_array_equal(got.reshape(one.shape), defined(one))
            layers += 1
    count("layers in fixed point with the definition's bits in C", layers, "under sanitizers")


@arm
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7", "cortex-m55"])
def test_layers_have_the_same_bits_on_a_microcontroller(in_c, core, tmp_path):
    """By instructions that multiply pairs, and without them."""
    shutil.copytree(in_c[1], tmp_path / "layers")
    for options, pairs in (("-O2", True), ("-O2 -DSLUICE_PLAIN", False)):
        assert check(tmp_path / "layers", "-B", f"run-{core}", f"CFLAGS={STRICT} {options}") == 1
        code = subprocess.run(["arm-none-eabi-objdump", "-d", f"layers.{core}.elf"], cwd=tmp_path / "layers", capture_output=True,
                              text=True, check=True).stdout
        assert ("\tsmlad\t" in code) == pairs


def test_networks_in_fixed_point_have_no_float_between_layers_and_train(tmp_path, count):
    """Their integers are those of floats, but for a few that are rounded otherwise; steps have the same bits in C."""
    images = [x for x, _ in pictures(20)]
    floats, fixed = quantize(network(), images), quantize(network(), images, requantize="fixed")
    ours, theirs = (np.concatenate([net(x).detach().numpy() for x in images]) for net in (fixed, floats))
    count("largest difference of results in fixed point", float(np.abs(ours - theirs).max()), f"of {np.abs(theirs).max():.3f}")
    assert np.abs(ours - theirs).max() < 0.02 * np.abs(theirs).max()
    step = TrainStep(fixed, lr=0.05)
    first = {name: value.clone() for name, value in fixed.state_dict().items()}
    step(*next(pictures(1)))
    fixed.load_state_dict(first)
    made = sl.tiny.export(step, tmp_path, name="fixed", samples=pictures(50))
    assert check(made.directory, "sanitized") == 50
    losses = losses_in(tmp_path)
    assert losses[-10:].mean() < losses[:10].mean() - 0.2


@arm
def test_a_network_in_fixed_point_trains_on_a_microcontroller(tmp_path):
    step = TrainStep(quantize(network(), [x for x, _ in pictures(20)], requantize="fixed"), lr=0.05)
    step.compile(*next(pictures(1)))
    assert check(sl.tiny.export(step, tmp_path, name="fixed", samples=pictures(10)).directory, "run-cortex-m4") == 10


@pytest.mark.parametrize("call, told", [
    (lambda x, row: _C.ops.requantize(x.to(sl.float32), row, row), r"requantize: x: got float32\(2, 3\); must be int32"),
    (lambda x, row: _C.ops.requantize(x, row[:2], row),
     r"requantize: multiplier: got int32\(2,\); must be int32\(3,\), an element for each output channel"),
    (lambda x, row: _C.ops.requantize(x, row, row, axis=2), r"requantize: axis is 2; must be below 2, the rank of int32\(2, 3\)"),
    (lambda x, row: _C.ops.requantize(x, row, row, low=9, high=200), r"requantize: low is 9 and high 200; must lie in -128 to 127"),
    (lambda x, row: _C.ops.int8_linear_fixed(x.to(sl.int8), x.to(sl.uint8), row, row), r"x must be uint8 or int8, weight int8"),
    (lambda x, row: quantize(network(), [x], requantize="exact"), 'requantize is "exact"; must be float or fixed'),
])
def test_what_does_not_fit_is_refused(call, told):
    with pytest.raises((RuntimeError, ValueError), match=told):
        call(sl.zeros(2, 3, dtype=sl.int32), sl.ones(3, dtype=sl.int32))
