"""torch.autograd's surface: passes, user functions, hooks, saved tensors, anomalies; torch is the oracle."""

import gc
import re
import weakref

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl

BOTH = pytest.mark.parametrize("lib", [sl, torch], ids=["sluice", "torch"])


def both(case):
    """Runs `case(lib)` with either library: nests of lists and numbers that must be equal."""
    ours, theirs = case(sl), case(torch)
    assert ours == pytest.approx(theirs) if isinstance(ours, list) and ours and isinstance(ours[0], float) else ours == theirs


def raises(case, kind=RuntimeError):
    """`case(lib)` raises `kind` in both libraries."""
    for lib in (sl, torch):
        with pytest.raises(kind) as error:
            case(lib)
    return str(error.value)


def leaf(lib, *values):
    return lib.tensor(values, dtype=lib.float64, requires_grad=True)


# backward() and grad()


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


# Modes


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


# User functions


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


# Hooks


def test_hooks_run_in_order_and_replace():
    def case(lib):
        seen, x = [], leaf(lib, 1.0, 2.0)
        y = x * 2
        first = y.register_hook(lambda g: seen.append(("first", g.tolist())))
        y.register_hook(lambda g: g * 10)
        y.register_hook(lambda g: seen.append(("last", g.tolist())))
        x.register_hook(lambda g: g + 1)
        y.retain_grad()
        x.retain_grad()
        seen += [y.retains_grad, x.retains_grad]
        y.sum().backward(retain_graph=True)
        seen += [x.grad.tolist(), y.grad.tolist()]
        with first:
            pass
        first.remove()
        y.sum().backward()
        return seen, x.grad.tolist(), y.grad.tolist()

    both(case)
    raises(lambda lib: lib.ones(2).register_hook(print))
    raises(lambda lib: lib.ones(2).retain_grad())

    def another_shape(lib):
        x = leaf(lib, 1.0, 2.0)
        x.register_hook(lambda g: lib.ones(3, dtype=lib.float64))
        (x * 2).sum().backward()

    raises(another_shape)

    def no_tensor(lib):
        x = leaf(lib, 1.0, 2.0)
        x.register_hook(lambda g: "text")
        (x * 2).sum().backward()

    assert "hook returned 'str'" in raises(no_tensor, TypeError)


@pytest.mark.parametrize("mode", ["all", "any"])
@pytest.mark.parametrize("only", [False, True])
def test_multi_grad_hooks_equal_torch(mode, only):
    def case(lib):
        seen, x, y, z = [], leaf(lib, 1.0), leaf(lib, 2.0), leaf(lib, 3.0)

        def hook(grads):
            seen.append(grads.tolist() if mode == "any" else [None if g is None else g.tolist() for g in grads])

        handle = lib.autograd.graph.register_multi_grad_hook((x, y, z), hook, mode=mode)
        for _ in range(2):
            (x * y if only else x * y * z).sum().backward()
            x.grad = y.grad = z.grad = None
        handle.remove()
        (x * y * z).sum().backward()
        return seen if mode == "all" else len(seen)

    both(case)
    raises(lambda lib: lib.autograd.graph.register_multi_grad_hook([leaf(lib, 1.0)], print, mode="some"), ValueError)


def test_nodes_can_be_walked():
    x = sl.ones(2, requires_grad=True)
    y = (x * 2).exp()
    node = y.grad_fn
    assert isinstance(node, sl.autograd.graph.Node) and node == y.grad_fn and len({node, y.grad_fn}) == 1
    (before, index), = [n for n in node.next_functions if n[0] is not None]
    assert before != node and index == 0 and "Accumulate" in [n for n, _ in before.next_functions if n][0].name()


# Saved tensors


def test_saved_tensors_hooks_see_and_give_back_what_is_saved():
    def case(lib):
        packed = []

        def pack(t):
            packed.append(t.tolist())
            return len(packed) - 1

        x = leaf(lib, 2.0, 3.0)
        with lib.autograd.graph.saved_tensors_hooks(pack, lambda i: lib.tensor(packed[i], dtype=lib.float64) * 10):
            y = x * x
        z = (y * y).sum()
        count = len(packed)
        (g,) = lib.autograd.grad(z, x, create_graph=True)
        (gg,) = lib.autograd.grad(g.sum(), x)
        return [packed, count, y.tolist(), g.tolist(), gg.tolist()]

    both(case)


def test_saved_tensors_hooks_nest_and_are_refused_where_disabled():
    def case(lib):
        seen, x = [], leaf(lib, 2.0)
        hooks = lib.autograd.graph.saved_tensors_hooks

        def note(name):
            return hooks(lambda t: (seen.append(name), t)[1], lambda t: t)

        with note("outer"):
            a = x.exp()
            with note("inner"):
                b = a.exp()
            c = b.exp()
        c.sum().backward()
        with lib.autograd.graph.save_on_cpu():
            (x * x * x).sum().backward()
        return seen, x.grad.tolist()

    both(case)

    def disabled(lib):
        with lib.autograd.graph.disable_saved_tensors_hooks("not here"):
            with lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass

    assert raises(disabled) == "not here"

    def unpacks(found):
        def case(lib):
            x = leaf(lib, 2.0)
            with lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: found):
                y = x.exp()
            y.sum().backward()

        return case

    raises(unpacks("text"), TypeError)
    with pytest.raises(RuntimeError, match="unpack gave float32.* for what exp has saved; must be float64"):
        unpacks(sl.ones(3))(sl)
    with pytest.raises(KeyError, match="lost"):
        with sl.autograd.graph.saved_tensors_hooks(lambda t: {}["lost"], lambda t: t):
            leaf(sl, 2.0).exp()
    assert (leaf(sl, 2.0) * 2).requires_grad


def test_packed_objects_die_with_the_tape():
    class Packed:
        def __init__(self, t):
            self.t = t

    alive = []

    def pack(t):
        made = Packed(t)
        alive.append(weakref.ref(made))
        return made

    x = sl.ones(2, requires_grad=True)
    with sl.autograd.graph.saved_tensors_hooks(pack, lambda p: p.t):
        y = x.exp()
        z = x.exp()
    assert len(alive) == 2 and all(r() is not None for r in alive)
    y.sum().backward()
    assert alive[0]() is None and alive[1]() is not None
    del z
    assert alive[1]() is None


# Anomalies


def test_detect_anomaly_names_the_line_of_the_forward_call():  # JAX-15, as far as gradients go
    x = sl.tensor([0.0, -1.0], requires_grad=True)
    with sl.autograd.detect_anomaly():
        y = (x * 2).sqrt() * 0  # here
        assert sl.autograd.is_anomaly_enabled()
        with pytest.raises(RuntimeError, match=r"Function 'sqrt' returned nan values in its 0th output; its forward call is at "
                                               r"test_autograd_api.py:\d+") as error:
            y.sum().backward()
    line = int(re.search(r"forward call is at .*?:(\d+)", str(error.value))[1])
    assert "# here" in open(__file__).read().splitlines()[line - 1]
    assert not sl.autograd.is_anomaly_enabled()
    (x * 2).sqrt().sum().backward()  # outside nothing is looked for
    with sl.autograd.set_detect_anomaly(True, check_nan=False):
        (x * 2).sqrt().sum().backward()
        assert not sl.autograd.is_anomaly_check_nan_enabled()


def test_detect_anomaly_explains_other_errors_too():
    x = sl.ones(2, requires_grad=True)
    with sl.autograd.set_detect_anomaly(True):
        y = x * 1
        z = y.exp() + y * y
        y.add_(1)
        with pytest.raises(RuntimeError, match=r"(?s)modified by an inplace operation.*in the gradient of mul: its forward call is at "
                                               r"test_autograd_api.py:\d+"):
            z.sum().backward()
    z = (x * x).sum()
    with sl.autograd.detect_anomaly():
        z.backward()
        with pytest.raises(RuntimeError, match="(?s)second time.*no line is known of its forward call"):
            z.backward()


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
