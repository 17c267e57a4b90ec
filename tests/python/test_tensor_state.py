"""Tests what tensors tell of themselves, in-place functions, sizes, OneFlow's functions and random fills."""

import math

import numpy as np
import pytest
import torch

import sluice as sl


def test_flags_are_torchs():
    for make in (lambda m: m.ones(2, 3), lambda m: m.arange(3), lambda m: m.ones(2, dtype=m.float64), lambda m: m.tensor([True, False])):
        x, t = make(sl), make(torch)
        for name in ("is_sparse", "is_quantized", "is_meta", "is_mkldnn", "is_cuda", "is_cpu", "itemsize", "nbytes", "ndim", "is_leaf", "is_xla", "is_nested"):
            assert getattr(x, name) == getattr(t, name), name
        for name in ("is_complex", "is_conj", "is_neg", "is_signed", "is_floating_point", "is_pinned", "is_shared", "is_inference", "is_distributed",
                     "get_device", "element_size", "dim_order", "nelement", "ndimension"):
            assert getattr(x, name)() == getattr(t, name)(), name
        for name in ("is_complex", "is_conj", "is_neg", "is_signed", "is_floating_point", "is_inference", "get_device"):
            assert getattr(sl, name)(x) == getattr(torch, name)(t), name
        assert x.is_same_size(x.clone()) and sl.is_same_size(x, x) and not x.is_same_size(sl.ones(7)) and x.is_set_to(x.view(x.shape))
    assert sl.ones(2).real.tolist() == [1, 1] and (x := sl.ones(2)).conj() is x and x.real is x and sl.real(x) is x
    with pytest.raises(RuntimeError, match="imag is not implemented"):
        x.imag
    with pytest.raises(RuntimeError, match="imag is not implemented"):
        sl.imag(x)
    assert x.pin_memory() is x and x.is_local and x.is_eager and not x.is_lazy and not x.is_view() and x[:1].is_view()


def test_is_nonzero_is_torchs():
    for value in (0.0, 2.5, True, 0, -1):
        assert sl.is_nonzero(sl.tensor([value])) == torch.is_nonzero(torch.tensor([value])) == sl.tensor(value).is_nonzero()
    for m in (sl, torch):
        for bad, text in ((m.ones(2), "more than one value"), (m.ones(0), "no values")):
            with pytest.raises(RuntimeError, match=f"Boolean value of Tensor with {text} is ambiguous"):
                bad.is_nonzero()


UNARY = [n for n in sl._tensor.in_place.NAMES if n not in ("addmv_", "as_strided_", "index_put_", "resize_as_", "normal_", "index_add_", "lerp_", "masked_fill_",
                                                    "detach_")]


@pytest.mark.parametrize("name", UNARY)
def test_in_place_functions_write_what_torchs_write(name):
    values, args = torch.tensor([0.3, 0.6, 0.9]), ()
    if name in ("gcd_", "lcm_"):
        values, args = torch.tensor([12, 18, 7]), (torch.tensor([8, 27, 14]),)
    elif name in ("acosh_", "arccosh_"):
        values = values + 1
    elif name in ("clamp_", "clip_"):
        args = (0.4, 0.8)
    elif name in ("clamp_min_", "clamp_max_", "fill_", "xlogy_", "gt_", "div_"):
        args = (0.5,)
    elif name == "ldexp_":
        args = (torch.tensor([1, 2, 3]),)
    x, t = sl.tensor(values.numpy()), values.clone()
    named = [sl.tensor(a.numpy()) if isinstance(a, torch.Tensor) else a for a in args]
    assert getattr(sl, name)(x, *named) is x
    getattr(torch.Tensor, name)(t, *args)
    np.testing.assert_allclose(x.numpy(), t.numpy(), 2e-6)
    with pytest.raises(TypeError):
        getattr(sl, name)(3.0, *args)


def test_sizes_change_as_torchs():
    for size in ((3, 2), (2, 2), (4, 4), (0,), ()):
        x, t = sl.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3)
        assert x.resize_(size) is x
        t.resize_(size)
        count = min(6, math.prod(size))
        assert tuple(x.shape) == tuple(t.shape) and x.reshape(-1)[:count].tolist() == t.reshape(-1)[:count].tolist()
    x = sl.ones(2)
    assert x.resize_as_(sl.ones(3, 3)).shape == (3, 3) and sl.resize_as_(sl.ones(2), sl.ones(1)).shape == (1,)
    assert x.set_(sl.arange(4.0)) is x and x.tolist() == [0, 1, 2, 3] and x.set_(sl.arange(6.0), 1, (2, 2), (2, 1)).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        sl.ones(2, requires_grad=True).resize_(3)
    for size in ((1, 3), (3,), (2, 1), ()):
        x, t = sl.arange(6.0).reshape(2, 3).requires_grad_(), torch.arange(6.0).reshape(2, 3).requires_grad_()
        assert x.sum_to_size(size).tolist() == t.sum_to_size(size).tolist()
    for m in (sl, torch):
        with pytest.raises(RuntimeError, match="not expandable"):
            m.ones(2, 3).sum_to_size(2, 2)


def test_diagonals_are_filled_and_elements_mapped():
    for shape, wrap in (((3, 3), False), ((5, 2), True), ((5, 2), False), ((2, 5), True), ((3, 3, 3), False), ((0, 3), False)):
        x, t = sl.zeros(shape), torch.zeros(shape)
        assert x.fill_diagonal_(2.5, wrap) is x and x.tolist() == t.fill_diagonal_(2.5, wrap).tolist()
    x = sl.arange(4).reshape(2, 2)
    assert x.apply_(lambda n: n * n).tolist() == [[0, 1], [4, 9]] and x.map_(x, lambda a, b: a + b).tolist() == [[0, 2], [8, 18]]


def test_triangles_and_unravelled_indices():
    for row, col, offset in ((3, 4, 0), (4, 2, 1), (2, 5, -1), (3, 3, 5), (0, 3, 0), (3, 3, -5)):
        for name in ("tril_indices", "triu_indices"):
            assert getattr(sl, name)(row, col, offset).tolist() == getattr(torch, name)(row, col, offset).tolist()
    assert sl.tril_indices(2, 2, dtype=sl.int32).dtype is sl.int32
    flat = torch.tensor([0, 5, 23])
    for ours, theirs in zip(sl.unravel_index(sl.tensor(flat.numpy()), (2, 3, 4)), torch.unravel_index(flat, (2, 3, 4)), strict=True):
        assert ours.tolist() == theirs.tolist()


def test_histograms_are_torchs():
    x = torch.randn(200, generator=torch.Generator().manual_seed(1))
    ours = sl.tensor(x.numpy())
    for bins, options in ((10, {}), (4, {"range": (-1.0, 1.0)}), (5, {"weight": x.abs()}), (torch.tensor([-1.0, 0.0, 0.5, 2.0]), {"density": True})):
        theirs = torch.histogram(x, bins, **options)
        mine = sl.histogram(ours, sl.tensor(bins.numpy()) if isinstance(bins, torch.Tensor) else bins,
                            **{k: sl.tensor(v.numpy()) if isinstance(v, torch.Tensor) else v for k, v in options.items()})
        np.testing.assert_allclose(mine.hist.numpy(), theirs.hist.numpy(), 1e-5)
        np.testing.assert_allclose(mine.bin_edges.numpy(), theirs.bin_edges.numpy(), 1e-5, 1e-6)
    for args in ((), (10,), (8, -1, 2)):
        np.testing.assert_array_equal(sl.histc(ours, *args).numpy(), torch.histc(x, *args).numpy())


def test_oneflows_functions():
    x, index = np.arange(24.0).reshape(2, 3, 4), np.array([[2, 0], [1, 1]])
    ours, at = sl.tensor(x, requires_grad=True), sl.tensor(index)
    gathered = sl.batch_gather(ours, at)
    assert gathered.tolist() == np.stack([x[b, index[b]] for b in range(2)]).tolist()
    sums = np.zeros((2, 3, 4))
    for b in range(2):
        np.add.at(sums[b], index[b], x[b, :2])
    assert sl.unsorted_batch_segment_sum(sl.tensor(x[:, :2]), at, 3).tolist() == sums.tolist()
    gathered.sum().backward()
    assert ours.grad.tolist() == sl.unsorted_batch_segment_sum(sl.ones(2, 2, 4, dtype=sl.float64), at, 3).tolist()
    places = sl.tensor([[0, 1], [1, 2], [0, 1]])
    assert sl.gather_nd(sl.tensor(x), places).tolist() == [x[0, 1].tolist(), x[1, 2].tolist(), x[0, 1].tolist()]
    assert sl.scatter_nd(places, sl.tensor([1.0, 2.0, 5.0]), (2, 3)).tolist() == [[0, 6, 0], [0, 0, 2]]
    assert sl.tensor_scatter_nd_update(sl.zeros(4), sl.tensor([[1], [3]]), sl.tensor([5.0, 6.0])).tolist() == [0, 5, 0, 6]
    assert sl.in_top_k(sl.tensor([1, 0]), sl.tensor([[0.1, 0.9, 0.5], [0.2, 0.3, 0.4]]), 2).tolist() == [True, False]
    assert sl.broadcast_like(sl.ones(3), sl.zeros(2, 3)).shape == (2, 3) and sl.broadcast_like(sl.ones(2), sl.zeros(2, 3), (1,)).shape == (2, 3)
    assert sl.slice(sl.arange(6), [(1, 5, 2)]).tolist() == [1, 3] and sl.slice(sl.arange(6), [[None, None, None]]).tolist() == list(range(6))
    target = sl.zeros(2, 3)
    assert sl.slice_update(target, sl.ones(2, 2), [(0, 2, 1), (0, 3, 2)]) is target and target.tolist() == [[1, 0, 1]] * 2
    assert sl.cast(sl.ones(1), sl.int8).dtype is sl.int8 and sl.ones(1).cast(sl.half).dtype is sl.half and sl.ones(2).to_numpy().tolist() == [1, 1]
    assert sl.square_relu(sl.tensor([-1.0, 3.0])).tolist() == [0, 9] and sl.new_full(sl.ones(1), (2,), 3.0).tolist() == [3, 3]
    assert sl.roc_auc_score(sl.tensor([0, 0, 1, 1]), sl.tensor([0.1, 0.4, 0.35, 0.8])).item() == 0.75
    assert sl.convert_oneflow_dtype_to_numpy_dtype(sl.int32) is np.int32
    np.testing.assert_allclose(sl.quick_gelu(sl.ones(1)).item(), 1 / (1 + math.exp(-1.702)), 1e-6)
    for call in (lambda: sl.batch_gather(sl.ones(2, 3), sl.zeros(3, 1, dtype=sl.int64)), lambda: sl.gather_nd(sl.ones(2), sl.zeros(1, 2, dtype=sl.int64)),
                 lambda: sl.in_top_k(sl.ones(2), sl.ones(3, 2), 1)):
        with pytest.raises(RuntimeError):
            call()


# Random: of the right distribution. The numbers are others than torch's for the same seed.


@pytest.mark.parametrize("name,args,mean,std", [("exponential_", (2.0,), 0.5, 0.5), ("geometric_", (0.25,), 4, math.sqrt(12)), ("log_normal_", (0.0, 0.5), math.exp(0.125),
                                                 math.sqrt((math.exp(0.25) - 1) * math.exp(0.25))), ("random_", (10,), 4.5, math.sqrt(99 / 12)),
                                                ("bernoulli_", (0.3,), 0.3, math.sqrt(0.21)), ("uniform_", (1.0, 3.0), 2, 2 / math.sqrt(12))])
def test_random_fills_have_their_moments(name, args, mean, std):
    sl.manual_seed(11)
    n = 40000
    x = sl.empty(n)
    assert getattr(x, name)(*args) is x
    assert abs(x.double().mean().item() - mean) < 5 * std / math.sqrt(n) and abs(x.double().std().item() / std - 1) < 0.06
    sl.manual_seed(11)
    assert sl.equal(getattr(sl.empty(n), name)(*args), x)


def test_poisson_binomial_and_cauchy():
    sl.manual_seed(3)
    rates = sl.tensor([0.5, 4.0, 30.0]).expand(20000, 3)
    drawn = sl.poisson(rates)
    assert all(abs(m - r) < 5 * math.sqrt(r / 20000) for m, r in zip(drawn.mean(0).tolist(), (0.5, 4.0, 30.0))) and drawn.dtype is sl.float32
    successes = sl.binomial(sl.full((20000,), 10.0), sl.full((20000,), 0.3))
    assert abs(successes.mean().item() - 3) < 5 * math.sqrt(2.1 / 20000)
    assert abs(sl.empty(20001).cauchy_(2.0, 0.5).median().item() - 2) < 0.05
    assert sl.randint_like(sl.ones(500), 3, 7).unique().tolist() == [3, 4, 5, 6] and sl.randint_like(sl.ones(5, dtype=sl.int32), 2).dtype is sl.int32
    for call in (lambda m: m.poisson(m.tensor([-1.0])), lambda m: m.ones(2).exponential_(-1.0), lambda m: m.ones(2).geometric_(2.0)):
        for m in (sl, torch):
            with pytest.raises(RuntimeError):
                call(m)


def test_multinomial():
    sl.manual_seed(5)
    weights = sl.tensor([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0]])
    drawn = weights.multinomial(8000, replacement=True)
    counts = [drawn[0].bincount(minlength=3), drawn[1].bincount(minlength=3)]
    assert drawn.shape == (2, 8000) and drawn.dtype is sl.int64 and abs(counts[0][2].item() / 8000 - 0.75) < 0.03
    assert counts[0][1].item() == 0 and counts[1].tolist() == [0, 8000, 0]
    first = [sl.multinomial(sl.tensor([1.0, 0.0, 3.0]), 2)[0].item() for _ in range(400)]
    assert set(first) == {0, 2} and abs(first.count(2) / 400 - 0.75) < 0.11
    assert sorted(sl.multinomial(sl.ones(5), 5).tolist()) == list(range(5))
    for call in (lambda m: m.multinomial(m.ones(3), 4), lambda m: m.multinomial(m.tensor([1.0, -1.0]), 1), lambda m: m.multinomial(m.zeros(2), 1),
                 lambda m: m.multinomial(m.ones(2), 0), lambda m: m.multinomial(m.ones(2, 2, 2), 1),
                 lambda m: m.multinomial(m.arange(3), 1)):
        for m in (sl, torch):
            with pytest.raises(RuntimeError):
                call(m)

    class Draws(sl.nn.Graph):
        def build(self, p):
            return sl.multinomial(p, 200, True), p.log().exp().exponential_(1.0)

    graph = Draws()
    (one, fill), (two, _) = graph(weights[:1]), graph(weights[:1])
    assert one.tolist() != two.tolist() and set(one.flatten().tolist()) <= {0, 2} and (fill > 0).all()


# Creation takes what torch's takes


@pytest.mark.parametrize("call", [
    "m.zeros(size=(2, 3))", "m.zeros((2, 3), layout=m.strided, pin_memory=False)", "m.ones(2, out=m.empty(0))", "m.full((2,), m.tensor(3))",
    "m.full(size=(2,), fill_value=2.5)", "m.full((2,), True)", "m.full((2,), np.int64(2))", "m.arange(np.int64(3))", "m.arange(m.tensor(3))",
    "m.arange(start=1, end=4)", "m.arange(5, 0, -2)", "m.arange(3, out=m.zeros(3, dtype=m.int64))", "m.eye(n=2)", "m.linspace(0, 1, steps=1)",
    "m.zeros_like(m.ones(2, 3), dtype=m.int32)", "m.full_like(m.ones(2), 3)", "m.tensor([1, 2]).new_full((2,), 3)", "m.ones(2).new_zeros(2, 3)", "m.ones(2).new_ones(size=(2, 3))",
    "m.asarray(np.ones(2))", "m.asarray([1, 2], dtype=m.float64)", "m.scalar_tensor(3)", "m.t_copy(m.arange(6).reshape(2, 3))",
    "m.as_strided_scatter(m.zeros(2, 3), m.ones(2), (2,), (3,), 1)", "m.unsafe_split(m.arange(4), 3)[1]", "m.hann_window(8)", "m.hamming_window(7, False)",
    "m.blackman_window(5)", "m.bartlett_window(6, False)", "m.hann_window(1)", "m.layer_norm(m.tensor([[1.0, 3.0]]), (2,))",
    "m.zeros(3).index_put_((m.tensor([True, False, True]),), m.tensor(2.0))", "m.zeros(2, 2).index_put((m.tensor([True, False]), m.tensor([1])), m.tensor([4.0]))",
    "m.ones(2, 2).index_put((m.tensor([[True, False], [True, True]]),), m.tensor(2.0), True)"])
def test_creation_takes_what_torchs_takes(call):
    ours, theirs = eval(call, {"m": sl, "np": np}), eval(call, {"m": torch, "np": np})
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1] and tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), 1e-6, 1e-7)


def test_creation_refuses_and_lays_out():
    for call in (lambda m: m.zeros(2, unheard_of=1), lambda m: m.randint(2), lambda m: m.full((2,)), lambda m: m.rand(2, size=(2,))):
        for m in (sl, torch):
            with pytest.raises(TypeError):
                call(m)
    with pytest.raises(NotImplementedError, match="layout must be strided"):
        sl.zeros(2, layout="sparse")
    x = sl.ones(1, 2, 3, 4).contiguous(memory_format=sl.channels_last)
    assert sl.zeros_like(x).stride() == x.stride() and sl.empty(1, 2, 3, 4, memory_format=sl.channels_last).stride() == x.stride()
    assert sl.empty_permuted((2, 3, 4), (1, 0, 2)).stride() == torch.empty_permuted((2, 3, 4), (1, 0, 2)).stride()
    assert sl.randint(high=3, size=(2,)).shape == (2,) and sl.rand(size=(2, 2)).shape == (2, 2)
    sl.use_deterministic_algorithms(True)
    assert sl.are_deterministic_algorithms_enabled()


def test_random_states_are_taken_up_again():
    for generator in (sl.default_generator, sl.Generator()):
        generator.manual_seed(9)
        sl.randn(3, generator=generator)  # one of a pair waits
        state = generator.get_state()
        first = [sl.randn(4, generator=generator).tolist(), sl.randint(0, 99, (3,), generator=generator).tolist(), generator.initial_seed()]
        generator.manual_seed(1)
        assert generator.set_state(state) is generator
        assert [sl.randn(4, generator=generator).tolist(), sl.randint(0, 99, (3,), generator=generator).tolist(), generator.initial_seed()] == first

    class Draws(sl.nn.Graph):
        def build(self):
            return sl.rand(3)

    graph, state = Draws(), None
    graph()
    state = sl.get_rng_state()
    drawn = graph().tolist()
    graph()
    sl.set_rng_state(state)
    assert graph().tolist() == drawn
    assert sl.seed() == sl.initial_seed() and state.dtype is sl.uint8
    for bad in (sl.zeros(5, dtype=sl.uint8), sl.zeros(0, dtype=sl.uint8)):
        with pytest.raises(RuntimeError, match="RNG state is wrong"):
            sl.set_rng_state(bad)
    with pytest.raises(TypeError, match="ByteTensor"):
        sl.set_rng_state(sl.zeros(5))
