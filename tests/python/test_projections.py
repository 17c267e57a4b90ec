"""Grouped products, the loss of a projection, axes by name, and torch's older modules."""

import warnings

import pytest
import torch
import torch.nn.functional as TF

import sluice as sl
from conftest import assert_same, to_sl

F = sl.nn.functional


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def int32(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


GROUPED = [(normal(6, 8), normal(3, 8, 8, seed=1), int32(2, 3, 6)), (normal(6, 8), normal(3, 8, 8, seed=1), int32(2, 2, 6)),
           (normal(3, 4, 8), normal(8, 12, seed=1), int32(4, 8, 12)), (normal(4, 12), normal(12, 8, seed=1), int32(4, 8, 12)),
           (normal(3, 4, 8), normal(3, 8, 4, seed=1), None)]


@pytest.mark.parametrize("a, b, offs", GROUPED, ids=range(len(GROUPED)))
def test_grouped_products(a, b, offs):
    ours = to_sl(a), to_sl(b)
    at = None if offs is None else to_sl(offs)
    y, z = F.grouped_mm(*ours, offs=at), TF.grouped_mm(a, b, offs=offs)
    assert_same(y, z)
    for g, h in zip(sl.autograd.grad(y.square().sum(), ours), torch.autograd.grad(z.square().sum(), (a, b))):
        assert_same(g, h, 1e-4)

    class Net(sl.nn.Graph):
        def build(self, a, b, *offs):
            return F.grouped_mm(a, b, offs=offs[0] if offs else None)

    given = [t.detach() for t in ours] + ([] if at is None else [at])
    assert_same(Net()(*given), z)


def test_grouped_products_leave_what_is_behind_the_last_group_zero():
    a, b = sl.ones(4, 8), sl.ones(2, 8, 8)
    assert F.grouped_mm(a, b, offs=sl.tensor([1, 3], dtype=sl.int32)).numpy()[:, 0].tolist() == [8, 8, 8, 0]
    assert F.grouped_mm(sl.ones(2, 4, 8), sl.ones(8, 8), offs=sl.tensor([1, 7],
                                                                        dtype=sl.int32)).numpy()[0].tolist() == [8] * 7 + [0]
    with pytest.raises(RuntimeError, match="must not fall, nor be beyond"):
        F.grouped_mm(a, b, offs=sl.tensor([3, 1], dtype=sl.int32))
    with pytest.raises(RuntimeError, match="must not fall, nor be beyond"):
        F.grouped_mm(a, b, offs=sl.tensor([3, 9], dtype=sl.int32))


@pytest.mark.parametrize("change, message", [
    ({"offs": None}, "Have to provide offsets"), ({"offs": torch.tensor([2, 3, 6])}, "int32"), ({"bias": torch.ones(8)},
                                                                                                "Bias not supported"),
    ({"out_dtype": "bfloat16"}, "output dtype must match"), ({"a": torch.ones(8)}, "has to be 2 or 3d"),
    ({"a": torch.ones(6, 8).double()}, "Expected mat_a to be Float32"), ({"b": torch.ones(2, 8, 8)},
                                                                         "batch sizes have to match"),
    ({"a": torch.ones(6, 4)}, "contraction dimension")])
def test_products_that_cannot_be_grouped(change, message):
    def call(lib, functional, convert):
        given = {"a": torch.ones(6, 8), "b": torch.ones(3, 8, 8), "offs": int32(2, 3, 6), **change}
        given = {k: convert(v) if isinstance(v, torch.Tensor) else getattr(lib, v) if isinstance(v, str) else v for k,
                 v in given.items()}
        return functional.grouped_mm(given.pop("a"), given.pop("b"), **given)

    with pytest.raises(RuntimeError, match=message):
        call(sl, F, to_sl)
    with pytest.raises(RuntimeError):
        call(torch, TF, lambda t: t)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_loss_of_a_projection(reduction):
    x, w, bias = normal(4, 5), normal(7, 5, seed=1), normal(7, seed=2)
    wide, places = normal(7, 2, 3, 5, seed=3), torch.randint(7, (4, 2, 3), generator=torch.Generator().manual_seed(1))
    for args, options in (
        ((x, w, torch.tensor([1, 6, 0, 3])), {"linear_bias": bias, "label_smoothing": 0.1}), ((x, w, torch.tensor([1, 6, 2,
                                                                                                                   3])),
                                                                                              {"ignore_index": 2}),
        ((x[0], w, torch.tensor(3)), {}), ((x, w, torch.rand(4, 7)), {"weight": torch.rand(7)}), ((x, wide, places), {}),
    ):
        ours = [to_sl(a) for a in args]
        y = F.linear_cross_entropy(*ours, reduction=reduction, **{k: to_sl(v) if isinstance(v, torch.Tensor) else v for k,
                                                                  v in options.items()})
        z = TF.linear_cross_entropy(*args, reduction=reduction, **options)
        assert_same(y, z)
        assert_same(sl.autograd.grad(y.sum(), ours[1])[0], torch.autograd.grad(z.sum(), args[1])[0], 1e-4)
    x = torch.ones(2, 5)
    for bad, message in (((x, torch.ones(7, 4), torch.tensor([1, 2])), "last dimensions"),
                         ((x[0], torch.ones(7, 3, 5), torch.zeros(3).long()), "requires batched input"),
                         ((x, torch.ones(7, 5), torch.ones(2, 7), 3), "ignore_index cannot be specified")):
        more = {"ignore_index": bad[3]} if len(bad) > 3 else {}
        with pytest.raises(RuntimeError, match=message):
            F.linear_cross_entropy(*map(to_sl, bad[:3]), **more)
        with pytest.raises(RuntimeError):
            TF.linear_cross_entropy(*bad[:3], **more)


def test_module_of_the_loss():
    given = {"out_features": (4, 3), "bias": True, "ignore_index": 2, "label_smoothing": 0.1}
    theirs = torch.nn.LinearCrossEntropyLoss(5, 10, weight=torch.rand(10), **given)
    ours = sl.nn.LinearCrossEntropyLoss(5, 10, weight=sl.zeros(10),
                                        options=sl.nn.LinearCrossEntropyOptions(batch_chunk_size=2), **given)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    x, t = torch.randn(2, 5), torch.randint(0, 10, (2, 4, 3))
    assert_same(ours(to_sl(x), to_sl(t)), theirs(x, t))
    assert repr(sl.nn.LinearCrossEntropyLoss(5, 10)) == repr(torch.nn.LinearCrossEntropyLoss(5, 10))
    for lib in (sl, torch):
        for bad in ({"batch_chunk_size": 0}, {"chunking_method": "x"}, {"acc_policy": "x"}, {"acc_dtype": lib.int8}):
            with pytest.raises(ValueError):
                lib.nn.LinearCrossEntropyOptions(**bad)
    assert repr(sl.nn.LinearCrossEntropyOptions(True, 3)) == repr(torch.nn.LinearCrossEntropyOptions(True, 3))


# Axes by name

PATTERNS = [("b h -> h b", {}), ("b (h w) -> b h w", {"w": 2}), ("b (h w) -> (w b) h", {"h": 2}), ("b h -> b 1 h", {}),
            ("b h -> (b h)", {}),
            ("... h -> h ...", {}), ("b ... -> b (...)", {}), ("b h -> b () h", {}), ("b h ->  b h", {}), ("(a b) (c d) -> (a "
                                                                                                           "c) (b d)", {"a": 2,
                                                                                                                        "c": 3})]


@pytest.mark.parametrize("pattern, lengths", PATTERNS)
def test_rearranged(pattern, lengths):
    x = torch.arange(12.0).reshape(2, 6)
    mine, theirs = to_sl(x).requires_grad_(), x.clone().requires_grad_()
    y, z = sl.func.rearrange(mine, pattern, **lengths), torch.func.rearrange(theirs, pattern, **lengths)
    assert_same(y, z)
    weights = torch.arange(12.0).reshape(z.shape)
    assert_same(sl.autograd.grad((y * to_sl(weights)).sum(), mine)[0], torch.autograd.grad((z * weights).sum(), theirs)[0])
    assert_same(sl.func.rearrange([to_sl(x), to_sl(x)], "n b h -> b (n h)"), torch.func.rearrange([x, x], "n b h -> b (n h)"))


@pytest.mark.parametrize("pattern, lengths, message", [
    ("b h -> b", {}, "only on one side"), ("b h w -> b h w", {}, "Number of dimensions"), ("b b -> b", {},
                                                                                           "duplicate dimension 'b'"),
    ("b (h w) -> b h w", {}, "at once"), ("b h", {}, "single '->'"), ("b (h w) -> b h w", {"w": 4}, "evenly fit"),
    ("b h -> b h", {"z": 2}, "not found"), ("b (h -> b h", {}, "Imbalanced"), ("b ((h)) -> b h", {}, "one-level"),
    ("b (h w) -> b h w", {"h": 2, "w": 2}, "must be 6"), ("b h -> b ... h", {}, "Ellipsis"), ("b h+ -> b h+", {},
                                                                                              "Invalid axis")])
def test_patterns_that_say_nothing(pattern, lengths, message):
    with pytest.raises(ValueError, match=message):
        sl.func.rearrange(sl.ones(2, 6), pattern, **lengths)
    with pytest.raises(Exception):  # noqa: B017 some are of a class of functorch's
        torch.func.rearrange(torch.ones(2, 6), pattern, **lengths)


def test_functions_of_functions():
    def f(x):
        y = x.clone()
        y.add_(1)
        return y

    assert sl.func.functionalize(f)(sl.ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="received invalid argument for remove"):
        sl.func.functionalize(f, remove="x")
    for lib in (sl, torch):
        net = lib.nn.Sequential(lib.nn.BatchNorm1d(3), lib.nn.Sequential(lib.nn.BatchNorm2d(2, track_running_stats=False)),
                                lib.nn.LayerNorm(3))
        assert lib.func.replace_all_batch_norm_modules_(net) is net
        assert net[0].running_mean is None and net[0].num_batches_tracked is None and not net[0].track_running_stats
        net(lib.ones(2, 3)) if lib is None else net[0](lib.ones(2, 3))


# Older modules


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_normalization_across_channels(size):
    x = normal(2, 7, 3, 2)
    assert_same(sl.nn.CrossMapLRN2d(size, 0.1, 0.6, 2)(to_sl(x)), torch.nn.CrossMapLRN2d(size, 0.1, 0.6, 2)(x))
    # Torch's gradient is that of other windows, so it is no oracle.
    assert sl.autograd.gradcheck(sl.nn.CrossMapLRN2d(size, 0.1, 0.6, 2), to_sl(x.detach().double()[:1, :, :1]).requires_grad_())
    assert repr(sl.nn.CrossMapLRN2d(size)) == repr(torch.nn.CrossMapLRN2d(size))
    with pytest.raises(ValueError, match="Expected input to be 4D"):
        sl.nn.CrossMapLRN2d(size)(sl.ones(2, 3))


def test_modules_by_older_names():
    for lib in (sl, torch):
        with pytest.warns(FutureWarning, match="NLLLoss2d"):
            loss = lib.nn.NLLLoss2d(reduction="sum")
        assert loss(lib.zeros(1, 2, 2, 2), lib.zeros(1, 2, 2, dtype=lib.int64)).item() == 0
        with pytest.warns(FutureWarning, match="Container"):
            box = lib.nn.Container(a=lib.nn.Linear(1, 1))
        assert list(box.state_dict()) == ["a.weight", "a.bias"]


def test_data_parallel_on_one_device():
    theirs, ours = torch.nn.DataParallel(torch.nn.Linear(5, 2)), sl.nn.DataParallel(sl.nn.Linear(5, 2))
    assert list(ours.state_dict()) == list(theirs.state_dict()) and repr(ours) == repr(theirs)
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    x = torch.randn(3, 5)
    if not torch.cuda.is_available():
        assert_same(ours(to_sl(x)), theirs(x))
    assert_same(sl.nn.parallel.data_parallel(ours.module, to_sl(x)), theirs.module(x))


def test_more_devices_than_one_are_refused(monkeypatch):
    monkeypatch.setattr(sl.cuda, "device_count", lambda: 2)
    with pytest.raises(NotImplementedError,
                       match="one process computes on one device here: use nn.parallel.DistributedDataParallel"):
        sl.nn.DataParallel(sl.nn.Linear(5, 2))


@pytest.mark.parametrize("kind, format", [("2d", "channels_last"), ("3d", "channels_last_3d")])
def test_weights_in_another_order(kind, format):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for lib in (sl, torch):
            net = lib.nn.Sequential(getattr(lib.nn, f"Conv{kind}")(3, 4, 2), getattr(lib.nn, f"ConvTranspose{kind}")(4, 3, 2),
                                    lib.nn.Linear(2, 2))
            before = [p.detach().clone() for p in net.parameters()]
            convert = getattr(lib.nn.utils, f"convert_conv{kind}_weight_memory_format")
            assert convert(net, getattr(lib, format)) is net
            strides = [p.stride() for p in net.parameters()]
            assert all(bool((a == b).all()) for a, b in zip(before, net.parameters()))
            if lib is sl:
                mine = strides
        assert mine == strides
