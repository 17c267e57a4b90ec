"""Rewrites a function's syntax tree: statements of control flow become calls of sluice._translate.flow."""

from __future__ import annotations

import ast
from typing import Any, Iterable

from sluice._translate import flow

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
           ast.GeneratorExp)


class Refused(Exception):
    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(what)
        self.node = node


def translated(definition: ast.FunctionDef, free: tuple[str, ...]) -> ast.Module:
    """A module with a function that has `free` as locals, and the translated function in it."""
    definition.decorator_list = []
    _Function().translate(definition)
    bind = [ast.Assign([_store(name)], ast.Constant(None)) for name in (*free, flow.NAME)]
    factory = _define("factory", [], [*bind, definition])
    return ast.fix_missing_locations(ast.Module([factory], []))


def _store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _define(name: str, arguments: Iterable[str], body: list[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef(name, ast.arguments([], [ast.arg(a) for a in arguments], None, [], [], None, []), body, [])


def _lambda(value: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_load(flow.NAME), name, ast.Load()), list(arguments), [])


def _tuple(names: Iterable[str], context: Any) -> ast.Tuple:
    return ast.Tuple([ast.Name(name, context()) for name in names], context())


def _set(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([_store(name)], value)


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


class _Expressions(ast.NodeTransformer):
    """and, or, not, comparisons in a row, x if c else y, and print."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node  # translated by itself

    visit_ClassDef = visit_AsyncFunctionDef = visit_FunctionDef

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        return _call(name, *(_lambda(value) for value in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call("not_", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return _call("choose", node.test, _lambda(node.body), _lambda(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        operands = [node.left, *node.comparators]
        if any(not isinstance(o, (ast.Name, ast.Constant, ast.Attribute)) for o in operands[1:-1]):
            raise Refused(node, "compares in a row something that would be computed twice; give it a name first")
        pairs = [ast.Compare(a, [op], [b]) for a, op, b in zip(operands, node.ops, operands[1:])]
        return _call("and_", *(_lambda(pair) for pair in pairs))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            node.func = ast.Attribute(_load(flow.NAME), "print_", ast.Load())
        return node


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
        head: list[ast.stmt] = [_set(name, _call("unset", ast.Constant(name))) for name in unset]
        if returns:
            head += [_set(result, _call("unset", ast.Constant("the result"))), _set(returned, ast.Constant(False))]
            body.append(ast.Return(_call("result", _load(result), _load(returned))))
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
                made.append(ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), _load(flag)), rest, []), rest[0]))
            return made
        return made

    # Statements.

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for node in body:
            made += [ast.copy_location(n, node) for n in self.statement(node)]
        return made

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.If):
            return self.branch(node)
        if isinstance(node, (ast.While, ast.For)):
            return self.loop(node)
        if isinstance(node, ast.Assert):
            message = _lambda(self.expression(node.msg) if node.msg is not None else ast.Constant(None))
            return [ast.Expr(_call("assert_", self.expression(node.test), message))]
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            operator = ast.Constant(type(node.op).__name__)
            return [_set(name, _call("update", operator, _load(name), self.expression(node.value)))]
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
        return _Expressions().visit(node)

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
        test = self.expression(node.test)
        true = self.function("true", names, self.block(node.body), names)
        false = self.function("false", names, self.block(node.orelse), names)
        call = _call("if_", test, _load(true.name), _load(false.name), _tuple(names, ast.Load))
        return [true, false, ast.Assign([_tuple(names, ast.Store)], call) if names else ast.Expr(call)]

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
            go_on = _call("not_", _call("or_", *(_lambda(_load(name)) for name in stops)))
        if isinstance(node, ast.While):
            test = _call("and_", _lambda(go_on), _lambda(self.expression(node.test))) if stops else self.expression(node.test)
            tests = _define(f"_sl_f_{self.name('test')}", names, [ast.Return(test)])
            step = self.function("step", names, self.block(body), names)
            call = _call("while_", _load(tests.name), _load(step.name), _tuple(names, ast.Load))
        else:
            iterable = self.expression(node.iter)
            if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range":
                iterable = _call("range_", *iterable.args)
            item = self.name("item")
            tests = _define(f"_sl_f_{self.name('test')}", names, [ast.Return(go_on)])
            taken = ast.Assign([node.target], _load(item))
            step = self.function("step", [item, *names], [taken, *self.block(body)], names)
            call = _call("for_", iterable, _load(tests.name), _load(step.name), _tuple(names, ast.Load))
        return [*head, tests, step, ast.Assign([_tuple(names, ast.Store)], call) if names else ast.Expr(call)]
