"""torch.amp.GradScaler, eager and in graphs; torch is the oracle."""

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


class Scaled(sl.nn.Graph):
    """How `build` trains a Linear with one optimizer or two."""

    def __init__(self, net, optimizers, scaler, way):
        super().__init__()
        self.net, self.optimizers, self.scaler, self.way = net, optimizers, scaler, way
        for optimizer in optimizers:
            self.add_optimizer(optimizer)
        self.set_grad_scaler(scaler)

    def build(self, x, factor):
        loss = (self.net(x) ** 2).mean() * factor
        if self.way == "automatic":
            loss.backward()
            return loss
        self.scaler.scale(loss).backward()
        for optimizer in self.optimizers:
            if self.way == "clipped":
                self.scaler.unscale_(optimizer)
                sl.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 0.5)
            self.scaler.step(optimizer)
        self.scaler.update()
        return loss


def made(lib, **options):
    net = lib.nn.Linear(4, 3)
    with lib.no_grad():
        net.weight.copy_(lib.arange(12.0).reshape(3, 4) / 12 - 0.4)
        net.bias.fill_(0.25)
    optimizers = [lib.optim.SGD([net.weight], lr=0.1, momentum=0.9), lib.optim.Adam([net.bias], lr=0.05)]
    return net, optimizers, lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3, **options)


FACTORS = [math.inf if i == 2 else math.nan if i == 7 else 1.0 for i in range(12)]


def torch_steps(net, optimizers, s, batches, clip=False):
    seen = []
    for x, factor in zip(batches, FACTORS):
        loss = (net(x) ** 2).mean() * factor
        for optimizer in optimizers:
            optimizer.zero_grad()
        s.scale(loss).backward()
        for optimizer in optimizers:
            if clip:
                s.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 0.5)
            s.step(optimizer)
        s.update()
        seen.append((loss.item(), s.get_scale()))
    return seen


@pytest.mark.parametrize("way", ["automatic", "explicit", "clipped"])
def test_graphs_leave_out_steps_that_overflow_as_torch_does(way):  # NG-27
    (net, optimizers, s), theirs = made(sl), made(torch)
    graph, batches = Scaled(net, optimizers, s, way), torch.randn(12, 5, 4)
    expected = torch_steps(*theirs, batches, way == "clipped")
    got, kept = [], []
    for x, factor in zip(batches, FACTORS):
        before = net.weight.tolist(), optimizers[1].state_dict()["state"].get(0, {}).get("step", sl.zeros(())).item()
        loss = graph(to_sl(x), sl.tensor(factor)).item()
        got.append((loss, s.get_scale()))
        kept.append(before == (net.weight.tolist(), optimizers[1].state_dict()["state"][0]["step"].item()))
    assert kept == [i in (2, 7) for i in range(12)]  # parameters and state of both
    assert [scale for _, scale in got] == [scale for _, scale in expected] and {scale for _, scale in got} == {4.0, 8.0}
    for (a, _), (b, _) in zip(got, expected):
        assert a == pytest.approx(b, rel=1e-5, nan_ok=True)
    for p, q in zip(net.parameters(), theirs[0].parameters()):
        assert_same(p, q)
    assert s.state_dict() == theirs[2].state_dict()
    assert graph._changes == 0


def test_one_scaler_serves_eager_steps_and_graphs_and_is_part_of_the_state():  # NG-27, NG-14
    (net, optimizers, s), theirs, batches = made(sl), made(torch), torch.randn(12, 5, 4)
    graph, seen = Scaled(net, optimizers, s, "automatic"), []
    for i, (x, factor) in enumerate(zip(batches, FACTORS)):
        if i % 3:
            graph(to_sl(x), sl.tensor(factor))
        else:
            loss = (net(to_sl(x)) ** 2).mean() * factor
            for optimizer in optimizers:
                optimizer.zero_grad()
            s.scale(loss).backward()
            for optimizer in optimizers:
                s.step(optimizer)
            s.update()
        seen.append(s.get_scale())
    assert seen == [scale for _, scale in torch_steps(*theirs, batches)]
    assert_same(net.weight, theirs[0].weight)
    again = Scaled(*made(sl), "automatic")
    state = graph.state_dict()
    again.load_state_dict(state)
    x = to_sl(batches[0])
    assert [graph(x, sl.tensor(f)).item() for f in FACTORS[:3]] == [again(x, sl.tensor(f)).item() for f in FACTORS[:3]]
    assert again.scaler.get_scale() == s.get_scale() and again.scaler.state_dict() == s.state_dict()


def test_static_scales_micro_batches_and_settings():  # NG-27
    net, optimizers, _ = made(sl)
    s = sl.amp.StaticGradScaler(16.0)
    graph = Scaled(net, optimizers, s, "automatic")
    graph.config.set_gradient_accumulation_steps(2)
    x = sl.randn(8, 4)
    before = net.weight.tolist()
    assert graph(x, sl.tensor(math.inf)).shape == (2,) and net.weight.tolist() == before and s.get_scale() == 16.0
    plain = made(sl)
    whole = Scaled(plain[0], plain[1], sl.amp.GradScaler(enabled=False), "automatic")
    graph(x, sl.tensor(1.0))
    whole(x, sl.tensor(1.0))
    assert_same(net.weight, torch.tensor(plain[0].weight.tolist()))
    s.set_growth_factor(4.0)  # a constant of the plan, which is made anew
    graph(x, sl.tensor(1.0))
    assert graph._changes == 1 and s.get_scale() == 16.0
    s.update(2.0)  # the scale is a variable
    graph(x, sl.tensor(1.0))
    assert graph._changes == 1 and s.get_scale() == 2.0


def test_a_scale_that_float16_has_not_is_a_float32():
    for lib in (torch, sl):
        loss = lib.tensor(2.0, dtype=lib.float16, requires_grad=True)
        scaled = lib.amp.GradScaler("cpu").scale(loss)
        assert scaled.dtype is lib.float32 and scaled.item() == 2.0**17


def test_misuse_in_graphs_is_refused():  # NG-27
    def refused(kind, text, build, scaler=None):
        class Wrong(sl.nn.Graph):
            def __init__(self):
                super().__init__()
                self.net, (self.optimizer, _), self.scaler = made(sl)
                self.add_optimizer(self.optimizer)
                self.set_grad_scaler(self.scaler)

        Wrong.build = build
        with pytest.raises(kind, match=text):
            Wrong()(sl.ones(1, 4))

    def loss(g, x):
        return g.net(x).sum()

    refused(RuntimeError, "scaled by backward.. already", lambda g, x: (loss(g, x).backward(), g.scaler.scale(loss(g, x)).backward())[0])
    refused(RuntimeError, "unscale_.. has already been called", lambda g, x: (loss(g, x).backward(), g.scaler.unscale_(g.optimizer),
                                                                              g.scaler.unscale_(g.optimizer))[0])
    refused(RuntimeError, "update: called twice", lambda g, x: (loss(g, x).backward(), g.scaler.step(g.optimizer), g.scaler.update(),
                                                                g.scaler.update())[0])
    refused(AssertionError, "No inf checks", lambda g, x: (loss(g, x).backward(), g.scaler.update())[0])
    refused(RuntimeError, "a step after update", lambda g, x: (loss(g, x).backward(), g.scaler.update(4.0))[0])
    refused(NotImplementedError, "does not have the scaler; .* set_grad_scaler", lambda g, x: scaler(sl).scale(loss(g, x)))
    graph = Scaled(*made(sl), "automatic")
    with pytest.raises(TypeError, match="set_grad_scaler: got int"):
        graph.set_grad_scaler(3)
    graph(sl.ones(1, 4), sl.ones(()))
    with pytest.raises(RuntimeError, match="set it before the first call"):
        graph.set_grad_scaler(scaler(sl))
