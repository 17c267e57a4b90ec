"""Names that programs for torch ask before they begin: accelerators, backends, marks of torch.jit, memory formats of conversions."""

import pytest
import torch

import sluice as sl


def test_the_accelerator_is_the_gpu_there_is():
    assert sl.accelerator.is_available() == sl.cuda.is_available()
    there = sl.accelerator.current_accelerator()
    assert (there is None) == (not sl.cuda.is_available()) and (there is None or there.type == "cuda")
    assert sl.accelerator.device_count() == (sl.cuda.device_count() if there else 0)
    if there is None:  # as PyTorch's MNIST example and tutorials ask
        for name in ("current_device_index", "synchronize"):
            with pytest.raises(RuntimeError, match=f"accelerator.{name}: there is no accelerator on this machine; ask is_available"):
                getattr(sl.accelerator, name)()
        with pytest.raises(RuntimeError, match="accelerator.set_device_index"):
            sl.accelerator.set_device_index(0)
    device = sl.accelerator.current_accelerator().type if sl.accelerator.is_available() else "cpu"
    assert sl.zeros(1, device=device).device.type == device


def test_backends_say_what_there_is():
    mps, mkldnn, opt_einsum = sl.backends.mps, sl.backends.mkldnn, sl.backends.opt_einsum
    assert not (mps.is_available() or mps.is_built() or mps.is_macos_or_newer(14, 0))
    assert mkldnn.is_available() and mkldnn.enabled and torch.backends.mkldnn.is_available()
    with mkldnn.flags(enabled=True, deterministic=True):
        pass
    with pytest.raises(NotImplementedError, match="mkldnn.flags: enabled=False"), mkldnn.flags(enabled=False):
        pass
    assert not opt_einsum.is_available() and not opt_einsum.enabled and opt_einsum.strategy is None and opt_einsum.get_opt_einsum() is None
    for name in ("mps", "mkldnn", "opt_einsum"):
        assert hasattr(torch.backends, name)


def test_what_is_scripted_runs_as_it_is():
    @sl.jit.script
    def twice(x: sl.Tensor) -> sl.Tensor:
        return x * 2

    assert twice(sl.ones(2)).tolist() == [2, 2]
    net = sl.nn.Linear(2, 2)
    assert sl.jit.script(net) is net and sl.jit.script(sl.nn.Linear) is sl.nn.Linear and sl.script(twice, optimize=True) is twice

    class Net(sl.nn.Module):
        size: sl.jit.Final[int]
        __constants__ = ["size"]

        def __init__(self):
            super().__init__()
            self.size = 3
            self.named = sl.jit.Attribute(4, int)

        @sl.jit.script_method
        def forward(self, x):
            sizes = sl.jit.annotate(list[int], [])
            sizes.append(self.size)
            return x + sizes[0] if sl.jit.isinstance(sizes, list) else x

    assert Net()(sl.ones(1)).tolist() == [4] and Net().named.value == 4 and not sl.jit.is_scripting()


CONVERSIONS = ["float", "double", "half", "bfloat16", "long", "int", "short", "char", "byte", "bool", "cfloat", "cdouble", "cpu"]


@pytest.mark.parametrize("format", ["contiguous_format", "channels_last", "preserve_format"])
@pytest.mark.parametrize("name", [*CONVERSIONS, "to", "type", "to dtype"])
def test_conversions_take_a_memory_format(name, format):
    for last in (False,) if format == "preserve_format" else (False, True):
        got = []
        for library in (torch, sl):
            x = library.arange(2 * 3 * 4 * 5, dtype=library.float32).reshape(2, 3, 4, 5)
            x = x.contiguous(memory_format=library.channels_last) if last else x
            wanted = getattr(library, format)
            y = {"type": lambda: x.type(library.float64, memory_format=wanted), "to dtype": lambda: x.to(library.int32, memory_format=wanted)}.get(
                name, lambda: getattr(x, name)(memory_format=wanted))()
            got.append((y.stride(), str(y.dtype).split(".")[-1], y.double().tolist() if "c" != name[0] else None))
        assert got[0] == got[1], (name, format, last)


def test_conversions_in_a_graph_take_a_memory_format():
    class Net(sl.nn.Graph):
        def build(self, x):
            return x.half(memory_format=sl.channels_last) + 1

    x = sl.arange(24.0).reshape(1, 2, 3, 4)
    assert Net()(x).tolist() == (x.half() + 1).tolist()


def test_nodes_of_gradients_have_torch_s_names():
    for made, name in ((lambda t, x: x + 1, "AddBackward0"), (lambda t, x: x * 2, "MulBackward0"), (lambda t, x: x.exp(), "ExpBackward0"),
                       (lambda t, x: x.sigmoid(), "SigmoidBackward0"), (lambda t, x: x.relu(), "ReluBackward0")):
        assert [made(t, t.ones(2, requires_grad=True)).grad_fn.name() for t in (torch, sl)] == [name, name]
    y = sl.ones(2, requires_grad=True) + 1
    assert repr(y).endswith("grad_fn=<AddBackward0>)") and repr(y.grad_fn) == "<AddBackward0>"

    class Own(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    assert "Own" in Own.apply(sl.ones(1, requires_grad=True)).grad_fn.name()
