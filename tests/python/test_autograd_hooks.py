"""torch.autograd's hooks, nodes, saved tensors and anomalies; torch is the oracle."""

import re
import weakref

import pytest

import sluice as sl
from autograd_oracle import both, leaf, raises


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


def test_detect_anomaly_names_the_line_of_the_forward_call():  # JAX-15, as far as gradients go
    x = sl.tensor([0.0, -1.0], requires_grad=True)
    with sl.autograd.detect_anomaly():
        y = (x * 2).sqrt() * 0  # here
        assert sl.autograd.is_anomaly_enabled()
        with pytest.raises(RuntimeError, match=r"Function 'sqrt' returned nan values in its 0th output; its forward call is at "
                                               r"test_autograd_hooks.py:\d+") as error:
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
                                               r"test_autograd_hooks.py:\d+"):
            z.sum().backward()
    z = (x * x).sum()
    with sl.autograd.detect_anomaly():
        z.backward()
        with pytest.raises(RuntimeError, match="(?s)second time.*no line is known of its forward call"):
            z.backward()
