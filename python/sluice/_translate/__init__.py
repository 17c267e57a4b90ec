"""Python's control flow on tensors, as control flow of graphs: jit.to_static()."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from typing import Any, Callable

from sluice import _C
from sluice._base.trace import within
from sluice._translate import called, flow
from sluice._translate.expressions import Refused
from sluice._translate.syntax import readable, translated
from sluice._translate.told import set_code_level as set_code_level, set_verbosity as set_verbosity, show, told

_enabled = True


def enable_to_static(enabled: bool = True) -> None:
    """Whether functions that to_static() has made run as such: if not, they run as they were written, as for a debugger. In a graph a
    condition on its values is then an error. paddle.jit.enable_to_static, ProgramTranslator.enable."""
    global _enabled
    _enabled = bool(enabled)


def not_to_static(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which is not translated where a function that to_static() has made calls it. A decorator."""
    called.leave(function)
    return function


def code(function: Callable[..., Any]) -> str:
    """The source of what to_static() makes of a function."""
    made = function if hasattr(function, "__translated__") else to_static(function)
    return str(made.__translated__)  # type: ignore[attr-defined]


def to_static(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with `if`, `while`, `for`, `break`, `continue`, `return`, `and`, `or`, `not`, `any`, `all`, `x if c else y`, comparisons
    in a row, `assert` and `print` that work on values of a graph: paddle.jit.to_static, tf.autograph.

    In a graph, `if` on a tensor is sluice.cond, a loop that a tensor decides is sluice.while_loop, a loop over `range` of
    tensors or over the rows of a tensor is one, too; operands of `and` and `or` are branches, of which a step runs those that Python
    would compute; `assert` and `print` run when the graph runs, not within loops. All else
    is Python's: eager calls, and conditions that are no tensors of the graph. Numbers that such a loop or branch changes
    become tensors. While a graph is traced, functions of the user that `function` calls are translated as well, and forward() of modules, but
    for not_to_static(); those of libraries are not. What has no translation runs as it is.

    Raises SyntaxError, with the line, for what has no such form: `else` of loops, `with` or `try` around `return`, `break` or
    `continue`, generators, `global` and `nonlocal` names that control flow sets.
    """
    if isinstance(function, types.MethodType):
        return types.MethodType(to_static(function.__func__), function.__self__)
    if hasattr(function, "__translated__"):
        return function
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"to_static: got {type(function).__name__}; must be a function or a method")
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError as error:
        raise TypeError(f"to_static: {function.__qualname__} has no source that could be read: {error}; define it in a "
                        "file") from None
    file = inspect.getsourcefile(function) or "<string>"
    try:
        tree = ast.parse(textwrap.dedent("".join(lines)))
        definition = tree.body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise Refused(definition, "is no function of statements; write it with def")
        ast.increment_lineno(tree, first - 1)
        module = translated(definition, function.__code__.co_freevars)
    except Refused as error:
        where = (file, error.node.lineno, getattr(error.node, "col_offset", 0) + 1, None)
        raise SyntaxError(f"to_static: {function.__qualname__}: {error}", where) from None
    outer = compile(module, file, "exec").co_consts
    factory = next(code for code in outer if isinstance(code, types.CodeType))
    inner = next(code for code in factory.co_consts if isinstance(code, types.CodeType) and code.co_name == function.__name__)
    own = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    cells = tuple(types.CellType(flow) if name == flow.NAME else own[name] for name in inner.co_freevars)
    made = types.FunctionType(inner, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    source = readable(definition)
    told(1, f"translates {function.__qualname__}, {file}:{first}")
    show(function.__qualname__, source)

    @functools.wraps(function)
    def entered(*args: Any, **kwargs: Any) -> Any:
        if not _enabled:
            return function(*args, **kwargs)
        if not _C.is_tracing():
            return made(*args, **kwargs)
        with within(translate=_in_place):
            return made(*args, **kwargs)

    entered.__translated__ = source  # type: ignore[attr-defined]
    return entered


_in_place = functools.partial(called.in_place_of, translate=to_static)
