"""A case on one library: what it gives, and its gradients."""

from __future__ import annotations

import importlib
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np

from sluice.testing.autotest.arrays import COMPLEX, FLOATS, Array, Case, DType, is_ours, leaves, mapped
from sluice.testing.autotest.linear_algebra import INVARIANT

SEED = 1234
KEYS = ("output", "gradient", "second gradient")


@dataclass
class Outcome:
    """The outcome of a run: (place, NumPy array and dtype, or a plain value); where it failed, the stage and the error.

    aliases: per output, where in which argument's memory it lies, with its strides: (argument, offset in bytes, strides).
    """

    values: list[tuple[str, Any]] = field(default_factory=list)
    stage: str = "forward"
    error: Exception | None = None
    aliases: list[Any] = field(default_factory=list)


def resolve(library: Any, name: str) -> Any:
    value = library
    for part in name.split("."):
        if not hasattr(value, part) and hasattr(value, "__path__"):
            importlib.import_module(f"{value.__name__}.{part}")
        value = getattr(value, part)
    return value


def built(value: Any, library: Any, tensor: Callable[[Array], Any]) -> Any:
    def build(leaf: Any) -> Any:
        return tensor(leaf) if isinstance(leaf, Array) else leaf.build(library) if isinstance(leaf, DType) else leaf

    return mapped(value, build)


def callable_of(case: Case, library: Any) -> Callable[..., Any]:
    """The object that is called with (args, keywords); a module is called with its inputs."""
    if case.inputs is None:
        function, invariant = resolve(library, case.op), INVARIANT.get(case.op)
        if not callable(function):  # an attribute
            return lambda args, keywords: getattr(args[0], case.op.rpartition(".")[2])
        if invariant is not None:
            return lambda args, keywords: invariant(library, function(*args, **keywords))
        return lambda args, keywords: function(*args, **keywords)
    module = made_module(case, library)
    return lambda args, keywords: module(*args)


def made_module(case: Case, library: Any) -> Any:
    module = resolve(library, case.op)(*built(case.args, library, lambda a: a.build(library)),
                                       **built(case.keywords, library, lambda a: a.build(library)))
    if case.state:
        module.load_state_dict({k: a.build(library) for k, a in case.state.items()})
        wide = next((a.dtype for a in case.state.values() if a.dtype == "float64"), None)
        if wide:
            module = module.double()
            module.load_state_dict({k: a.build(library) for k, a in case.state.items()})
    return module.train(case.training)


def dtype_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def value_of(x: Any) -> Any:
    """A tensor as (array, dtype); a dtype by its name; anything else as it is."""
    if hasattr(x, "detach") and hasattr(x, "dtype"):
        plain, dtype = x.detach(), dtype_name(x.dtype)
        if hasattr(plain, "resolve_conj"):
            plain = plain.resolve_conj().resolve_neg()
        plain = plain.cpu()
        return np.array((plain.float() if dtype in ("bfloat16", "float16") else plain).numpy()), dtype
    return x if isinstance(x, (bool, int, float, complex, str, type(None))) else dtype_name(x)


def weighted(values: list[Any], library: Any) -> Any:
    """A real number of all elements; of complex ones each part counts otherwise."""
    total = None
    for i, y in enumerate(values):
        if y is not None and hasattr(y, "requires_grad") and dtype_name(y.dtype) in FLOATS + COMPLEX and y.requires_grad:
            if dtype_name(y.dtype) in COMPLEX:
                y = library.view_as_real(y.resolve_conj())
            noise = np.random.RandomState(7 + i).uniform(0.5, 1.5, tuple(y.shape))
            if is_ours(library) and 1 in noise.shape:  # gradients come transposed, with any stride where a dim is of one element
                y, noise = y.permute(*reversed(range(noise.ndim))), noise.T
            part = (y * library.from_numpy(np.array(noise)).to(y.dtype).to(y.device)).sum()
            total = part if total is None else total + part
    return total


def derived(library: Any, call: Callable[[], Any], wanted: list[Any], order: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Outputs, the gradients of their weighted sum, and those of that of the gradients."""
    outputs = list(leaves(call()))
    first: list[Any] = []
    second: list[Any] = []
    if order and wanted:
        total = weighted(outputs, library)
        first = [None] * len(wanted)
        if total is not None:
            first = list(library.autograd.grad(total, wanted, create_graph=order > 1, allow_unused=True))
        if order > 1:
            scalar = weighted(first, library)
            second = [None] * len(wanted)
            if scalar is not None:
                second = list(library.autograd.grad(scalar, wanted, allow_unused=True))
    return outputs, first, second


def execute(case: Case, library: Any, order: int, wide: bool = False) -> Outcome:
    """order: 0 values, 1 with gradients, 2 with theirs. wide: floating arguments as float64 or complex128."""
    outcome, made = Outcome(), []

    def tensor(array: Array) -> Any:
        x = array.build(library)
        if wide and array.floating:
            x = x.to(library.complex128 if array.dtype in COMPLEX else library.float64)
        if order and array.parameter and array.floating:
            x.requires_grad_()
        made.append(x)
        return x

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.manual_seed(SEED)
            call = callable_of(case, library)
            args = built(case.args if case.inputs is None else case.inputs, library, tensor)
            keywords = built(case.keywords, library, tensor) if case.inputs is None else {}
            wanted = [x for x in made if x.requires_grad]
            if case.inputs is not None and order:
                wanted += [p for p in call.__closure__[0].cell_contents.parameters() if p.requires_grad]  # type: ignore[index]
            with nullcontext() if order else library.no_grad():
                outputs = call(args, keywords)
            outcome.values = [(f"output {i}", value_of(y)) for i, y in enumerate(leaves(outputs))]
            outcome.aliases = [alias(y, made) for y in leaves(outputs)]
            for i, x in enumerate(made):  # what the call wrote
                outcome.values.append((f"argument {i} afterwards", value_of(x)))
            for depth, key in ((1, "gradient"), (2, "second gradient")):
                if order < depth:
                    break
                outcome.stage = key
                _, *gradients = derived(library, lambda: outputs, wanted, depth) if depth == order else ((), ())
                if depth == order:
                    for name, values in zip(KEYS[1:], gradients):
                        outcome.values += [(f"{name} {i}", None if g is None else value_of(g)) for i, g in enumerate(values)]
    except Exception as error:  # noqa: BLE001  # which it is, is compared
        outcome.error = error
    return outcome


def alias(y: Any, made: list[Any]) -> Any:
    if not hasattr(y, "data_ptr") or not y.numel():
        return None
    for i, x in enumerate(made):
        first, last = extent(x)
        if x.numel() and first <= y.data_ptr() < last:
            return i, y.data_ptr() - first, tuple(s for s, n in zip(y.stride(), y.shape) if n > 1)
    return None


def extent(x: Any) -> tuple[int, int]:
    """The first byte and that behind the last one of the elements of x."""
    span = sum((n - 1) * s for n, s in zip(x.shape, x.stride())) + 1
    return x.data_ptr(), x.data_ptr() + max(span, 1) * x.element_size()


def forms_of(case: Case, library: Any, other: Any) -> list[tuple[str, Callable[[list[Any], dict[str, Any]], Any]]]:
    """The other spellings of a function's call that both libraries have: as a method, in place, with out=."""
    spelled: list[tuple[str, Callable[[list[Any], dict[str, Any]], Any]]] = []
    if case.inputs is not None or "Tensor." in case.op or not case.args or not isinstance(case.args[0], Array):
        return spelled
    module, _, last = case.op.rpartition(".")
    if all(hasattr(resolve(one, module) if module else one, last + "_") for one in (library, other)):
        written = resolve(library, case.op + "_")
        spelled.append((f"{last}_", lambda a, k: written(*a, **k)))
    if not case.op.startswith("nn."):
        for suffix in ("", "_"):
            if not module and hasattr(library.Tensor, last + suffix) and hasattr(other.Tensor, last + suffix):
                spelled.append((f"x.{last}{suffix}", lambda a, k, n=last + suffix: getattr(a[0], n)(*a[1:], **k)))
        function = resolve(library, case.op)
        spelled.append((f"{last}(out=)", lambda a, k: function(*a, **k, out=empty_like(library, function(*a, **k)))))
    return spelled


def empty_like(library: Any, result: Any) -> Any:
    """Memory in which a result may be written."""
    if isinstance(result, tuple):
        return tuple(empty_like(library, r) for r in result)
    return library.zeros(tuple(result.shape), dtype=result.dtype)


def execute_form(case: Case, library: Any, form: Callable[..., Any]) -> Outcome:
    outcome, made = Outcome(), []

    def tensor(array: Array) -> Any:
        made.append(array.build(library))
        return made[-1]

    try:
        with warnings.catch_warnings(), library.no_grad():
            warnings.simplefilter("ignore")
            library.manual_seed(SEED)
            outputs = form(built(case.args, library, tensor), built(case.keywords, library, tensor))
        outcome.values = [(f"output {i}", value_of(y)) for i, y in enumerate(leaves(outputs))]
        outcome.values += [(f"argument {i} afterwards", value_of(x)) for i, x in enumerate(made)]
    except Exception as error:  # noqa: BLE001
        outcome.error = error
    return outcome
