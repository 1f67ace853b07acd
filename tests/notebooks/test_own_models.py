"""Pages run on unrelated models of a reader's own: no sentence there claims what was found on the default zoo.

A finding is written from the page's records, or stands in a paragraph that begins with the words "On the default zoo".
Every page that takes models as parameters is run here, all in one kernel, with the smallest parameters that it accepts.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from itertools import product
from pathlib import Path

import nbformat
import pytest
import tiny_models
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from provlab import zoo
from provlab_study.commands.book import filled
from provlab_study.publishing.listing import on_own_models
from provlab_study.publishing.parameters import checked, parameters_of

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
# parameters of each page, of the reader's models by number
PAGES: dict[str, Callable[[list[str]], dict[str, object]]] = {
    "llama_tree": lambda mine: {
        "models": mine[:3], "n_permutations": 19, "n_sequences": 4, "sequence_length": 16, "n_copies": 19,
        "further": mine[:3],
    },
    "audit": lambda mine: {"suspect": mine[0], "base": mine[1], "control": mine[2], "sequences": 100, "shape": "tiny"},
    "two_models": lambda mine: {
        "first": mine[0], "second": mine[1], "length": 6, "n": 100, "shares": [0.0, 1.0], "exchange_steps": 10,
        "prompt": "the model", "seeds": mine[:3],
    },
    "miqu": lambda mine: {
        "base": mine[0], "leak": mine[1], "controls": [mine[2]], "tuned": mine[1], "block_sizes": [32],
    },
    "encoders_and_fused": lambda mine: {"fused": mine[0], "fused_tuned": mine[1]},
    "pruning_forensics": lambda mine: {
        "parents": [mine[0]], "children": [mine[1]], "strangers": [mine[2]], "n_sequences": 4,
    },
    "power": lambda mine: {"base": mine[0], "tunes": [mine[1]], "widths": [64], "n_repeats": 4, "n_noise": 1},
    "olmo_seeds": lambda mine: {"runs": mine[:4], "reruns": mine[4:6], "tokens": [1000, 2000]},
    "mlp_retraining": lambda mine: {
        "base": mine[0], "tuned": mine[1], "stranger": mine[2], "steps": 20, "on_the_way": [0.5], "replicates": 2,
        "variants": False, "narrow": [], "n_sequences": 4,
    },
    "model_diff": lambda mine: {  # two pairs, each of a tokenizer of its own
        "small": mine[0], "medium": mine[1], "first": mine[6], "second": mine[7], "code": "", "prose": "",
        "length": 6, "long_length": 8, "n": 200, "n_long": 200, "n_cold": 200, "n_chains": 2, "n_pieces": 40,
        "shares": [0.0, 1.0], "exchange_steps": 20, "exchange_chains": 2, "ladder_levels": 3, "ladder_steps": 6,
    },
    "striped_hyena": lambda mine: {"parent": mine[0], "hybrids": [mine[1]], "unrelated": [mine[2]], "n_draws": 20},
    "evasion": lambda mine: {"models": mine[:3], "pair": mine[:2], "stranger": mine[2], "n_sequences": 4},
    "how_it_scales": lambda mine: {
        "models": mine[:3], "diffed": mine[:2], "shape": "tiny", "pruned_shape": "tiny", "sizes": [32, 64],
        "columns": 8, "full": [64, 16], "diff_shapes": ["gpt-2"], "diff_lengths": [6, 8],
    },
    "plagiarism": lambda mine: {
        "base": mine[0], "tune": mine[1], "others": [mine[2]], "noises": [0.001], "noise_seeds": 1, "length": 6,
        "n": 100, "n_chains": 2, "n_swept": 100, "tempers": [1.0, 2.0], "shares": [0.0, 1.0], "n_pieces": 40,
        "statistics": ["phi_u"],
    },
    "family_forest": lambda mine: {
        "models": mine[:3], "n_grown": 4, "arms": ["plain"], "kin_arms": ["siblings"], "merge_methods": ["linear"],
        "n_draws": 10,
    },
    "attack_lab": lambda mine: {
        "families": [f"{mine[0]} | {mine[1]} | {mine[2]} |"], "attacks": ["T2", "noise=1"], "n_trained": 0,
    },
}  # fmt: skip
TOKENS = 32_000  # as many public models have
NAMED = re.compile(r"\bmine-0\d\b")  # a model as the folders here are called
#: pages that say in their first cell what models they would need, or why they read none
WITHOUT = {
    "calibration", "distillation", "exchangeability", "in_the_wild", "matching_and_pvalues", "public_cases",
    "robust_null", "toy_modulo30",
}  # fmt: skip
READING = {"scoreboard", "status", "what_failed"}  # they read what other pages left
METHOD = {"attack_lab", "how_it_scales"}  # their words explain cells and tests in the phrases of findings

# Reading a page -------------------------------------------------------------------------------------------------------

# how a paragraph or a sentence about the study's own run begins
ZOO = ("On the default zoo", "With the default parameters", "With these models")
# paragraphs about something else than the numbers of the page, by how they begin; and sections of such paragraphs
OTHERS = ("What the paper", "What you will learn", "Where the models come from", "Needs")
SECTIONS = ("What this does not show", "Exercises", "References", "On the default zoo")
FINDINGS = re.compile(
    r"(?<!what )\b(is|are|was|were) (still |never |all )?(found|missed|rejected)\b"
    r"|\bfinds? (every|all|each|none|the base|its base|a descendant|an encoder)\b"
    r"|\b(every|each|all) (dependent |independent |related |unrelated )?pairs?"
    r"( (with|without|across|of|from) [^.,]*)? (is|are|looks?|stays?|reach(es)?|gives?|has|have)\b"
    r"|\b(holds|fails) (here|on)\b|\bthese toys\b|\bzoo results\b"
    r"|\bnever (loses|finds|misses)\b|\b(loses|misses) (the trail|pairs|every|none)\b"
    r"|\bstays? (at|near) (chance|its floor|the floor)\b|\bstill stands\b|\bholds on\b"
    r"|\b(does not|cannot|do not) (tell|separate)\b|\bnone of them\b|\blook like strangers\b|\bis told (apart )?from\b"
    r"|\bstrangers\b[^.]* (alone|at chance)\b",
    flags=re.IGNORECASE,
)
COUNTED = re.compile(r"\d\W* of \W*\d")  # what a cell counted in its records: "**0 of 3** are found"
CONDITION = re.compile(r"(if|where|when|whether|suppose)\b", flags=re.IGNORECASE)  # such a sentence claims nothing


def paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """Section and text of each paragraph of a page's words; boxes of exercises, code and formulas are left out."""
    text = re.sub(r"(?ms)^(`{3,})[^\n]*\n.*?^\1$", "", text)
    text = re.sub(r"(?s)\$\$.*?\$\$", "", text)
    section = ""
    for paragraph in re.split(r"\n\s*\n", text):
        if heading := re.match(r"#+ (.*)", paragraph.strip()):
            section = heading[1]
        elif paragraph.strip():
            yield section, " ".join(paragraph.replace("*", "").split())


def shown(page: NotebookNode) -> Iterator[str]:
    """What the cells wrote, but for summary and judgements, held by the run's records, and the last cell's verdicts."""
    for cell in page.cells[:-1]:
        for output in cell.get("outputs", []):
            if {"lead", "claim"} & set(output.get("metadata", {})):
                continue
            if output.output_type == "stream" and output.name == "stdout":
                yield output.text
            for kind in ("text/html", "text/markdown", "text/plain"):
                if kind in output.get("data", {}):
                    yield unescape(re.sub(r"(?s)<style.*?</style>|<[^>]+>", " ", output.data[kind]))
                    break


def sentences(text: str) -> list[str]:
    """Cut a text behind full stops, colons and semicolons."""
    return re.split(r"(?<=[.:;])\s", text)


def claimed(page: NotebookNode) -> list[str]:
    """Sentences of a page that claim a finding of the zoo's, in its words or in what its cells wrote."""
    words = "\n\n".join(cell.source for cell in page.cells if cell.cell_type == "markdown")
    paragraphs_kept = [
        text for section, text in paragraphs(words) if section not in SECTIONS and not text.startswith((*ZOO, *OTHERS))
    ]
    written = [sentence for text in shown(page) for sentence in sentences(text) if not COUNTED.search(sentence)]
    claims = [
        sentence
        for sentence in [part for text in paragraphs_kept for part in sentences(text)] + written
        if FINDINGS.search(sentence) and not CONDITION.match(sentence) and "default zoo" not in sentence
    ]
    names = re.compile(rf"\bzoo:|\b({'|'.join(sorted(zoo.families('default'), key=len, reverse=True))})\b")
    return claims + [text for text in shown(page) if names.search(text)]


# The pages ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """One kernel in which pages run one after the other, each in a namespace of its own."""

    manager: KernelManager
    client: BlockingKernelClient
    models: list[str]

    def run(self, name: str, parameters: dict[str, object] | None = None) -> NotebookNode:
        """Execute a page on the reader's models, with these parameters or the smallest that it accepts."""
        notebook = load_notebook_node(str(NOTEBOOKS / f"{name}.ipynb"))
        page = parameterize_notebook(notebook, {"profile": "own", **(parameters or PAGES[name](self.models))})
        page.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
        notebook_client = NotebookClient(page, km=self.manager, timeout=300)
        notebook_client.kc = self.client
        notebook_client.execute()
        return page


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory, new_model, save_model, text) -> Iterator[Kernel]:
    """Six models that share nothing but a tokenizer, two of another one, and a kernel."""
    root = tmp_path_factory.mktemp("own")
    folders = [str(save_model(new_model(100 + n, vocab_size=TOKENS), root / f"mine-{n:02d}")) for n in range(8)]
    for folder in folders:
        tiny_models.with_tokens(Path(folder), TOKENS)
    for n in (6, 7):
        tiny_models.as_llamas(Path(folders[n]), text, 100)
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(extra_arguments=["--log-level=ERROR"], cwd=str(NOTEBOOKS.parent))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    yield Kernel(manager, client, folders)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_every_page_runs_on_ones_own_models_or_says_in_its_first_cell_why_not() -> None:
    pages = {path.stem: on_own_models(path) for path in NOTEBOOKS.glob("*.ipynb")}
    assert pages.keys() == {*PAGES, *WITHOUT, *READING}
    assert [name for name, (takes, why) in pages.items() if takes != "yes" and not why and name not in READING] == []
    assert {name for name, (takes, _) in pages.items() if takes == "yes"} <= PAGES.keys()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_takes_three_models_of_ones_own_or_says_how_many(name: str) -> None:
    """What the listing promises is asked of the rules."""
    path = NOTEBOOKS / f"{name}.ipynb"
    if on_own_models(path)[0] == "yes":
        assert checked(path, filled(parameters_of(path), ["/a", "/b", "/c"]))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_on_ones_own_models_claims_nothing_of_the_zoo(name: str, kernel: Kernel) -> None:
    page = kernel.run(name)
    assert name in METHOD or claimed(page) == []
    summary = [o for cell in page.cells for o in cell.get("outputs", []) if "lead" in o.get("metadata", {})]
    assert NAMED.search(" ".join(summary[0].metadata["own"])), "the page opens with nothing about these models"
    (last,) = (cell for cell in page.cells if cell.source.strip() == "run.finish()")
    verdicts = str(last.outputs)
    assert "✓ holds" not in verdicts
    assert "✗ fails" not in verdicts


JUDGED = {  # with a file of lineage: the claim, and the smallest parameters by which it can be judged
    "matching_and_pvalues": ("I3", {"n_permutations": 199, "n_rematch": 3, "n_joint": 599}),
    "llama_tree": (
        "I4",
        {"n_permutations": 19, "n_sequences": 4, "sequence_length": 16, "n_copies": 99, "further": []},
    ),
}


@pytest.mark.parametrize(
    ("name", "n_blocks"), [("matching_and_pvalues", 2), ("matching_and_pvalues", 1), ("llama_tree", 2)]
)
def test_a_claim_is_judged_on_ones_own_folders_by_a_file_of_lineage(
    name: str, n_blocks: int, kernel: Kernel, new_model, save_model, tmp_path: Path
) -> None:
    seeds = {"root": 1, "child": 1, "second": 2, "third": 3}
    made = {model: new_model(seed, num_hidden_layers=n_blocks) for model, seed in seeds.items()}
    folders = {model: save_model(network, tmp_path / model) for model, network in made.items()}
    tiny_models.rewrite(folders["child"], lambda tensors: tensors["model.norm.weight"].mul_(1.01))
    lineage = tmp_path / "lineage.csv"
    lineage.write_text("{child},{root}\n{second},\n{third},\n".format(**folders))
    claim, smallest = JUDGED[name]
    page = kernel.run(name, {"models": list(map(str, folders.values())), "lineage": str(lineage), **smallest})
    outputs = (output for cell in page.cells for output in cell.get("outputs", []))
    judged = [output.data["text/plain"] for output in outputs if output.get("metadata", {}).get("claim") == claim]
    assert judged
    assert all(text.startswith((f"{claim} holds", f"{claim} fails")) for text in judged), judged
    assert name != "matching_and_pvalues" or judged[0].startswith("I3 holds"), judged


PLANTED = [
    "On a tree of 21 models every pair with a common origin is found.",
    "The claim fails on these toys.",
    "Block-wise quantisation never loses the trail.",
    "$\\phi_U$ finds every dependent pair, siblings included.",
    "What follows are *zoo results*.",
]


@pytest.mark.parametrize(
    ("sentence", "where"),
    [*product(PLANTED, ("words", "output", "table")), ("the smallest p-value is that of oak-chat", "output")],
)
def test_a_planted_finding_is_seen(sentence: str, where: str) -> None:
    assert claimed(planted(sentence, where)) != []


@pytest.mark.parametrize("start", ZOO)
def test_findings_of_the_zoo_may_stand_under_their_words(start: str) -> None:
    assert claimed(planted(f"{start}, every pair with a common origin is found.", "words")) == []


def planted(sentence: str, where: str) -> NotebookNode:
    """A page with a sentence added to its words, to what a cell prints, or to a table that it shows."""
    page = nbformat.read(NOTEBOOKS / "audit.ipynb", as_version=4)
    data = {"text/html": f"<table><tr><td>{sentence}</td></tr></table>", "text/plain": ""}
    cell = nbformat.v4.new_code_cell("print()")
    if where == "words":
        cell = nbformat.v4.new_markdown_cell(f"Some words before.\n\n{sentence}")
    elif where == "output":
        cell.outputs = [nbformat.v4.new_output("stream", text=sentence)]
    else:
        cell.outputs = [nbformat.v4.new_output("display_data", data=data)]
    page.cells.insert(3, cell)
    return page
