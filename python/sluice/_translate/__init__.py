"""Python's control flow on tensors, as control flow of graphs: jit.to_static()."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from typing import Any, Callable

from sluice._translate import flow
from sluice._translate.expressions import Refused
from sluice._translate.syntax import translated


def to_static(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with `if`, `while`, `for`, `break`, `continue`, `return`, `and`, `or`, `not`, `any`, `all`, `x if c else y`, comparisons
    in a row, `assert` and `print` that work on values of a graph: paddle.jit.to_static, tf.autograph.

    In a graph, `if` on a tensor is sluice.cond, a loop that a tensor decides is sluice.while_loop, a loop over `range` of
    tensors or over the rows of a tensor is one, too; operands of `and` and `or` are branches, of which a step runs those that Python
    would compute; `assert` and `print` run when the graph runs, not within loops. All else
    is Python's: eager calls, and conditions that are no tensors of the graph. Numbers that such a loop or branch changes
    become tensors. Functions that `function` calls are not translated, those defined in it are.

    Raises SyntaxError, with the line, for what has no such form: `else` of loops, `with` or `try` around `return`, `break` or
    `continue`, generators, `global` and `nonlocal` names that control flow sets.
    """
    if isinstance(function, types.MethodType):
        return types.MethodType(to_static(function.__func__), function.__self__)
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
    return functools.wraps(function)(made)
