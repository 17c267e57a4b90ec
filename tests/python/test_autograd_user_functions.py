"""torch.autograd.Function's surface, eager and in graphs; torch is the oracle."""

import gc

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from autograd_oracle import both, leaf, raises


def test_user_function_may_save_arguments_results_and_others():
    def case(lib):
        class Exp(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, scale):
                y = (x * scale).exp()
                ctx.save_for_backward(x, y, None)
                ctx.scale = scale
                return y

            @staticmethod
            def backward(ctx, g):
                x, y, nothing = ctx.saved_tensors
                assert nothing is None and ctx.needs_input_grad == (True, False)
                return g * y * ctx.scale, None

        x = leaf(lib, 0.5, -1.0)
        y = Exp.apply(x, 2.0)
        (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        (gg,) = lib.autograd.grad((g * g).sum(), x, create_graph=True)
        (ggg,) = lib.autograd.grad(gg.sum(), x)
        return [*g.tolist(), *gg.tolist(), *ggg.tolist()]

    both(case)


def test_user_function_dies_with_its_results():
    class Keep(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g

    gc.collect()
    x = sl.ones(1000, requires_grad=True)
    before = sl._C.eager_memory_stats()["current_bytes"]
    for _ in range(10):
        y = Keep.apply(x * 1)
        del y
    assert sl._C.eager_memory_stats()["current_bytes"] == before  # without the collector of cycles


def test_setup_context_and_several_results():
    def case(lib):
        class Split(lib.autograd.Function):
            @staticmethod
            def forward(x, n):
                return x * n, x.detach().clone(), (x > 0).sum(), "text"

            @staticmethod
            def setup_context(ctx, inputs, output):
                x, ctx.n = inputs
                ctx.mark_non_differentiable(output[1])
                ctx.save_for_backward(x)

            @staticmethod
            def backward(ctx, g, other, count, text):
                return g * ctx.n + (0 if other is None else other.sum()), None

        x = leaf(lib, 1.0, -2.0)
        a, b, count, text = Split.apply(x, 3)
        a.sum().backward()
        return [x.grad.tolist(), a.requires_grad, b.requires_grad, count.item(), text]

    both(case)


@pytest.mark.parametrize("materialize", [True, False])
def test_gradients_that_never_came(materialize):
    def case(lib):
        seen = []

        class Two(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialize)
                return x * 1, x * 2

            @staticmethod
            def backward(ctx, a, b):
                seen.append([None if g is None else g.tolist() for g in (a, b)])
                return a

        x = leaf(lib, 1.0)
        Two.apply(x)[0].sum().backward()
        return seen

    both(case)


@pytest.mark.parametrize("view", [False, True])
def test_mark_dirty_writes_in_place(view):
    def case(lib):
        class Twice(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                x.mul_(2)
                ctx.mark_dirty(x)
                return x

            @staticmethod
            def backward(ctx, g):
                return g * 2

        x = leaf(lib, 1.0, 2.0)
        y = x * x
        target = y[:1] if view else y
        made = Twice.apply(target)
        same = made is target or view
        (y * y).sum().backward()
        return [same, y.tolist(), x.grad.tolist()]

    both(case)

    def on_a_leaf(lib):
        class Write(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.mark_dirty(x.mul_(2))
                return x

            @staticmethod
            def backward(ctx, g):
                return g

        return Write.apply(leaf(lib, 1.0))

    assert "leaf Variable" in raises(on_a_leaf)


def function_returning(lib, found, saved=None):
    class Made(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, n=None):
            if saved:
                ctx.save_for_backward(saved)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return found(lib, g)

    return Made


@pytest.mark.parametrize("name, found", [
    ("too few", lambda lib, g: (g,)), ("too many", lambda lib, g: (g, None, g)), ("shape", lambda lib, g: (lib.ones(5), None)),
    ("for a number", lambda lib, g: (g, g))])
def test_wrong_gradients_of_user_functions_are_refused(name, found):
    raises(lambda lib: function_returning(lib, found).apply(leaf(lib, 1.0, 2.0), 3).sum().backward())


def test_gradients_of_user_functions_are_fitted():
    def case(lib):
        x = leaf(lib, 1.0, 2.0)
        function_returning(lib, lambda lib, g: (lib.ones(3, 2), None, None)).apply(x, 3).sum().backward()
        return x.grad.tolist(), str(x.grad.dtype)[-7:]

    both(case)


def test_user_functions_take_keywords():
    def case(lib):
        class Scale(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, scale=2, offset=None):
                ctx.save_for_backward(x)
                return x * scale + offset

            @staticmethod
            def backward(ctx, g, *rest):
                return g * 2, None, g * 5

        x, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)
        Scale.apply(x, offset=b, scale=2).sum().backward()
        return x.grad.tolist(), b.grad.tolist(), lib.autograd.grad(x.sum(), {"x": x})["x"].tolist()

    both(case)


def test_misuse_of_user_functions():
    def saved(lib):
        return function_returning(lib, None, saved=3).apply(leaf(lib, 1.0))

    assert "can only save variables" in raises(saved, TypeError)
    raises(lambda lib: lib.autograd.Function.apply(leaf(lib, 1.0)), NotImplementedError)
    raises(lambda lib: function_returning(lib, None)()(leaf(lib, 1.0)))

    def backward_missing(lib):
        class NoBackward(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

        NoBackward.apply(leaf(lib, 1.0)).sum().backward()

    raises(backward_missing, NotImplementedError)

    def written(lib):
        class Keeps(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * ctx.saved_tensors[0]

        x = leaf(lib, 1.0) * 1
        y = Keeps.apply(x)
        x.add_(1)
        y.sum().backward()

    assert "modified by an inplace operation" in raises(written)

    def not_returned(lib):
        class Lost(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.mark_dirty(x)
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g

        Lost.apply(leaf(lib, 1.0) * 1)

    raises(not_returned)


def test_once_differentiable_refuses_a_second_time():
    def case(lib):
        class Once(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @lib.autograd.function.once_differentiable
            def backward(ctx, g):
                return 2 * g * ctx.saved_tensors[0]

        x = leaf(lib, 3.0)
        (g,) = lib.autograd.grad((Once.apply(x) ** 2).sum(), x, create_graph=True)
        assert g.tolist() == [108]
        (g + x * g).sum().backward()

    assert "once_differentiable" in raises(case)


def test_user_functions_in_a_graph():
    class Cube(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x**3
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * 3 * y / x

    class Net(sl.nn.Graph):
        def build(self, x):
            x = x * 1
            x.requires_grad_(True)
            y = Cube.apply(x)
            (g,) = sl.autograd.grad(y.sum(), x, create_graph=True)
            (gg,) = sl.autograd.grad(g.sum(), x)
            return y, g, gg

    x = torch.tensor([1.0, 2.0, -3.0])
    for ours, theirs in zip(Net()(to_sl(x)), (x**3, 3 * x**2, 6 * x), strict=True):
        assert_same(ours, theirs)
