"""torch.utils.checkpoint: the same gradients in less memory; torch is the oracle."""

import contextlib
import gc

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from checkpointed import BOTH_KINDS, block, pair


def live_bytes():
    return sl._C.eager_memory_stats()["current_bytes"]


@BOTH_KINDS
@pytest.mark.parametrize("preserve", [True, False])
def test_gradients_equal_those_without(use_reentrant, preserve):
    ours, theirs = pair(lambda lib: lib.nn.Sequential(block(lib), block(lib)))
    x = torch.randn(4, 16)

    def run(lib, net, x):
        x = x.requires_grad_(True)
        y = lib.utils.checkpoint.checkpoint(net[0], x, use_reentrant=use_reentrant, preserve_rng_state=preserve)
        lib.utils.checkpoint.checkpoint(lambda a, b: net[1](a) * b, y, 3, use_reentrant=use_reentrant).square().sum().backward()
        return [x.grad, *(p.grad for p in net.parameters())]

    for a, b in zip(run(sl, ours, to_sl(x)), run(torch, theirs, x.clone()), strict=True):
        assert_same(a, b)


@BOTH_KINDS
def test_it_saves_memory_for_real(use_reentrant):
    sl.manual_seed(0)
    layers = [sl.nn.Sequential(*block(sl, 32), *block(sl, 32)) for _ in range(8)]
    x = sl.randn(256, 32, requires_grad=True)

    def kept(run):
        gc.collect()
        before, y = live_bytes(), x
        for layer in layers:
            y = run(layer, y)
        return live_bytes() - before, y.sum()

    plain, loss = kept(lambda layer, y: layer(y))
    loss.backward()
    expected = [p.grad.tolist() for layer in layers for p in layer.parameters()]
    del loss
    for layer in layers:
        layer.zero_grad()
    less, loss = kept(lambda layer, y: sl.utils.checkpoint.checkpoint(layer, y, use_reentrant=use_reentrant))
    assert less <= 0.35 * plain, (less, plain)  # of 4 activations a layer, one is kept, and a generator's state
    loss.backward()
    assert [p.grad.tolist() for layer in layers for p in layer.parameters()] == expected


def test_nested_regions_keep_less_still():
    layers = [block(sl, 32) for _ in range(8)]
    check = sl.utils.checkpoint.checkpoint

    def halves(part):
        def run(y):
            for layer in part:
                y = check(layer, y, use_reentrant=False)
            return y

        return run

    def run(nested):
        gc.collect()
        x = sl.ones(256, 32, requires_grad=True)
        before = live_bytes()
        if nested:
            y = check(halves(layers[4:]), check(halves(layers[:4]), x, use_reentrant=False), use_reentrant=False)
        else:
            y = halves(layers)(x)
        kept, loss = live_bytes() - before, y.sum()
        del y
        loss.backward()
        return kept, x.grad.tolist()

    flat, expected = run(False)
    less, found = run(True)
    assert less < 0.5 * flat and found == expected


@BOTH_KINDS
def test_random_numbers_are_those_of_the_first_time(use_reentrant):
    seen = []

    def noisy(x):
        y = sl.nn.functional.dropout(x, 0.5) * sl.rand(64)
        seen.append(y.tolist())
        return y.exp()

    x = sl.ones(64, requires_grad=True)
    sl.manual_seed(3)
    y = sl.utils.checkpoint.checkpoint(noisy, x, use_reentrant=use_reentrant, early_stop=False)
    following = sl.rand(4).tolist()
    sl.manual_seed(3)
    sl.rand(2)
    state = sl.default_generator.get_state()
    y.sum().backward()
    assert seen[0] == seen[1]
    assert sl.default_generator.get_state().equal(state)  # as if nothing had been drawn
    sl.manual_seed(3)
    noisy(sl.ones(64))
    assert sl.rand(4).tolist() == following


def test_what_passes_may_ask_of_a_region():
    def run(lib):
        x = lib.tensor([0.5, -1.0], dtype=lib.float64, requires_grad=True)
        w = lib.tensor([2.0, 3.0], dtype=lib.float64, requires_grad=True)
        unused = lib.ones(1, requires_grad=True)

        def f(x, *, scale):
            return {"y": (x * w).sin() * scale, "n": 3}

        made = lib.utils.checkpoint.checkpoint(f, x, scale=w, use_reentrant=False)
        assert made["n"] == 3
        y = made["y"].sum()
        g = lib.autograd.grad(y, (x, w, unused), create_graph=True, allow_unused=True)
        assert g[2] is None
        second = lib.autograd.grad(g[0].sum(), (x, w), retain_graph=True)
        y.backward(retain_graph=True)
        y.backward()
        return [*g[:2], *second, x.grad, w.grad]

    for a, b in zip(run(sl), run(torch), strict=True):
        assert_same(a, b, 1e-9)


def test_only_parameters_require_gradients():
    net = block(sl)
    x = sl.ones(2, 16)
    y = sl.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
    y.sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not sl.utils.checkpoint.checkpoint(net, x, use_reentrant=True).requires_grad
    with sl.no_grad():
        assert not sl.utils.checkpoint.checkpoint(net, x.requires_grad_(True), use_reentrant=False).requires_grad


def test_it_stops_as_soon_as_it_has_what_is_read():
    calls = []

    def f(x):
        y = x.exp()
        calls.append("after exp")
        return y + 1

    for early_stop, setting, expected in ((True, None, 1), (False, None, 2), (True, False, 2)):
        calls.clear()
        x = sl.ones(3, requires_grad=True)
        with sl.utils.checkpoint.set_checkpoint_early_stop(setting):
            sl.utils.checkpoint.checkpoint(f, x, use_reentrant=False, early_stop=early_stop).sum().backward()
        assert len(calls) == expected and x.grad.allclose(x.exp())


def test_contexts_run_around_both():
    seen = []

    @contextlib.contextmanager
    def note(name):
        seen.append(name)
        yield
        seen.append("end of " + name)

    x = sl.ones(3, requires_grad=True)
    y = sl.utils.checkpoint.checkpoint(lambda x: x.exp() * 2, x, use_reentrant=False, context_fn=lambda: (note("first"), note("again")))
    y.sum().backward()
    assert seen == ["first", "end of first", "again"] or seen == ["first", "end of first", "again", "end of again"]


def test_a_function_that_does_something_else_is_refused():
    def changing(second):
        calls = []

        def f(x):
            calls.append(1)
            return x.exp() if len(calls) == 1 else second(x)

        return f

    def run(lib, second, **options):
        x = lib.ones(3, requires_grad=True)
        y = lib.utils.checkpoint.checkpoint(changing(second), x, use_reentrant=False, **options)
        y.sum().backward()

    for lib in (sl, torch):
        with pytest.raises(lib.utils.checkpoint.CheckpointError, match="different number of tensors"):
            run(lib, lambda x: x + 1)
        with pytest.raises(lib.utils.checkpoint.CheckpointError, match="different metadata"):
            run(lib, lambda x: x[:2].exp())
        with pytest.raises(KeyError, match="lost"):
            run(lib, lambda x: {}["lost"])
    with sl.utils.checkpoint.set_checkpoint_debug_enabled(True):
        with pytest.raises(RuntimeError, match=r"(?s)saved: \['float32\[3\] on cpu:0'\].*recomputed: \[\]"):
            run(sl, lambda x: x + 1)
    with pytest.raises(RuntimeError, match="unpack gave"):
        run(sl, lambda x: x[:2].exp(), determinism_check="none")
    with pytest.raises(sl.utils.checkpoint.CheckpointError, match="saved float32.3. on cpu:0, recomputed float32.. on cpu:0"):
        run(sl, lambda x: x * 2 + 1)


def test_arguments_written_since_are_refused():
    x = sl.ones(3, requires_grad=True)
    a = x * 1
    y = sl.utils.checkpoint.checkpoint(lambda a: a.exp(), a, use_reentrant=False)
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_misuse_is_refused():
    x = sl.ones(3, requires_grad=True)
    check = sl.utils.checkpoint.checkpoint
    with pytest.raises(ValueError, match="Unexpected keyword arguments: scale"):
        check(lambda x, scale: x, x, scale=3, use_reentrant=True)
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        check(lambda x: x, x, use_reentrant=True, debug=True)
    with pytest.raises(ValueError, match="determinism_check should be one of"):
        check(lambda x: x, x, determinism_check="some")
    y = check(lambda x: x.exp(), x, use_reentrant=True)
    for ask in (lambda: sl.autograd.grad(y.sum(), x, retain_graph=True), lambda: y.sum().backward(inputs=[x], retain_graph=True)):
        with pytest.raises(RuntimeError, match=r"incompatible with .grad\(\)"):
            ask()
    with pytest.raises(RuntimeError, match="none of output has requires_grad=True"):
        check(lambda x: x.detach() * 2, x, use_reentrant=True).sum().backward()
    with pytest.raises(RuntimeError, match="Only tuple of tensors"):
        sl.utils.checkpoint.detach_variable([x])


@BOTH_KINDS
@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequences_equal_torch(use_reentrant, segments):
    ours, theirs = pair(lambda lib: lib.nn.Sequential(*(lib.nn.Linear(4, 4) for _ in range(5))))
    x = torch.randn(3, 4)

    def run(lib, net, x):
        x = x.requires_grad_(True)
        y = lib.utils.checkpoint.checkpoint_sequential(net, segments, x, use_reentrant=use_reentrant)
        (y * y).sum().backward()
        return [y, x.grad, *(p.grad for p in net.parameters())]

    for a, b in zip(run(sl, ours, to_sl(x)), run(torch, theirs, x.clone()), strict=True):
        assert_same(a, b)
    with pytest.raises(ValueError, match="segments is 9"):
        sl.utils.checkpoint.checkpoint_sequential(ours, 9, to_sl(x))
    with pytest.raises(ValueError, match="Unexpected keyword arguments: other"):
        sl.utils.checkpoint.checkpoint_sequential(ours, 2, to_sl(x), other=1)
