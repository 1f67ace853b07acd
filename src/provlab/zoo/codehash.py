"""A hash of what code does: comments, docstrings and layout do not count.

Zoo models are addressed by the code that trains them, and pages by the code that they call, so that a mended sentence
in a docstring does not throw away minutes of training, and a changed line of the training loop does.
"""

import ast
import hashlib
import threading
from pathlib import Path

_PARSER = threading.Lock()  # two threads in it at once end in a SystemError in Python 3.11


def parsed(source: str) -> ast.Module:
    """Return the syntax tree of a Python source, without its docstrings."""
    with _PARSER:
        tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            match first:
                case ast.Expr(value=ast.Constant(value=str())):
                    node.body = node.body[1:]
    return tree


def tree_digest(tree: ast.Module) -> str:
    """Hex SHA-256 of a syntax tree."""
    with _PARSER:
        dumped = ast.dump(tree)
    return hashlib.sha256(dumped.encode()).hexdigest()


def source_digest(source: str) -> str:
    """Hex SHA-256 of a Python source's syntax tree without comments and docstrings."""
    return tree_digest(parsed(source))


def module_digests(*stems: str) -> dict[str, str]:
    """`source_digest` of modules of this package, by file stem."""
    here = Path(__file__).parent
    return {stem: source_digest((here / f"{stem}.py").read_text(encoding="utf-8")) for stem in stems}
