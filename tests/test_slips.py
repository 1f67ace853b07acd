"""Mistakes at the command line: each is refused before any work, in one line that names the thing and the way out."""

import errno
import importlib
import os
import re
import shlex
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models
from small_notebooks import write

from provlab import HOMES
from provlab.cli import COMMANDS, cluster
from provlab.errors import CheckpointError
from provlab_study.publishing.listing import OWN_MODELS
from provlab_study.publishing.results import Results

UP = "model.layers.1.mlp.up_proj.weight"
#: a line -> what is said of it; names in braces are models, or things that `Given` makes
SLIPS = {
    # the words
    "": r"Missing command; there are compare, study, .* \(see provlab --help\)",
    "comprae a b": r"No such command 'comprae'. Did you mean 'compare'\? \(see provlab --help",
    "help compar": "Did you mean 'compare'",
    "shelf ad zoo:oak --shelf none": "No such command 'ad'. Did you mean 'add'",
    "shelf": "Missing command; there are add, list, show, remove",
    "zoo lst": "No such command 'lst'. Did you mean 'list'",
    "zoo train": "No such command 'train'. Did you mean 'build'",
    "zoo trian": "No such command 'trian'; there are list, build",
    "--verison": "No such option '--verison'. Did you mean '--version'",
    "compare zoo:oak zoo:elm --statistc phi_u": r"Did you mean '--statistic'\? \(see provlab compare --help",
    "compare zoo:oak zoo:elm --zzz": r"No such option '--zzz' \(see provlab compare --help",
    "study zoo:oak zoo:elm --memroy 8GB": "Did you mean '--memory'",
    "study --memroy 8GB": "No such option '--memroy'. Did you mean '--memory'",
    "compare": r"Missing argument 'A'; give provlab compare \[OPTIONS\] A B \(see provlab compare --help",
    "compare zoo:oak": r"Missing argument 'B'; give provlab compare \[OPTIONS\] A B",
    "tree": r"Missing argument 'MODELS...'; give provlab tree \[OPTIONS\] MODELS...",
    "shelf list": "Missing option '--shelf'; give provlab shelf list",
    "compare zoo:oak zoo:elm zoo:yew": "extra argument .zoo:yew.; two models .*, provlab study A B C",
    "compare zoo:oak zoo:elm --json": "Option '--json' requires an argument",
    "compare zoo:oak zoo:elm --statistic": "Option '--statistic' requires an argument",
    # values of options
    "compare zoo:oak zoo:elm --seed x": "'--seed': 'x' is not a valid int",
    "diff zoo:oak zoo:elm --fail-on none": "there is nothing to fail on that is called 'none'; there are answers",
    "diff zoo:oak zoo:elm --fail-on text=none": "the size of text is a number of nats per token",
    "diff zoo:oak zoo:elm --range 3": "'--range': it is two numbers such as 0.5:1, not '3'",
    "diff zoo:oak zoo:elm --tempers a": "'--tempers': it is numbers such as 1,1.5, not 'a'",
    "diff zoo:oak zoo:elm --range 3:4 --from-text 0:1": "give one of them",
    "diff zoo:oak zoo:elm --level 0.1": "--level is that of --fail-on; give both",
    "tree zoo:oak zoo:elm --dot --mermaid": "give one of them",
    "compare zoo:oak zoo:elm --blocks 2-1": "'--blocks': it is a list such as 0,1,4-7, not '2-1'",
    "study zoo:oak zoo:elm --blocks x": "'--blocks': it is a list such as 0,1,4-7, not 'x'",
    "compare zoo:oak zoo:elm --blocks 0-4000000000": "no model has a block 4000000000; .* from 0",
    "compare zoo:oak zoo:elm --json no/x.json": "'--json': no is no folder, so x.json cannot be written there; make it",
    "compare zoo:oak zoo:elm --json here": "'--json': here is a folder; give a file name, or - for standard output",
    "compare zoo:oak zoo:elm -o here": "'--report': here exists; name a new folder",
    "compare zoo:oak zoo:elm --statistic phi_uu": r"no statistic is called 'phi_uu'; there are .*did you mean phi_u",
    "compare zoo:oak zoo:elm --statistic PHI_U": r"no statistic is called 'PHI_U'; .*did you mean phi_u",
    "compare zoo:oak zoo:elm --dtype fp16": r"not 'fp16'; did you mean float16\?",
    "compare zoo:oak zoo:elm --dtype bf16": r"not 'bf16'; did you mean bfloat16\?",
    "compare zo:oak zoo:elm": r"no scheme 'zo'; did you mean zoo:oak\?",
    "study Zoo:oak zoo:elm": r"no scheme 'Zoo'; did you mean zoo:oak\?",
    "compare zoo:oak ''": "a model's name is empty",
    "disguise zoo:oak new --with t1": r"no attack 't1'; did you mean T1\?",
    "disguise zoo:oak new --with x7": r"no attack 'x7'; there are T1, .* \.\.\. .*redraw$",
    "verify none": "none is no folder here; give one that --report",
    "compare zoo:oak zoo:elm --device gpu": "no device 'gpu'; did you mean cuda",
    "compare zoo:oak zoo:elm --fail-on rejectd": "there is no outcome 'rejectd'; did you mean rejected",
    "compare oak elm": "oak is no folder here; did you mean zoo:oak",
    "compare gpt2 zoo:oak": "gpt2 is no folder here; did you mean openai-community/gpt2",
    "compare bert-base-uncased zoo:oak": "did you mean google-bert/bert-base-uncased",
    "compare zoo:oak zoo:oakk": "no zoo model 'oakk'; did you mean oak",
    "compare zoo:oak /no/such": "/no/such does not exist; give a checkpoint folder",
    "compare zoo:oak ~/no/such": "~/no/such does not exist",
    "diff zoo:oak zoo:oakchat": "no zoo model 'oakchat'; did you mean oak-chat",
    "diff zoo:oak zoo:elm --reference zoo:alm": "no zoo model 'alm'; did you mean elm",
    "study zoo:oak": "at least two models, not 1",
    "study zoo:oak zoo:oak": "models must be distinct, .*zoo:oak",
    "study zoo:oak zoo:oakk": "no zoo model 'oakk'",
    "study zoo:oak zoo:elm --memory lots": "memory must be a size such as 8GB or 512MiB, not 'lots'",
    "tree zoo:oak": "at least two models, not 1",
    "tree zoo:oak zoo:elm --memory lots": "memory must be a size",
    "tree zoo:oak zoo:elm --statistic phi_uu": "did you mean phi_u",
    "tree zoo:oak zoo:elm --outgroup zoo:fir": "the outgroup zoo:fir is not among the models",
    "identify zoo:oakk --shelf shelf": "no zoo model 'oakk'",
    "identify zoo:oak --shelf none": "none holds no fingerprints; make some by provlab shelf add",
    "shelf list --shelf none": "none holds no fingerprints",
    "shelf show --shelf none": "Missing argument 'MODEL...'; give provlab shelf show",
    "shelf add oak --shelf none": "did you mean zoo:oak",
    "disguise zoo:oak here": "here exists; name a new folder",
    "disguise zoo:oak new --with T1+splt": "no attack 'splt'; did you mean split",
    "disguise zoo:oakk new": "no zoo model 'oakk'",
    "zoo list oka": "no zoo model is called oka; did you mean oak",
    "compare zoo:oak zoo:elm --text here/none.txt": "here/none.txt cannot be read as UTF-8",
    "compare zoo:oak zoo:elm --text /dev/null": "/dev/null is empty; give some words",
    "study zoo:oak zoo:elm --text /dev/null": "/dev/null is empty",
    "compare zoo:oak zoo:elm --part tower=": "the prefix behind tower= is missing; give .*: tower=PREFIX",
    "compare zoo:oak::vision= zoo:elm": "the prefix behind vision= is missing",
    "study zoo:oak zoo:elm --memory -3GB": "memory must be a size such as 8GB or 512MiB, not '-3GB'",
    "compare zoo:oak zoo:elm --permutations 0": "error: --permutations must be a whole number of at least 1, not 0",
    "diff zoo:oak zoo:elm --sequences 0": "error: --sequences must be a whole number of at least 40, not 0",
    "tree zoo:oak zoo:elm --outgroup elm": r"the outgroup elm is not among the models; did you mean zoo:elm\?",
    "disguise zoo:oak new --with T1,T2": r"no attack 'T1,T2'; several are joined by \+: T1\+T2",
    "verify here": "here holds no statement.json, so it is no report; give one that --report wrote",
    "run tree": "the study's notebooks are not in .* nor above it; clone provlab's repository, run make env there",
    "run --list": "the study's notebooks are not in",
    "claims": "the study's notebooks are not in",
    "reproduce smoke.yml -o out": "the study's notebooks are not in",
    "run none.ipynb": "there is no notebook none.ipynb; give a path that exists, or a name in notebooks/",
    # parameters of a page, refused before its kernel starts
    "run {page} -p models={base},./nothere -p seed=1": r"\./nothere does not exist; give a checkpoint folder that does",
    "run {page} -p models=": "parameter models is empty; give 2 models or more",
    "run {page} -p models=,": "parameter models is empty; give 2 models or more",
    "run {page} -p models={base}": "parameter models takes 2 models or more, not 1",
    "run {page} -p models={base},{base}": "parameter models names .*base more than once; give each model once",
    "run {page} -p models={base},{base}/": "parameter models names one model twice: .*base and .*base/; give it once",
    "run {page} -p models={base},{truncated}": "model.safetensors is truncated or corrupt .*copy it",
    "run {page} -p models={base},zoo:oakk": "no zoo model 'oakk'; did you mean oak",
    "run {page} -p models={base},oak": "oak is no folder here; did you mean zoo:oak",
    "run {page} -p models={base},{tuned} -p lineage=none.csv": "parameter lineage: there is no file none.csv; give one",
    "run {page} -p models={base},{tuned} -p lineage={of_others}": "tells of none of the models .*as it is given",
    "run {page} -p models={base},{tuned} -p lineage={circle}": "its own ancestor; one of its lines is the wrong way",
    "run {page} -p n_permutations=0": "n_permutations must be a whole number of at least 1, not 0",
    "run {page} -p seed=-1": "seed must be a whole number of at least 0, not -1",
    "run {page} -p device=gpu": r"there is no device 'gpu'; did you mean cuda\?",
    "run {page} -p n=2": "parameter n must be at least 40, or 0, not 2",
    "run {page} -p shares=0.1,2": "parameter shares must be at least 0 and at most 1, not 2.0",
    "run {page} -p shares=0.1": "parameter shares takes 2 items, not 1",
    "run {page} -p base={base}": "page: with base give child too, which goes with it",
    "run {page} -p sizes=1,2": r"sizes is declared as tuple\[int, ...\], of which no value can be given; declare it as",
    "run {page} -p limit=x": r"parameter limit must be int, not 'x'",
    "run {page} models={base},{tuned}": "extra argument .*; a parameter is -p name=value, a list -p name=a,b",
    "run {page} -p models={base} {tuned}": "extra argument .*a list -p name=a,b",
    "run {page} -p models = {base},{tuned}": "extra arguments .*a list -p name=a,b",
    "run {page} -p models={base} -p models={tuned}": "models is given twice; give it once, a list as models=a,b",
    "run {page} -p 'models={base};{tuned}'": r"takes 2 models or more, not 1 \(.*base;.*tuned\)",
    "run {page} -p 'models={base} {tuned}'": r"takes 2 models or more, not 1 \(.*base .*tuned\)",
    "run {page} -p models=[{base},{tuned}": "models is not readable as YAML: .*; a list is given as models=a,b",
    "run {page} -p model={base},{tuned}": r"has no parameter 'model' \(did you mean models\?\)",
    "run {page} -p folders_of_models={base},{tuned}": r"_models' \(models are given as models, base, child\)",
    "run {page} -p n_permutations=ten": "n_permutations must be int, not 'ten'",
    "run {page} -p profile=../x": "profile must be a plain name",
    "run {page} -p models={base},{tuned} -o here": "here is a folder; give a file name",
    "run {text} -p seed=1": "is no notebook that can be read .*; restore it",
    "run {no_models} -p models={base},{tuned}": "takes no models of your own. It trains networks of its own.$",
    "run {reader} -p models={base},{tuned}": "takes no models of your own. It shows what other pages found.$",
    "run {two_cells} -p seed=1": "2 cells of .* are tagged parameters, and a later one would undo what is given",
    "book zoo:oak zoo:elm": "the study's notebooks are not in",
    "claims --results none": "--results none is no folder of results; give that",
    "claims --results {damaged_results}": "llama_tree.json is damaged .*; delete that file and run again",
    "zoo build oka": "no zoo model 'oka'; did you mean oak",
    # models in a form that another command takes
    "study {base},{tuned}": "is no model; models are given with blanks between: .*base .*tuned",
    "compare zoo:oak,zoo:elm": "models are given with blanks between: zoo:oak zoo:elm",
    "tree org/a,org/b": "models are given with blanks between: org/a org/b",
    "study {base} {tuned} --statistic phi_u phi_h": "phi_h is a statistic and no model; .*--statistic phi_u,phi_h",
    "compare {base}/config.json {tuned}": "config.json is a file; give the folder that holds config.json",
    "study {base} {tuned} --memory 8": "memory: 8 bytes is less than the libraries take",
    "study {base} {tuned} --workers 0": "--workers must be a whole number of at least 1, not 0",
    "tree {base} {tuned} --picture here/x.bmp": "here/x.bmp is no name of such a file; give one that ends in .png",
    "tree {base} {tuned} --picture -": "'--picture': - is no name of such a file; give one that ends in .png",
    "diff {base} {tuned} --html page": "'--html': page is no name of such a file; give one that ends in .html",
    "compare {base} {tuned} --blocks 7": "there is no block 7: these models have blocks 0 to 2",
    "plan {base}": "at least two models, not 1",
    "check none.yml": "none.yml does not exist; give a file of claims",
    "check {list_of_claims}": "the claims are a list, and no mapping; write MODEL: a list of claims",
    "check --card {base}": "README.md does not exist; give the folder of a model with its card",
    # studies
    "study {base} {tuned} --resources GPU=1": "give --scheduler too",
    "study {base} {tuned} --scheduler tcp://127.0.0.1:1 --resources GPU": "a list such as GPU=1, not 'GPU'",
    "study {base} {tuned} --scheduler tcp://127.0.0.1:1 --workers 2": "give one of them",
    "study {base} {tuned} --scheduler tcp://127.0.0.1:{port}": "no scheduler answers at tcp://",
    "study {base} {tuned} --pairs {base}": "--pairs are two models such as zoo:oak,zoo:elm",
    "study {base} {tuned} --pairs {base},zoo:elm": "pairs name zoo:elm, which is not among",
    "study {base} {tuned} --results {file}": "file is a file; give a folder",
    # checkpoints
    "compare {base} {without_mlps} --statistic phi_u": "the architecture MambaForCausalLM has no MLPs",
    "compare {base} {of_two_blocks} --statistic phi_u": "but its config counts 2 blocks",
    "compare {base} {truncated} --statistic phi_u": "model.safetensors is truncated or corrupt .*copy it",
    "compare {empty} {base}": "empty has no config.json; give the folder that holds it",
    "compare {without_config} {base}": "but no config.json beside it, which names the model; put the model's there",
    "compare {cut_config} {base}": "config.json is no valid JSON; copy it again",
    "compare {without_bytes} {base}": "model.safetensors is truncated or corrupt .*copy it again",
    "compare {pickled} {base}": "only as pickle .*convert them to safetensors, or pass --allow-pickle",
    "compare {text}.gguf {base}": r"text.ipynb.gguf does not exist; give a checkpoint folder that does",
    "compare {bad_gguf} {base}": r"x.gguf is truncated or corrupt \(GGUF magic invalid\); copy it again",
    "compare {base} {of_nan} --statistic phi_u": f"{UP} holds 3 NaN and 0 Inf among 1152 values; copy",
}


#: the parameters of a page
PAGE = """profile: str = "default"  # label
models: list[str] = ["zoo:*"]  # sources [2 models or more]
lineage: str = ""  # what is known of them [a file; or empty]
base: str = "zoo:oak"  # one [a model]
child: str = "zoo:oak-chat"  # made of it [a model; needed with base]
n: int = 400  # sequences; 0 to leave them out [at least 40; or 0]
shares: list[float] = [0.1, 0.5]  # quantiles [at least 0; at most 1; just 2]
sizes: tuple[int, ...] = (1, 2)  # of groups
limit: Optional[int] = None  # at most
n_permutations: int = 99  # T
seed: int = 0  # of all draws
device: str = "cpu"  # where
"""


class Given(dict):
    """Models by name, and the bad things of the table, made where a line names them."""

    def __init__(self, models, folder):
        super().__init__(models)
        self.folder = folder

    def __missing__(self, name):
        return getattr(self, name)()

    def changed(self, change=None, **config):
        folder = Path(shutil.copytree(self["base"], self.folder / "bad"))
        tiny_models.edit_json(folder / "config.json", lambda kept: kept.update(config))
        if change:
            tiny_models.rewrite(folder, change)
        return folder

    def without_mlps(self):
        return self.changed(architectures=["MambaForCausalLM"])

    def of_two_blocks(self):
        return self.changed(num_hidden_layers=2)

    def of_nan(self):
        return self.changed(lambda tensors: tensors[UP].view(-1)[:3].fill_(float("nan")))

    def truncated(self):
        path = self.changed() / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1000])
        return path.parent

    def damaged_results(self):
        store = Results(self.folder / "kept")
        store.put_experiment("llama_tree", {"name": "llama_tree"}).write_text('{"name": "lla')
        return store.root

    def empty(self):
        (self.folder / "empty").mkdir()
        return self.folder / "empty"

    def without_config(self):
        folder = self.changed()
        (folder / "config.json").unlink()
        return folder

    def cut_config(self):
        folder = self.changed()
        (folder / "config.json").write_text('{"architectures": ')
        return folder

    def without_bytes(self):
        folder = self.changed()
        (folder / "model.safetensors").write_bytes(b"")
        return folder

    def pickled(self):
        folder = self.changed()
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        return folder

    def bad_gguf(self):
        (self.folder / "x.gguf").write_bytes(b"GGUX" + bytes(100))
        return self.folder / "x.gguf"

    def text(self):
        (self.folder / "text.ipynb").write_text("These are words.")
        return self.folder / "text.ipynb"

    def list_of_claims(self):
        (self.folder / "claims.yml").write_text(f"- {self['tuned']}: tuned from {self['base']}\n")
        return self.folder / "claims.yml"

    def no_models(self):
        path = self.reader()
        why = f"# A page\n\n{OWN_MODELS}It trains networks of its own."
        cell = {"cell_type": "markdown", "id": "why", "metadata": {}, "source": [why]}
        tiny_models.edit_json(path, lambda kept: kept["cells"].insert(0, cell))
        return path

    def reader(self):
        return write(self.folder / "reader.ipynb", "1", parameters='profile: str = "default"  # whose records')

    def page(self):
        return write(self.folder / "page.ipynb", "1", parameters=PAGE)

    def two_cells(self):
        path = write(self.folder / "two.ipynb", "seed: int = 1", parameters="seed: int = 0")
        tiny_models.edit_json(path, lambda kept: kept["cells"][1]["metadata"].update(tags=["parameters"]))
        return path

    def of_others(self):
        path = self.folder / "others.csv"
        path.write_text("child,parent\norg/a,org/b\n")
        return path

    def circle(self):
        path = self.folder / "circle.csv"
        path.write_text(f"{self['base']},{self['tuned']}\n{self['tuned']},{self['base']}\n")
        return path

    def file(self):
        (self.folder / "file").touch()
        return self.folder / "file"

    def port(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return free.getsockname()[1]


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    """An empty folder outside any checkout; nothing may be trained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROVLAB_RESULTS", raising=False)
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / ".cache"))
    build = importlib.import_module("provlab.zoo.build")  # `zoo.build` is the function
    monkeypatch.setattr(build, "Progress", lambda *_, **__: pytest.fail("something was trained"))
    monkeypatch.setattr(cluster, "CONNECT", 0.5)
    (tmp_path / "here").mkdir()
    return tmp_path


def everything_below(folder):
    return {path: path.stat().st_size for path in sorted(folder.rglob("*")) if ".cache" not in path.parts}


@pytest.mark.parametrize("line", SLIPS)
def test_a_slip_is_refused_before_any_work(run, inside, models, tmp_path_factory, monkeypatch, line):
    monkeypatch.setenv("COLUMNS", "40")  # one line of whole words, however narrow the terminal is
    words = shlex.split(line.format_map(Given(models, tmp_path_factory.mktemp("given"))))
    before = everything_below(inside)
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert re.fullmatch("provlab: error: .*\n", err), err
    assert re.search(SLIPS[line], err), err
    assert everything_below(inside) == before
    assert not (inside / ".cache" / "own").exists()


def test_a_notebook_is_not_begun_with_a_model_that_the_zoo_lacks(run, inside, monkeypatch):
    (inside / "notebooks").mkdir()
    (inside / "pyproject.toml").touch()
    write(inside / "notebooks" / "audit.ipynb", "1", parameters='suspect: str = "zoo:oak"  # [a model]\nseed: int = 0')
    monkeypatch.setattr("provlab_study.publishing.runner.run", lambda *_, **__: pytest.fail("it ran"))
    status, _, err = run("run", "audit", "-p", "suspect=zoo:oakk")
    assert status == 2
    assert "no zoo model 'oakk'; did you mean oak" in err


def test_a_plan_is_found_by_its_profile(run, inside):
    (inside / "notebooks" / "profiles").mkdir(parents=True)
    (inside / "pyproject.toml").touch()
    (inside / "notebooks" / "profiles" / "smoke.yml").write_text("profile: smoke\nexperiments: []\n")
    assert "did you mean" in run("reproduce", "smoke", "-o", "out")[2]
    assert "notebooks/profiles/smoke.yml?" in run("reproduce", "smoke", "-o", "out")[2]
    assert (
        "no plan notebooks/profiles/smoek.yml; did you mean smoke?"
        in (run("reproduce", "notebooks/profiles/smoek.yml", "-o", "out")[2])
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_says_what_it_answers_with_an_example(run, name):
    status, out, _ = run("help", name)
    assert status == 0
    assert re.match(rf"Usage: provlab {name} \[OPTIONS\] .*[.?] example: provlab (.* )?{name} ", " ".join(out.split()))


def test_help_names_how_help_is_found(run):
    assert "provlab help COMMAND" in " ".join(run("help")[1].split())


def test_help_of_a_command_is_found_either_way_round(run):
    assert run("--help", "compare") == run("-h", "compare") == run("compare", "--help") == run("help", "compare")


def test_a_study_leaves_the_folder_as_it_was(run, inside, models):
    assert run("study", models["base"], models["other"], "--statistic", "phi_u")[0] == 0
    assert [path.name for path in inside.iterdir() if path.name != ".cache"] == ["here"]
    assert list((inside / ".cache" / "own").rglob("*.json"))


def test_a_shelf_is_listed_shown_and_cleared(run, inside, models):
    assert run("shelf", "add", models["base"], models["other"], "--shelf", "kept")[0] == 0
    out = run("shelf", "list", "--shelf", "kept")[1]
    assert [line.partition(":")[0] for line in out.splitlines()] == sorted([models["base"], models["other"]])
    assert "hidden units of block 0, width" in run("shelf", "show", models["base"], "--shelf", "kept")[1]
    assert "is not on the shelf kept" in run("shelf", "remove", "nobody", "--shelf", "kept")[2]
    assert run("shelf", "remove", models["base"], "--shelf", "kept")[1] == f"{models['base']}: removed from kept\n"
    assert len(list((inside / "kept").glob("*.npz"))) == 1


def test_verify_repeats_the_verdict_that_it_confirms(run, models):
    a, b = models["base"], models["tuned"]
    assert run("compare", a, b, "--statistic", "phi_u", "-o", "report")[0] == 0
    status, out, _ = run("verify", "report")
    assert status == 0
    assert out.startswith("report: compare of 2 models, recomputed bit for bit.\n\nIt confirms: ")
    words = " ".join(out.split())
    assert f"It confirms: {a} and {b}: alike by order alone" in words
    assert "how rare p about 10^" in words


def test_names_of_many_and_lines_of_several_are_taken_apart():
    """Each name of a line between bars is one; a name with braces stands for many, and nobody opens it."""
    from provlab_study.commands.models import check_models
    from provlab_study.publishing.declared import Parameter, model_names

    values = [["zoo:null-{:02d}", "zoo:oak | zoo:oak-chat | /mine |"], "zoo:elm", 3]
    assert model_names(values) == ["zoo:null-{:02d}", "zoo:oak", "zoo:oak-chat", "/mine", "zoo:elm"]
    parameter = Parameter("models", "list[str]", "[]", "[models]")
    check_models({"models": parameter}, {"models": ["zoo:null-{:02d}", "zoo:oak | zoo:oak-chat |"]})
    with pytest.raises(CheckpointError, match="/mine does not exist"):
        check_models({"models": parameter}, {"models": ["zoo:oak | /mine |"]})


@pytest.fixture
def closed(inside, models, monkeypatch):
    """A folder in which this user may not write, as in a clone that another user made; root may write anywhere."""
    folder = inside / "closed"
    folder.mkdir()
    may = os.access
    kept = os.path.realpath(folder)

    def access(path, mode, **more):
        return not (mode & os.W_OK and os.path.realpath(path).startswith(kept)) and may(path, mode, **more)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.chdir(folder)
    return folder


OUTPUTS = [
    "compare A B -o report",
    "compare A B --json out.json",
    "diff A B --html out.html",
    "tree A B --picture out.png",
    "tree A B --results kept",
    "study A B --results kept",
    "disguise A new --with T1",
    "shelf add A --shelf kept",
]


@pytest.mark.parametrize("line", OUTPUTS)
def test_a_place_that_is_closed_to_this_user_is_refused_before_any_work(run, closed, models, monkeypatch, line):
    for name in ("compare", "diff", "study", "tree"):
        monkeypatch.setattr(f"{HOMES[name]}.{name}", lambda *_, **__: pytest.fail("it began"))
    words = [{"A": models["base"], "B": models["other"]}.get(word, word) for word in line.split()]
    status, _, err = run(*words)
    assert status == 2
    assert f"this user may not write in {closed}; name a place of your own" in err
    assert err.count("\n") == 1
    assert not list(closed.iterdir())


class Unwritten(str):
    """An answer that can be printed, and put into no file."""

    decided = SimpleNamespace(status=0)
    status = 0

    def to_json(self):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    to_page = to_junit = drawn = to_json


@pytest.mark.parametrize(
    "line",
    [
        "compare A B --json x",
        "study A B --json x",
        "tree A B --json x",
        "tree A B --picture x.png",
        "diff A B --json x",
        "diff A B --html x.html",
        "check CLAIMS --json x",
        "check CLAIMS --junit x",
    ],
)
def test_an_answer_is_printed_whatever_becomes_of_its_files(run, inside, models, monkeypatch, line):
    name, *words = line.split()
    monkeypatch.setattr(f"{HOMES[name]}.{name}", lambda *_, **__: Unwritten("the answer"))
    given = {"A": models["base"], "B": models["other"], "CLAIMS": inside / "here"}
    status, out, err = run(name, *(given.get(word, word) for word in words))
    assert (status, out) == (2, "the answer\n")
    assert err == "provlab: error: Input/output error\n"


def test_a_study_in_a_closed_checkout_keeps_its_results_in_the_cache(run, closed, models, inside):
    (closed / "notebooks").mkdir()
    (closed / "pyproject.toml").touch()
    assert run("study", models["base"], models["other"], "--statistic", "phi_u")[0] == 0
    assert sorted(path.name for path in closed.iterdir()) == ["notebooks", "pyproject.toml"]
    assert list((inside / ".cache" / "own").rglob("*.json"))


def test_pages_in_a_closed_checkout_say_where_results_may_go(run, closed, monkeypatch, tmp_path):
    (closed / "notebooks" / "profiles").mkdir(parents=True)
    (closed / "pyproject.toml").touch()
    write(closed / "notebooks" / "audit.ipynb", "1", parameters="seed: int = 0")
    (closed / "notebooks" / "profiles" / "smoke.yml").write_text("profile: smoke\nexperiments: []\n")
    lines = ("run audit", "reproduce notebooks/profiles/smoke.yml -o out")
    for line in lines:
        status, _, err = run(*line.split())
        assert status == 2
        assert f"may not write in {closed}; name a folder of your own for results by PROVLAB_RESULTS" in err
    monkeypatch.setenv("PROVLAB_RESULTS", str(tmp_path / "mine"))
    assert "name a place of your own for executed notebooks by -o" in run(*lines[1].split())[2]


@pytest.mark.parametrize(
    ("number", "path", "message"),
    [
        (errno.EACCES, "here/x", "this user may not open {}/here/x; change its permissions, or name another"),
        (errno.EACCES, "closed/x", "this user may not write in {}/closed; name a folder of your own"),
        (errno.EROFS, "closed/x", "this user may not write in {}/closed; name a folder of your own"),
        (errno.ENOENT, "x", "{}/x does not exist"),
        (errno.EISDIR, "here", "{}/here is a folder; name a file"),
        (errno.EIO, "x", "{}/x cannot be used: Input/output error"),
        (errno.EIO, None, "Input/output error"),
    ],
)
def test_an_error_of_the_system_is_about_the_file_that_it_names(
    run, closed, inside, monkeypatch, number, path, message
):
    monkeypatch.chdir(inside)

    def fails(*_, **__):
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr("provlab.api.compare", fails)
    assert run("compare", "a", "b")[2] == f"provlab: error: {message.format(inside)}\n"
