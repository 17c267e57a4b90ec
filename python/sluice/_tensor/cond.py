"""cond(): one of two functions, chosen by a tensor."""

from typing import Any, Callable

from sluice import _C
from sluice._C import Tensor
from sluice._base.structure import difference, flatten


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """`true_fn(*operands)` where `pred` is true, else `false_fn(*operands)`. torch.cond.

    pred: a bool, or a bool tensor of one element. operands: a tuple or list of tensors, or of nests of them; the functions may
    use other tensors, too, such as the parameters of modules.

    An eager program calls one of the functions. In a graph, where `pred` is a value of the graph, both are traced, once, and
    every step runs the kernels of one; gradients flow through that one, to whatever it used. Both must return the same
    structure of tensors, of equal shapes and dtypes (TypeError otherwise), and neither may write in place to a tensor from
    outside (RuntimeError). On devices other than the cpu both are computed and one is chosen.
    """
    if not callable(true_fn) or not callable(false_fn):
        raise TypeError(f"cond: got {true_fn!r:.80} and {false_fn!r:.80}; both must be callable")
    if not isinstance(operands, (tuple, list)):
        raise TypeError(f"cond: operands are {type(operands).__name__}; must be a tuple or a list")
    if isinstance(pred, Tensor):
        if pred.dtype is not _C.bool or pred.numel() != 1:
            raise TypeError(f"cond: the predicate is {pred.dtype} of shape {tuple(pred.shape)}; must be bool, of one element")
    elif not isinstance(pred, bool):
        raise TypeError(f"cond: the predicate is {type(pred).__name__}; must be a bool or a bool tensor")
    if not isinstance(pred, Tensor) or not _C.touches_graph(pred):
        return (true_fn if pred else false_fn)(*operands)

    branches = _C.Branches(pred.detach().reshape(()), 2)
    structures = []

    def traced(fn, name):
        def run():
            leaves = []
            structures.append(flatten(fn(*operands), name, leaves, []))
            return leaves

        return run

    results = [branches.run(0, traced(false_fn, "false_fn")), branches.run(1, traced(true_fn, "true_fn"))]
    expected, got = structures
    if expected != got:
        raise TypeError(f"cond: the functions return different structures: {_where(got, expected)}; they must be equal")
    for i, (a, b) in enumerate(zip(*results)):
        if a.dtype is not b.dtype or a.shape != b.shape:
            raise TypeError(f"cond: result {i} is {b.dtype} of shape {tuple(b.shape)} in true_fn, {a.dtype} of shape "
                            f"{tuple(a.shape)} in false_fn; they must be equal")
    return expected.build(iter(branches.join(results)))


def _where(got, expected):
    text = difference(expected, got, "")
    return text.replace("argument '", "result '") if text else f"{got.kind} and {expected.kind}"
