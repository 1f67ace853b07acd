"""Count the lines of the notebooks that measure, and those of them that a page folds: ``python benchmarks/folded.py``.

A cell measures if it keeps a measurement, runs a study, judges a claim, or gives a name to something that a later cell
reads. Parameters, set-up, numbers by hand, solutions and the summary are left out.
"""

import ast
import re
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
LEFT_OUT = {"solution", "by-hand", "parameters"}
CALLS = re.compile(r"provlab_study\.begin\(|run\.(finish|summary)\(")
KEEPS = re.compile(r"run\.(measure|study|judge)\(")
#: names that many cells use for something of their own
PASSING = {"table", "rows", "caption", "shown", "row", "frame", "name", "words", "a", "b"}


def names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Names that code loads, or stores."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def counted(path: Path) -> dict[bool, int]:
    """Lines of cells that measure, by whether they are folded."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    cells = [cell for cell in cells if not LEFT_OUT & set(cell.metadata.get("tags", []))]
    trees = [ast.parse(cell.source) for cell in cells]
    lines = {True: 0, False: 0}
    for i, (cell, tree) in enumerate(zip(cells, trees, strict=True)):
        made = names(tree, ast.Store) | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        later = set().union(*(names(other, ast.Load) for other in trees[i + 1 :]))
        if CALLS.search(cell.source) or not (KEEPS.search(cell.source) or made & later - PASSING):
            continue
        body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
        text = "\n".join(ast.get_source_segment(cell.source, node) or "" for node in body)
        lines["hide-input" in cell.metadata.get("tags", [])] += sum(bool(line.strip()) for line in text.splitlines())
    return lines


if __name__ == "__main__":
    total = {True: 0, False: 0}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        lines = counted(path)
        total = {folded: total[folded] + n for folded, n in lines.items()}
        if sum(lines.values()):
            print(f"{path.stem:<24}{lines[False]:>5} open {lines[True]:>5} folded")
    share = total[True] / sum(total.values())
    print(f"{'all':<24}{total[False]:>5} open {total[True]:>5} folded, {share:.0%}")
