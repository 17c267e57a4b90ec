"""Copies of tensors that share memory share memory as they do: copy.deepcopy of lists, dicts and modules, save() and load().
Torch is the oracle, for random groups of tensors over one memory."""

import copy
import io
import random

import pytest
import torch
from conftest import assert_same

import sluice as sl
import sluice.nn as nn

# One more tensor over the memory of some x of two dims.
SHARES = {
    "row": lambda lib, x: x[x.shape[0] // 2:], "columns": lambda lib, x: x[:, ::2], "t": lambda lib, x: x.t(), "detach": lambda lib, x: x.detach(),
    "detached row": lambda lib, x: x[:1].detach(), "diagonal": lambda lib, x: x.diagonal().unsqueeze(0), "as integers": lambda lib, x: x.view(lib.int32),
    "expanded": lambda lib, x: x[:1].expand(3, x.shape[1]), "data": lambda lib, x: x.data, "without gradients": lambda lib, x: unrecorded(lib, x),
}
WAYS = {"list": list, "tuple": tuple, "dict": lambda tensors: {str(i): t for i, t in enumerate(tensors)},
        "nested": lambda tensors: [tensors[:2], {"more": tensors[2:]}]}


def unrecorded(lib, x):
    with lib.no_grad():
        return x.transpose(0, 1)


def group(lib, rng, ways=tuple(SHARES)):
    """Tensors over a few memories, in an order of their own."""
    made = [lib.arange(12, dtype=lib.float32).reshape(3, 4), lib.ones(4, 2, dtype=lib.float32)[1:]]
    for _ in range(rng.randint(2, 5)):
        of = rng.choice([t for t in made if t.dtype == lib.float32 and t.dim() == 2])
        made.append(SHARES[rng.choice(ways)](lib, of))
    rng.shuffle(made)
    return made


def flat(nest):
    if isinstance(nest, dict):
        nest = list(nest.values())
    return [t for part in nest for t in flat(part)] if isinstance(nest, (list, tuple)) else [nest]


def layout(t):
    return tuple(t.shape), tuple(t.stride()), t.storage_offset(), str(t.dtype).rpartition(".")[2], t.requires_grad


def after_writes(lib, tensors):
    """The content of each of them after something was written into each in turn."""
    contents = []
    with lib.no_grad():
        for i, t in enumerate(tensors):
            if not any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape)):
                t.fill_(i + 2)
            contents.append([one.float().tolist() for one in tensors])
    return contents


@pytest.mark.parametrize("way", WAYS)
def test_deep_copies_share_as_torchs(way, count=60):
    for seed in range(count):
        mine, theirs = (WAYS[way](group(lib, random.Random(seed))) for lib in (sl, torch))
        before = [t.float().tolist() for t in flat(mine)]
        copies, expected = flat(copy.deepcopy(mine)), flat(copy.deepcopy(theirs))
        assert [layout(t) for t in copies] == [layout(t) for t in expected], seed
        assert after_writes(sl, copies) == after_writes(torch, expected), seed
        assert [t.float().tolist() for t in flat(mine)] == before, seed  # the originals are as they were
    print(f"count: groups of tensors over shared memory, copied in a {way}: {count}")


def test_saved_tensors_share_as_torchs(count=40):
    ways = [way for way in SHARES if way != "as integers"]  # torch saves a memory with one dtype
    for seed in range(count):
        loaded = []
        for lib in (sl, torch):
            file = io.BytesIO()
            lib.save(group(lib, random.Random(seed), ways), file)
            file.seek(0)
            loaded.append(lib.load(file))
        assert [layout(t)[0] for t in loaded[0]] == [layout(t)[0] for t in loaded[1]]
        assert after_writes(sl, loaded[0]) == after_writes(torch, loaded[1]), seed


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("base", sl.ones(4))
        self.register_buffer("part", self.base[:2])
        self.register_buffer("same", self.base.detach())
        self.tied = self.linear.weight

    def forward(self, x):
        self.part.add_(1)
        return self.linear(x) * self.base


def test_modules_keep_their_buffers_together():
    copied = copy.deepcopy(Shared())
    copied.base.zero_()
    assert copied.part.tolist() == [0, 0] and copied.same.tolist() == [0] * 4
    assert copied.tied is copied.linear.weight and copied.part._base is copied.base
    for module in (Shared(), copy.deepcopy(Shared()), copy.deepcopy(copy.deepcopy(Shared()))):
        class Step(nn.Graph):
            def __init__(self):
                super().__init__()
                self.net = module

            def build(self, x):
                return self.net(x)

        step = Step()
        step(sl.ones(1, 4))
        step(sl.ones(1, 4))
        assert module.base.tolist() == [3, 3, 1, 1] and module.same.tolist() == [3, 3, 1, 1]


def test_a_gradient_keeps_to_its_memory():
    x = sl.ones(4, requires_grad=True)
    memory = sl.zeros(8)
    x.grad = memory[:4]
    copied, whole = copy.deepcopy([x, memory])
    whole.fill_(3)
    assert copied.grad.tolist() == [3] * 4 and copied.requires_grad and x.grad.tolist() == [0] * 4


def test_on_a_device_of_its_own():
    x = sl.arange(6, dtype=sl.float32).to("sim:0")
    whole, part = copy.deepcopy([x, x[2:]])
    whole.zero_()
    assert part.cpu().tolist() == [0] * 4 and str(part.device) == "sim:0" and x.cpu().tolist() == [0, 1, 2, 3, 4, 5]


def test_what_has_a_history_is_refused_as_torch_does():
    for lib in (sl, torch):
        x = lib.ones(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
            copy.deepcopy(x * 2)
        with lib.no_grad():
            view = x[1:]
        assert copy.deepcopy(view).tolist() == [1, 1]
    assert_same(copy.deepcopy(sl.ones(2)), torch.ones(2))
