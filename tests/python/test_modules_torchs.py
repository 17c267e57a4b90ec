"""Modules against torch's of their names: constructors, repr, state, values and gradients, for every exported module."""

import collections
import inspect
import warnings

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn

# Arguments that every module can be made with, several lists for those whose repr depends on them.
MADE = {
    **{n: [(), (True,)] for n in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish")},
    **{n: [(), (0.3, True)] for n in ("ELU", "CELU", "LeakyReLU")},
    **{n: [()] for n in ("Tanh", "Sigmoid", "LogSigmoid", "Softsign", "Tanhshrink", "Softmax2d", "Identity", "Flatten", "Sequential", "ModuleList", "ModuleDict",
                         "ParameterList", "ParameterDict", "Module")},
    **{n: [(), (1,)] for n in ("Softmax", "Softmin", "LogSoftmax", "GLU")}, **{n: [(), (0.3,)] for n in ("Hardshrink", "Softshrink")},
    "GELU": [(), ("tanh",)], "Softplus": [(), (2.0, 5.0)], "Hardtanh": [(), (-2, 3, True)], "Threshold": [(1, 2.5), (0.1, 20, True)], "RReLU": [(), (0.1, 0.2, True)],
    "PReLU": [(), (3,), (1, 0.1)],
    **{n: [(), (0.3, True)] for n in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")},
    **{f"Constant{n}": [(1, 2.5)] for n in ("Pad1d", "Pad2d", "Pad3d")},
    **{f"{k}Pad{d}d": [(1,), (tuple(range(2 * d)),)] for k in ("Zero", "Reflection", "Replication", "Circular") for d in (1, 2, 3)},
    **{f"Conv{d}d": [(4, 6, 3), (4, 6, 3, 2, 1, 2, 2, False), (4, 6, 3, 1, "same", 1, 1, True, "reflect"), (4, 6, (2,) * d, 1, 1, 1, 1, True, "circular")] for d in (1, 2, 3)},
    **{f"ConvTranspose{d}d": [(4, 6, 3), (4, 6, 3, 2, 1, 1, 2, False, 2)] for d in (1, 2, 3)},
    "Linear": [(4, 3), (4, 3, False)], "Bilinear": [(4, 3, 2), (4, 3, 2, False)], "Unflatten": [(1, (2, 3))],
    **{n: [(3,), (3, 1e-3, None, False, False)] for n in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")},
    **{n: [(3,), (3, 1e-3, 0.2, True, True)] for n in ("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")},
    "LayerNorm": [(3,), ((3, 4), 1e-3, True, False), ((3, 4), 1e-3, False)], "RMSNorm": [(3,), ((3, 4), 1e-3, False)], "GroupNorm": [(3, 6), (1, 6, 1e-3, False)],
    "LocalResponseNorm": [(2,), (3, 0.1, 0.5, 2.0)], "CrossMapLRN2d": [(2,), (3, 0.1, 0.5, 2)], "LinearCrossEntropyLoss": [(5,
                                                                                                                            3)],
    **{n: [()] for n in ("NLLLoss2d", "Container")}, "Embedding": [(5, 3), (5, 3, 1), (5, 3, -1, 2.0, 3.0, True)],
    "EmbeddingBag": [(5, 3), (5, 3, 1.0, 3.0, True, "sum", False, None, True, 1), (5, 3, None, 2.0, False, "max")],
    **{f"MaxPool{d}d": [(2,), (3, 2, 1, 2, True, True)] for d in (1, 2, 3)}, **{f"MaxUnpool{d}d": [(2,), (3, 2, 1)] for d in (1, 2, 3)},
    "AvgPool1d": [(2,), (3, 2, 1, True, False)], **{f"AvgPool{d}d": [(2,), (3, 2, 1, True, False, 5)] for d in (2, 3)},
    **{f"LPPool{d}d": [(2, 3), (1.5, 2, 3, True)] for d in (1, 2, 3)}, **{f"AdaptiveAvgPool{d}d": [(2,)] for d in (1, 2, 3)},
    **{f"AdaptiveMaxPool{d}d": [(2,), (3, True)] for d in (1, 2, 3)}, **{f"FractionalMaxPool{d}d": [(2, 3)] for d in (2, 3)},
    "Fold": [(4, 2), ((4, 5), 2, 1, 1, 2)], "Unfold": [(2,), ((2, 3), 2, 1, 2)], "PixelShuffle": [(2,)], "PixelUnshuffle": [(2,)], "ChannelShuffle": [(2,)],
    "Upsample": [(4,), (None, 2), (None, (2.0, 3), "bilinear", True)], "UpsamplingBilinear2d": [(4,), (None, 2)], "UpsamplingNearest2d": [(4,), (None, 1.5)],
    "AdaptiveLogSoftmaxWithLoss": [(16, 20, [4, 10]), (16, 20, [4, 10, 15], 2.0, True)],
    "CosineSimilarity": [(), (0, 1e-3)], "PairwiseDistance": [(), (1.0, 1e-3, True)],
    **{n: [()] for n in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "NLLLoss", "CrossEntropyLoss", "PoissonNLLLoss",
                         "GaussianNLLLoss", "SoftMarginLoss", "MultiLabelSoftMarginLoss", "MultiLabelMarginLoss", "MultiMarginLoss", "MarginRankingLoss",
                         "HingeEmbeddingLoss", "CosineEmbeddingLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "CTCLoss")},
}
OLDER_NAMES = {"NLLLoss2d": "NLLLoss"}
OURS_ALONE = {"Graph", "QuickGELU", "SquareReLU", "RMSLayerNorm"}  # the last three are OneFlow's
MODULES = {n: c for n, c in vars(nn).items() if isinstance(c, type) and issubclass(c, nn.Module) and not n.startswith("_")}
COMMON = sorted(n for n in MODULES if hasattr(torch.nn, n) and n in MADE)


def test_what_is_made_here_is_all_there_is():
    elsewhere = {n for n in MODULES if n.startswith(("RNN", "LSTM", "GRU", "Multihead", "Transformer", "Lazy")) and n not in MADE}
    assert set(MODULES) - set(MADE) - elsewhere <= OURS_ALONE and set(MADE) <= set(MODULES)


@pytest.mark.parametrize("name", COMMON)
def test_constructors_take_what_torchs_take(name):
    def arguments(module):
        found = inspect.signature(module).parameters.values()
        return [(p.name, p.kind, p.default) for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]

    if name in OLDER_NAMES:  # torch shows their arguments from Python 3.13 on
        assert MODULES[name].__base__ is MODULES[OLDER_NAMES[name]] and getattr(torch.nn, name).__base__ is getattr(torch.nn, OLDER_NAMES[name])
        return
    assert arguments(MODULES[name]) == arguments(getattr(torch.nn, name))


@pytest.mark.parametrize("name", COMMON)
def test_repr_and_state_are_torchs(name):
    for args in MADE[name]:
        sl.manual_seed(3), torch.manual_seed(3)
        ours, theirs = MODULES[name](*args), getattr(torch.nn, name)(*args)
        assert repr(ours) == repr(theirs)
        mine, expected = ours.state_dict(), theirs.state_dict()
        assert list(mine) == list(expected)
        for key in mine:
            assert_same(mine[key], expected[key], 1e-6)
        theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in mine.items()})
        public = {k for k in vars(theirs) if not k.startswith("_")}
        assert not {k for k in public if not hasattr(ours, k)}


IMAGES = {1: (2, 4, 8), 2: (2, 4, 8, 7), 3: (2, 4, 5, 6, 7)}
RUNS = [(n, a, (3, 4)) for n in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "ELU", "CELU", "LeakyReLU", "Tanh", "Sigmoid", "LogSigmoid",
                                 "Softsign", "Tanhshrink", "Hardshrink", "Softshrink", "GELU", "Softplus", "Hardtanh", "Threshold", "PReLU")
        for a in MADE[n][:1]]
RUNS += [("Softmin", (1,), (3, 4)), ("GLU", (), (3, 4)), ("Softmax2d", (), (2, 3, 4, 5)), ("Softmax2d", (), (3, 4, 5)), ("RReLU", (0.2, 0.2), (3, 4)), ("PReLU", (4,), (2, 4, 3))]
RUNS += [(f"{k}Pad{d}d", a, IMAGES[d]) for k in ("Zero", "Reflection", "Replication", "Circular") for d in (1, 2, 3) for a in MADE[f"{k}Pad{d}d"][:1]]
RUNS += [(f"ConstantPad{d}d", (1, 2.5), IMAGES[d]) for d in (1, 2, 3)]
RUNS += [(f"Conv{d}d", a, s) for d in (1, 2, 3) for a in MADE[f"Conv{d}d"] for s in (IMAGES[d], IMAGES[d][1:])]
RUNS += [(f"ConvTranspose{d}d", a, IMAGES[d]) for d in (1, 2, 3) for a in MADE[f"ConvTranspose{d}d"]]
RUNS += [(f"{k}Norm{d}d", (4,), IMAGES[d]) for k in ("Batch", "Instance") for d in (1, 2, 3)] + [("SyncBatchNorm", (4,), IMAGES[2]), ("BatchNorm1d", (4,), (5, 4))]
RUNS += [(f"InstanceNorm{d}d", (4, 1e-3, 0.2, True, True), s) for d in (1, 2, 3) for s in (IMAGES[d], IMAGES[d][1:])]
RUNS += [(f"BatchNorm{d}d", (4, 1e-3, None, False), IMAGES[d]) for d in (1, 2, 3)] + [("BatchNorm2d", (4, 1e-3, 0.1, True, False), IMAGES[2])]
RUNS += [("LayerNorm", a, (2, 3, 4)) for a in (((3, 4), 1e-3, True, False),)] + [("RMSNorm", (4,), (2, 4)), ("RMSNorm", ((3, 4), 1e-3), (2, 3, 4)), ("GroupNorm", (2, 4), IMAGES[2])]
RUNS += [("LocalResponseNorm", (2,), IMAGES[2])]
RUNS += [(f"{k}{d}d", a, IMAGES[d]) for k in ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool") for d in (1, 2, 3) for a in MADE[f"{k}{d}d"]]
RUNS += [(f"LPPool{d}d", (2, 3), IMAGES[d]) for d in (1, 2, 3)] + [("AdaptiveAvgPool2d", ((3, None),), IMAGES[2])]
RUNS += [("Fold", (4, 2), (2, 8, 9)), ("Unfold", (2,), IMAGES[2]), ("PixelShuffle", (2,), IMAGES[2]), ("PixelUnshuffle", (2,), (1, 2, 4, 6)), ("ChannelShuffle", (2,), IMAGES[2])]
RUNS += [("Upsample", (None, 2), IMAGES[d]) for d in (1, 2, 3)] + [("Upsample", (None, (2.0, 1.5), "bicubic"), IMAGES[2]), ("UpsamplingBilinear2d", (None, 2), IMAGES[2]),
                                                                   ("UpsamplingNearest2d", (9,), IMAGES[2])]
RUNS += [("Unflatten", (1, (2, 2)), (3, 4)), ("Dropout2d", (0.0,), IMAGES[2])]


class Run(nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, x):
        x.requires_grad_()
        y = self.module(x)
        for part in y if isinstance(y, tuple) else [y]:
            if part.dtype is sl.float32:
                (part * part).sum().backward()
        return x.grad


@pytest.mark.parametrize("name, args, shape", RUNS, ids=lambda v: str(v))
def test_values_and_gradients(name, args, shape):
    sl.manual_seed(1), torch.manual_seed(1)
    ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    if name == "SyncBatchNorm":  # torch's needs a GPU while training
        theirs = torch.nn.BatchNorm2d(*args)
    a = torch.randn(shape, requires_grad=True)
    x = to_sl(a)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y, b = ours(x), theirs(a)
    results = [(y, b)] if isinstance(b, torch.Tensor) else list(zip(y, b))
    for mine, expected in results:
        assert_same(mine, expected, 2e-5)
    (results[0][0] * results[0][0]).sum().backward()
    (results[0][1] * results[0][1]).sum().backward()
    assert_same(x.grad, a.grad, 1e-3)
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert_same(p.grad, q.grad, 1e-3)
    for p, q in zip(ours.buffers(), theirs.buffers()):
        assert_same(p, q)
    if "Norm" not in name:
        assert_same(Run(ours)(x.detach()), a.grad, 1e-3)
    mine, expected = ours.eval()(x), theirs.eval()(a)
    assert_same(mine[0] if isinstance(mine, tuple) else mine, expected[0] if isinstance(expected, tuple) else expected, 2e-5)


@pytest.mark.parametrize("dims", (1, 2, 3))
def test_batch_norm_without_parameters(dims):  # OPS-36
    ours, theirs = getattr(nn, f"BatchNorm{dims}d")(3, affine=False), getattr(torch.nn, f"BatchNorm{dims}d")(3, affine=False)
    assert not list(ours.parameters())
    for _ in range(5):
        x = torch.randn(4, 3, *(5, 4, 3)[:dims])
        assert_same(ours(to_sl(x)), theirs(x), 1e-5)
    for key, value in theirs.state_dict().items():
        assert_same(ours.state_dict()[key], value, 1e-5)
    assert_same(ours.eval()(to_sl(x)), theirs.eval()(x), 1e-5)


def test_max_unpool_modules():
    for dims in (1, 2, 3):
        x = torch.randn(2, 3, *(6, 4, 4)[:dims])
        results = []
        for m, value in ((nn, to_sl(x)), (torch.nn, x)):
            y, at = getattr(m, f"MaxPool{dims}d")(2, return_indices=True)(value)
            results.append(getattr(m, f"MaxUnpool{dims}d")(2)(y, at, output_size=value.shape))
        assert_same(*results)


def test_tables():
    index = torch.tensor([[1, 2], [4, 0]])
    for name, args in (("Embedding", (5, 3, 1)), ("Embedding", (5, 3, None, 0.5)), ("EmbeddingBag", (5, 3)), ("EmbeddingBag", (5, 3, None, 2.0, False, "max"))):
        sl.manual_seed(2), torch.manual_seed(2)
        ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
        y, b = ours(to_sl(index)), theirs(index)
        assert_same(y, b, 1e-5)
        (y * y).sum().backward()
        (b * b).sum().backward()
        assert_same(ours.weight.grad, theirs.weight.grad, 1e-4)
        assert_same(ours.weight, theirs.weight, 1e-5)
    rows = torch.randn(4, 2)
    for name in ("Embedding", "EmbeddingBag"):
        ours, theirs = getattr(nn, name).from_pretrained(to_sl(rows)), getattr(torch.nn, name).from_pretrained(rows)
        assert ours.weight.requires_grad == theirs.weight.requires_grad is False
        assert_same(ours(to_sl(index % 4)), theirs(index % 4), 1e-6)
        assert getattr(nn, name).from_pretrained(to_sl(rows), freeze=False).weight.requires_grad


PAIRS = [("CosineSimilarity", ()), ("PairwiseDistance", (1.0,)), ("MSELoss", ()), ("L1Loss", ()), ("SmoothL1Loss", ()), ("HuberLoss", ("sum", 0.5)), ("KLDivLoss", ()),
         ("PoissonNLLLoss", ()), ("SoftMarginLoss", ()), ("MultiLabelSoftMarginLoss", ()), ("HingeEmbeddingLoss", ()), ("BCEWithLogitsLoss", ())]
CLASSES = torch.tensor([1, 0, 3])


def test_losses_and_distances():
    a, b, c = (torch.randn(3, 4) for _ in range(3))
    signs = torch.tensor([1.0, -1.0, 1.0])

    def check(name, args, *inputs, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = getattr(nn, name)(*args, **options)(*[to_sl(x) if isinstance(x, torch.Tensor) else x for x in inputs])
            assert_same(ours, getattr(torch.nn, name)(*args, **options)(*inputs), 1e-5)

    for name, args in PAIRS:
        check(name, args, a, b.sign() if "Hinge" in name or "SoftMargin" in name else b)
    check("BCELoss", (), a.sigmoid(), b.sigmoid())
    check("GaussianNLLLoss", (), a, b, c.abs(), full=True)
    for name in ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss"):
        check(name, (), a, CLASSES)
    check("MultiLabelMarginLoss", (), a, torch.tensor([[1, 2, -1, 0]] * 3))
    check("MarginRankingLoss", (0.5,), a, b, b.sign())
    check("CosineEmbeddingLoss", (0.1,), a, b, signs)
    check("TripletMarginLoss", (), a, b, c, swap=True)
    check("TripletMarginWithDistanceLoss", (), a, b, c, margin=2.0)
    check("CTCLoss", (), torch.randn(5, 2, 4).log_softmax(2), torch.tensor([[1, 2], [3, 1]]), (5, 4), (2, 1))


def test_bilinear_starts_as_torchs():
    sl.manual_seed(5), torch.manual_seed(5)
    a, b = torch.randn(3, 4), torch.randn(3, 2)
    sl.manual_seed(5), torch.manual_seed(5)
    assert_same(nn.Bilinear(4, 2, 3)(to_sl(a), to_sl(b)), torch.nn.Bilinear(4, 2, 3)(a, b), 1e-5)


def test_sync_batch_norm_replaces_others():
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm1d(4, affine=False)))
    weight = model[1].weight
    made = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert isinstance(made[1], nn.SyncBatchNorm) and made[1].weight is weight and isinstance(made[2][0], nn.SyncBatchNorm)


def test_adaptive_softmax():
    for args in MADE["AdaptiveLogSoftmaxWithLoss"]:
        sl.manual_seed(2), torch.manual_seed(2)
        ours, theirs = nn.AdaptiveLogSoftmaxWithLoss(*args), torch.nn.AdaptiveLogSoftmaxWithLoss(*args)
        x, target = torch.randn(6, 16), torch.tensor([0, 3, 4, 9, 10, 19])
        y, b = ours(to_sl(x), to_sl(target)), theirs(x, target)
        assert_same(y.output, b.output, 1e-5)
        assert_same(y.loss, b.loss, 1e-5)
        y.loss.backward()
        b.loss.backward()
        for p, q in zip(ours.parameters(), theirs.parameters()):
            assert_same(p.grad, q.grad, 1e-5)
        assert_same(ours.log_prob(to_sl(x)), theirs.log_prob(x), 1e-5)
        assert_same(ours.predict(to_sl(x)), theirs.predict(x))
        assert_same(ours(to_sl(x[0]), to_sl(target[0])).output, theirs(x[0], target[0]).output, 1e-5)
        with pytest.raises(RuntimeError, match=r"Target values should be in \[0, 19\]"):
            ours(to_sl(x[:1]), sl.tensor([20]))
    with pytest.raises(ValueError, match="cutoffs should be"):
        nn.AdaptiveLogSoftmaxWithLoss(16, 20, [10, 4])


def test_oneflows_modules():
    x = torch.randn(2, 4)
    assert_same(nn.QuickGELU()(to_sl(x)), x * torch.sigmoid(1.702 * x), 1e-6)
    assert_same(nn.SquareReLU()(to_sl(x)), x.relu() ** 2, 1e-6)
    assert_same(nn.RMSLayerNorm(4)(to_sl(x)), torch.nn.functional.rms_norm(x, (4,), eps=1e-6), 1e-5)


def test_what_constructors_refuse():
    for name, args in (("Conv2d", (1, 1, 1, 1, 0, 1, 1, True, "mirror")), ("ConvTranspose2d", (1, 1, 1, 1, 0, 0, 1, True, 1, "circular")), ("Dropout2d", (1.5,)),
                       ("Hardtanh", (2, 1)), ("Embedding", (3, 2, 3)), ("TripletMarginLoss", (-1.0,)), ("MultiMarginLoss", (3,)), ("GroupNorm", (2, 3)),
                       ("Bilinear", (0, 1, 1)), ("FractionalMaxPool2d", (2,)), ("Conv2d", (1, 1, 1, 2, "same"))):
        for module in (nn, torch.nn):
            with pytest.raises((ValueError, AssertionError)):
                getattr(module, name)(*args)
    with pytest.raises(TypeError):
        nn.ReLU(1, 2)
    with pytest.raises(TypeError):
        nn.LeakyReLU(slope=0.1)


NORMS = {"BatchNorm1d": lambda nn: nn.BatchNorm1d(4), "without statistics": lambda nn: nn.BatchNorm1d(4, track_running_stats=False),
         "InstanceNorm1d": lambda nn: nn.InstanceNorm1d(4, track_running_stats=True), "plain": lambda nn: nn.InstanceNorm1d(4)}


@pytest.mark.parametrize("name", NORMS)
def test_states_of_norms_of_any_version(name):
    """States of version 1 have no num_batches_tracked; of version 2 it must be there."""
    def loaded(m, version, counted):
        net, other = (m.nn.Sequential(NORMS[name](m.nn)) for _ in range(2))
        net(m.arange(60.0).reshape(3, 4, 5))
        state = collections.OrderedDict((k, v) for k, v in net.state_dict().items() if counted or not k.endswith("tracked"))
        if version is not None:
            state._metadata = {k: {"version": version} for k in net.state_dict()._metadata}
        try:
            other.load_state_dict(state)
        except RuntimeError as error:
            return str(error)
        loaded = {k: v.tolist() if v.ndim == 0 else len(v) for k, v in other.state_dict().items()}
        return loaded, dict(other.state_dict()._metadata)

    for version in (None, 1, 2):
        for counted in (False, True):
            assert loaded(sl, version, counted) == loaded(torch, version, counted), (version, counted)


def test_a_batch_norm_that_does_not_count():
    for m in (torch, sl):
        norm = m.nn.BatchNorm1d(2, momentum=None)
        norm.num_batches_tracked = None
        norm(m.ones(3, 2))
        assert norm.running_mean.tolist() == [0, 0] and "num_batches_tracked" not in norm.state_dict()
