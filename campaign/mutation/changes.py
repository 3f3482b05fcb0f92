"""The changes that can be made to a module, one at a time: each is another text in one place of its source."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from campaign.mutation.operators import changed_slices, negated, removed, replacements

SKIPPED_CALLS = {"TypeVar", "ParamSpec", "cast", "NewType", "warn", "print"}
"""What says something to a reader or to a type checker alone."""


@dataclass(frozen=True)
class Change:
    """One change. before, after: the text of the piece that changes; lines: of the statement that it is in."""

    file: str
    function: str
    """The innermost function or class, by its dotted name; empty at the top of a module."""
    operator: str
    before: str
    after: str
    lines: tuple[int, int]
    at_import: bool
    """Whether the piece is run as the module is imported, and not when a function is called."""
    scope: tuple[int, int]
    """The lines of the innermost function or class, or of the module."""
    start: int
    end: int
    """Where the piece stands in the source, in bytes."""
    number: int = 1
    """Which of the equal changes in one function."""

    @property
    def key(self) -> str:
        """A name that stays when other code changes."""
        which = f" #{self.number}" if self.number > 1 else ""
        return f"{self.file}:{self.function}:{self.operator}: {self.before} -> {self.after}{which}"

    def applied(self, source: str) -> str:
        """The source with this change."""
        text = source.encode()
        return (text[: self.start] + self.after.encode() + text[self.end :]).decode()


def changes(source: str, file: str) -> list[Change]:
    """All changes that may be made to a module. Some may come to the same, or be none: `drawn` leaves those out."""
    seen: Counter[tuple[str, str, str, str]] = Counter()
    numbered = []
    for one in _Finder(source, file).found(ast.parse(source)):
        same = (one.function, one.operator, one.before, one.after)
        seen[same] += 1
        numbered.append(replace(one, number=seen[same]))
    return numbered


def drawn(sources: Mapping[str, str], count: int, seed: int) -> list[Change]:
    """So many changes to some files by a seed, no two of which come to the same.

    They are the first ones of an order by a hash of the seed and the change, so that code that stays keeps its draws.
    """
    every = [one for file, source in sources.items() for one in changes(source, file)]
    every.sort(key=lambda one: hashlib.sha256(f"{seed} {one.key}".encode()).digest())
    trees = {_tree(source) for source in sources.values()}
    chosen: list[Change] = []
    for one in every:
        tree = _tree(one.applied(sources[one.file]))
        if tree is not None and tree not in trees:
            chosen.append(one)
            trees.add(tree)
        if len(chosen) == count:
            break
    return chosen


def _tree(source: str) -> str | None:
    """What Python reads in a source, without where it stands; None where it reads nothing."""
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return None


class _Finder:
    """Goes through a module and makes its changes, leaving out what only a reader or a type checker sees."""

    def __init__(self, source: str, file: str) -> None:
        self.file = file
        self.text = source.encode()
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def found(self, tree: ast.Module) -> Iterator[Change]:
        whole = (1, len(self.starts))
        yield from self._body(tree.body, "", whole, at_import=True)

    def _body(self, body: list[ast.stmt], name: str, scope: tuple[int, int], *, at_import: bool) -> Iterator[Change]:
        for place, statement in enumerate(body):
            if _only_read(statement, first=place == 0):
                continue
            yield from self._statement(statement, name, scope, at_import=at_import)

    def _statement(self, node: ast.stmt, name: str, scope: tuple[int, int], *, at_import: bool) -> Iterator[Change]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner, lines = f"{name}.{node.name}".lstrip("."), _span(node)
            is_class = isinstance(node, ast.ClassDef)
            if not isinstance(node, ast.ClassDef):
                for default in [*node.args.defaults, *node.args.kw_defaults]:
                    if default is not None:
                        yield from self._pieces(default, inner, _span(default), lines, at_import=True)
            yield from self._body(node.body, inner, lines, at_import=at_import and is_class)
            return
        blocks = [getattr(node, field) for field in ("body", "orelse", "finalbody") if getattr(node, field, None)]
        blocks += [handler.body for handler in getattr(node, "handlers", [])]
        blocks += [case.body for case in getattr(node, "cases", [])]
        own = (node.lineno, (blocks[0][0].lineno - 1) if blocks else (node.end_lineno or node.lineno))
        own = (own[0], max(own))
        if new := removed(node):
            yield self._change("statement removed", node, new, name, own, scope, at_import=at_import)
        if isinstance(node, ast.If | ast.While | ast.Assert):
            for test in negated(node.test):
                text = f"({ast.unparse(test)})"
                yield self._change("condition negated", node.test, text, name, own, scope, at_import=at_import)
        for piece in _own_expressions(node):
            yield from self._pieces(piece, name, own, scope, at_import=at_import)
        if isinstance(node, ast.AugAssign):
            for operator, after in replacements(node):
                yield self._change(operator, node, ast.unparse(after), name, own, scope, at_import=at_import)
        for block in blocks:
            yield from self._body(block, name, scope, at_import=at_import)

    def _pieces(
        self, node: ast.expr, name: str, own: tuple[int, int], scope: tuple[int, int], *, at_import: bool
    ) -> Iterator[Change]:
        """The changes of an expression and of all that it is made of."""
        if at_import and isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return  # the name of a type
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and _called(node) in SKIPPED_CALLS):
            return
        for operator, after in replacements(node):
            yield self._change(operator, node, f"({ast.unparse(after)})", name, own, scope, at_import=at_import)
        if isinstance(node, ast.Subscript):
            for after in changed_slices(node.slice):
                text = ast.unparse(after).removeprefix("(").removesuffix(")")
                yield self._change("slice", node.slice, text, name, own, scope, at_import=at_import)
        if isinstance(node, ast.Lambda):
            yield from self._pieces(node.body, name, own, scope, at_import=False)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self._pieces(child, name, own, scope, at_import=at_import)
            elif isinstance(child, ast.keyword) and ast.unparse(child) == "strict=True":
                continue  # a check like an assert: it changes nothing where lengths agree
            elif isinstance(child, ast.keyword | ast.comprehension):
                for part in ast.iter_child_nodes(child):
                    if isinstance(part, ast.expr):
                        yield from self._pieces(part, name, own, scope, at_import=at_import)

    def _change(
        self,
        operator: str,
        node: ast.expr | ast.stmt,
        after: str,
        name: str,
        own: tuple[int, int],
        scope: tuple[int, int],
        *,
        at_import: bool,
    ) -> Change:
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        before = ast.unparse(node)
        return Change(self.file, name, operator, before, after, own, at_import, scope, start, end)


def _span(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.end_lineno  # type: ignore[attr-defined]


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _only_read(node: ast.stmt, *, first: bool) -> bool:
    """Whether a statement is there for readers, importers or a type checker alone."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Global | ast.Nonlocal):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring, or an attribute's
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.FunctionDef) and any("overload" in ast.unparse(one) for one in node.decorator_list):
        return True
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(one, ast.Name) and one.id.startswith("__") for one in targets)


def _own_expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement that are run, without those of the statements in it; of an error none."""
    if isinstance(node, ast.Raise):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "targets", "target", "msg", "type"):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.expr):
                yield one
            elif isinstance(one, ast.withitem):
                yield one.context_expr
            elif isinstance(one, ast.match_case) and one.guard is not None:
                yield one.guard
    if isinstance(node, ast.Assign | ast.AugAssign):  # where a value is put
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Subscript):
                yield target.slice
