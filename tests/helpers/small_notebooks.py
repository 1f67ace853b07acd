"""Notebooks of a few cells, written where a test needs them."""

import nbformat

PARAMETERS = (
    'profile: str = "default"  # label\nmodels: list[str] = ["a"]  # sources\nseed: int = 0\nscale: float = 1.0\n'
    "deep: dict = {}\nfree = None"
)


def write(path, *cells, parameters=PARAMETERS):
    made = [nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})] if parameters else []
    made += [nbformat.v4.new_code_cell(cell) for cell in cells]
    for i, cell in enumerate(made):
        cell["id"] = f"cell-{i}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path
