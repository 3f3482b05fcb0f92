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
