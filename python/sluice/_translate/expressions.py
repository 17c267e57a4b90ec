"""Rewrites expressions: and, or, not, comparisons in a row, conditional ones, any, all and print become calls of sluice._translate.flow."""

from __future__ import annotations

import ast
from typing import Any

from sluice._translate import called, flow


class Refused(Exception):
    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(what)
        self.node = node


def store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def lambda_(value: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(load(flow.NAME), name, ast.Load()), list(arguments), [])


def operand(value: ast.expr, only_computes: bool = True) -> ast.Tuple:
    return ast.Tuple([lambda_(value), ast.Constant(only_computes)], ast.Load())


def only_computes(node: ast.expr) -> bool:
    """Whether an operand changes nothing and calls nobody, so that it does not matter whether it is computed."""
    return not any(isinstance(n, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for n in ast.walk(node))


def sets_names(node: ast.AST) -> bool:
    """Whether an expression has a `:=` of this function."""
    return isinstance(node, ast.NamedExpr) or (not isinstance(node, ast.Lambda) and any(map(sets_names, ast.iter_child_nodes(node))))


def sets_later(node: ast.AST) -> bool:
    """Whether it has one in an operand that is not always computed."""
    late: list[ast.expr] = []
    if isinstance(node, ast.BoolOp):
        late = node.values[1:]
    elif isinstance(node, ast.IfExp):
        late = [node.body, node.orelse]
    elif isinstance(node, ast.Compare):
        late = node.comparators[1:]
    if isinstance(node, ast.Lambda):
        return False
    return any(map(sets_names, late)) or any(map(sets_later, ast.iter_child_nodes(node)))


def check_sets_nothing_late(node: ast.AST) -> None:
    if sets_later(node):
        raise Refused(node, "sets a name by := in an operand that is not always computed, within another expression; set it before")


class Expressions(ast.NodeTransformer):
    """and, or, not, comparisons in a row, x if c else y, any, all, and print."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node  # translated by itself

    visit_ClassDef = visit_AsyncFunctionDef = visit_FunctionDef

    def condition(self, node: ast.expr) -> Any:
        """An expression of which only the truth counts."""
        check_sets_nothing_late(node)
        if isinstance(node, ast.BoolOp):
            parts = [operand(self.condition(v), only) for v, only in [(v, only_computes(v)) for v in node.values]]
            return call("both" if isinstance(node.op, ast.And) else "either", *parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return call("not_", self.condition(node.operand))
        return self.visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        check_sets_nothing_late(node)
        self.generic_visit(node)
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        return call(name, *(lambda_(value) for value in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            return self.condition(node)
        self.generic_visit(node)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        check_sets_nothing_late(node)
        test = self.condition(node.test)
        return call("choose", test, lambda_(self.visit(node.body)), lambda_(self.visit(node.orelse)))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        check_sets_nothing_late(node)
        only = [only_computes(operand) for operand in node.comparators]
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        rest = [ast.Tuple([ast.Constant(type(op).__name__), lambda_(operand), ast.Constant(o)], ast.Load())
                for op, operand, o in zip(node.ops, node.comparators, only)]
        return call("compare", node.left, *rest)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            node.func = ast.Attribute(load(flow.NAME), "print_", ast.Load())
        elif isinstance(node.func, ast.Name) and node.func.id in ("any", "all") and node.args:
            node.args = [node.func, *node.args]
            node.func = ast.Attribute(load(flow.NAME), "any_", ast.Load())
        elif not (isinstance(node.func, ast.Name) and called.is_direct(node.func.id)):
            node.func = call("called", node.func)
        return node
