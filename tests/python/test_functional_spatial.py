"""Padding, windows, resampling and pooling against torch's."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same, to_sl
from functional_oracle import agree, drawn, kinds

import sluice as sl
import sluice.nn.functional as F

MODES = ("constant", "reflect", "replicate", "circular")
PADS = {1: [(1, 2), (0, 3), (-1, 2), (2, -1), (-1, -1), (0, 0)], 2: [(1, 2, 2, 1), (0, 1, -1, 2), (2, -1, 0, 0)],
        3: [(1, 2, 1, 0, 2, 1), (1, -1, 0, 2, -1, 1)]}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dims", (1, 2, 3))
def test_pad(mode, dims):
    for amounts in PADS[dims]:
        for lead in ((2, 3), (3,)):
            x, = drawn((*lead, *(5, 4, 6)[:dims]))
            agree(lambda m, x: m.nn.functional.pad(x, amounts, mode), x, graph=len(lead) == 2, name=f"{amounts}")
    x = torch.arange(24).reshape(2, 3, 4)
    assert_same(F.pad(to_sl(x), (1, 2), mode), TF.pad(x, (1, 2), mode))


def test_constant_pads():
    x, = drawn((2, 3, 4))
    for amounts in [(), (1, 0), (0, 0, 2, 1), (1, 1, 0, 2, -1, 3), (-2, -2)]:
        agree(lambda m, x: m.nn.functional.pad(x, amounts, value=2.5), x, name=f"{amounts}")
    agree(lambda m, x: m.nn.functional.pad(x, (1, 2)), torch.zeros(0, 3), graph=False)
    agree(lambda m, x: m.nn.functional.pad(x, (1, 2, 0, 0), "replicate"), torch.zeros(0, 2, 3, 4), graph=False)


def test_bad_pads_are_refused_as_torchs():
    x = torch.ones(2, 3, 4)
    for amounts, mode in [((4, 0), "reflect"), ((5, 0), "circular"), ((1, 1, 1, 1, 1, 1), "reflect"), ((1,), "constant"), ((1, 1), "mirror"),
                          ((1, 1) * 4, "constant"), ((-3, -3), "constant")]:
        kind, text = kinds(lambda m, x: m.nn.functional.pad(x, amounts, mode), x)
        assert kind[0] is kind[1] is not None, (amounts, mode, kind, text)
    kind, _ = kinds(lambda m, x: m.nn.functional.pad(x, (1, 1), "reflect", 1.0), x)
    assert kind == [RuntimeError] * 2


WINDOWS = [dict(kernel_size=2), dict(kernel_size=(2, 3), stride=2), dict(kernel_size=3, padding=1, dilation=2), dict(kernel_size=(3, 1), padding=(1, 0), stride=(2, 3))]


@pytest.mark.parametrize("options", WINDOWS, ids=str)
def test_unfold_and_fold(options):
    for shape in ((2, 3, 7, 8), (3, 7, 8)):
        x, = drawn(shape)
        agree(lambda m, x: m.nn.functional.unfold(x, **options), x)
        columns = TF.unfold(x, **options)
        agree(lambda m, c: m.nn.functional.fold(c, (7, 8), **options), columns)
    agree(lambda m, x: m.nn.functional.unfold(x, **options), torch.zeros(0, 3, 7, 8), graph=False)


def test_windows_that_do_not_fit_are_refused():
    x = torch.ones(1, 2, 3, 3)
    for f in (lambda m, x: m.nn.functional.unfold(x, 4), lambda m, x: m.nn.functional.unfold(x, 2, stride=0),
              lambda m, x: m.nn.functional.fold(x[0], 4, 2), lambda m, x: m.nn.functional.fold(x[:, :, 0], 4, 2), lambda m, x: m.nn.functional.unfold(x, 2, padding=-1)):
        kind, text = kinds(f, x)
        assert kind == [RuntimeError] * 2, text


@pytest.mark.parametrize("name, shape, factor", [
    ("pixel_shuffle", (2, 8, 3, 4), 2), ("pixel_shuffle", (9, 2, 3), 3), ("pixel_shuffle", (2, 2, 4, 1, 2), 2), ("pixel_unshuffle", (2, 3, 4, 6), 2),
    ("pixel_unshuffle", (3, 6, 3), 3), ("channel_shuffle", (2, 6, 3, 4), 3), ("channel_shuffle", (2, 6, 5), 2)])
def test_shuffles(name, shape, factor):
    agree(lambda m, x: getattr(m.nn.functional, name)(x, factor), drawn(shape)[0])
    assert F.pixel_shuffle(sl.ones(0, 4, 2, 2), 2).shape == (0, 1, 4, 4)
    bad, text = kinds(lambda m, x: getattr(m.nn.functional, name)(x, 5), torch.ones(shape))
    assert bad == [RuntimeError] * 2, text


RESIZES = [dict(size=7), dict(size=3), dict(size=1), dict(scale_factor=2), dict(scale_factor=1.7), dict(scale_factor=0.6),
           dict(scale_factor=1.7, recompute_scale_factor=True), dict(scale_factor=0.45, recompute_scale_factor=False)]


@pytest.mark.parametrize("mode, dims", [("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 1), ("nearest-exact", 2), ("nearest-exact", 3),
                                        ("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2), ("area", 1), ("area", 2), ("area", 3)])
def test_interpolate(mode, dims):
    shape = (2, 2, *(6, 5, 4)[:dims])
    corners = (None, False, True) if "linear" in mode or "cubic" in mode else (None,)
    for options, align in itertools.product(RESIZES, corners):
        name = f"{options} {align}"
        agree(lambda m, x: m.nn.functional.interpolate(x, mode=mode, align_corners=align, **options), drawn(shape)[0], double=False, graph=False,
              tolerance=1e-8, name=name)
        x = drawn(shape, dtype=torch.float32)[0]
        call = {"mode": mode, "align_corners": align, **options}
        assert_same(F.interpolate(to_sl(x), **call), TF.interpolate(x, **call), 2e-5)
    agree(lambda m, x: m.nn.functional.interpolate(x, scale_factor=(1.5, 2.0, 0.5)[:dims], mode=mode), drawn(shape)[0], tolerance=1e-8)
    agree(lambda m, x: m.nn.functional.interpolate(x, (3, 9, 4)[:dims], mode=mode), drawn(shape)[0], tolerance=1e-8, graph=False)


@pytest.mark.parametrize("mode", ("bilinear", "bicubic"))
@pytest.mark.parametrize("align", (False, True))
def test_interpolate_antialiased(mode, align):
    for size in ((3, 4), (9, 5), (1, 20), (6, 7)):
        agree(lambda m, x: m.nn.functional.interpolate(x, size, mode=mode, antialias=True, align_corners=align), drawn((2, 3, 8, 7))[0], tolerance=1e-7,
              double=False, graph=False, name=f"{size}")
    agree(lambda m, x: m.nn.functional.interpolate(x, scale_factor=0.4, mode=mode, antialias=True), drawn((1, 2, 8, 7))[0], tolerance=1e-7)


def test_interpolate_of_halves_and_bytes():
    x = drawn((1, 2, 4, 4), dtype=torch.float32)[0].half()
    for mode in ("bilinear", "nearest", "bicubic"):
        ours = F.interpolate(to_sl(x.float()).half(), scale_factor=1.5, mode=mode)
        assert ours.dtype is sl.float16
        np.testing.assert_allclose(ours.float().numpy(), TF.interpolate(x, scale_factor=1.5, mode=mode).float().numpy(), atol=4e-3)
    x = torch.arange(16, dtype=torch.uint8).reshape(1, 1, 4, 4)
    assert_same(F.interpolate(to_sl(x), scale_factor=2), TF.interpolate(x, scale_factor=2))


def test_interpolate_refuses_what_torch_refuses():
    x = torch.ones(1, 2, 4, 4)
    cases = [dict(), dict(size=2, scale_factor=2.0), dict(size=2, align_corners=True), dict(size=2, mode="linear"), dict(size=2, mode="spline"),
             dict(size=(2, 2, 2)), dict(size=0), dict(scale_factor=0.1), dict(size=2, recompute_scale_factor=True), dict(size=2, antialias=True),
             dict(scale_factor=(2.0, 2.0, 2.0)), dict(size=2, mode="trilinear")]
    for options in cases:
        kind, text = kinds(lambda m, x: m.nn.functional.interpolate(x, **options), x)
        assert kind[0] is kind[1] is not None, (options, kind, text)
    for name, options in (("upsample", dict(scale_factor=2)), ("upsample_nearest", dict(size=3)), ("upsample_bilinear", dict(scale_factor=2))):
        agree(lambda m, x: getattr(m.nn.functional, name)(x, **options), x.double())


GRIDS = list(itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)))


@pytest.mark.parametrize("mode, padding, align", GRIDS)
def test_grid_sample(mode, padding, align):  # OPS-44
    def f(m, x, grid):
        return m.nn.functional.grid_sample(x, grid, mode, padding, align)

    for shape, out, scale in (((2, 3, 5, 4), (3, 6), 1.0), ((1, 2, 1, 6), (4, 4), 3.0), ((2, 1, 4, 4), (1, 5), 0.3)):
        x, grid = drawn(shape, (shape[0], *out, 2), scale=scale)
        agree(f, x, grid, double=mode != "bicubic", tolerance=1e-8, graph=scale == 1, name=f"{shape}")
    if mode != "bicubic":
        x, grid = drawn((2, 2, 3, 4, 5), (2, 2, 3, 2, 3))
        agree(f, x, grid, double=False, graph=False, tolerance=1e-8, name="volume")
    x, grid = drawn((2, 2, 4, 4), (2, 3, 3, 2), dtype=torch.float32)
    assert_same(F.grid_sample(to_sl(x), to_sl(grid), mode, padding, align), TF.grid_sample(x, grid, mode, padding, align), 2e-5)
    ends = torch.tensor([-1.0, 1.0, 0.0, -1.5, 1.5, 3.25]).double()
    grid = torch.stack(torch.meshgrid(ends, ends, indexing="ij"), -1)[None]
    agree(f, drawn((1, 2, 4, 4))[0], grid, double=False, graph=False, name="ends")


def test_grids_and_what_is_refused():
    for align in (None, False, True):
        for size, dims in (((2, 3, 4, 5), 2), ((2, 1, 1, 5), 2), ((2, 3, 4, 1, 3), 3)):
            agree(lambda m, theta: m.nn.functional.affine_grid(theta, size, align), drawn((2, dims, dims + 1))[0], tolerance=1e-8)
    agree(lambda m, theta, x: m.nn.functional.grid_sample(x, m.nn.functional.affine_grid(theta, (1, 2, 5, 5), False), align_corners=False),
          drawn((1, 2, 3), scale=0.5)[0], drawn((1, 2, 6, 6))[0], tolerance=1e-8, double=False)
    x, grid = torch.ones(2, 1, 3, 3), torch.ones(2, 2, 2, 2)
    for f in (lambda m, x, g: m.nn.functional.grid_sample(x, g, "cubic"), lambda m, x, g: m.nn.functional.grid_sample(x, g, padding_mode="same"),
              lambda m, x, g: m.nn.functional.grid_sample(x[:1], g), lambda m, x, g: m.nn.functional.grid_sample(x, g[..., :1]),
              lambda m, x, g: m.nn.functional.grid_sample(x[0], g), lambda m, x, g: m.nn.functional.affine_grid(g, (2, 1, 3, 3)),
              lambda m, x, g: m.nn.functional.affine_grid(x[:, 0, :2], (2, 1, 0, 3)), lambda m, x, g: m.nn.functional.affine_grid(x[:, 0, :2], (2, 3))):
        kind, text = kinds(f, x, grid)
        assert kind[0] is kind[1] is not None, (kind, text)


def test_grids_without_numbers():
    x, = drawn((1, 1, 3, 3))
    grid = torch.tensor([[float("nan"), 0.5], [0.5, float("nan")], [float("inf"), 0.0], [-float("inf"), 0.3]]).double().reshape(1, 2, 2, 2)
    for align in (False, True):
        ours, theirs = F.grid_sample(to_sl(x), to_sl(grid), "bilinear", "border", align), TF.grid_sample(x, grid, "bilinear", "border", align)
        assert_same(ours, theirs)


def test_local_response_norm():
    for shape, size, more in (((2, 5, 6), 2, ()), ((2, 5, 3, 4), 3, (0.5, 0.75, 2.0)), ((1, 4, 2, 2, 3), 5, (1.0, 0.5, 1.0)), ((2, 1, 3), 1, ())):
        agree(lambda m, x: m.nn.functional.local_response_norm(x, size, *more), drawn(shape)[0], tolerance=1e-8)
    kind, _ = kinds(lambda m, x: m.nn.functional.local_response_norm(x, 2), torch.ones(2, 3))
    assert kind == [ValueError] * 2


POOLS = [dict(kernel_size=2), dict(kernel_size=3, stride=1), dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=3, stride=2, padding=1, ceil_mode=True),
         dict(kernel_size=2, stride=3, ceil_mode=True), dict(kernel_size=1)]


@pytest.mark.parametrize("dims", (1, 2, 3))
@pytest.mark.parametrize("options", POOLS, ids=str)
def test_pools(dims, options):  # OPS-29
    shape = (2, 3, *(9, 8, 7)[:dims])
    for lead in (shape, shape[1:]):
        x, = drawn(lead)
        for dilation in (1, 2):
            if dilation == 2 and options["kernel_size"] == 1:
                continue
            agree(lambda m, x: getattr(m.nn.functional, f"max_pool{dims}d")(x, dilation=dilation, return_indices=True, **options), x, name=f"max {dilation}",
                  graph=lead is shape)
        for include in (True, False):
            agree(lambda m, x: getattr(m.nn.functional, f"avg_pool{dims}d")(x, count_include_pad=include, **options), x, name="avg", graph=False)
        if dims > 1:
            agree(lambda m, x: getattr(m.nn.functional, f"avg_pool{dims}d")(x, divisor_override=5, **options), x, graph=False)
    if "padding" not in options:
        for p in (2.0, 1.0, 3.0, float("inf")):
            agree(lambda m, x: getattr(m.nn.functional, f"lp_pool{dims}d")(x, p, **options), drawn(shape)[0].abs(), graph=p == 2, tolerance=1e-7)


@pytest.mark.parametrize("dims", (1, 2, 3))
def test_adaptive_pools(dims):
    shape = (2, 3, *(9, 8, 7)[:dims])
    sizes = [1, 2, 3, (4, 8, 10)[:dims], (None, 3, None)[:dims]] if dims > 1 else [1, 2, 3, (4,), 10]
    for size, lead in itertools.product(sizes, (shape, shape[1:])):
        x, = drawn(lead)
        agree(lambda m, x: getattr(m.nn.functional, f"adaptive_max_pool{dims}d")(x, size, return_indices=True), x, graph=lead is shape, name=f"max {size}")
        agree(lambda m, x: getattr(m.nn.functional, f"adaptive_avg_pool{dims}d")(x, size), x, graph=False, name=f"avg {size}")
    agree(lambda m, x: getattr(m.nn.functional, f"adaptive_max_pool{dims}d_with_indices")(x, 2), x, graph=False)
    agree(lambda m, x: getattr(m.nn.functional, f"max_pool{dims}d_with_indices")(x, 2, stride=1), x, graph=False)
    even = torch.ones(1, 1, *(5, 5, 5)[:dims]).double()  # of equal elements, the same is taken
    agree(lambda m, x: getattr(m.nn.functional, f"adaptive_max_pool{dims}d")(x, 3, True), even, graph=False)


@pytest.mark.parametrize("dims", (1, 2, 3))
def test_unpooling(dims):
    shape = (2, 3, *(8, 6, 4)[:dims])
    for options, output in ((dict(kernel_size=2), None), (dict(kernel_size=2, stride=2), [s + 1 for s in shape[2:]]), (dict(kernel_size=3, stride=2, padding=1), shape[2:])):
        for lead in (shape, shape[1:]):
            x, = drawn(lead)
            pooled, indices = getattr(TF, f"max_pool{dims}d")(x, return_indices=True, **options)
            agree(lambda m, y, i: getattr(m.nn.functional, f"max_unpool{dims}d")(y, i, output_size=output, **options), pooled, indices, name=f"{options}")
    x = torch.ones(1, 1, *(2,) * dims)
    for f in (lambda m, x: getattr(m.nn.functional, f"max_unpool{dims}d")(x, x.long(), 2, output_size=[9] * dims),
              lambda m, x: getattr(m.nn.functional, f"max_unpool{dims}d")(x, x.long(), 2, output_size=[4] * (dims + 3))):
        kind, text = kinds(f, x)
        assert kind == [ValueError] * 2, text


@pytest.mark.parametrize("dims", (2, 3))
def test_fractional_pools(dims):
    name, shape = f"fractional_max_pool{dims}d", (2, 3, *(9, 8, 7)[:dims])
    samples = torch.rand(2, 3, dims, dtype=torch.float64)
    for size, kernel in ((3, 2), ((4, 5, 3)[:dims], (3, 2, 2)[:dims]), (1, 3)):
        def f(m, x):
            given = samples if m is torch else to_sl(samples)
            return getattr(m.nn.functional, name)(x, kernel, output_size=size, return_indices=True, _random_samples=given)

        agree(f, drawn(shape)[0], double=False, graph=False, name=f"{size}")
    y = getattr(F, name)(sl.randn(*shape), 2, output_ratio=0.5)
    assert y.shape == (2, 3, *[s // 2 for s in shape[2:]])
    with pytest.raises(ValueError, match="requires specifying either"):
        getattr(F, name)(sl.randn(*shape), 2)


CONVS = [dict(), dict(stride=2), dict(padding=1), dict(dilation=2), dict(groups=2), dict(padding="valid"), dict(padding="same"), dict(padding="same", dilation=3),
         dict(stride=2, padding=1, dilation=2, groups=2), dict(padding="same", groups=4)]


@pytest.mark.parametrize("dims", (1, 2, 3))
@pytest.mark.parametrize("options", CONVS, ids=str)
def test_convolutions(dims, options):  # OPS-32
    groups = options.get("groups", 1)
    for kernel in ((3, 2, 4)[:dims], (2, 2, 1)[:dims]):
        for lead in ((2, 4), (4,)):
            inputs = drawn((*lead, *(9, 8, 7)[:dims]), (8, 4 // groups, *kernel), (8,))
            agree(lambda m, x, w, b: getattr(m.nn.functional, f"conv{dims}d")(x, w, b, **options), *inputs, tolerance=1e-7, graph=lead == (2, 4) and dims < 3,
                  double=dims < 3, name=f"{kernel}")


@pytest.mark.parametrize("dims", (1, 2, 3))
@pytest.mark.parametrize("options", [dict(), dict(stride=2), dict(stride=2, output_padding=1), dict(stride=3, padding=1, output_padding=2),
                                     dict(groups=2), dict(dilation=2, output_padding=1), dict(stride=2, groups=2, dilation=2)], ids=str)
def test_transposed_convolutions(dims, options):  # OPS-32
    groups = options.get("groups", 1)
    for lead in ((2, 4), (4,)):
        inputs = drawn((*lead, *(5, 4, 3)[:dims]), (4, 6 // groups, *(3, 2, 2)[:dims]), (6,))
        agree(lambda m, x, w, b: getattr(m.nn.functional, f"conv_transpose{dims}d")(x, w, b, **options), *inputs, tolerance=1e-7, graph=False, double=dims < 3)


class Sampled(sl.nn.Graph):
    def build(self, x, theta):
        x.requires_grad_()
        y = F.grid_sample(x, F.affine_grid(theta, (4, 2, 6, 5), True), "bilinear", "border", True)
        y.square().sum().backward()
        return y, x.grad


def test_parts_are_sampled_as_the_whole():  # OPS-44
    x, theta = (to_sl(t) for t in drawn((4, 2, 5, 7), (4, 2, 3), dtype=torch.float32))
    expected = Sampled()(x, theta)
    placement, split = sl.placement("sim", [0, 1]), sl.sbp.split(0)
    parts = Sampled()(x.to_global(placement, split), theta.to_global(placement, split))
    for part, whole in zip(parts, expected):
        np.testing.assert_allclose(part.numpy(), whole.numpy(), rtol=1e-5, atol=1e-5)
