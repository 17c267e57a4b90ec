"""sluice.library: what ops written in Python must not do; torch.library is the oracle."""

from typing import Optional

import pytest
import torch

import sluice as sl
from sluice.library import custom_op
from library_ops import both, name, plain, run_in_graph


def raised(case, kind):
    texts = []
    for lib in (sl, torch):
        with pytest.raises(kind) as error:
            both_name = name()
            case(lib, lambda *a, **k: lib.library.custom_op(both_name, *a, **{"mutates_args": (), **k}))
        texts.append(str(error.value))
    return texts


@pytest.mark.parametrize("call, says", [
    (lambda lib, f, x: f(1), "Expected a value of type 'Tensor' for argument 'x' but instead found type 'int'"),
    (lambda lib, f, x: f(x, "a"), "Expected a value of type 'float' for argument 'y' but instead found type 'str'"),
    (lambda lib, f, x: f(x, 1, 2), "expected at most 2 argument(s) but received 3 argument(s)"),
    (lambda lib, f, x: f(x, z=2), "Unknown keyword argument 'z' for operator"),
    (lambda lib, f, x: f(), "is missing value for argument 'x'"),
    (lambda lib, f, x: f(x.requires_grad_()).sum().backward(), "no autograd formula was registered. Please use "
     "register_autograd"),
    (lambda lib, f, x: lib.library.register_fake("testlib::nosuch", lambda x: x), "operator testlib::nosuch does not exist")])
def test_misuse_is_refused_as_in_torch(call, says):
    for text in raised(lambda lib, make: call(lib, plain(lib, make), lib.ones(3)), RuntimeError):
        assert says in text


def test_results_that_alias_arguments_are_refused():
    for body in (lambda x, y: x, lambda x, y: x[1:]):
        for text in raised(lambda lib, make, body=body: plain(lib, make, body)(lib.ones(3)), RuntimeError):
            assert "must not also be an input" in text
    with pytest.raises(sl.Error, match="must not also be an input"):
        op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()), lambda x, y: x)
        op.register_fake(lambda x, y=1.0: sl.empty_like(x))
        run_in_graph(op, sl.ones(3)).tolist()


def test_no_tensor_as_result_is_refused():
    for text in raised(lambda lib, make: plain(lib, make, lambda x, y: 3)(lib.ones(3)), RuntimeError):
        assert "Unable to cast 3 to Tensor" in text


def test_a_kernel_that_is_not_there_is_named():
    def case(lib, make):
        return plain(lib, lambda f: make(f, device_types="cuda"))(lib.ones(3))

    for text in raised(case, NotImplementedError):
        assert "with arguments from the 'CPU' backend" in text


def test_autograd_of_an_op_that_writes_is_refused():
    def case(lib, make):
        def f(x):
            x.add_(1)

        f.__annotations__ = {"x": lib.Tensor, "return": None}
        make(f, mutates_args={"x"}).register_autograd(lambda ctx: None)

    for text in raised(case, RuntimeError):
        assert "Cannot register autograd formula for non-functional operator" in text


def test_wrong_numbers_of_gradients_are_refused_and_none_may_be_left_out():
    for found in [lambda ctx, g: (g,), lambda ctx, g: g, lambda ctx, g: (g, None, None)]:
        op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
        op.register_autograd(found)
        op(x := sl.ones(2, requires_grad=True)).sum().backward()
        assert x.grad.tolist() == [1, 1]
    for found in [lambda ctx, g: (), lambda ctx, g: (g, g), lambda ctx, g: (g, None, g)]:
        op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
        op.register_autograd(found)
        with pytest.raises(RuntimeError, match="backward returned"):
            op(sl.ones(2, requires_grad=True)).sum().backward()


def test_a_graph_needs_a_fake_and_a_true_one():
    op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
    with pytest.raises(sl.Error, match="no fake impl registered.*register_fake"):
        run_in_graph(op, sl.ones(3))
    op.register_fake(lambda x, y=1.0: sl.empty(2))
    with pytest.raises(sl.Error, match=r"the kernel returned .*shape \(3,\), its fake .* \(2,\)"):
        run_in_graph(op, sl.ones(3)).tolist()


def test_an_undeclared_write_in_a_graph_is_refused():
    op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()), lambda x, y: x.add_(1).clone())
    op.register_fake(lambda x, y=1.0: sl.empty_like(x))
    with pytest.raises(sl.Error, match="read-only"):
        run_in_graph(op, sl.ones(3)).tolist()


def test_results_that_are_numbers_have_no_value_in_a_graph():
    @custom_op(name(), mutates_args=())
    def count(x: sl.Tensor) -> int:
        return int((x > 0).sum())

    count.register_fake(lambda x: 0)
    assert count(sl.ones(3)) == 3
    with pytest.raises(sl.Error, match="no value while a graph is built"):
        run_in_graph(lambda x: x + count(x), sl.ones(3))


@pytest.mark.parametrize("wrong", ["f", "::f", "a::", "a b::f", "a::b::c"])
def test_names_without_a_namespace_are_refused(wrong):
    with pytest.raises(ValueError, match="namespace::name"):
        custom_op(wrong, mutates_args=())


def test_a_default_of_none_may_be_left_out():
    def case(lib, make):
        def f(x, dtype=None, scale=None):
            return x.to(dtype or lib.float64) * (scale or 3)

        f.__annotations__ = {"x": lib.Tensor, "dtype": Optional[lib.dtype], "scale": Optional[float],
                             "return": lib.Tensor}
        op = make(f)
        results = [op(lib.ones(1)), op(lib.ones(1), lib.int64, 2), op(lib.ones(1), scale=2)]
        return [(r.tolist(), str(r.dtype).rpartition(".")[2]) for r in results]

    ours, theirs = both(case)
    assert ours == theirs


def test_what_is_left_out_says_what_to_use():
    for missing in ("triton_op", "wrap_triton", "fallthrough_kernel", "get_kernel", "register_torch_dispatch", "get_ctx"):
        with pytest.raises(AttributeError, match="custom_op and register_kernel"):
            getattr(sl.library, missing)
    with pytest.raises(ValueError, match="is an op of Sluice"):
        custom_op("relu::f", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor")
