"""Ops of your own, written in Python: torch.library.

    @sluice.library.custom_op("mylib::scale", mutates_args=())
    def scale(x: Tensor, factor: float) -> Tensor:
        return sluice.from_numpy(x.numpy() * np.float32(factor))

    @scale.register_fake
    def _(x, factor):
        return sluice.empty_like(x)

The function runs eagerly; in a graph it is a host function beside the compute stream, and the fake says what it returns.
`register_autograd` gives it a gradient, `opcheck` tests all of it. Ops compiled from C++ come by `sluice.ops.load_library`, and kernels of C++ text
by `cpp_kernel`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, Optional

from sluice import _C
from sluice.library._check import opcheck
from sluice.library._cpp_kernel import CppKernel as CppKernel, cpp_kernel
from sluice.library._op import CustomOpDef
from sluice.library._schema import infer, parse, split_name

__all__ = ["CppKernel", "CustomOpDef", "Library", "cpp_kernel", "custom_op", "define", "impl", "impl_abstract", "infer_schema", "opcheck",
           "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_vmap"]

_ops: dict[str, CustomOpDef] = {}  # by qualified name


class _Namespace(SimpleNamespace):
    """sluice.ops.<namespace>: the custom ops of it."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"sluice.ops.{self.__dict__['_name']} has no op '{name}'; sluice.library.custom_op makes one")


def custom_op(name: str, fn: Optional[Callable[..., Any]] = None, /, *, mutates_args: Any, device_types: Any = None,
              schema: Optional[str] = None, tags: Any = None) -> Any:
    """A decorator that makes an op of a function of tensors; torch.library.custom_op.

    name: "namespace::name", afterwards also `sluice.ops.namespace.name`. mutates_args: names of the arguments that the function
    writes to, or "unknown". device_types: kinds of devices of this kernel; by default all. schema: instead of annotations.
    The function may do anything, use NumPy or another library, and runs without recording gradients. Its results share no
    memory with its arguments. Raises ValueError where the annotations cannot be read as a schema.
    """
    def make(function: Callable[..., Any]) -> CustomOpDef:
        found = infer(function, mutates_args) if schema is None else parse(schema, mutates_args)
        op = _add(CustomOpDef(*split_name(name), found, function))
        op.register_kernel(device_types, function)
        return op

    split_name(name)
    return make if fn is None else make(fn)


def _add(op: CustomOpDef) -> CustomOpDef:
    space = getattr(_C.ops, op._namespace, None)
    if space is None:
        space = _Namespace(_name=op._namespace)
        setattr(_C.ops, op._namespace, space)
    if not isinstance(space, _Namespace):
        raise _C.ValueError(f"custom op: '{op._namespace}' is an op of Sluice, so it cannot be a namespace; choose another "
                            f"for {op._qualname}")
    setattr(space, op._name, op)
    _ops[op._qualname] = op
    return op


def _find(op: Any) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if not isinstance(op, str):
        raise _C.ValueError(f"library: got {type(op).__name__}; must be a custom op or its name, 'namespace::name'")
    split_name(op)
    if op not in _ops:
        raise _C.RuntimeError(f"operator {op} does not exist; define it first, with custom_op or define")
    return _ops[op]


def infer_schema(prototype_function: Callable[..., Any], /, *, mutates_args: Any, op_name: Optional[str] = None,
                 tags: Any = None) -> str:
    """The schema that custom_op reads from a function's annotations: "(Tensor x, SymInt n=1) -> Tensor"."""
    return f"{op_name or ''}{infer(prototype_function, mutates_args)}"


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """An op by its schema, "(Tensor x) -> Tensor", as yet without a kernel: impl() and register_fake() give it what it does."""
    if not isinstance(qualname, str):
        raise _C.ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    _add(CustomOpDef(*split_name(qualname), parse(schema), None))


_KEYS = {"default": None, "CompositeExplicitAutograd": None, "": None, "CPU": "cpu", "CUDA": "cuda"}


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Any = None) -> Any:
    """Registers an op's function for kinds of devices ("cpu", "default" for all) or for torch's dispatch keys; also a decorator.

    The keys are CPU, CUDA, CompositeExplicitAutograd (all devices), CompositeImplicitAutograd (made of ops that have
    gradients) and Meta (its fake); ValueError for others.
    """
    op = _find(qualname)

    def register(function: Any) -> Any:
        for key in [types] if isinstance(types, str) else types:
            if key == "Meta":
                op.register_fake(function)
            elif key == "CompositeImplicitAutograd":
                op._composite = function
            elif "Autograd" in key and key not in _KEYS:
                raise _C.ValueError(f"impl: got key {key!r} for {op}; register_autograd gives an op its gradient")
            else:
                op.register_kernel(_KEYS[key] if key in _KEYS else _device_kind(key), function)
        return function

    return register if func is None else register(func)


def _device_kind(key: str) -> str:
    if not key.islower():
        raise _C.ValueError(f"impl: got key {key!r}; must be a kind of device, 'default', or one of "
                            f"{', '.join(k for k in _KEYS if k)}, "
                         "CompositeImplicitAutograd, Meta")
    return key


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Registers an op's function for kinds of devices; see CustomOpDef.register_kernel."""
    return _find(op).register_kernel(device_types, func)


def register_fake(op: Any, func: Any = None, /, *, lib: Any = None, _stacklevel: int = 1, allow_override: bool = True) -> Any:
    """The function that says the shapes and dtypes of an op's results; see CustomOpDef.register_fake."""
    found = _find(op)
    if found._fake is not None and not allow_override:
        raise _C.RuntimeError(f"register_fake(...): the operator {found._qualname} already has a fake impl")
    return found.register_fake if func is None else found.register_fake(func)


impl_abstract = register_fake


def register_autograd(op: Any, backward: Any, /, *, setup_context: Any = None, lib: Any = None) -> None:
    """The gradient of an op; see CustomOpDef.register_autograd."""
    _find(op).register_autograd(backward, setup_context=setup_context)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Registers the dtype to which floating arguments are cast inside sluice.autocast; see CustomOpDef.register_autocast."""
    _find(op).register_autocast(device_type, cast_inputs)


def register_vmap(op: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Accepted and not called: sluice.func.vmap calls ops row by row, which needs no rule."""
    return _find(op).register_vmap(func)


class Library:
    """Ops of a namespace by schemas and kernels; torch.library.Library.

    kind: "DEF" or "FRAGMENT" for a namespace of yours; "IMPL" adds to one that is there.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise _C.ValueError(f"Unsupported kind: {kind}; must be 'DEF', 'FRAGMENT' or 'IMPL'")
        if not ns.isidentifier():
            raise _C.ValueError(f"Library: got namespace {ns!r}; must be an identifier")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """An op by its schema, "f(Tensor x) -> Tensor"; returns its name."""
        name, bracket, rest = schema.partition("(")
        define(f"{self.ns}::{name.strip()}", bracket + rest)
        return name.strip()

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False,
             allow_override: bool = True) -> None:
        """A kernel of an op of this namespace, under a dispatch key; see sluice.library.impl."""
        if with_keyset:
            raise _C.NotImplementedError("Library.impl: with_keyset=True is not supported: there are no dispatch keys to pass "
                                         "on; leave it out")
        impl(self._op(op_name), dispatch_key or self.dispatch_key or "default", fn)

    def _register_fake(self, op_name: Any, fn: Any, _stacklevel: int = 1, *, allow_override: bool = True) -> None:
        register_fake(self._op(op_name), fn, allow_override=allow_override)

    def _op(self, name: Any) -> CustomOpDef:
        return name if isinstance(name, CustomOpDef) else _find(name if "::" in name else f"{self.ns}::{name}")


def __getattr__(name: str) -> Any:
    from sluice._names.left_out import missing

    raise missing("sluice.library", name)
