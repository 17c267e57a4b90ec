"""The Python object of a tensor is one, whichever way it comes from, and keeps what it was: attributes, class, identity."""

import gc
import weakref

import pytest
import torch

import sluice as sl
import sluice.nn as nn


def trained(lib):
    p = lib.ones(3, requires_grad=True)
    (p * 2).sum().backward()
    return p


def saved_of(lib, x):
    seen = []

    class Twice(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.extend(ctx.saved_tensors)
            return grad * 2

    Twice.apply(x).sum().backward()
    return seen[0]


def accumulated(lib):
    seen, p = [], lib.ones(2, requires_grad=True)
    p.register_post_accumulate_grad_hook(seen.append)
    p.sum().backward()
    return seen[0] is p


def momentum(lib):
    p = nn.Parameter(lib.ones(2)) if lib is sl else torch.nn.Parameter(lib.ones(2))
    optimizer = lib.optim.SGD([p], 0.1, momentum=0.9)
    p.sum().backward()
    optimizer.step()
    return optimizer.state[p]["momentum_buffer"] is optimizer.state[p]["momentum_buffer"]


# Whether two ways to a tensor lead to one object.
SAME = {
    "a gradient": lambda m: (p := trained(m)).grad is p.grad,
    "a gradient that was set": lambda m: setattr(p := m.ones(2), "grad", g := m.zeros(2)) or p.grad is g,
    "a retained gradient": lambda m: (y := (x := m.ones(2, requires_grad=True)) * 2).retain_grad() or y.sum().backward() or y.grad is y.grad,
    "data": lambda m: (x := m.ones(2)).data is x.data,
    "detach": lambda m: (x := m.ones(2)).detach() is x,
    "a base": lambda m: (x := m.ones(3))[1:]._base is x,
    "the base of a view of a view": lambda m: (x := m.ones(3))[1:][:1]._base is x,
    "no base": lambda m: m.ones(3)._base is None,
    "grad_fn": lambda m: (y := m.ones(2, requires_grad=True) * 2).grad_fn is y.grad_fn,
    "next_functions": lambda m: (z := (y := m.ones(2, requires_grad=True) * 2) * 2).grad_fn.next_functions[0][0] is y.grad_fn,
    "a leaf's saved tensor": lambda m: saved_of(m, x := m.ones(2, requires_grad=True)) is x,
    "a result's saved tensor": lambda m: saved_of(m, x := m.ones(2, requires_grad=True) * 2) is x,
    "what a hook gets": accumulated,
    "to": lambda m: (x := m.ones(2)).to(m.float32) is x, "cpu": lambda m: (x := m.ones(2)).cpu() is x,
    "float": lambda m: (x := m.ones(2)).float() is x, "contiguous": lambda m: (x := m.ones(2)).contiguous() is x,
    "in place": lambda m: (x := m.ones(2)).mul_(2) is x, "requires_grad_": lambda m: (x := m.ones(2)).requires_grad_() is x,
    "view_as": lambda m: (x := m.ones(2)).view_as(x) is x, "clone": lambda m: (x := m.ones(2)).clone() is x,
    "out": lambda m: m.add(m.ones(2), 1, out=(x := m.zeros(2))) is x,
    "a parameter": lambda m: (n := m.nn.Linear(2, 2)).weight is n.weight and next(n.parameters()) is n.weight,
    "optimizer state": momentum,
}


@pytest.mark.parametrize("way", SAME)
def test_objects_are_one_where_torchs_are(way):
    if way == "a result's saved tensor":  # torch keeps the object; here a function gets its history anew
        assert SAME[way](torch)
        return
    assert bool(SAME[way](sl)) == bool(SAME[way](torch))


@pytest.mark.parametrize("lib", [sl, torch])
def test_attributes_outlive_the_object(lib):
    p = trained(lib)
    p.grad.tag = "mine"
    gc.collect()
    assert p.grad.tag == "mine"
    p.grad.tag, p.grad.other = "changed", [1]
    gc.collect()
    assert p.grad.tag == "changed" and p.grad.other == [1]
    (p * 3).sum().backward()  # adds to it in place
    assert p.grad.tag == "changed" and p.grad.tolist() == [5, 5, 5]
    view = lib.ones(3)[1:]
    view._base.tag = 3
    gc.collect()
    assert view._base.tag == 3
    p.grad = None
    (p * 2).sum().backward()
    assert not hasattr(p.grad, "tag")


@pytest.mark.parametrize("lib", [sl, torch])
def test_the_class_outlives_the_object(lib):
    class Mine(lib.Tensor):
        pass

    p = lib.ones(2, requires_grad=True)
    p.grad = lib.zeros(2).as_subclass(Mine) if lib is torch else Mine(lib.zeros(2))
    gc.collect()
    assert type(p.grad) is Mine and p.grad is p.grad
    base = lib.nn.Parameter(lib.ones(3))
    with lib.no_grad():
        view = base[1:]
    base.tag = 1
    del base
    gc.collect()
    assert isinstance(view._base, lib.nn.Parameter) and view._base.tag == 1


def test_an_object_that_gets_other_memory_stays_the_one_of_its_tensor():
    p = trained(sl)
    grad = p.grad
    p.data = sl.zeros(3)
    assert p.grad is grad and p.tolist() == [0, 0, 0]
    x = sl.ones(2, 3)
    x.t_()
    assert x.shape == (3, 2) and x.contiguous().shape == (3, 2)
    x.tag = 1
    y = x[0]
    del x
    assert y._base.shape == (2, 3)


def test_what_is_dropped_is_let_go():
    class Payload:
        pass

    p = trained(sl)
    p.grad.payload = Payload()
    held = weakref.ref(p.grad.payload)
    gc.collect()
    assert held() is not None
    p.grad = None
    assert held() is None

    p = trained(sl)
    p.grad.payload = Payload()
    held = weakref.ref(p.grad.payload)
    del p
    assert held() is None

    x = sl.ones(2)
    x.payload, x.me = Payload(), x  # a cycle
    held = weakref.ref(x.payload)
    del x
    gc.collect()
    assert held() is None

    y = sl.ones(2, requires_grad=True) * 2
    node = weakref.ref(y.grad_fn)
    assert node() is None  # the object of a node holds the node, and nobody holds the object


def test_objects_do_not_pile_up():
    p = sl.ones(3, requires_grad=True)

    def step():
        p.grad = None
        (p * 2).sum().backward()
        p.grad.tag = [1]
        for hook in (p.register_hook(lambda g: g * 1),):
            (p * 2).sum().backward()
            hook.remove()
        return p.grad.tag

    for _ in range(20):
        step()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(500):
        step()
    gc.collect()
    assert len(gc.get_objects()) < before + 50


def test_tensors_end_on_threads_without_python():
    """A graph's thread may drop the last of a tensor whose object was dropped before."""
    import threading

    def work():
        for _ in range(200):
            p = trained(sl)
            p.grad.tag = object()
            q = (p.grad * p).sum()
            del p
            q.item()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
