"""Rewrites a function's syntax tree: statements of control flow become calls of sluice._translate.flow."""

from __future__ import annotations

import ast
import copy
from typing import Any, Iterable

from sluice._translate import flow
from sluice._translate.expressions import (
    call, check_sets_nothing_late, Expressions, lambda_, load, operand, Refused, sets_later, sets_names, store)

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
           ast.GeneratorExp)


def translated(definition: ast.FunctionDef, free: tuple[str, ...]) -> ast.Module:
    """A module with a function that has `free` as locals, and the translated function in it."""
    definition.decorator_list = []
    _Function().translate(definition)
    bind = [ast.Assign([store(name)], ast.Constant(None)) for name in (*free, flow.NAME)]
    factory = _define("factory", [], [*bind, definition])
    return ast.fix_missing_locations(ast.Module([factory], []))


class _Readable(ast.NodeTransformer):
    """Shorter names of what is made, and calls without what looks for translations."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        looks = isinstance(node.func, ast.Call) and ast.unparse(node.func.func) == "flow.called"
        return ast.Call(node.func.args[0], node.args, node.keywords) if looks else node  # type: ignore[attr-defined]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = _short(node.name)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("flow" if node.id == flow.NAME else _short(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = _short(node.arg)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(_short(node.value)) if isinstance(node.value, str) else node


def _short(name: str) -> str:
    return name.replace("_sl_f_", "").replace("_sl_", "")


def readable(definition: ast.FunctionDef) -> str:
    """The source of a function that was translated, for people."""
    return ast.unparse(ast.fix_missing_locations(_Readable().visit(copy.deepcopy(definition))))


def _define(name: str, arguments: Iterable[str], body: list[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef(name, ast.arguments([], [ast.arg(a) for a in arguments], None, [], [], None, []), body, [])


def _tuple(names: Iterable[str], context: Any) -> ast.Tuple:
    return ast.Tuple([ast.Name(name, context()) for name in names], context())


def _set(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([store(name)], value)


def _stored(nodes: Iterable[ast.AST]) -> list[str]:
    """Local names that these set, in order."""
    names: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names[node.id] = None
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = None
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                names[(alias.asname or alias.name).split(".")[0]] = None
        if not isinstance(node, _SCOPES):
            for child in ast.iter_child_nodes(node):
                visit(child)

    for node in nodes:
        visit(node)
    return list(names)


def _contains(nodes: Iterable[ast.AST], kinds: tuple[type, ...], into_loops: bool = True) -> ast.AST | None:
    """A statement of these kinds that belongs to this function, and with not `into_loops` to no loop in `nodes`."""
    for node in nodes:
        if isinstance(node, kinds):
            return node
        if isinstance(node, _SCOPES):
            continue
        children = ast.iter_child_nodes(node)
        if not into_loops and isinstance(node, (ast.For, ast.While)):
            children = iter(node.orelse)
        found = _contains(children, kinds, into_loops)
        if found is not None:
            return found
    return None


def _flows(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """Branches and loops of this function."""
    found: list[ast.AST] = []
    for node in nodes:
        if isinstance(node, (ast.If, ast.For, ast.While)):
            found.append(node)
        elif not isinstance(node, _SCOPES):
            found += _flows(ast.iter_child_nodes(node))
    return found


class _Function:
    """Translates one function in place."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: set[str] = set()  # names of other scopes
        self.flows: list[ast.stmt] = []  # statements of control flow

    def name(self, kind: str) -> str:
        self.count += 1
        return f"_sl_{kind}_{self.count}"

    def translate(self, definition: ast.FunctionDef) -> None:
        if _contains(definition.body, (ast.Yield, ast.YieldFrom, ast.Await)) is not None:
            raise Refused(definition, "is a generator; a graph calls functions that return")
        for node in ast.walk(definition):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                self.kept.update(node.names)
        arguments = definition.args
        named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        given = {a.arg for a in named if a is not None}
        body = definition.body
        documentation = body[:1] if ast.get_docstring(definition, clean=False) is not None else []
        body = body[len(documentation):]
        returns = _contains(_flows(body), (ast.Return,)) is not None
        result, returned = (self.name("result"), self.name("returned")) if returns else ("", "")
        if returns:
            body = self.without_returns(body, result, returned)
        body = self.block(body)
        unset = [name for name in _stored(self.flows) if name not in given and name not in self.kept]
        head: list[ast.stmt] = [_set(name, call("unset", ast.Constant(name))) for name in unset]
        if returns:
            head += [_set(result, call("unset", ast.Constant("the result"))), _set(returned, ast.Constant(False))]
            body.append(ast.Return(call("result", load(result), load(returned))))
        definition.body = [*documentation, *head, *body] or [ast.Pass()]

    # Return, break and continue: what would be jumped over is under an `if`.

    def without_returns(self, body: list[ast.stmt], result: str, returned: str) -> list[ast.stmt]:
        def leave(node: ast.stmt) -> list[ast.stmt]:
            value = node.value if node.value is not None else ast.Constant(None)
            return [_set(result, value), _set(returned, ast.Constant(True))]

        return self.without(body, ast.Return, leave, returned, True)

    def without(self, body: list[ast.stmt], kind: type, leave: Any, flag: str, into_loops: bool) -> list[ast.stmt]:
        """`body` with `leave` in place of statements of a kind, and the rest of it under `if not flag`."""
        made: list[ast.stmt] = []
        for i, node in enumerate(body):
            if isinstance(node, kind):
                return [*made, *[ast.copy_location(n, node) for n in leave(node)]]
            if _contains([node], (kind,), into_loops) is None:
                made.append(node)
                continue
            if isinstance(node, ast.If):
                node.body = self.without(node.body, kind, leave, flag, into_loops) or [ast.Pass()]
                node.orelse = self.without(node.orelse, kind, leave, flag, into_loops)
            elif isinstance(node, (ast.For, ast.While)) and into_loops:
                if node.orelse:
                    raise Refused(node, "has a loop with else; set a flag instead")
                node.body = self.without(node.body, kind, leave, flag, into_loops) or [ast.Pass()]
                stops = getattr(node, "stops", [])
                node.stops = [*stops, flag]  # type: ignore[attr-defined]
            else:
                raise Refused(node, f"has a {kind.__name__.lower()} inside of {type(node).__name__.lower()}; take it out")
            made.append(node)
            rest = self.without(body[i + 1:], kind, leave, flag, into_loops)
            if rest:
                made.append(ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), load(flag)), rest, []), rest[0]))
            return made
        return made

    # Statements.

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for node in body:
            made += [ast.copy_location(n, node) for n in self.statement(node)]
        return made

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.While) and sets_names(node.test):  # what it sets is for the body
            leave = ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], []), node)
            node.test, node.body = ast.Constant(True), [ast.fix_missing_locations(leave), *node.body]
        part = "test" if isinstance(node, (ast.If, ast.Assert)) else "iter" if isinstance(node, ast.For) else "value"
        if sets_later(getattr(node, part, None) or ast.Pass()):
            head, value = self.lifted(getattr(node, part))
            setattr(node, part, value)
            for made in head:
                ast.fix_missing_locations(ast.copy_location(made, node))
            return [*self.block(head), *self.statement(node)]
        if isinstance(node, ast.If):
            return self.branch(node)
        if isinstance(node, (ast.While, ast.For)):
            return self.loop(node)
        if isinstance(node, ast.Assert):
            message = lambda_(self.expression(node.msg) if node.msg is not None else ast.Constant(None))
            return [ast.Expr(call("assert_", self.condition(node.test), message))]
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            operator = ast.Constant(type(node.op).__name__)
            return [_set(name, call("update", operator, load(name), self.expression(node.value)))]
        if isinstance(node, ast.FunctionDef):
            inner = _Function()
            inner.count = 1000 * (self.count + 1)
            inner.translate(node)
            return [node]
        if isinstance(node, (ast.With, ast.Try)):
            for field in ("body", "orelse", "finalbody"):
                if getattr(node, field, None):
                    setattr(node, field, self.block(getattr(node, field)))
            for handler in getattr(node, "handlers", []):
                handler.body = self.block(handler.body)
            for item in getattr(node, "items", []):
                item.context_expr = self.expression(item.context_expr)
            return [node]
        return [self.expression(node)]

    @staticmethod
    def expression(node: Any) -> Any:
        return Expressions().visit(node)

    @staticmethod
    def condition(node: Any) -> Any:
        return Expressions().condition(node)

    def lifted(self, node: ast.expr) -> tuple[list[ast.stmt], ast.expr]:
        """Statements, and an expression that has no `:=` in operands that are not always computed: they are under an `if`."""
        if not sets_later(node):
            return [], node
        name, made = self.name("operand"), []
        if isinstance(node, ast.BoolOp):
            made = self.lifted_to(name, node.values[0])
            for value in node.values[1:]:
                test: ast.expr = load(name) if isinstance(node.op, ast.And) else ast.UnaryOp(ast.Not(), load(name))
                made.append(ast.If(test, self.lifted_to(name, value), []))
        elif isinstance(node, ast.IfExp):
            head, test = self.lifted(node.test)
            made = [*head, ast.If(test, self.lifted_to(name, node.body), self.lifted_to(name, node.orelse))]
        elif isinstance(node, (ast.UnaryOp, ast.NamedExpr)):
            part = "operand" if isinstance(node, ast.UnaryOp) else "value"
            made, value = self.lifted(getattr(node, part))
            setattr(node, part, value)
            return made, node
        else:
            check_sets_nothing_late(node)
        return made, load(name)

    def lifted_to(self, name: str, node: ast.expr) -> list[ast.stmt]:
        made, value = self.lifted(node)
        return [*made, _set(name, value)]

    def changed(self, node: ast.stmt, parts: list[ast.stmt]) -> list[str]:
        self.flows.append(node)
        names = [name for name in _stored(parts) if not name.startswith("_sl_f_")]
        kept = [name for name in names if name in self.kept]
        if kept:
            raise Refused(node, f"sets '{kept[0]}' of another scope under control flow; make it a local name")
        return names

    def function(self, kind: str, arguments: list[str], body: list[ast.stmt], names: list[str]) -> ast.FunctionDef:
        return _define(f"_sl_f_{self.name(kind)}", arguments, [*body, ast.Return(_tuple(names, ast.Load))])

    def branch(self, node: ast.If) -> list[ast.stmt]:
        names = self.changed(node, [*node.body, *node.orelse])
        test = self.condition(node.test)
        true = self.function("true", names, self.block(node.body), names)
        false = self.function("false", names, self.block(node.orelse), names)
        whole = call("if_", test, load(true.name), load(false.name), _tuple(names, ast.Load))
        return [true, false, ast.Assign([_tuple(names, ast.Store)], whole) if names else ast.Expr(whole)]

    def loop(self, node: ast.While | ast.For) -> list[ast.stmt]:
        if node.orelse:
            raise Refused(node, "has a loop with else; set a flag instead")
        stops, head, body = list(getattr(node, "stops", [])), [], node.body
        for kind in (ast.Continue, ast.Break):
            if _contains(body, (kind,), False) is None:
                continue
            flag = self.name(kind.__name__.lower())
            body = self.without(body, kind, lambda _, flag=flag: [_set(flag, ast.Constant(True))], flag, False)
            if kind is ast.Continue:
                body = [_set(flag, ast.Constant(False)), *body]
            else:
                stops.append(flag)
            head.append(_set(flag, ast.Constant(False)))
        for part in (*body, *head):
            ast.copy_location(part, node)
        names = self.changed(node, [*head, *body, *([node.target] if isinstance(node, ast.For) else [])])
        names += [name for name in stops if name not in names]
        go_on: ast.expr = ast.Constant(True)
        if stops:
            go_on = call("not_", call("either", *(operand(load(name)) for name in stops)))
        if isinstance(node, ast.While):
            # A loop of the graph refuses what changes something, so that its test may be computed where a flag has stopped it.
            test = call("both", operand(go_on), operand(self.condition(node.test))) if stops else self.condition(node.test)
            tests = _define(f"_sl_f_{self.name('test')}", names, [ast.Return(test)])
            step = self.function("step", names, self.block(body), names)
            whole = call("while_", load(tests.name), load(step.name), _tuple(names, ast.Load))
        else:
            iterable = self.expression(node.iter)
            if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range":
                iterable = call("range_", *iterable.args)
            item = self.name("item")
            tests = _define(f"_sl_f_{self.name('test')}", names, [ast.Return(go_on)])
            taken = ast.Assign([node.target], load(item))
            step = self.function("step", [item, *names], [taken, *self.block(body)], names)
            whole = call("for_", iterable, load(tests.name), load(step.name), _tuple(names, ast.Load))
        return [*head, tests, step, ast.Assign([_tuple(names, ast.Store)], whole) if names else ast.Expr(whole)]
