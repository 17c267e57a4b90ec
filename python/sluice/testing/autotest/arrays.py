"""Arguments as data: what a case is made of, built for either library and printed as Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Iterator

import numpy as np

FLOATS = ("float32", "float64", "float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int64", "int32", "uint8", "int8", "int16")
LAYOUTS = ("plain", "transposed", "strided", "offset", "expanded", "channels_last", "loose")
# Strides of dims of one element, which mean nothing. torch's tensors do not get them: some of its kernels choose by them how a
# tensor lies, and give the gradients of other elements, as batch_norm's of one sample does.
LOOSE = (0, 1, 7, 2**40)


def is_ours(library: Any) -> bool:
    return hasattr(library.nn, "Graph")


@dataclass(frozen=True)
class DType:
    """A dtype by its name."""

    name: str

    def build(self, module: Any) -> Any:
        return getattr(module, self.name)

    def __repr__(self) -> str:
        return f"torch.{self.name}"


@dataclass(frozen=True, eq=False)
class Array:
    """A tensor: its values (of bfloat16 as float32), its dtype and how it lies in memory."""

    values: np.ndarray
    dtype: str
    layout: str = "plain"
    parameter: bool = True  # differentiated, where its dtype can be

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def floating(self) -> bool:
        """Real or complex: what has gradients."""
        return self.dtype in FLOATS + COMPLEX

    def fitting(self) -> Array:
        """With the layout "plain" where the shape has no room for another."""
        rank, sizes = len(self.shape), self.shape
        if not self.values.size:
            return replace(self, layout="plain")
        fits = {"plain": True, "transposed": rank >= 2, "strided": rank >= 1, "offset": rank >= 1, "channels_last": rank == 4,
                "expanded": rank >= 1 and sizes[0] > 0, "loose": 1 in sizes}[self.layout]
        if not fits:
            return replace(self, layout="plain")
        if self.layout == "expanded":
            return replace(self, values=np.broadcast_to(self.values[:1], sizes).copy())
        return self

    def build(self, module: Any) -> Any:
        """Makes a tensor of that library, on its default device."""
        def tensor(values: np.ndarray) -> Any:
            made = module.from_numpy(np.array(values, order="C"))
            dtype = getattr(module, self.dtype)
            return (made if made.dtype == dtype else made.to(dtype)).to(module.get_default_device())

        v = self.values
        if not v.size:
            return module.empty(v.shape, dtype=getattr(module, self.dtype))
        if self.layout == "transposed":
            return tensor(np.swapaxes(v, -1, -2)).transpose(-1, -2)
        if self.layout == "strided":
            return tensor(np.repeat(v, 2, -1))[..., ::2]
        if self.layout == "offset":
            return tensor(np.concatenate([np.zeros_like(v[:1]), v]))[1:]
        if self.layout == "expanded":
            return tensor(v[:1]).expand(v.shape)
        if self.layout == "channels_last":
            return tensor(np.moveaxis(v, 1, -1)).permute(0, 3, 1, 2)
        if self.layout == "loose" and is_ours(module):
            made = tensor(v)
            return made.as_strided(v.shape, [LOOSE[i % 4] if n == 1 else s for i, (n, s) in enumerate(zip(v.shape, made.stride()))])
        return tensor(v)

    def __repr__(self) -> str:
        text = str(self.values.tolist()).replace("nan", "float('nan')").replace("inf", "float('inf')")
        of = f"tensor({text}" if self.values.size else f"empty({self.shape}"
        made = f"torch.{of}, dtype=torch.{self.dtype})"
        return made if self.layout == "plain" else f"{self.layout}({made})"


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with `function` of each leaf of its lists, tuples and dicts."""
    if isinstance(value, dict):
        return {k: mapped(v, function) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(v, function) for v in value)
    return function(value)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for v in value.values():
            yield from leaves(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from leaves(v)
    else:
        yield value


@dataclass
class Case:
    """One call: of a function, a method ("Tensor.add") or a module ("nn.Linear", whose arguments are those of its constructor).

    inputs: of a module, what it is called with; state: its parameters and buffers; training: its mode.
    """

    op: str
    args: list[Any]
    keywords: dict[str, Any]
    inputs: list[Any] | None = None
    state: dict[str, Array] | None = None
    training: bool = True

    @property
    def arrays(self) -> list[Array]:
        return [v for v in leaves([self.args, self.keywords, self.inputs or [], self.state or {}]) if isinstance(v, Array)]

    def replaced(self, function: Callable[[Any], Any]) -> Case:
        """With `function` of every leaf."""
        return replace(self, args=mapped(self.args, function), keywords=mapped(self.keywords, function),
                       inputs=mapped(self.inputs, function), state=mapped(self.state, function))

    def __str__(self) -> str:
        def listed(args: list[Any], keywords: dict[str, Any]) -> str:
            return ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in keywords.items())])

        if self.op.startswith("Tensor."):
            return f"{self.args[0]!r}.{self.op[7:]}({listed(self.args[1:], self.keywords)})"
        text = f"torch.{self.op}({listed(self.args, self.keywords)})"
        if self.inputs is None:
            return text
        mode = "" if self.training else ".eval()"
        return f"{text}{mode}({listed(self.inputs, {})}) with {self.state!r}"
