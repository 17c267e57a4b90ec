"""States of modules: what loads, of torch and NumPy too, what is refused, and files."""

import io
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn
from module_pairs import both, net, pair

pytestmark = pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning",
                                        "ignore:Initializing zero-element tensors:UserWarning")


def test_messages_of_load_state_dict_are_torchs():  # TV-05
    theirs, ours = pair(net)
    state = theirs.state_dict()
    changes = [{}, {"0.weight": None}, {"extra": torch.ones(1)}, {"0.weight": torch.ones(5, 2), "1.0.running_mean": torch.ones(4)},
               {"1.0.num_batches_tracked": None, "1.0.more": torch.ones(1), "2.bias": torch.ones(2)}, {"0.weight": "x"},
               {"1.0.running_mean": None, "0.nope.deeper": torch.ones(1), "2": torch.ones(1)}, {"1.0.num_batches_tracked": torch.tensor([3])}]
    for change in changes:
        given = OrderedDict(state)
        for name, value in change.items():
            given.pop(name, None)
            if value is not None:
                given[name] = value
        mine = OrderedDict((n, v.numpy() if isinstance(v, torch.Tensor) else v) for n, v in given.items())
        for strict in (True, False):
            outcomes = []
            for m, s in ((theirs, given), (ours, mine)):
                try:
                    outcomes.append(repr(m.load_state_dict(s, strict=strict)))
                except RuntimeError as error:
                    outcomes.append(str(error))
            assert outcomes[0].replace("torch.", "sluice.") == outcomes[1]
    assert_same(ours[1][0].num_batches_tracked, theirs[1][0].num_batches_tracked)
    for m in (theirs, ours):
        with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got <class 'int'>."):
            m.load_state_dict(3)


def test_states_of_torch_and_numpy_load():  # OE-09
    theirs, ours = pair(net)
    with torch.no_grad():
        for p in theirs.parameters():
            p.normal_()
    other = dict(theirs.named_parameters()) | dict(theirs.named_buffers())  # that require gradients
    halves = {n: v.double() for n, v in theirs.state_dict().items()}
    for state in ({n: v.numpy() for n, v in theirs.state_dict().items()}, theirs.state_dict(), other, halves):
        ours.load_state_dict(net(nn).state_dict())
        weight = ours[0].weight
        assert repr(ours.load_state_dict(state)) == "<All keys matched successfully>"
        assert ours[0].weight is weight
        a, x = both((3, 2))
        assert_same(ours.eval()(x), theirs.eval()(a))


NETS = Path(__file__).resolve().parents[2] / "benchmarks/gpu"


@pytest.mark.skipif(not NETS.exists(), reason="the benchmarks are not here")
def test_numpy_weights_of_a_resnet101(monkeypatch):  # OE-09
    monkeypatch.syspath_prepend(NETS)
    from nets import resnet50  # of any depth
    from sklearn.datasets import load_sample_image

    theirs, ours = (resnet50(lib, (3, 4, 23, 3), 64, 1000).eval() for lib in (torch, sl))
    ours.load_state_dict({n: v.numpy() for n, v in theirs.state_dict().items()})
    image = torch.from_numpy(load_sample_image("china.jpg")[:448:2, :448:2].transpose(2, 0, 1)[None] / np.float32(255)).float()
    with torch.no_grad(), sl.no_grad():
        b, y = theirs(image), ours(to_sl(image))
    assert_same(y / y.abs().max(), b / b.abs().max(), 1e-4)
    assert y.argmax().item() == b.argmax().item()


def test_states_of_bfloat16_load():
    theirs, ours = torch.nn.Linear(3, 4).bfloat16(), nn.Linear(3, 4).bfloat16()
    ours.load_state_dict(theirs.state_dict())
    assert_same(ours.float().weight, theirs.float().weight, 0)
    with pytest.raises(RuntimeError, match="an exception occurred|expected sluice.Tensor"):
        ours.load_state_dict({"weight": [[1.0] * 3] * 4, "bias": np.array(["a"] * 4)})


def test_assignment_of_states():
    for m, lib in zip(pair(net), (torch, sl)):
        N = lib.nn
        state = {n: v.double() if v.is_floating_point() else v for n, v in m.state_dict().items()}
        state["0.bias"] = own = N.Parameter(state["0.bias"])
        m[0].weight.requires_grad_(False), m[0].bias.requires_grad_(False)
        m.load_state_dict(state, assign=True)
        assert m[0].weight.dtype is lib.float64 and isinstance(m[0].weight, N.Parameter) and not m[0].weight.requires_grad
        assert m[0].bias is own and not own.requires_grad and m[1][0].running_mean is state["1.0.running_mean"]
        assert m[2].weight.requires_grad


def extra(N, log):
    class Extra(N.Module):
        def __init__(self):
            super().__init__()
            self.w = N.Parameter(N.Linear(1, 1).bias.detach())
            self.n = 0

        def get_extra_state(self):
            return {"n": self.n}

        def set_extra_state(self, state):
            self.n = state["n"]

    made = N.Sequential(Extra(), N.Linear(1, 1))
    made.register_state_dict_pre_hook(lambda m, prefix, keep: log.append(("pre", prefix, keep)))
    made.register_state_dict_post_hook(lambda m, state, prefix, local: state.update(added=3))
    made[1].register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: log.append(("load", type(m).__name__, prefix, sorted(state))))
    made[1].register_load_state_dict_post_hook(lambda m, keys: log.append(("after", tuple(keys.missing_keys))))
    made.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.remove("added"))
    return made


def test_extra_state_and_hooks_of_states():
    logs = [], []
    theirs, ours = extra(torch.nn, logs[0]), extra(nn, logs[1])
    for m, log in zip((theirs, ours), logs):
        m[0].n = 7
        state = m.state_dict()
        log.append(list(state))
        assert state["0._extra_state"] == {"n": 7} and state._metadata[""] == {"version": 1}
        m[0].n = 0
        m.load_state_dict(state)
        assert m[0].n == 7
        del state["0._extra_state"], state["1.bias"]
        with pytest.raises(RuntimeError, match='Missing key.*"0._extra_state", "1.bias"'):
            m.load_state_dict(state)
        with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
            m.register_state_dict_post_hook(lambda m, state, *_: state)
            m.state_dict()
        m.register_load_state_dict_post_hook(lambda m, keys: 3)
        with pytest.raises(AssertionError, match="are not expected to return new values"):
            m.load_state_dict(state, strict=False)
    assert logs[0] == logs[1]
    plain = nn.Linear(1, 1)
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        assert list(plain.state_dict({}, "p.", True)) == ["p.weight", "p.bias"]
    assert plain.state_dict(keep_vars=True)["weight"] is plain.weight and not plain.state_dict()["weight"].requires_grad
    with pytest.raises(RuntimeError, match='Unexpected key.*"_extra_state"'):
        plain.load_state_dict({**plain.state_dict(), "_extra_state": 1})


def test_batch_norm_states_keep_counts():  # TV-05
    theirs, ours = pair(lambda N: N.Sequential(N.Conv2d(1, 2, 1), N.BatchNorm2d(2)))
    a, x = both((2, 1, 3, 3))
    for _ in range(3):
        theirs(a), ours(x)
    for (n, p), (k, q) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert n == k
        assert_same(p, q)
    assert ours.state_dict()["1.num_batches_tracked"].item() == 3
    again = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    assert again.load_state_dict(ours.state_dict(), strict=False).missing_keys == []
    assert again[1].num_batches_tracked.item() == 3 and sl.equal(again.eval()(x), ours.eval()(x))


def test_states_go_through_files():
    m = net(nn)
    file = io.BytesIO(pickle.dumps(m.state_dict()))
    other = net(nn)
    other.load_state_dict(pickle.load(file))
    x = sl.randn(3, 2)
    assert sl.equal(m.eval()(x), other.eval()(x))
