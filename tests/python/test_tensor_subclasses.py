"""Subclasses of Tensor: as_subclass, and __torch_function__ of methods and operators, as torch has them."""

import copy

import pytest
import torch

import sluice as sl
from sluice._tensor.subclasses import DisableTorchFunctionSubclass


def classes(lib, disable):
    class Base(lib.Tensor):
        calls = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func.__name__)
            with disable():
                out = func(*args, **(kwargs or {}))
            return out.as_subclass(cls) if func in (lib.Tensor.clone, lib.Tensor.mul) and isinstance(out, lib.Tensor) else out

    class Named(Base):
        def __new__(cls, data, *, tag):
            made = lib.as_tensor(data).as_subclass(cls)
            made.tag = tag
            return made

    return Base, Named


BOTH = [(sl, DisableTorchFunctionSubclass), (torch, torch._C.DisableTorchFunctionSubclass)]


def test_methods_and_operators_ask_the_class():
    told = []
    for lib, disable in BOTH:
        base, named = classes(lib, disable)
        t = named([1.0, -2.0], tag="mine")
        assert type(t) is named and t.tag == "mine" and isinstance(t, lib.Tensor)
        results = [t + 1, 1 + t, t.clone(), t.mul(2), t.abs(), t[0], t.sum(), t.view(2, 1), -t, t == 1, lib.ones(2) * t, t.unbind()]
        told.append([(type(r) is named, r.tolist()) if isinstance(r, lib.Tensor) else [type(one) is named for one in r] for r in results])
        base.calls.clear()
        t.abs(), t.clone(), t.sum()
        assert base.calls == ["abs", "clone", "sum"]
    assert told[0] == told[1]


def test_values_are_shared_and_gradients_pass():
    for lib, disable in BOTH:
        _, named = classes(lib, disable)
        x = lib.zeros(2)
        t = x.as_subclass(named)
        x[0] = 5
        assert t.tolist() == [5, 0]
        assert t.as_subclass(lib.Tensor).tolist() == [5, 0] and type(t.as_subclass(lib.Tensor)) is lib.Tensor
        leaf = lib.ones(2, requires_grad=True)
        ((leaf * 3).as_subclass(named) * 2).sum().backward()
        assert leaf.grad.tolist() == [6, 6]
        asked = named([1.0], tag="n").requires_grad_(True)
        assert asked.requires_grad and not x.requires_grad


def test_a_class_may_leave_a_call_to_another():
    for lib in (sl, torch):
        class Silent(lib.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return NotImplemented

        with pytest.raises(TypeError, match="(?i)no implementation found for|multiple dispatch failed for"):
            lib.ones(2).as_subclass(Silent).abs()


def test_functions_compute_with_plain_tensors():
    _, named = classes(sl, DisableTorchFunctionSubclass)
    t = named([1.0, -2.0], tag="mine")
    assert type(sl.relu(t)) is sl.Tensor and sl.relu(t).tolist() == [1, 0]

    class Net(sl.nn.Graph):
        def build(self, x):
            return x * 2

    assert Net()(t).tolist() == [2, -4]


def test_copies_are_of_the_class():
    class Plain(sl.Tensor):
        pass

    t = sl.ones(2).as_subclass(Plain)
    assert type(copy.deepcopy(t)) is Plain and type(copy.copy(t)) is Plain and repr(t) == "Plain([1., 1.])"
    made = sl.Tensor._make_subclass(Plain, sl.ones(2), True)
    assert type(made) is Plain and made.requires_grad


@pytest.mark.parametrize("cls", [int, 3, object, "Tensor"])
def test_what_is_no_subclass_is_refused(cls):
    with pytest.raises(TypeError, match="as_subclass: cls: .*; must be a subclass of Tensor"):
        sl.ones(2).as_subclass(cls)
