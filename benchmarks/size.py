"""How much there is to read: lines of code of the whole, of its halves, and of what one comparison loads.

A line of code holds a token that is no comment, and belongs to no docstring. ``python benchmarks/size.py``
"""

import ast
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from io import StringIO
from pathlib import Path

import nbformat

PROJECT = Path(__file__).parents[1]
SRC = PROJECT / "src" / "provlab"
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
#: libraries that take long to import
LARGE = ("huggingface_hub", "matplotlib", "numba", "pandas", "scipy", "seaborn", "torch", "transformers")
#: compare two folders by phi_u as a user does
COMPARE = """
import sys
from provlab import cli
cli.main(["compare", *sys.argv[1:], "--statistic", "phi_u"])
"""


def lines_of_code(source: str) -> int:
    """Lines with code on them: no comments, no blank lines, no docstrings or other strings that stand alone."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type not in SILENT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def of_file(path: Path) -> int:
    """Lines of code of one module, or of the code cells of one notebook."""
    if path.suffix == ".py":
        return lines_of_code(path.read_text(encoding="utf-8"))
    cells = (cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
    return sum(lines_of_code(source) for source in cells)


def loaded(code: str, *arguments: str) -> tuple[list[Path], list[str]]:
    """Files of ours that a program loads, and the large libraries; the program runs in a process of its own."""
    code += "\nimport sys\nprint()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    names = set(done.stdout.splitlines()[-1].split())
    paths = [SRC.parent / name.replace(".", "/") for name in sorted(names) if name.partition(".")[0] == "provlab"]
    files = [path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths]
    return files, [name for name in LARGE if name in names]


def loaded_by_compare() -> tuple[list[Path], list[str]]:
    """What a comparison of two folders by phi_u loads."""
    with tempfile.TemporaryDirectory() as folder:
        pair = [str(Path(folder) / str(seed)) for seed in (1, 2)]
        for seed, model in enumerate(pair):
            write_model(Path(model), seed)
        return loaded(COMPARE, *pair)


def write_model(folder: Path, seed: int) -> None:
    """Write a tiny untrained Llama; in a process of its own, so that nothing of it is counted."""
    code = (
        "import torch, transformers as t; torch.manual_seed({seed})\n"
        "shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=9)\n"
        "t.LlamaForCausalLM(t.LlamaConfig(**shape)).save_pretrained({folder!r})"
    )
    command = [sys.executable, "-c", code.format(seed=seed, folder=str(folder))]
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    """Print the table."""
    counts = {path.relative_to(SRC): of_file(path) for path in sorted(SRC.rglob("*.py"))}
    rooms: Counter[str] = Counter()
    for path, count in counts.items():
        rooms[path.parts[0] if len(path.parts) > 1 else path.stem] += count
    for room, count in rooms.most_common():
        print(f"{room:<24}{count:>8,}")
    total = sum(counts.values())
    print(f"{'all of src':<24}{total:>8,}")
    print(f"{'outside chapters, zoo':<24}{total - rooms['chapters'] - rooms['zoo']:>8,}")
    paths, outside = loaded_by_compare()
    lines = sum(of_file(path) for path in paths)
    print(f"{'compare by phi_u':<24}{lines:>8,}  in {len(paths)} modules; with {', '.join(outside) or 'numpy alone'}")
    for path in sorted((PROJECT / "notebooks").glob("*.ipynb")):
        print(f"  {path.stem:<22}{of_file(path):>8,}")


if __name__ == "__main__":
    main()
