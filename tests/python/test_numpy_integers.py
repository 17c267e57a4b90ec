"""NumPy's integers wherever an int of Python's goes: sizes, dims, indices, counts, ranks."""

import numpy as np
import pytest
import torch

import sluice as sl
from sluice._graph.config import GraphConfig

F, nn = sl.nn.functional, sl.nn
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGE = np.arange(108, dtype=np.float32).reshape(1, 3, 6, 6)


def sgd(t):
    return t.optim.SGD([t.zeros(1, requires_grad=True)], lr=0.1)


# By name: (library, a function that makes an integer, a tensor) -> what both must give. `t` is sluice, and torch where that has it.
BOTH = {
    "zeros": lambda t, i, x: t.zeros(i(2), i(3)), "zeros of a list": lambda t, i, x: t.zeros([i(2), 3]), "ones": lambda t, i, x: t.ones(i(2)),
    "full": lambda t, i, x: t.full((i(2),), 7.0), "arange": lambda t, i, x: t.arange(i(5)), "eye": lambda t, i, x: t.eye(i(3), i(2)),
    "linspace": lambda t, i, x: t.linspace(0, 1, i(4)), "Tensor": lambda t, i, x: t.Tensor(i(2), i(3)).shape, "Size": lambda t, i, x: t.Size([i(2), 3]),
    "randperm": lambda t, i, x: t.randperm(i(4)).sort()[0], "randint": lambda t, i, x: t.randint(i(1), i(2), (i(2),)), "new_zeros": lambda t, i, x: x.new_zeros(i(2)),
    "reshape": lambda t, i, x: x.reshape(i(6), i(4)), "view": lambda t, i, x: x.view((i(6), -1)), "permute": lambda t, i, x: x.permute(i(2), 0, 1),
    "transpose": lambda t, i, x: x.transpose(i(0), i(1)), "unsqueeze": lambda t, i, x: x.unsqueeze(i(0)), "flatten": lambda t, i, x: x.flatten(i(1)),
    "unflatten": lambda t, i, x: x.unflatten(i(2), (i(2), i(2))), "expand": lambda t, i, x: x[:, :1].expand(i(2), i(3), i(4)), "repeat": lambda t, i, x: x.repeat(i(2), 1, 1),
    "tile": lambda t, i, x: x.tile((i(2),)), "broadcast_to": lambda t, i, x: x.broadcast_to((i(2), i(2), 3, 4)), "movedim": lambda t, i, x: x.movedim(i(0), i(1)),
    "index": lambda t, i, x: x[i(1)], "two indices": lambda t, i, x: x[i(1), :, i(2)], "slice": lambda t, i, x: x[i(0):i(1), ::i(2)],
    "select": lambda t, i, x: x.select(i(1), i(0)), "narrow": lambda t, i, x: x.narrow(i(1), i(0), i(2)), "chunk": lambda t, i, x: x.chunk(i(2), i(1))[1],
    "split": lambda t, i, x: x.split(i(2), i(2))[1], "split in parts": lambda t, i, x: x.split([i(1), i(3)], i(2))[1], "tensor_split": lambda t, i, x: x.tensor_split(i(2), i(2))[1],
    "cat": lambda t, i, x: t.cat([x, x], i(1)), "stack": lambda t, i, x: t.stack([x, x], i(1)), "roll": lambda t, i, x: x.roll(i(1), i(0)), "flip": lambda t, i, x: x.flip(i(0)),
    "rot90": lambda t, i, x: t.rot90(x, i(1), [i(0), i(1)]), "diagonal": lambda t, i, x: x.diagonal(i(0), i(0), i(1)), "tril": lambda t, i, x: x.tril(i(1)),
    "unfold": lambda t, i, x: x.unfold(i(2), i(2), i(1)), "as_strided": lambda t, i, x: x.as_strided((i(2),), (i(1),), i(0)), "sum": lambda t, i, x: x.sum(i(1)),
    "sum of dims": lambda t, i, x: x.sum((i(0), i(1))), "argmax": lambda t, i, x: x.argmax(i(0)), "cumsum": lambda t, i, x: x.cumsum(i(0)), "topk": lambda t, i, x: x.topk(i(2), i(2))[0],
    "kthvalue": lambda t, i, x: x.kthvalue(i(1), i(0))[0], "norm": lambda t, i, x: x.norm(dim=i(0)), "softmax": lambda t, i, x: x.softmax(i(1)), "size": lambda t, i, x: x.size(i(1)),
    "stride": lambda t, i, x: x.stride(i(1)), "gather": lambda t, i, x: x.gather(i(0), t.zeros(1, 1, 1, dtype=t.int64)), "bincount": lambda t, i, x: t.bincount(t.tensor([0, 1]), minlength=i(3)),
    "tensordot": lambda t, i, x: t.tensordot(x, x, ([i(2)], [i(2)])), "tensordot of a number": lambda t, i, x: t.tensordot(x[0], x[0].T, i(1)),
    "index_select": lambda t, i, x: x.index_select(i(0), t.tensor([0])), "histc": lambda t, i, x: t.histc(x, i(4)), "fft": lambda t, i, x: t.fft.rfft(x, n=i(4), dim=i(1)).abs(),
    "matrix_power": lambda t, i, x: t.linalg.matrix_power(t.eye(2), i(2)), "one_hot": lambda t, i, x: t.nn.functional.one_hot(t.tensor([0, 1]), i(3)),
    "pad": lambda t, i, x: t.nn.functional.pad(x, (i(1), i(1))), "cross_entropy": lambda t, i, x: t.nn.functional.cross_entropy(x[0], t.tensor([0, 1, 2]), ignore_index=i(0)),
    "conv2d": lambda t, i, x: t.nn.functional.conv2d(t.ones(1, 3, 6, 6), t.ones(4, 3, 3, 3), stride=i(2), padding=(i(1), i(1))),
    "max_pool2d": lambda t, i, x: t.nn.functional.max_pool2d(t.tensor(IMAGE), i(2)), "interpolate": lambda t, i, x: t.nn.functional.interpolate(t.tensor(IMAGE), size=(i(3), i(3))),
    "F.unfold": lambda t, i, x: t.nn.functional.unfold(t.tensor(IMAGE), i(2)), "Conv2d": lambda t, i, x: t.nn.Conv2d(i(3), i(4), i(3), stride=i(1), padding=i(1))(t.ones(1, 3, 6, 6)).shape,
    "ConvTranspose1d": lambda t, i, x: t.nn.ConvTranspose1d(i(3), i(4), i(2), output_padding=i(0), dilation=i(1), groups=i(1))(t.ones(1, 3, 6)).shape,
    "Linear": lambda t, i, x: t.nn.Linear(i(4), i(5))(x).shape, "Bilinear": lambda t, i, x: t.nn.Bilinear(i(4), i(4), i(2))(x, x).shape,
    "Embedding": lambda t, i, x: t.nn.Embedding(i(5), i(3), padding_idx=i(0))(t.tensor([1])).shape, "LSTM": lambda t, i, x: t.nn.LSTM(i(4), i(5), num_layers=i(2))(x)[0].shape,
    "GRUCell": lambda t, i, x: t.nn.GRUCell(i(4), i(5))(x[0]).shape, "attention": lambda t, i, x: t.nn.MultiheadAttention(i(4), i(2))(x, x, x)[0].shape,
    "encoder": lambda t, i, x: t.nn.TransformerEncoderLayer(i(4), i(2), i(8))(x).shape, "BatchNorm2d": lambda t, i, x: t.nn.BatchNorm2d(i(3))(t.tensor(IMAGE)),
    "LayerNorm": lambda t, i, x: t.nn.LayerNorm(i(4))(x), "RMSNorm": lambda t, i, x: t.nn.RMSNorm(i(4))(x), "GroupNorm": lambda t, i, x: t.nn.GroupNorm(i(1), i(3))(x),
    "AdaptiveAvgPool2d": lambda t, i, x: t.nn.AdaptiveAvgPool2d(i(2))(t.tensor(IMAGE)), "PixelShuffle": lambda t, i, x: t.nn.PixelShuffle(i(1))(t.tensor(IMAGE)),
    "Sequential": lambda t, i, x: t.nn.Sequential(t.nn.ReLU(), t.nn.Flatten(i(1)))[i(1)](x), "ModuleList": lambda t, i, x: t.nn.ModuleList([t.nn.ReLU()])[i(0)](x),
    "manual_seed": lambda t, i, x: t.manual_seed(i(3)) and t.rand(2), "a generator's seed": lambda t, i, x: t.rand(2, generator=t.Generator().manual_seed(i(3))),
    "device": lambda t, i, x: str(t.device("cuda", i(1))), "vmap": lambda t, i, x: t.func.vmap(lambda a: a + 1, in_dims=i(1), out_dims=i(0))(x),
    "grad of an argument": lambda t, i, x: t.func.grad(lambda a, b: (a * b).sum(), argnums=i(1))(x, x), "StepLR": lambda t, i, x: t.optim.lr_scheduler.StepLR(sgd(t), i(3)).get_last_lr(),
    "OneCycleLR": lambda t, i, x: t.optim.lr_scheduler.OneCycleLR(sgd(t), 0.1, total_steps=i(3)).get_last_lr(),
    "CosineAnnealingWarmRestarts": lambda t, i, x: t.optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd(t), i(2), T_mult=i(2)).get_last_lr(),
    "DataLoader": lambda t, i, x: next(iter(t.utils.data.DataLoader(list(range(6)), batch_size=i(2), num_workers=i(0)))),
    "random_split": lambda t, i, x: [len(p) for p in t.utils.data.random_split(list(range(6)), [i(2), i(4)])], "Subset": lambda t, i, x: t.utils.data.Subset(list(range(6)), [i(2)])[i(0)],
    "sample": lambda t, i, x: t.distributions.Normal(t.zeros(2), t.ones(2)).sample((i(3),)).shape, "Multinomial": lambda t, i, x: t.distributions.Multinomial(i(3), t.ones(2)).sample().shape,
}
OURS = {
    "placement": lambda i: sl.placement("cpu", ranks=[i(0), 1]).ranks == (0, 1) and repr(sl.placement("cpu", [i(0)])) == repr(sl.placement("cpu", [0])),
    "sbp.split": lambda i: sl.sbp.split(i(0)) == sl.sbp.split(0), "Dim": lambda i: sl.Dim("b", max=i(3)).max == 3, "set_num_threads": lambda i: sl.set_num_threads(i(1)) is None,
    "dims of a graph": lambda i: nn.Graph().config.set_dims({"x": {i(0): sl.Dim("b", max=i(4))}}) is None or True,
    "micro-batches": lambda i: nn.Graph().config.set_gradient_accumulation_steps(i(2)) is None or True,
}


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("what", BOTH)
def test_as_an_int(what, kind):
    """As torch does with an int, and as Sluice does."""
    def value(library, integer):
        library.manual_seed(0)
        return BOTH[what](library, integer, library.tensor(X))

    got, same, theirs = value(sl, kind), value(sl, int), value(torch, int)
    if isinstance(got, sl.Tensor):
        np.testing.assert_array_equal(got.detach().numpy(), same.detach().numpy())
        assert got.dtype == same.dtype
        np.testing.assert_allclose(got.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5)
    else:
        assert got == same and str(got).replace("sluice.", "torch.") == str(theirs)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("what", OURS)
def test_as_an_int_where_torch_has_nothing(what, kind):
    assert OURS[what](kind)


def test_how_many(count):
    count("functions that take NumPy's integers", 3 * (len(BOTH) + len(OURS)), "calls")


def test_bools_are_none():
    for refused in (lambda: sl.placement("cpu", [np.True_]), lambda: sl.sbp.split(np.True_), lambda: sl.utils.data.DataLoader([1], batch_size=np.True_)):
        with pytest.raises((TypeError, ValueError)):
            refused()


@pytest.mark.parametrize("n", [2, np.int64(2)])
def test_micro_batches_of_a_step(n):
    class Training(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)
            self.config.set_gradient_accumulation_steps(n)
            self.add_optimizer(sl.optim.SGD(self.layer.parameters(), lr=0.1))

        def build(self, x):
            loss = self.layer(x).sum()
            loss.backward()
            return loss

    assert Training()(sl.ones(4, 3)).numel() == 2


@pytest.mark.parametrize("given", [2**64, None, float("inf"), float("nan"), -1, True, [1]])
def test_a_memory_budget_that_is_no_number_of_bytes_is_refused(given):
    with pytest.raises(ValueError, match="set_memory_budget: got .*must be a number of bytes"):
        GraphConfig().set_memory_budget(given)


def test_pipelines_and_quantization_take_numpys_integers(tmp_path):
    pipeline = sl.data.arrays(np.arange(6)).shuffle(np.int64(7)).batch(np.int64(2))
    assert [b.tolist() for b in pipeline] == [b.tolist() for b in sl.data.arrays(np.arange(6)).shuffle(7).batch(2)]
    sl.save(sl.data.arrays(np.arange(6)).shuffle(np.int64(7)).batch(2), tmp_path / "saved")
    crops = sl.data.arrays(np.zeros((4, 1, 6, 6), np.float32)).batch(2).map(sl.data.augment.random_crop(np.int64(4)))
    assert next(iter(crops)).shape == (2, 1, 4, 4)
    GraphConfig().qat_config(moving_min_max_stop_update_after_iters=np.int64(2))
