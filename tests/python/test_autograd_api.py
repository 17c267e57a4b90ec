"""torch.autograd's passes and modes; torch is the oracle."""

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from autograd_oracle import both, leaf, raises

BOTH = pytest.mark.parametrize("lib", [sl, torch], ids=["sluice", "torch"])


@pytest.mark.parametrize("inputs", [(0,), (1,), (0, 1)])
def test_backward_fills_the_given_inputs_alone(inputs):
    def case(lib):
        leaves = [leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)]
        y = (leaves[0] * leaves[1]).sum()
        for _ in range(2):
            lib.autograd.backward(y, inputs=[leaves[i] for i in inputs], retain_graph=True)
        y.backward(inputs=leaves[inputs[0]])
        return [None if t.grad is None else t.grad.tolist() for t in leaves]

    both(case)


def test_backward_of_several_outputs():
    def case(lib):
        x = leaf(lib, 1.0, 2.0, 3.0)
        lib.autograd.backward([x * 2, (x * x).sum()], [lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64), None])
        return x.grad.tolist()

    both(case)


def test_misuse_of_passes_is_refused_as_in_torch():
    raises(lambda lib: lib.autograd.backward(leaf(lib, 1.0), inputs=[]))
    raises(lambda lib: lib.autograd.grad(leaf(lib, 1.0) * 2, []))
    raises(lambda lib: lib.autograd.grad(leaf(lib, 1.0) * 2, leaf(lib, 1.0), allow_unused=False, materialize_grads=True), ValueError)
    raises(lambda lib: lib.autograd.grad(leaf(lib, 1.0, 2.0) * 2, leaf(lib, 1.0)))
    with pytest.raises(RuntimeError, match="got 1 tensors and 2 gradients"):
        sl.autograd.backward([leaf(sl, 1.0)], [sl.ones(1), sl.ones(1)])
    raises(lambda lib: (leaf(lib, 1.0, 2.0) * 2).backward(lib.ones(3, dtype=lib.float64)))
    raises(lambda lib: lib.autograd.grad(leaf(lib, 1.0, 2.0).sum(), lib.ones(2)))
    raises(lambda lib: leaf(lib, 1.0).detach().backward())
    raises(lambda lib: lib.ones(2, dtype=lib.int64).requires_grad_())
    raises(lambda lib: lib.tensor([1, 2], requires_grad=True))
    raises(lambda lib: leaf(lib, 1.0).add_(1))
    raises(lambda lib: leaf(lib, 1.0, 2.0)[0].mul_(2))
    raises(lambda lib: leaf(lib, 1.0, 2.0).view(2, 1).zero_())
    raises(lambda lib: (leaf(lib, 1.0) * 2).requires_grad_(False))
    raises(lambda lib: (leaf(lib, 1.0) * 2).backward("x"), TypeError)
    with pytest.raises(RuntimeError, match="only_inputs=False is not supported"):
        sl.autograd.grad(sl.ones(1, requires_grad=True) * 2, sl.ones(1), only_inputs=False)


def test_backward_twice_and_writes_to_saved_tensors():
    def twice(lib):
        y = (leaf(lib, 1.0, 2.0) ** 2).sum()
        y.backward()
        y.backward()

    assert "second time" in raises(twice)

    def written(lib):
        x = leaf(lib, 1.0, 2.0)
        y = x.exp()
        y.mul_(2) if lib is sl else y.mul_(2)
        z = y.exp()
        y.add_(1)
        w = z * y
        z.add_(1)
        w.sum().backward()

    assert "modified by an inplace operation" in raises(written)


@pytest.mark.parametrize("create_graph", [False, True])
def test_batched_gradients_equal_torch(create_graph):
    def case(lib):
        x, w = leaf(lib, 1.0, 2.0, 3.0), leaf(lib, 1.0, -1.0, 0.5)
        y = x * x * w
        rows = lib.arange(12, dtype=lib.float64).reshape(4, 3)
        gx, gw = lib.autograd.grad(y, (x, w), rows, is_grads_batched=True, create_graph=create_graph)
        found = [gx.tolist(), gw.tolist(), gx.requires_grad]
        if create_graph:
            (gx * gx).sum().backward()
            found += [x.grad.tolist(), w.grad.tolist()]
        unused = leaf(lib, 1.0)
        again = lib.autograd.grad(x * 2, (x, unused), rows, is_grads_batched=True, materialize_grads=True)
        return found, [tuple(g.shape) for g in again]

    both(case)


def test_double_gradient_through_a_penalty():  # PD-06
    def case(lib):
        x = leaf(lib, 1.0)
        y = x * x
        (dx,) = lib.autograd.grad(y, x, create_graph=True)
        (y + dx).backward()
        return x.grad.tolist()

    both(case)
    assert (lambda x: (sl.autograd.backward(x * x + sl.autograd.grad(x * x, x, create_graph=True)[0]), x.grad.item())[1])(
        leaf(sl, 1.0)) == 4


def test_wgan_gradient_penalty_through_convolutions_equals_torch():  # PD-07
    generator = torch.Generator().manual_seed(3)
    shapes = [(4, 3, 3, 3), (4,), (1, 4, 3, 3), (1,)]
    parts = [torch.randn(s, generator=generator) * 0.3 for s in shapes]
    real = torch.randn(2, 3, 6, 6, generator=generator)

    def step(lib, convert):
        ws = [convert(p).requires_grad_(True) for p in parts]
        x = convert(real).requires_grad_(True)
        F = lib.nn.functional
        y = F.conv2d(F.leaky_relu(F.conv2d(x, ws[0], ws[1], padding=1), 0.2), ws[2], ws[3]).sum()
        (g,) = lib.autograd.grad(y, x, create_graph=True)
        loss = y * 0.1 + ((g.reshape(2, -1).norm(dim=1) - 1) ** 2).mean()
        loss.backward()
        return [loss, *(w.grad for w in ws if w.grad is not None)]

    for ours, theirs in zip(step(sl, lambda t: to_sl(t)), step(torch, lambda t: t.clone()), strict=True):
        assert_same(ours, theirs, 1e-4)


def test_gradient_modes_restore_whatever_was_set_inside():
    def case(lib):
        seen = []
        with lib.no_grad():
            lib.set_grad_enabled(True)
            seen.append(lib.is_grad_enabled())
        seen.append(lib.is_grad_enabled())
        guard = lib.no_grad()
        with guard:
            with lib.enable_grad(), guard:
                seen.append(lib.is_grad_enabled())
            seen.append(lib.is_grad_enabled())
        seen.append(lib.is_grad_enabled())

        @lib.set_grad_enabled(False)
        def off():
            return lib.is_grad_enabled()

        seen += [lib.is_grad_enabled(), off(), lib.is_grad_enabled()]

        @lib.inference_mode(False)
        def on():
            return lib.is_grad_enabled()

        @lib.inference_mode
        def bare():
            return lib.is_grad_enabled()

        with lib.no_grad():
            seen.append(on())
        seen += [on(), bare(), lib.enable_grad()(lambda: lib.is_grad_enabled())()]
        previous = lib.is_grad_enabled()
        lib.set_grad_enabled(False)
        seen.append(lib.is_grad_enabled())
        lib.set_grad_enabled(previous)
        return seen

    both(case)


def test_generators_keep_their_own_gradient_mode():
    def case(lib):
        @lib.no_grad()
        def produce():
            seen = lib.is_grad_enabled()
            while True:
                try:
                    given = yield seen
                except ValueError:
                    given = "thrown"
                if given is None:
                    return "end"
                seen = (given, lib.is_grad_enabled())

        running = produce()
        found = [next(running), lib.is_grad_enabled(), running.send(1), running.throw(ValueError()), lib.is_grad_enabled()]
        try:
            running.send(None)
        except StopIteration as end:
            found.append(end.value)
        produce().close()
        return found

    both(case)
    raises(lambda lib: lib.set_grad_enabled("yes"), TypeError)


def test_variables_are_tensors():
    v = sl.autograd.Variable(sl.ones(2), requires_grad=True)
    assert v.requires_grad and isinstance(v, sl.autograd.Variable) and isinstance(v, sl.Tensor)
    with pytest.raises(AttributeError, match="use sluice.func.jvp"):
        sl.autograd.forward_ad


def test_generator_state_round_trips():
    sl.rand(3)
    state = sl.default_generator.get_state()
    first = [sl.rand(5).tolist(), sl.randn(3).tolist(), sl.nn.functional.dropout(sl.ones(20)).tolist()]
    sl.manual_seed(7)
    assert sl.default_generator.set_state(state) is sl.default_generator
    assert [sl.rand(5).tolist(), sl.randn(3).tolist(), sl.nn.functional.dropout(sl.ones(20)).tolist()] == first
    with pytest.raises(TypeError, match="must be a torch.ByteTensor"):
        sl.default_generator.set_state(sl.ones(3))
    with pytest.raises(RuntimeError, match="RNG state is wrong size: 3 bytes"):
        sl.default_generator.set_state(sl.ones(3, dtype=sl.uint8))
    with pytest.raises(RuntimeError, match="damaged"):
        sl.default_generator.set_state(sl.full(state.shape, 255, dtype=sl.uint8))
