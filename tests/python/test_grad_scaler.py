"""torch.amp.GradScaler, eager; torch is the oracle."""

import math

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl


def scaler(lib, **options):
    return lib.amp.GradScaler("cpu", **options)


@pytest.mark.parametrize("clip", [False, True])
def test_training_with_overflows_equals_torch(clip):  # OE-24: an overflow is injected, its step skipped, the scale halved
    start = torch.tensor([1.0, -2.0, 3.0])

    def run(lib, w):
        optimizer = lib.optim.SGD([w], lr=0.1, momentum=0.9)
        s = scaler(lib, init_scale=8.0, growth_interval=3)
        seen = []
        for i in range(12):
            optimizer.zero_grad()
            loss = (w * w).sum() * (math.inf if i == 2 else math.nan if i == 7 else 1.0)
            s.scale(loss).backward()
            if clip:
                s.unscale_(optimizer)
                lib.nn.utils.clip_grad_norm_([w], 1.0)
            before = w.detach().clone()
            s.step(optimizer)
            s.update()
            seen.append((s.get_scale(), bool((w.detach() == before).all())))
        return w, seen, s.state_dict()

    ours, theirs = run(sl, to_sl(start).requires_grad_(True)), run(torch, start.clone().requires_grad_(True))
    assert_same(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]
    assert [skipped for _, skipped in ours[1]] == [i in (2, 7) for i in range(12)] and ours[1][2][0] == 4.0


def test_state_and_settings_round_trip():
    def case(lib):
        s = scaler(lib, init_scale=4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
        s.update(16.0)
        s.set_growth_interval(9)
        other = scaler(lib)
        other.load_state_dict(s.state_dict())
        assert other.get_growth_factor() == 3 and other.get_backoff_factor() == 0.25 and other.get_growth_interval() == 9
        x = lib.ones(2)
        scaled = [t.tolist() for t in s.scale([x, x * 2])]
        return s.state_dict(), other.state_dict() == s.state_dict(), scaled, scaler(lib, enabled=False).state_dict()

    def torchs(lib):  # torch's scale is not there before the first scale()
        s = scaler(lib, init_scale=4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
        s.scale(lib.ones(1))
        s.update(16.0)
        s.set_growth_interval(9)
        return s.state_dict()

    assert case(sl)[0] == torchs(torch) and case(sl)[1:] == (True, [[16.0, 16.0], [32.0, 32.0]], {})


def test_disabled_does_nothing():
    w = sl.ones(2, requires_grad=True)
    optimizer, s = sl.optim.SGD([w], lr=1.0), scaler(sl, enabled=False)
    loss = w.sum()
    assert s.scale(loss) is loss and not s.is_enabled() and s.get_scale() == 1.0
    loss.backward()
    s.unscale_(optimizer)
    s.step(optimizer)
    s.update()
    assert w.tolist() == [0, 0]


def test_misuse_is_refused_as_in_torch():
    def fails(kind, steps):
        for lib in (torch, sl):
            w = lib.ones(2, requires_grad=True)
            optimizer, s = lib.optim.SGD([w], lr=1.0), scaler(lib)
            s.scale(w.sum()).backward()
            with pytest.raises(kind):
                steps(lib, s, optimizer)

    fails(RuntimeError, lambda lib, s, o: (s.unscale_(o), s.unscale_(o)))
    fails(RuntimeError, lambda lib, s, o: (s.step(o), s.step(o)))
    fails(RuntimeError, lambda lib, s, o: (s.step(o), s.unscale_(o)))
    fails(RuntimeError, lambda lib, s, o: s.step(o, closure=lambda: 0))
    fails(AssertionError, lambda lib, s, o: s.update())
    fails(AssertionError, lambda lib, s, o: (o.zero_grad(), s.step(o)))
    fails(RuntimeError, lambda lib, s, o: s.load_state_dict({}))
    fails(ValueError, lambda lib, s, o: s.scale(3))
    fails(AssertionError, lambda lib, s, o: lib.amp.GradScaler("cpu", growth_factor=1.0))
    fails(AssertionError, lambda lib, s, o: lib.amp.GradScaler("cpu", backoff_factor=1.0))

    def half(lib, s, o):
        w = lib.ones(2, dtype=lib.float16, requires_grad=True)
        s.scale(w.sum()).backward()
        s.unscale_(lib.optim.SGD([w], lr=1.0))

    fails(ValueError, half)


def test_a_static_scale_stays():
    w = sl.ones(2, requires_grad=True)
    optimizer, s = sl.optim.SGD([w], lr=1.0), sl.amp.StaticGradScaler(4.0)
    for factor in (1.0, math.inf):
        optimizer.zero_grad()
        (s.scale(w.sum()) * factor).backward()
        s.step(optimizer)
        s.update()
        assert w.tolist() == [0, 0] and s.get_scale() == 4.0
    with pytest.raises(ValueError, match="scale_factor is 0; must be > 0"):
        sl.amp.StaticGradScaler(0)


def test_what_there_is_not_says_what_to_do():
    class Scale(sl.nn.Graph):
        def build(self, x):
            return scaler(sl).scale(x)

    with pytest.raises(NotImplementedError, match="GradScaler.scale: in a graph"):
        Scale()(sl.ones(2))
    with pytest.raises(AttributeError, match=r"'custom_fwd': cast in forward"):
        sl.amp.custom_fwd
