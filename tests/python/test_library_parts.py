"""sluice.library: libraries, kernels of kinds of devices, autocast, and opcheck."""

import itertools

import pytest
import torch

import sluice as sl
from sluice.library import custom_op, opcheck
from library_ops import cube_of, name, plain, run_in_graph


def test_ops_by_schema_and_impl():
    qualified = name()
    for lib in (sl, torch):
        lib.library.define(qualified, "(Tensor x, int n=2) -> Tensor")
        lib.library.impl(qualified, "cpu", lambda x, n=2: x * n)
        lib.library.register_fake(qualified, lambda x, n=2, lib=lib: lib.empty_like(x))
        lib.library.register_autograd(qualified, lambda ctx, g: (g * 7, None))
        op = getattr(lib.ops.testlib, qualified.split("::")[1])
        x = lib.ones(2, requires_grad=True)
        op(x, 5).sum().backward()
        assert op(x).tolist() == [2, 2] and op.default(x, n=3).tolist() == [3, 3] and x.grad.tolist() == [7, 7]
    assert run_in_graph(sl.library._find(qualified), sl.ones(2)).tolist() == [2, 2]


def test_a_library_has_ops():
    results = []
    for lib in (sl, torch):
        library = lib.library.Library("testfragment", "FRAGMENT")
        library.define("add3(Tensor x, *, int n=3) -> Tensor")
        library.define("made(Tensor x) -> Tensor")
        library.impl("add3", lambda x, n=3: x + n, "CompositeExplicitAutograd")
        library.impl("made", lambda x: x.exp() * 2, "CompositeImplicitAutograd")
        x = lib.zeros(2, requires_grad=True)
        lib.ops.testfragment.made(x).sum().backward()
        results.append((lib.ops.testfragment.add3(lib.ones(2)).tolist(), x.grad.tolist()))
    assert results[0] == results[1]
    with pytest.raises(ValueError, match="Unsupported kind"):
        sl.library.Library("x", "OTHER")
    with pytest.raises(ValueError, match="register_autograd"):
        sl.library.Library("testfragment", "IMPL").impl("add3", lambda x: x, "AutogradCPU")
    with pytest.raises(AttributeError, match="has no op 'nosuch'"):
        sl.ops.testfragment.nosuch


def test_kernels_of_kinds_of_devices():
    op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
    op.register_kernel("cpu", lambda x, y=1.0: x * 10)
    assert op(sl.ones(1)).tolist() == [10]
    with op.set_kernel_enabled("cpu", False):
        assert op(sl.ones(1)).tolist() == [1]
    assert op(sl.ones(1)).tolist() == [10]


def test_autocast_casts_arguments():
    op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
    op.register_autocast("cpu", sl.float32)
    x = sl.ones(2, dtype=sl.bfloat16)
    assert op(x).dtype is sl.bfloat16
    with sl.autocast("cpu"):
        assert op(x).dtype is sl.float32


def test_opcheck_passes_a_right_op():
    op = cube_of(sl, lambda f: sl.library.custom_op(name(), f, mutates_args=()))
    found = opcheck(op, (sl.randn(3, 2, requires_grad=True), 2.0))
    assert set(found.values()) == {"SUCCESS"} and set(found) >= {"test_schema", "test_autograd_registration", "test_faketensor",
                                                                 "test_aot_dispatch_dynamic", "test_gradients", "test_dtypes"}

    @custom_op(name(), mutates_args={"y"})
    def add(x: sl.Tensor, y: sl.Tensor) -> None:
        y.add_(x)

    add.register_fake(lambda x, y: None)
    assert set(opcheck(add, (sl.ones(2), sl.zeros(2))).values()) == {"SUCCESS"}


def wrong_op(fake=lambda x: sl.empty_like(x), backward=lambda ctx, g: g * 2, kernel=lambda x: x * 2):
    def f(x: sl.Tensor) -> sl.Tensor:
        return kernel(x)

    op = custom_op(name(), f, mutates_args=())
    op.register_fake(fake)
    if backward is not None:
        op.register_autograd(backward)
    return op


def in_float16(x):
    return (x * 2).float() if x.dtype is sl.float16 else x * 2


@pytest.mark.parametrize("wrong, test, says", [
    (dict(fake=lambda x: sl.empty(3, 3)), "test_faketensor", r"Shapes \(4,\) and \(3, 3\) are not equal"),
    (dict(fake=lambda x: sl.empty(4, dtype=sl.int64)), "test_faketensor", "Dtypes .* are not equal"),
    (dict(backward=lambda ctx, g: g * 3), "test_gradients", "Jacobian mismatch"),
    (dict(backward=None), "test_autograd_registration", "register_autograd"),
    (dict(kernel=lambda x: x.mul_(2).clone()), "test_schema", "was mutated"),
    (dict(kernel=lambda x: sl.from_numpy(x.numpy().__imul__(2).copy())), "test_schema", "was mutated"),
    (dict(kernel=lambda x: x), "test_schema", "must not also be an input"),
    (dict(kernel=in_float16), "test_dtypes", "float16"),
    (dict(kernel=lambda x, calls=itertools.count(): x * next(calls)), "test_aot_dispatch_dynamic", "graph against eager"),
    (dict(kernel=lambda x: (x * 2).float()), "test_gradients", "too coarse")])
def test_opcheck_finds(wrong, test, says):
    op, x = wrong_op(**wrong), sl.randn(4, requires_grad=True)
    with pytest.raises(sl.library._check.OpCheckError, match=f"(?s){test} failed with .*{says}"):
        opcheck(op, (x,), test_utils=test)
    found = opcheck(op, (x,), raise_exception=False)
    assert isinstance(found[test], Exception)


def test_opcheck_refuses_what_is_no_op():
    with pytest.raises(ValueError, match="must be an op of sluice.library"):
        opcheck(sl.relu, (sl.ones(1),))
    with pytest.raises(ValueError, match="test_utils"):
        opcheck(wrong_op(), (sl.ones(1),), test_utils="test_nosuch")
