"""Rooms are entered through their front door, and no cycle hides behind a late import."""

import ast
from pathlib import Path

import metaprior

SOURCE = Path(metaprior.__file__).parent


def imports():
    """Each import of the package in itself: the file, the module that is named, whether it stands in a function."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        late = {id(node) for scope in ast.walk(tree) if isinstance(scope, ast.FunctionDef) for node in ast.walk(scope)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "metaprior":
                yield path.relative_to(SOURCE), node.module.split("."), id(node) in late
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: a relative import hides its room"


def test_other_rooms_are_entered_through_their_front_door():
    past_it = []
    for path, module, _ in imports():
        room = path.parts[0].removesuffix(".py")
        if len(module) > 2 and module[1] != room:
            past_it.append(f"{path}: {'.'.join(module)}")
    assert past_it == []


def test_nothing_of_the_package_is_imported_late():
    assert [f"{path}: {'.'.join(module)}" for path, module, late in imports() if late] == []
    assert len(list(imports())) > 300  # it looks at something


def definitions():
    """Every function and class of the package with the file it stands in."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield path.relative_to(SOURCE), node


def test_functions_fit_on_a_page():
    functions = [(path, node) for path, node in definitions() if isinstance(node, ast.FunctionDef)]
    assert [f"{path}: {node.name}" for path, node in functions if node.end_lineno - node.lineno >= 60] == []
    assert len(functions) > 900  # it looks at something


def test_nothing_is_made_of_more_than_twelve_parts():
    wide = []
    for path, node in definitions():
        if isinstance(node, ast.ClassDef):
            inits = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
            taken = sum(len(one.args.args) - 1 + len(one.args.kwonlyargs) for one in inits)
            fields = 0 if inits else sum(isinstance(one, ast.AnnAssign) for one in node.body)
            if taken > 12 or (fields > 12 and _is_record(node)):
                wide.append(f"{path}: {node.name}")
    assert wide == []


def _is_record(node):
    return "dataclass" in ast.dump(ast.Module(node.decorator_list, [])) or "NamedTuple" in str(
        list(map(ast.dump, node.bases))
    )
