"""What the tests of sluice.library share: ops in both libraries."""

import itertools

import numpy as np
import torch

import sluice as sl

_numbers = itertools.count()


def name():
    return f"testlib::op{next(_numbers)}"


def run_in_graph(function, *args):
    class G(sl.nn.Graph):
        def build(self, *tensors):
            return function(*tensors)

    return G()(*args)


def both(build):
    """What `build(lib, custom_op)` says with either library; the op has one name in both."""
    qualified = name()
    return [build(lib, lambda *a, **k: lib.library.custom_op(qualified, *a, **{"mutates_args": (), **k}))
            for lib in (sl, torch)]


def cube_of(lib, make):
    def cube(x, weight=1.0):
        return lib.from_numpy(np.asarray(x.numpy() ** 3 * weight, x.numpy().dtype))

    cube.__annotations__ = {"x": lib.Tensor, "weight": float, "return": lib.Tensor}
    op = make(cube)
    op.register_fake(lambda x, weight=1.0: lib.empty_like(x))

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.weight = inputs[1]
        ctx.needs = ctx.needs_input_grad

    op.register_autograd(lambda ctx, g: (g * 3 * ctx.saved_tensors[0] ** 2 * ctx.weight, None), setup_context=setup_context)
    return op


def plain(lib, make, body=lambda x, y: x * y):
    def f(x, y=1.0):
        return body(x, y)

    f.__annotations__ = {"x": lib.Tensor, "y": float, "return": lib.Tensor}
    return make(f)
