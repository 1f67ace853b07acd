"""How much there is to read: lines of code of the whole, of its parts, of what one comparison loads, of each notebook.

A line of code holds a token that is no comment, and belongs to no docstring. Each size stands beside its bound, and
each notebook's calls to the library beside those to its chapter, by the names that it imports.
``python benchmarks/size.py`` exits with 1 where a bound is passed.
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
BOUNDS = {
    "all of src": 21_500,
    "library, without chapters and zoo": 11_500,
    "chapters": 8_500,
    "zoo": 1_500,
    "tests": 19_000,
    "compare by phi_u, lines": 4_700,
    "compare by phi_u, modules": 55,
}
NOTEBOOK = 250  # lines of code of one
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


def calls(path: Path) -> tuple[int, int]:
    """Calls of a notebook by names that it imports: from the library, and from its chapter."""
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    tree = ast.parse("\n".join(cells))
    names: dict[str, bool] = {}  # name -> whether it comes from a chapter
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                source = f"{module}.{alias.name}".lstrip(".")
                if source.partition(".")[0] == "provlab":
                    names[alias.asname or alias.name] = source.startswith("provlab.chapters")
    origins: Counter[bool] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            root: ast.expr = node.func
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in names:
                origins[names[root.id]] += 1
    return origins[False], origins[True]


def sizes() -> dict[str, int]:
    """Every size that has a bound, by its name."""
    parts: Counter[str] = Counter()
    for path in SRC.rglob("*.py"):
        parts[path.relative_to(SRC).parts[0]] += of_file(path)
    files, _ = loaded_by_compare()
    return {
        "all of src": sum(parts.values()),
        "library, without chapters and zoo": sum(parts.values()) - parts["chapters"] - parts["zoo"],
        "chapters": parts["chapters"],
        "zoo": parts["zoo"],
        "tests": sum(map(of_file, (PROJECT / "tests").rglob("*.py"))),
        "compare by phi_u, lines": sum(map(of_file, files)),
        "compare by phi_u, modules": len(files),
    }


def main() -> int:
    """Print each size beside its bound; 1 if a bound is passed."""
    passed = False
    print(f"{'lines of code':<36}{'size':>8}{'bound':>8}")
    for name, size in sizes().items():
        passed |= size > BOUNDS[name]
        print(f"{name:<36}{size:>8,}{BOUNDS[name]:>8,}{'  above' if size > BOUNDS[name] else ''}")
    print(f"\n{'notebook':<36}{'lines':>8}{'bound':>8}{'calls: library':>16}{'chapter':>9}")
    for path in sorted((PROJECT / "notebooks").glob("*.ipynb")):
        lines, (library, chapter) = of_file(path), calls(path)
        faults = ["above"] * (lines > NOTEBOOK) + ["calls its chapter more than the library"] * (chapter > library)
        passed |= bool(faults)
        print(f"{path.stem:<36}{lines:>8}{NOTEBOOK:>8}{library:>16}{chapter:>9}  {', '.join(faults)}".rstrip())
    return int(passed)


if __name__ == "__main__":
    sys.exit(main())
