"""Names of torch's top level that are few of a kind: histograms of points, loops, switches, what torch has removed."""

import pickle
import threading
import warnings

import numpy as np
import pytest
import torch

import sluice as sl
from conftest import assert_same, to_sl


def same_refusal(ours, theirs, error, match):
    with pytest.raises(error, match=match):
        ours()
    with pytest.raises(Exception):  # noqa: B017 torch's class may be a private one
        theirs()


POINTS = torch.tensor([[0.1, 0.2], [0.5, 0.9], [1.0, 1.0], [0.0, 0.0], [0.3, 2.0], [0.6, 0.1]])


@pytest.mark.parametrize("options", [
    {}, {"density": True}, {"range": [0.0, 1.0, 0.0, 1.0]}, {"range": [1.0, 1.0, 0.0, 1.0]}, {"weight": torch.arange(6.0)},
    {"weight": torch.arange(6.0), "density": True}])
@pytest.mark.parametrize("bins", [3, [2, 3], (torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 0.7, 2.0]))])
def test_histograms_of_points(bins, options):
    if not isinstance(bins, tuple) or "range" not in options:
        ours = sl.histogramdd(to_sl(POINTS), tuple(map(to_sl, bins)) if isinstance(bins, tuple) else bins,
                              **{k: to_sl(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()})
        theirs = torch.histogramdd(POINTS, bins, **options)
        assert_same(ours.hist, theirs.hist)
        for e, f in zip(ours.bin_edges, theirs.bin_edges):
            assert_same(e, f)


def test_histograms_of_other_shapes():
    for x in (torch.rand(4, 3, 2), torch.zeros(0, 2), torch.rand(5, 3).double()):
        assert_same(sl.histogramdd(to_sl(x), 2)[0], torch.histogramdd(x, 2)[0])
    one = torch.ones(1, 2)
    assert_same(sl.histogramdd(to_sl(one), 2, weight=sl.tensor(3.0))[0], torch.histogramdd(one, 2, weight=torch.tensor(3.0))[0])
    again = pickle.loads(pickle.dumps(sl.histogramdd(sl.ones(2, 2), 2)))
    assert again.hist.sum() == 2 and pickle.loads(pickle.dumps(sl.geqrf(sl.eye(2)))).tau.tolist() == [0, 0]
    x = torch.rand(20)
    assert_same(to_sl(x).histogram(4).hist, x.histogram(4).hist)


@pytest.mark.parametrize("args, message", [
    ((POINTS, [2]), "size of bins must be equal"), ((POINTS[0], [2, 2]), "at least 2 dimensions"), ((POINTS.long(), [2, 2]),
                                                                                                    "not implemented"),
    ((POINTS, [2, 2], [0.0, 1.0]), "range should have 4 elements"), ((POINTS, [0, 2]), "bins must be > 0"),
    ((POINTS, [2, 2], [1.0, 0.0, 0.0, 1.0]), "min should not exceed max"), ((POINTS, [2, 2], None, torch.ones(3)),
                                                                            "same shape as the input")])
def test_histograms_that_cannot_be(args, message):
    ours = [to_sl(a) if isinstance(a, torch.Tensor) else a for a in args]
    same_refusal(lambda: sl.histogramdd(*ours), lambda: torch.histogramdd(*args), RuntimeError, message)


def test_loops():
    def go_on(i, x):
        return i < 3

    def body(i, x):
        return i + 1, x * 2

    ours = sl.while_loop(go_on, body, (sl.tensor(0), sl.ones(2)))
    assert ours[0].item() == 3 and ours[1].tolist() == [8, 8]
    assert sl.while_loop(lambda x: False, lambda x: (x,), [sl.ones(1)])[0].item() == 1
    x = sl.ones(2, requires_grad=True)
    y = sl.while_loop(go_on, body, (sl.tensor(0), x))[1]
    assert sl.autograd.grad(y.sum(), x)[0].tolist() == [8, 8]
    for bad, message in (((1, body, (sl.ones(1),)), "to be callable"), ((go_on, body, sl.ones(1)),
                                                                        "Expect carried_inputs to be a tuple"),
                         ((lambda x: x, lambda x: (x,), (sl.ones(1),)), "boolean scalar tensor"),
                         ((lambda x: 1, lambda x: (x,), (sl.ones(1),)), "boolean scalar tensor"),
                         ((lambda x: True, lambda x: x, (sl.ones(1),)), "should return a tuple"),
                         ((lambda x: True, lambda x: (x, x), (sl.ones(1),)), "as many tensors"),
                         ((lambda x: True, lambda x: (x[0],), (sl.ones(1),)), "result 0 is .*must be")):
        with pytest.raises(RuntimeError, match=message):
            sl.while_loop(*bad)

    class Net(sl.nn.Graph):
        def build(self, x):
            return sl.while_loop(lambda x: x.sum() < 3, lambda x: (x + 1,), (x,))

    assert Net()(sl.zeros(2))[0].tolist() == [2, 2]

    class Known(sl.nn.Graph):  # its condition reads no value of the graph
        def build(self, x):
            steps = iter([True, True, False])
            return sl.while_loop(lambda x: next(steps), lambda x: (x * 2,), (x,))

    assert Known()(sl.ones(1))[0].item() == 4


@pytest.mark.parametrize("name", ["eig", "lstsq", "matrix_rank", "solve", "symeig"])
def test_what_torch_has_removed(name):
    x, y = sl.eye(2), torch.eye(2)
    more = 1 if name in ("lstsq", "solve") else 0
    same_refusal(lambda: getattr(sl, name)(x, *[x] * more), lambda: getattr(torch, name)(y, *[y] * more), RuntimeError,
                 "deprecated since version 1.9 and is now removed")
    if name != "matrix_rank":
        with pytest.raises(RuntimeError, match="is now removed"):
            getattr(x, name)(*[x] * more)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_lu():
    x = torch.randn(2, 4, 4)
    for get_infos in (False, True):
        for ours, theirs in zip(sl.lu(to_sl(x), get_infos=get_infos), torch.lu(x, get_infos=get_infos)):
            assert_same(ours, theirs)
    assert_same(to_sl(x).lu()[0], x.lu()[0])
    out = sl.zeros(1), sl.zeros(1, dtype=sl.int32)
    assert sl.lu(to_sl(x), out=out) is out
    assert_same(out[1], torch.lu(x)[1])


def test_slices_in_memory_of_their_own():
    x = torch.arange(24.0).reshape(4, 6)
    for args in ((0,), (1, 1), (1, None, -1), (-1, 0, 5, 2), (0, 3, 2)):
        ours = sl.slice_copy(to_sl(x), *args)
        assert_same(ours, torch.slice_copy(x, *args))
    same_refusal(lambda: sl.slice_copy(to_sl(x), 0, 0, 2, -1), lambda: torch.slice_copy(x, 0, 0, 2, -1), RuntimeError,
                 "step must be positive")
    same_refusal(lambda: sl.slice_copy(to_sl(x), 2), lambda: torch.slice_copy(x, 2), IndexError, "Dimension out of range")
    whole = to_sl(x)
    sl.slice_copy(whole, 0, 0, 2).zero_()
    assert whole.numpy()[0, 1] == 1


def test_bessel_in_place():
    x = torch.linspace(-2, 2, 5)
    mine = to_sl(x)
    assert sl.i0_(mine) is mine
    assert_same(mine, torch.i0(x))
    assert_same(to_sl(x).i0_(), torch.i0(x))
    same_refusal(lambda: sl.ones(2, dtype=sl.int64).i0_(), lambda: torch.ones(2, dtype=torch.int64).i0_(), RuntimeError,
                 "can't be cast")


def test_tensors_of_other_layouts():
    x = sl.arange(6.0)
    assert x.to_dense() is x and x.to_dense(sl.float64).dtype is sl.float64
    with pytest.warns(UserWarning, match="non-inplace resize_as is deprecated"):
        view = x.resize_as(sl.ones(2, 3))
    view.zero_()
    assert x.sum() == 0
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="the number must be kept"):
        warnings.simplefilter("ignore")
        x.resize_as(sl.ones(4))
    y = torch.arange(6.0)
    assert_same(sl.arange(6.0).as_strided_scatter(sl.zeros(2), (2,), (3,)), y.as_strided_scatter(torch.zeros(2), (2,), (3,)))
    assert_same(to_sl(torch.ones(3, 2)).geqrf()[0], torch.ones(3, 2).geqrf()[0])


def test_tensors_of_files(tmp_path):
    path = str(tmp_path / "numbers")
    np.arange(5, dtype=np.float32).tofile(path)
    assert_same(sl.from_file(path, size=4), torch.from_file(path, size=4))
    private = sl.from_file(path, size=5)
    private[0] = 9
    assert np.fromfile(path, np.float32)[0] == 0
    shared = sl.from_file(path, shared=True, size=7)
    shared[6] = 3
    assert_same(sl.from_file(path, size=7), torch.from_file(path, size=7))
    assert np.fromfile(path, np.float32)[6] == 3
    assert sl.from_file(path, size=3, dtype=sl.int64).dtype is sl.int64
    assert sl.from_file(path).shape == (0,)
    with pytest.raises(NotImplementedError, match="bfloat16"):
        sl.from_file(path, size=2, dtype=sl.bfloat16)


# Switches


def test_inference_mode_is_seen():
    for lib in (sl, torch):
        assert not lib.is_inference_mode_enabled()
        with lib.inference_mode():
            assert lib.is_inference_mode_enabled()
            with lib.inference_mode(False):
                assert not lib.is_inference_mode_enabled() and lib.is_grad_enabled()
            assert lib.is_inference_mode_enabled()
        with lib.no_grad():
            assert not lib.is_inference_mode_enabled()
        assert lib.inference_mode()(lib.is_inference_mode_enabled)()
        assert not lib.is_inference_mode_enabled()


def test_switches_that_mean_nothing_here():
    assert not sl.is_deterministic_algorithms_warn_only_enabled()
    with sl.autograd.set_multithreading_enabled(False):
        x = sl.ones(2, requires_grad=True)
        x.sum().backward()
    assert x.grad.tolist() == [1, 1]
    with pytest.raises(TypeError, match="must be a bool"):
        sl.autograd.set_multithreading_enabled(1)
    same_refusal(lambda: sl.autograd.variable(1), lambda: torch.autograd.variable(1), RuntimeError,
                 "deprecated, use torch.tensor")


def product():
    x = sl.ones(2, 2)
    return (x @ x).dtype


def test_autocast_is_switched():
    assert product() is sl.float32
    sl.set_autocast_enabled("cpu", True)
    try:
        assert sl.is_autocast_enabled("cpu") and sl.is_autocast_cpu_enabled() and product() is sl.bfloat16
        with sl.autocast("cpu", dtype=sl.float16):
            assert product() is sl.float16
            sl.set_autocast_cpu_enabled(False)
            assert product() is sl.float32
        assert product() is sl.bfloat16  # what was before the region
        sl.set_autocast_enabled("cpu", True)
        other = []
        thread = threading.Thread(target=lambda: other.append(product()))
        thread.start()
        thread.join()
        assert other == [sl.float32]
    finally:
        sl.set_autocast_enabled("cpu", False)
    assert product() is sl.float32 and not sl.is_autocast_enabled("cpu")
    sl.set_autocast_enabled("cpu", False)  # once more changes nothing
    with sl.autocast("cpu"):
        assert product() is sl.bfloat16
    assert product() is sl.float32
    if not sl.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            sl.set_autocast_enabled(True)
        assert product() is sl.float32
    for bad in ((), (1,), ("cpu",), ("cpu", 1), ("cpu", True, True)):
        with pytest.raises((TypeError, ValueError)):
            sl.set_autocast_enabled(*bad)


def test_the_cache_of_casts_is_switched():
    for lib in (sl, torch):
        assert lib.is_autocast_cache_enabled()
        lib.set_autocast_cache_enabled(False)
        assert not lib.is_autocast_cache_enabled()
        with lib.autocast("cpu"):
            assert not lib.is_autocast_cache_enabled()
        lib.set_autocast_cache_enabled(True)
        with lib.autocast("cpu", cache_enabled=False):
            assert not lib.is_autocast_cache_enabled()
            lib.set_autocast_cache_enabled(True)
            assert lib.is_autocast_cache_enabled() and lib.is_autocast_enabled("cpu")
        assert lib.is_autocast_cache_enabled()
    with pytest.raises(TypeError, match="enabled must be a bool"):
        sl.set_autocast_cache_enabled(1)
    assert sl.amp.autocast_decorator(sl.autocast("cpu"), product)() is sl.bfloat16
