"""What can be changed in one piece of code: each operator gives other pieces of the kind that a slip would leave."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
PAIRS = (
    ("min", "max"),
    ("amin", "amax"),
    ("argmin", "argmax"),
    ("minimum", "maximum"),
    ("cummin", "cummax"),
    ("sum", "mean"),
    ("any", "all"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("floor", "ceil"),
    ("tril", "triu"),
)
OTHER = {one: two for pair in PAIRS for one, two in (pair, pair[::-1])}
SYMMETRIC = {
    "max",
    "min",
    "maximum",
    "minimum",
    "equal",
    "allclose",
    "hypot",
    "logaddexp",
    "transpose",
    "isinstance",
    "getattr",
}
"""Calls whose first two arguments are not swapped: nothing would change, or everything would end at once."""

AXES = {"dim", "axis", "dims"}
KEEP = {"item", "tolist", "items", "keys", "values", "contiguous"}
"""Methods that are not taken away: nothing would change, or everything would end at once."""
MODULES = {"torch", "math", "np", "numpy", "functional", "linalg", "special"}


def replacements(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """What one piece of code may be changed into, each with the operator's name."""
    match node:
        case ast.BinOp() if not _text(node.left) and not _text(node.right) and type(node.op) in ARITHMETIC:
            yield "arithmetic", _with(node, op=ARITHMETIC[type(node.op)]())
        case ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield "arithmetic", _with(node, op=ARITHMETIC[type(node.op)]())
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            yield "sign dropped", node.operand
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield "negation dropped", node.operand
        case ast.BoolOp():
            yield "and/or", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.Compare(ops=[op]):
            for other in COMPARISONS[type(op)]:
                yield "comparison", _with(node, ops=[other()])
        case ast.IfExp():
            for test in negated(node.test):
                yield "condition negated", _with(node, test=test)
        case ast.Constant():
            yield from _constants(node)
        case ast.Call():
            yield from _calls(node)


def removed(node: ast.stmt) -> str | None:
    """What stands in place of a statement that is taken away, where it can be without an error of names."""
    match node:
        case ast.Expr(value=ast.Call() as call):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            return None if name in ("print", "warn") else "pass"
        case ast.AugAssign() | ast.Break() | ast.Continue() | ast.Raise():
            return "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return "pass"
    return None


def negated(test: ast.expr) -> Iterator[ast.expr]:
    """The opposite of a condition, where no other operator makes it."""
    one_comparison = isinstance(test, ast.Compare) and len(test.ops) == 1
    if not one_comparison and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        yield ast.UnaryOp(ast.Not(), test)


def changed_slices(node: ast.expr) -> Iterator[ast.expr]:
    """Slices with an end moved by one; a slice of everything stays."""
    if isinstance(node, ast.Slice):
        yield from _moved(node)
    elif isinstance(node, ast.Tuple):
        for k, part in enumerate(node.elts):
            if isinstance(part, ast.Slice):
                for other in _moved(part):
                    yield _with(node, elts=[*node.elts[:k], other, *node.elts[k + 1 :]])


def _moved(node: ast.Slice) -> Iterator[ast.Slice]:
    if node.lower is not None:
        yield _with(node, lower=_plus(node.lower, 1))
    elif node.upper is not None:
        yield _with(node, lower=ast.Constant(1))
    if node.upper is not None:
        yield _with(node, upper=_plus(node.upper, -1))
    elif node.lower is not None:
        yield _with(node, upper=ast.UnaryOp(ast.USub(), ast.Constant(1)))


def _constants(node: ast.Constant) -> Iterator[tuple[str, ast.expr]]:
    value = node.value
    if isinstance(value, bool):
        yield "true/false", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(2 * value if value else 1.0)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    args = node.args
    if name in OTHER:
        yield "min/max, sum/mean", _with(node, func=_renamed(node.func, OTHER[name]))
    if name == "clamp" and len(node.keywords) == 1 and not args and node.keywords[0].arg in OTHER:
        word = node.keywords[0]
        yield "min/max, sum/mean", _with(node, keywords=[ast.keyword(OTHER[word.arg or ""], word.value)])
    plain = len(args) > 1 and not any(isinstance(one, ast.Starred) for one in args[:2])
    if plain and name not in SYMMETRIC and ast.dump(args[0]) != ast.dump(args[1]):
        yield "arguments swapped", _with(node, args=[args[1], args[0], *args[2:]])
    if name == "range":
        yield "boundary", _with(node, args=[*args[:-1], _plus(args[-1], -1)] if len(args) < 3 else args[1:])
    yield from _axes(node)
    yield from _without_call(node, name)


def _axes(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for k, word in enumerate(node.keywords):
        if word.arg in AXES and (axis := _integer(word.value)) is not None:
            other = ast.keyword(word.arg, _number(_next_axis(axis)))
            yield "axis", _with(node, keywords=[*node.keywords[:k], other, *node.keywords[k + 1 :]])
    reduces = isinstance(node.func, ast.Attribute) and node.func.attr in {
        *OTHER,
        "cat",
        "stack",
        "squeeze",
        "unsqueeze",
    }
    if reduces and node.args and (axis := _integer(node.args[-1])) is not None:
        yield "axis", _with(node, args=[*node.args[:-1], _number(_next_axis(axis))])


def _without_call(node: ast.Call, name: str) -> Iterator[tuple[str, ast.expr]]:
    """`x.clamp(min=0)` and `torch.exp(x)` as x."""
    if isinstance(node.func, ast.Attribute):
        owner = ast.unparse(node.func.value).rpartition(".")[2]
        if owner in MODULES:
            if len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
                yield "call removed", node.args[0]
        elif owner.islower() and name not in KEEP and owner not in ("self",):
            yield "call removed", node.func.value
    elif name in ("sorted", "abs", "round", "float", "int", "list", "tuple", "reversed") and len(node.args) == 1:
        yield "call removed", node.args[0]


def _next_axis(axis: int) -> int:
    return axis + 1 if axis >= 0 else (axis - 1 if axis == -1 else axis + 1)


def _integer(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
    return None


def _number(value: int) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def _plus(node: ast.expr, step: int) -> ast.expr:
    if (value := _integer(node)) is not None:
        return _number(value + step)
    return ast.BinOp(node, ast.Add() if step > 0 else ast.Sub(), ast.Constant(abs(step)))


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _renamed(node: ast.expr, name: str) -> ast.expr:
    return ast.Name(name, ast.Load()) if isinstance(node, ast.Name) else _with(node, attr=name)


def _with(node: Node, **fields: object) -> Node:
    """A copy of a node with other fields."""
    return type(node)(**{name: getattr(node, name, None) for name in node._fields} | fields)
