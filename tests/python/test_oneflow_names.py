"""Names that OneFlow has and torch has not: held to NumPy, to plain loops, or to the functions behind them."""

import json
import re

import numpy as np
import pytest
import torch

import sluice as sl
from conftest import assert_same, to_sl
from sluice import compat
from sluice._names.left_out import LEFT_OUT, left_out

F = sl.nn.functional


def rng(seed=0):
    return np.random.default_rng(seed)


# Boxes and regions


def boxes_of(n, seed):
    corner = rng(seed).uniform(0, 10, (n, 2))
    return np.concatenate([corner, corner + rng(seed + 1).uniform(0, 5, (n, 2))], 1).astype(np.float32)


def plain_nms(boxes, scores, threshold):
    def overlap(a, b):
        w = min(a[2], b[2]) - max(a[0], b[0])
        h = min(a[3], b[3]) - max(a[1], b[1])
        common = max(w, 0) * max(h, 0)
        return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)

    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if all(overlap(boxes[i].astype(float), boxes[j].astype(float)) <= threshold for j in kept):
            kept.append(int(i))
    return kept


@pytest.mark.parametrize("n, threshold", [(1, 0.5), (30, 0.1), (30, 0.5), (60, 0.3), (30, 1.0)])
def test_boxes_that_overlap_go(n, threshold):
    for seed in range(5):
        boxes, scores = boxes_of(n, seed), rng(seed + 9).random(n).astype(np.float32).round(1)
        kept = sl.nms(sl.tensor(boxes), sl.tensor(scores), threshold)
        assert kept.dtype is sl.int64 and kept.tolist() == plain_nms(boxes, scores, threshold)
    assert sl.tensor(boxes).nms(sl.tensor(scores), threshold).tolist() == kept.tolist()


def test_boxes_that_cannot_be():
    assert sl.nms(sl.zeros(0, 4), sl.zeros(0), 0.5).shape == (0,)
    with pytest.raises(RuntimeError, match="boxes should be"):
        sl.nms(sl.zeros(3), sl.zeros(3), 0.5)
    with pytest.raises(RuntimeError, match="same number of elements"):
        sl.nms(sl.zeros(3, 4), sl.zeros(2), 0.5)

    class Net(sl.nn.Graph):
        def build(self, b, s):
            return sl.nms(b, s, 0.5)

    with pytest.raises(NotImplementedError, match="depends on their values"):
        Net()(sl.zeros(3, 4), sl.zeros(3))


def bilinear(image, y, x, edges):
    """A sample of (H, W); `edges`: those a pixel outside count as on the edge (regions), else missing pixels as 0."""
    h, w = image.shape
    if edges:
        if y < -1 or y > h or x < -1 or x > w:
            return 0.0
        y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    top, left = int(np.floor(y)), int(np.floor(x))
    total = 0.0
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        if 0 <= top + i < h and 0 <= left + j < w:
            total += image[top + i, left + j] * (1 - abs(y - top - i)) * (1 - abs(x - left - j))
    return total


def plain_roi_align(images, rois, scale, ph, pw, ratio, aligned):
    out = np.zeros((len(rois), images.shape[1], ph, pw))
    for r, (b, x1, y1, x2, y2) in enumerate(rois):
        shift = 0.5 if aligned else 0.0
        x1, y1, x2, y2 = (v * scale - shift for v in (x1, y1, x2, y2))
        w, h = x2 - x1, y2 - y1
        if not aligned:
            w, h = max(w, 1), max(h, 1)
        gy, gx = (ratio, ratio) if ratio > 0 else (int(np.ceil(h / ph)), int(np.ceil(w / pw)))
        for c in range(images.shape[1]):
            for i in range(ph):
                for j in range(pw):
                    samples = [bilinear(images[int(b), c], y1 + (i + (a + 0.5) / gy) * h / ph,
                                        x1 + (j + (e + 0.5) / gx) * w / pw, True)
                               for a in range(gy) for e in range(gx)]
                    out[r, c, i, j] = sum(samples) / max(gy * gx, 1)
    return out


ROIS = np.array([[0, 0.5, 1, 6, 5], [1, -3, 2, 3, 9.5], [0, 2, 2, 2.2, 2.1], [1, 4, 0, 12, 4]])


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2, 3])
def test_regions(ratio, aligned):
    images = rng().standard_normal((2, 3, 7, 9))
    expected = plain_roi_align(images, ROIS, 0.8, 2, 3, ratio, aligned)
    x = sl.tensor(images, requires_grad=True)
    y = sl.roi_align(x, sl.tensor(ROIS), 0.8, 2, 3, ratio, aligned)
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=1e-10)
    weights = rng(1).standard_normal(expected.shape)
    (g,) = sl.autograd.grad((y * sl.tensor(weights)).sum(), x)
    bump = np.zeros_like(images)
    bump[1, 2, 3, 4] = 1
    slope = ((plain_roi_align(images + bump, ROIS, 0.8, 2, 3, ratio, aligned) - expected) * weights).sum()  # it is linear
    np.testing.assert_allclose(g.numpy()[1, 2, 3, 4], slope, atol=1e-10)
    if ratio > 0:
        class Net(sl.nn.Graph):
            def build(self, x, r):
                return sl.roi_align(x, r, 0.8, 2, 3, ratio, aligned)

        np.testing.assert_allclose(Net()(sl.tensor(images), sl.tensor(ROIS)).numpy(), expected, atol=1e-10)
    with pytest.raises(RuntimeError, match="must be .N, C, H, W."):
        sl.roi_align(x, sl.zeros(2, 4), 1.0, 2, 2)


def plain_deform(x, offset, weight, bias, stride, padding, dilation, mask):
    n, c, h, w = x.shape
    out, per, kh, kw = weight.shape
    _, _, rows, cols = offset.shape
    groups = offset.shape[1] // (2 * kh * kw)
    blocks = c // per
    y = np.zeros((n, out, rows, cols))
    for b in range(n):
        for o in range(out):
            block = o // (out // blocks)
            for i in range(rows):
                for j in range(cols):
                    for q in range(per):
                        channel = block * per + q
                        g = channel // (c // groups)
                        for u in range(kh):
                            for v in range(kw):
                                k = (g * kh + u) * kw + v
                                at = (i * stride[0] - padding[0] + u * dilation[0] + offset[b, 2 * k, i, j],
                                      j * stride[1] - padding[1] + v * dilation[1] + offset[b, 2 * k + 1, i, j])
                                y[b, o, i, j] += weight[o, q, u, v] * mask[b, k, i, j] * bilinear(x[b, channel], *at, False)
            y[b, o] += bias[o]
    return y


@pytest.mark.parametrize("stride, padding, dilation, groups, blocks", [((1, 1), (0, 0), (1, 1), 1, 1), ((2, 1), (1, 2), (1, 2),
                                                                                                        2, 2)])
def test_deformed_convolution(stride, padding, dilation, groups, blocks):
    r = rng(3)
    x, weight, bias = r.standard_normal((2, 4, 4, 4)), r.standard_normal((4, 4 // blocks, 3, 2)), r.standard_normal(4)
    size = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip((4, 4), padding, dilation, (3, 2), stride)]
    offset, mask = r.standard_normal((2, groups * 12, *size)) * 1.5, r.random((2, groups * 6, *size))
    given = [sl.tensor(a, requires_grad=True) for a in (x, offset, weight, bias, mask)]
    y = sl.deform_conv2d(*given[:4], stride, padding, dilation, given[4])
    np.testing.assert_allclose(y.detach().numpy(), plain_deform(x, offset, weight, bias, stride, padding, dilation, mask),
                               atol=1e-9)
    one = [sl.tensor(a[:1], requires_grad=True) for a in (x, offset)] + given[2:4] + [sl.tensor(mask[:1], requires_grad=True)]
    assert sl.autograd.gradcheck(lambda *a: F.deform_conv2d(*a[:4], stride, padding, dilation, a[4])[:, :, :1, :2], one)
    zero = sl.deform_conv2d(given[0], given[1] * 0, given[2], None, stride, padding, dilation)
    expected = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weight), None, stride, padding, dilation, blocks)
    assert_same(zero, expected, 1e-9)
    with pytest.raises(RuntimeError, match="must have 4 each"):
        sl.deform_conv2d(given[0][0], given[1], given[2])
    with pytest.raises(RuntimeError, match="offset tensor at dimension 1 is not valid"):
        sl.deform_conv2d(given[0], given[1][:, :3], given[2])


# Decoding, margins, initial values


def test_decoding_by_the_likeliest():
    T, N, C = 9, 3, 4
    scores = rng(2).standard_normal((T, N, C)).astype(np.float32)
    lengths = np.array([9, 4, 0])
    for merge in (True, False):
        decoded, sums = F.ctc_greedy_decoder(sl.tensor(scores), sl.tensor(lengths), merge)
        for b in range(N):
            path = scores[:lengths[b], b].argmax(1)
            plain = [p for i, p in enumerate(path) if p != C - 1 and not (merge and i and path[i - 1] == p)]
            assert decoded[b].tolist() == plain + [0] * (T - len(plain))
            assert sums[b].item() == pytest.approx(-scores[:lengths[b], b].max(1).sum() if lengths[b] else 0.0, rel=1e-5)
    with pytest.raises(RuntimeError, match="must be .T, N, C."):
        F.ctc_greedy_decoder(sl.ones(2, 3), sl.ones(3))

    class Net(sl.nn.Graph):
        def build(self, x, n):
            return F.ctc_greedy_decoder(x, n)

    assert Net()(sl.tensor(scores), sl.tensor(lengths))[0].tolist() == F.ctc_greedy_decoder(sl.tensor(scores),
                                                                                            sl.tensor(lengths))[0].tolist()
    x = sl.ones(2)
    assert F.depend(x, sl.ones(3)) is x


@pytest.mark.parametrize("m1, m2, m3", [(1.0, 0.0, 0.35), (1.0, 0.5, 0.0), (1.2, 0.3, 0.1)])
def test_margins(m1, m2, m3):
    x, label = rng().uniform(-0.9, 0.9, (4, 6)), np.array([0, 5, 2, 2])
    expected = x.copy()
    own = x[np.arange(4), label]
    expected[np.arange(4), label] = np.cos(m1 * np.arccos(own) + m2) - m3
    mine = sl.tensor(x, requires_grad=True)
    y = sl.nn.CombinedMarginLoss(m1, m2, m3)(mine, sl.tensor(label))
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=1e-12)
    assert sl.autograd.gradcheck(lambda t: sl.nn.CombinedMarginLoss(m1, m2, m3)(t, sl.tensor(label)), mine)
    edge = sl.tensor([[1.0, 0.5]], requires_grad=True)
    sl.nn.CombinedMarginLoss(m1, m2, m3)(edge, sl.tensor([1])).sum().backward()
    assert np.isfinite(edge.grad.numpy()).all()


def test_fans():
    for shape, layout in (((8, 4, 3, 5), "NCHW"), ((8, 3, 5, 4), "NHWC"), ((8, 4), "NC")):
        field = 15 if len(shape) == 4 else 1
        assert [sl.nn.init.calc_fan(shape, mode, layout) for mode in ("fan_in", "fan_out", "fan_avg")] == [4 * field,
                                                                                                           8 * field, 6 * field]
    assert [sl.nn.init.get_data_format(f) for f in ("NCHW", "NDHWC", "other")] == ["channels_first", "channels_last", ""]
    for bad in (((3,), "fan_in"), ((3, 4), "fan")):
        with pytest.raises(ValueError):
            sl.nn.init.calc_fan(*bad)


# Modules


def test_fused_modules():
    for d in (1, 2, 3):
        ours, theirs = getattr(sl.nn, f"FusedBatchNorm{d}d")(4), getattr(torch.nn, f"BatchNorm{d}d")(4)
        x, more = torch.randn(3, 4, *[2] * d), torch.randn(3, 4, *[2] * d)
        assert_same(ours(to_sl(x), to_sl(more)), torch.relu(theirs(x) + more), 1e-4)
        assert_same(ours(to_sl(x)), torch.relu(theirs(x)), 1e-4)
        assert list(ours.state_dict()) == list(theirs.state_dict())
    net = sl.nn.FusedMLP(4, [8, 6], 3, skip_final_activation=True)
    assert list(net.state_dict()) == ["weight_0", "bias_0", "weight_1", "bias_1", "weight_2", "bias_2"]
    weights = [(torch.tensor(w.detach().numpy()), torch.tensor(b.detach().numpy())) for w, b in zip(net.weights(),
                                                                                                    net.biases())]
    x = torch.randn(5, 4)
    y = x
    for i, (w, b) in enumerate(weights):
        y = torch.nn.functional.linear(y, w, b)
        y = torch.relu(y) if i < 2 else y
    assert_same(net(to_sl(x)), y)
    active = sl.nn.FusedMLP(4, [8], 3, [0.5], 0.5)
    assert (active.eval()(to_sl(x)).detach().numpy() >= 0).all()
    assert (active.train()(sl.ones(200, 4)).detach().numpy() == 0).mean() > 0.4
    with pytest.raises(ValueError, match="hidden dropout rates"):
        sl.nn.FusedMLP(4, [8, 6], 3, [0.5])


def test_images():
    x = rng().integers(0, 256, (3, 6, 8, 2)).astype(np.uint8)
    mirror = np.array([1, 0, 1], np.int8)
    norm = sl.nn.CropMirrorNormalize(crop_h=4, crop_w=5, crop_pos_y=1.0, crop_pos_x=0.5, mean=[1.0, 2.0], std=[3.0, 4.0])
    cut = x[:, 2:6, 1:6].astype(np.float32)
    cut[[0, 2]] = cut[[0, 2], :, ::-1]
    expected = (cut - np.array([1, 2], np.float32)) / np.array([3, 4], np.float32)
    np.testing.assert_allclose(norm(sl.tensor(x), sl.tensor(mirror)).numpy(), expected.transpose(0, 3, 1, 2), rtol=1e-6)
    plain = sl.nn.CropMirrorNormalize(output_layout="NHWC", output_dtype=sl.float64)(sl.tensor(x))
    assert plain.dtype is sl.float64 and (plain.numpy() == x).all()
    for bad in (lambda: sl.nn.CropMirrorNormalize(output_layout="CHW"), lambda: norm(sl.zeros(2, 2)), lambda: norm(sl.zeros(1,
                                                                                                                            2, 2, 2))):
        with pytest.raises(ValueError, match="CropMirrorNormalize"):
            bad()


def test_coins():
    flips = sl.nn.CoinFlip(1000, 3, 0.3)
    first = flips()
    assert first.dtype is sl.int8 and 0.2 < first.float().mean().item() < 0.4 and set(first.tolist()) == {0, 1}
    assert sl.nn.CoinFlip(1000, 3, 0.3)().tolist() == first.tolist() != flips().tolist()
    assert sl.nn.CoinFlip(5, probability=1.0)().tolist() == [1] * 5
    with pytest.raises(ValueError, match="probability"):
        sl.nn.CoinFlip(1, probability=2)


# Quantization


@pytest.mark.parametrize("bit", [4, 8])
@pytest.mark.parametrize("formula, scheme", [("google", "symmetric"), ("google", "affine"), ("cambricon", "symmetric")])
@pytest.mark.parametrize("per_layer", [True, False])
def test_quantized_values(formula, scheme, bit, per_layer):
    x = (rng().standard_normal((3, 4, 5)) * 3).astype(np.float32)
    scale, zero = sl.nn.MinMaxObserver(formula, bit, scheme, per_layer)(sl.tensor(x))
    rows = x.reshape(1 if per_layer else 3, -1).astype(np.float64)
    low, high = (0, 2**bit - 1) if scheme == "affine" else (-(2 ** (bit - 1)), 2 ** (bit - 1) - 1)
    if scheme == "affine":
        s = (rows.max(1) - rows.min(1)) / high
        z = -np.round(rows.min(1) / s)
    elif formula == "google":
        s, z = abs(rows).max(1) / high, np.zeros(len(rows))
    else:
        s, z = np.floor(np.log2(abs(rows).max(1))) - (bit - 2), np.zeros(len(rows))
    np.testing.assert_allclose(scale.numpy(), s, rtol=1e-6)
    np.testing.assert_allclose(zero.numpy(), z)
    step = (np.exp2(s) if formula == "cambricon" else s).reshape(-1, 1, 1)
    whole = np.clip(np.round(x / step.astype(np.float32)) + z.reshape(-1, 1, 1), low, high)
    quantized = sl.nn.Quantization(formula, bit, scheme)(sl.tensor(x), scale, zero)
    assert abs(quantized.numpy() - whole).max() <= 1 and (quantized.numpy() != whole).mean() < 0.02  # ties of rounding
    mine = sl.tensor(x, requires_grad=True)
    fake = sl.nn.FakeQuantization(formula, bit, scheme)(mine, scale, zero)
    np.testing.assert_allclose(fake.detach().numpy(), (quantized.numpy() - z.reshape(-1, 1, 1)) * step, rtol=1e-4, atol=1e-4)
    assert abs(fake.detach().numpy() - x).max() <= 1.01 * step.max()
    fake.sum().backward()
    assert (mine.grad.numpy() == 1).all()


def test_zeros_stay_zeros():
    x = sl.zeros(3, 2)
    for scheme in ("symmetric", "affine"):
        made = sl.nn.FakeQuantization("google", 8, scheme)(x, *sl.nn.MinMaxObserver("google", 8, scheme)(x))
        assert made.tolist() == x.tolist()


def test_moving_ranges():
    observer = sl.nn.MovingAverageMinMaxObserver(stop_update_after_iters=2, momentum=0.9)
    for x, high in (([1.0, -2.0], 2.0), ([4.0, 0.0], 0.9 * 1 + 0.1 * 4), ([100.0, 0.0], None)):
        scale, zero = observer(sl.tensor(x))
        low, top = observer.moving_min.item(), observer.moving_max.item()
    assert (low, top) == (pytest.approx(-1.8),
                          pytest.approx(1.3)) and scale.item() == pytest.approx(1.8 / 127) and zero.item() == 0
    assert observer.current_train_step.item() == 3
    observer.eval()(sl.tensor([1e3]))
    assert observer.moving_max.item() == pytest.approx(1.3)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_convolutions_for_quantization(d):
    sl.manual_seed(0)
    conv = getattr(sl.nn, f"QatConv{d}d")(2, 3, 3, padding=1, momentum=0.5)
    plain = getattr(sl.nn, f"Conv{d}d")(2, 3, 3, padding=1)
    plain.load_state_dict({k: v for k, v in conv.state_dict().items() if k in ("weight", "bias")})
    x = sl.randn(2, 2, *[5] * d)
    y = conv(x)
    exact = plain(x)
    assert 0 < (y - exact).abs().max().item() < 0.05 * exact.abs().max().item()
    y.sum().backward()
    assert conv.weight.grad is not None
    for bad in ({"quantization_bit": 9}, {"quantization_formula": "x"}, {"quantization_scheme": "x"},
                {"quantization_formula": "cambricon", "quantization_scheme": "affine"}):
        with pytest.raises(ValueError, match="quantization_"):
            getattr(sl.nn, f"QatConv{d}d")(2, 3, 3, **bad)


# Jobs, placements, hubs


def test_the_job_of_one():
    env = sl.env
    assert (env.get_rank(), env.get_world_size(), env.get_local_rank(), env.get_node_size()) == (0, 1, 0, 1)
    assert not env.rdma_is_initialized() and env.all_device_placement("cpu") == sl.placement("cpu", [0])
    assert sl.comm.all_reduce is sl.distributed.all_reduce
    assert sl.distributed.default_pg_timeout.total_seconds() == 300


def test_global_tensors_in_nests():
    place = sl.placement("cpu", [0])
    state = {"a": sl.ones(2), "b": [sl.zeros(3), (sl.ones(1),)]}
    made = sl.global_view.to_global(state, placement=place, sbp=sl.sbp.broadcast)
    assert made["a"].is_global and made["b"][1][0].placement == place
    back = sl.to_local(made)
    assert not back["b"][0].is_global and back["a"].tolist() == [1, 1]
    assert sl.to_global(sl.ones(2), place, lambda t: sl.sbp.split(0)).sbp == (sl.sbp.split(0),)
    with pytest.warns(UserWarning, match="only tensors are converted"):
        assert sl.to_global([3], place, sl.sbp.broadcast) == [3]
    x = sl.local_to_global(sl.ones(2), place, sl.sbp.broadcast)
    assert sl.global_to_global(x, sbp=sl.sbp.split(0)).sbp == (sl.sbp.split(0),)
    assert sl.ones(2).local_to_global(place, sl.sbp.broadcast).is_global and x.global_to_global(place,
                                                                                                sl.sbp.split(0)).is_global
    sl.ones(2).check_meta_consistency()
    for bad in (lambda: sl.local_to_global(x, place, sl.sbp.broadcast), lambda: sl.global_to_global(sl.ones(2), place,
                                                                                                    sl.sbp.broadcast)):
        with pytest.raises(ValueError, match="use .*_to_global"):
            bad()
    with pytest.raises(NotImplementedError, match="grad_sbp"):
        sl.global_to_global(x, place, sl.sbp.broadcast, grad_sbp=sl.sbp.broadcast)


def test_methods():
    x = sl.arange(6.0).reshape(2, 3)
    y = x.t()
    assert not y.is_contiguous() and y.contiguous_() is y and y.is_contiguous() and y.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert sl.repeat(x, 2, 1).shape == (4, 3)
    assert sl.tensor([1, 0]).in_top_k(sl.tensor([[0.1, 0.9], [0.2, 0.3]]), 1).tolist() == [True, False]
    square = sl.empty(3, 3).orthogonal_()
    assert_same(square @ square.t(), torch.eye(3), 1e-5)
    assert sl.ignore(test_methods) is sl.unused(test_methods) is sl.interface(test_methods) is test_methods
    assert not sl.is_scripting() and not sl.is_tracing()


HUBCONF = '''
"""Models."""
dependencies = ["json"]
import helper_of_hubconf


def double(x, by=2):
    """x times `by`."""
    return helper_of_hubconf.times(x, by)


_private = double
'''


def test_hubs_of_directories(tmp_path):
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    (tmp_path / "helper_of_hubconf.py").write_text("def times(x, by):\n    return x * by\n")
    hub = sl.hub
    assert hub.load(tmp_path, "double", 3, by=5, source="local") == 15
    assert hub.help(tmp_path, "double", source="local") == "x times `by`." and hub.list(str(tmp_path),
                                                                                        source="local") == ["double"]
    for call, error, message in (
        (lambda: hub.load("pytorch/vision", "resnet18"), NotImplementedError, "repositories are not downloaded.*source='local'"),
        (lambda: hub.download_url_to_file("file:///etc/passwd", "x"), ValueError, "must be an http or https address"),
        (lambda: hub.load(tmp_path, "double", source="x"), ValueError, "Unknown source"),
        (lambda: hub.load(tmp_path, "triple", source="local"), RuntimeError, "Cannot find callable triple in hubconf"),
        (lambda: hub.load(tmp_path, 3, source="local"), ValueError, "should be a string"),
        (lambda: hub.load(tmp_path / "no", "double", source="local"), FileNotFoundError, "must have a hubconf.py"),
    ):
        with pytest.raises(error, match=message):
            call()
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_package_at_all']\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package_at_all"):
        hub.list(tmp_path, source="local")


def test_where_hubs_keep_models(tmp_path, monkeypatch):
    monkeypatch.setattr(sl.hub, "_directory", None)
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    assert sl.hub.get_dir() == str(tmp_path / "hub")
    sl.hub.set_dir(tmp_path / "mine")
    assert sl.hub.get_dir() == str(tmp_path / "mine")
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    sl.save({"a": sl.ones(2)}, tmp_path / "mine" / "checkpoints" / "weights.pt")
    assert sl.hub.load_state_dict_from_url("https://example.org/weights.pt?x=1")["a"].tolist() == [1, 1]


# Names that are left out


ABSENT = {"sl": ["FunctionConfig", "tensor_buffer", "boxing", "asyncs", "model", "one_embedding"], "sl.nn": ["COCOReader",
                                                                                                             "OFRecordReader",
                                                                                                             "AllReduce"],
          "sl.nn.image": ["decode", "Resize"], "sl.env": ["init_rdma"], "sl.global_view": ["global_mode"],
          "sl.nn.utils": ["ContiguousParamsGroup"], "sl.nn.utils.rnn": ["reverse"], "sl.nn.functional": ["scaled_mm"],
          "sl.utils.checkpoint": ["create_selective_checkpoint_contexts"], "sl.profiler": ["itt"], "sl.ones(2)": ["offload",
                                                                                                                  "to_consistent", "dim0"],
          "sl.nn.Graph": ["build_graph", "share_from"]}


@pytest.mark.parametrize("owner", ABSENT)
def test_what_is_left_out_says_what_to_use(owner):
    value = eval(owner, {"sl": sl})
    for name in ABSENT[owner]:
        assert not hasattr(value, name)
        with pytest.raises(AttributeError, match=f"has no attribute '{name}': Sluice leaves out .*; .+"):
            getattr(value, name)


def test_tensors_and_graphs_may_have_attributes_of_users():
    x = sl.ones(2)
    x.idx = 3
    assert x.idx == 3
    with pytest.raises(AttributeError,
                       match="graph.config has no option 'training': Sluice leaves out switches that say what a graph is for"):
        sl.nn.Graph().config.training
    with pytest.raises(AttributeError, match="graph.config has no option 'nothing'$"):
        sl.nn.Graph().config.nothing


def test_the_table_is_sound():
    for entry in LEFT_OUT:
        re.compile(entry.pattern)
        re.compile(entry.where)
        assert entry.what and entry.instead
    assert left_out("copy", "sluice.Tensor") is not None and left_out("copy", "sluice") is None
    for section in compat.compare_oneflow():
        assert set(section.missing) <= set(section.names) and not set(section.missing) & set(section.excepted)
        if section.name in ("oneflow", "oneflow.Tensor", "oneflow.nn", "oneflow.nn.functional", "oneflow.comm", "oneflow.env",
                            "oneflow.profiler"):
            assert not section.missing, section.missing
    text = compat.oneflow_table(compat.compare_oneflow())
    assert text.startswith("| of OneFlow | names | here |") and json.dumps(text)
