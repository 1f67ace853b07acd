"""Plans: read with care, gone through in stages and waves, the models of each made before it."""

import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import papermill
import pytest
from small_notebooks import write

from provlab import zoo
from provlab.errors import ParameterError, ProvlabError, ZooError
from provlab_study.publishing import plan as plan_module
from provlab_study.publishing import runner
from provlab_study.publishing.plan import Plan, run_plan
from provlab_study.publishing.results import Results
from provlab_study.publishing.source import zoo_models


@pytest.fixture
def plan(project):
    write(project / "notebooks" / "status.ipynb", "2")
    return Plan(
        "smoke",
        [
            {"notebook": "tree", "parameters": {"seed": 4}},
            {"notebook": "board", "reads": True},
            {"notebook": "status"},
        ],
    )


def waves(*inputs):
    experiments = [{"notebook": name} | settings for name, settings in zip("abcd", inputs, strict=False)]
    return [[item["notebook"] for item in wave] for wave in plan_module._waves(experiments)]


def names(calls):
    return Counter(name for name, _ in calls)


def test_a_plan_runs_once_and_then_is_up_to_date(plan, project, executed):
    message = []
    assert run_plan(plan, project / "book", say=message.append) == 3
    assert executed == [
        ("tree", {"profile": "smoke", "seed": 4}),
        ("board", {"profile": "smoke"}),
        ("status", {"profile": "smoke"}),
    ]
    assert message[0] == "tree: running"
    assert re.fullmatch(r"tree: done in \d+ s", message[1])
    message.clear()
    assert run_plan(plan, project / "book", say=message.append) == 0
    assert message == ["tree: up to date", "board: up to date", "status: up to date"]
    assert len(executed) == 3


def test_an_experiment_whose_records_are_gone_runs_again(plan, project, executed, monkeypatch):
    write(project / "notebooks" / "tree.ipynb", "run.finish()")
    stored = set()
    monkeypatch.setattr(plan_module.Results, "has", lambda store, name, stamp: (name, store.root.name) in stored)
    run_plan(plan, project / "book", say=str)
    executed.clear()
    assert run_plan(plan, project / "book", say=str) == 2  # and what reads it
    assert names(executed) == {"tree": 1, "board": 1}
    stored.add(("tree", "smoke"))
    assert run_plan(plan, project / "book", say=str) == 0


def test_a_run_that_is_none_of_the_study_leaves_its_record_as_it_was(project, monkeypatch):
    """papermill, JupyterLab and ``provlab run`` with other parameters; only `reproduce` writes the profile's record."""
    cells = [
        "import provlab_study\nrun = provlab_study.begin('tree', globals())",
        "run.measure('x', seed)\nrun.finish()",
    ]
    write(project / "notebooks" / "tree.ipynb", *cells)
    monkeypatch.setenv("PROVLAB_RESULTS", str(project / "results"))
    plan = Plan("smoke", [{"notebook": "tree", "parameters": {"seed": 4}}])
    assert run_plan(plan, project / "book", say=str) == 1
    results = Results(project / "results" / "smoke")
    ours = results.experiment("tree")
    assert ours["parameters"]["seed"] == 4
    path = project / "notebooks" / "tree.ipynb"
    parameters = {"profile": "smoke", "seed": 5}
    runner.run(path, parameters, project / "own.ipynb", progress=False)
    papermill.execute_notebook(path, project / "theirs.ipynb", parameters, cwd=project, progress_bar=False)
    assert results.experiment("tree") == ours
    assert replace(results, own=True).experiment("tree")["parameters"]["seed"] == 5
    assert run_plan(plan, project / "book", say=str) == 0
    # somebody else's record in the study's place is found out
    results.put_experiment("tree", {**ours, "stamp": "of another run", "measurements": {"x": 5}})
    assert run_plan(plan, project / "book", say=str) == 1
    assert results.experiment("tree")["measurements"] == {"x": 4}


def test_several_run_at_a_time_each_in_a_process(project):
    """Each waits for the other's file, so that neither could end if they ran one after the other."""
    wait = (
        "import pathlib, time\n"
        "pathlib.Path('{own}').touch()\n"
        "while not pathlib.Path('{other}').exists():\n"
        "    time.sleep(0.05)"
    )
    write(project / "notebooks" / "tree.ipynb", wait.format(own="a", other="b"))
    write(project / "notebooks" / "board.ipynb", wait.format(own="b", other="a"))
    plan = Plan("smoke", [{"notebook": "tree"}, {"notebook": "board"}], jobs=2)
    message = []
    assert run_plan(plan, project / "book", say=message.append) == 2
    assert message[0] == "2 notebooks to run, 2 at a time"
    assert sorted(line.partition(" done")[0] for line in message if " done" in line) == ["board:", "tree:"]
    assert run_plan(plan, project / "book", say=message.append) == 0


def test_a_killed_study_leaves_no_process_that_goes_on(project):
    """Four notebooks, two at a time; none is begun after the process that leads them is gone."""
    begin = "import time\nopen('begun', 'a').write('x')\ntime.sleep(4)"
    for name in ("tree", "board", "status", "last"):
        write(project / "notebooks" / f"{name}.ipynb", begin)
    lead = (
        "from pathlib import Path\nfrom provlab_study.publishing.plan import Plan, run_plan\n"
        "if __name__ == '__main__':\n"
        "    named = [{'notebook': name} for name in ('tree', 'board', 'status', 'last')]\n"
        "    run_plan(Plan('smoke', named, jobs=2), Path('book'), say=str)\n"
    )
    (project / "lead.py").write_text(lead)
    process = subprocess.Popen([sys.executable, "lead.py"], cwd=project)
    try:
        while not (marks := list(project.rglob("begun"))) or len(begun := marks[0].read_text()) < 2:
            assert process.poll() is None
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()
    time.sleep(8)
    assert marks[0].read_text() == begun


def test_of_several_the_longest_are_begun_first(project):
    """Two wait for each other's mark, so that the third, which stands first, begins after both if they were longest."""
    begin = "import pathlib, time\nopen('begun', 'a').write('{name} ')\n"
    wait = "while '{other}' not in pathlib.Path('begun').read_text():\n    time.sleep(0.05)"
    write(project / "notebooks" / "tree.ipynb", begin.format(name="tree"))
    for name, other in (("board", "status"), ("status", "board")):
        write(project / "notebooks" / f"{name}.ipynb", (begin + wait).format(name=name, other=other))
    inputs = [{"notebook": "tree"}, {"notebook": "board", "minutes": 1.0}, {"notebook": "status", "minutes": 9.0}]
    run_plan(Plan("smoke", inputs, jobs=2), project / "book", say=str)
    assert next(project.rglob("begun")).read_text().split()[-1] == "tree"


def test_one_of_several_that_fails_is_named_and_the_others_stay(project):
    write(project / "notebooks" / "board.ipynb", "raise ValueError('no')")
    plan = Plan("smoke", [{"notebook": "tree"}, {"notebook": "board"}], jobs=2)
    with pytest.raises(ProvlabError, match="notebook board failed in cell 3: ValueError: no"):
        run_plan(plan, project / "book", say=str)
    assert sorted(page.name for page in (project / "book").iterdir()) == ["board.failed.ipynb", "tree.ipynb"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_page_that_fails_keeps_none_of_the_others_from_running(project, jobs):
    """In its own stage and in later ones; run again, the plan makes what failed and what reads it."""
    write(project / "notebooks" / "tree.ipynb", "raise ValueError('no')")
    write(project / "notebooks" / "status.ipynb", "raise KeyError('nor this')")
    write(project / "notebooks" / "last.ipynb", "1")
    order = [{"notebook": "tree"}, {"notebook": "last"}, {"notebook": "status", "ends_stage": True}]
    plan, message = Plan("smoke", [*order, {"notebook": "board", "reads": True}], jobs=jobs), []
    with pytest.raises(ProvlabError, match=r"2 notebooks failed, .* these: \w+, \w+$"):
        run_plan(plan, project / "book", say=message.append)
    for name, why in (("tree", "ValueError: no"), ("status", "KeyError")):
        said = f"{name}: failed, the others go on: notebook {name} failed in cell 3: {why}"
        assert any(line.startswith(said) for line in message)
    made = sorted(page.name for page in (project / "book").iterdir() if ".failed" not in page.name)
    assert made == ["board.ipynb", "last.ipynb"]
    for name in ("tree", "status"):
        write(project / "notebooks" / f"{name}.ipynb", "2")
    assert run_plan(plan, project / "book", say=message.append) == 3  # not the one that was made
    assert run_plan(plan, project / "book", say=message.append) == 0


def test_what_reads_runs_after_what_it_reads():
    assert waves({}, {"reads": True}, {}, {"reads": True}) == [["a"], ["b"], ["c"], ["d"]]
    assert waves({}, {}, {}, {"reads": True}) == [["a", "b", "c"], ["d"]]


def test_force_runs_all_again(plan, project, executed):
    run_plan(plan, project / "book", say=str)
    assert run_plan(plan, project / "book", force=True, say=str) == 3


def test_what_reads_runs_again_when_an_earlier_page_did(plan, project, executed):
    run_plan(plan, project / "book", say=str)
    executed.clear()
    write(project / "notebooks" / "tree.ipynb", "print(seed + 1)")
    assert run_plan(plan, project / "book", say=str) == 2
    assert names(executed) == {"tree": 1, "board": 1}  # status does not read
    executed.clear()
    write(project / "notebooks" / "status.ipynb", "3")
    assert run_plan(plan, project / "book", say=str) == 1  # board reads only what stands before it
    assert names(executed) == {"status": 1}
    assert run_plan(plan, project / "book", say=str) == 0


def test_a_page_that_is_lost_or_spoilt_is_made_again(plan, project, executed):
    run_plan(plan, project / "book", say=str)
    (project / "book" / "status.ipynb").unlink()
    (project / "book" / "board.ipynb").write_text("{")
    executed.clear()
    assert run_plan(plan, project / "book", say=str) == 2
    assert names(executed) == {"board": 1, "status": 1}


def test_a_stopped_plan_goes_on_where_it_was(plan, project, executed, monkeypatch):
    real = runner.papermill.execute_notebook

    def stopped(source, *arguments, **settings):
        if "board" in source:
            raise KeyboardInterrupt
        return real(source, *arguments, **settings)

    monkeypatch.setattr(runner.papermill, "execute_notebook", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, project / "book", say=str)
    assert [path.name for path in (project / "book").iterdir()] == ["tree.ipynb"]
    monkeypatch.setattr(runner.papermill, "execute_notebook", real)
    executed.clear()
    assert run_plan(plan, project / "book", say=str) == 2
    assert names(executed) == {"board": 1, "status": 1}


def test_a_plan_is_read(project):
    path = project / "notebooks" / "profiles" / "mine.yml"
    path.parent.mkdir()
    path.write_text(
        "profile: mine\nneeds: a GPU\nzoo: {edition: smoke}\nfetches: [{id: a/b, gigabytes: 2}]\n"
        "experiments:\n  - notebook: tree\n    parameters: {seed: 2}\n  - {notebook: board, reads: true}\n"
    )
    plan = Plan.read(path)
    assert plan.profile == "mine"
    assert plan.experiments[0] == {"notebook": "tree", "parameters": {"seed": 2}}
    assert plan.fetches == [{"id": "a/b", "gigabytes": 2}]
    assert plan.zoo == {"edition": "smoke"}


TREE = "experiments: [{notebook: tree}]"
BAD_PLANS = {
    "": "must be a mapping with profile, experiments, .*, not None",
    "- a: [": "is no plan that can be read",
    TREE: "lacks profile",
    f"profile: x\n{TREE}\nnotebooks: []": "has the unknown key 'notebooks'; known: profile, experiments",
    f"profile: ../x\n{TREE}": "profile must be a plain name",
    f"profile: 5\n{TREE}": ": profile must be str, not 5",
    "profile: x\nexperiments: [tree]": "an experiment of .* must be a mapping with notebook, .*, not 'tree'",
    "profile: x\nexperiments: [{notebook: tree, paramters: {seed: 1}}]": "unknown key 'paramters'",
    "profile: x\nexperiments: [{notebook: three}]": "no notebook 'three'",
    "profile: x\nexperiments: [{notebook: tree, parameters: {sede: 1}}]": "tree has no parameter 'sede'",
    "profile: x\nexperiments: [{notebook: tree, parameters: {seed: a}}]": "parameter seed must be int",
    "profile: x\njobs: 0\nexperiments: []": "jobs of .* must be at least 1, not 0",
    "profile: x\nexperiments: [{notebook: tree}, {notebook: tree}]": "runs tree twice",
    f"profile: x\n{TREE}\noffers: [board]": "offers to fetch for board, which is none of its notebooks",
    f"profile: x\n{TREE}\nfetches: [{{id: a/b, gigabytes: much}}]": ": gigabytes must be float, not 'much'",
    f"profile: x\n{TREE}\nzoo: {{}}": "zoo of .* lacks edition",
}


@pytest.mark.parametrize("content", list(BAD_PLANS))
def test_a_bad_plan_is_refused_by_name(project, content):
    path = project / "bad.yml"
    path.write_text(content)
    with pytest.raises(ParameterError, match=BAD_PLANS[content]) as refused:
        Plan.read(path)
    assert "\n" not in str(refused.value)


def test_a_plan_that_is_not_there_or_no_text(project):
    (project / "plan.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ParameterError, match=r"no plan .*other.yml; beside it there are: plan"):
        Plan.read(project / "other.yml")
    for path in (project, project / "plan.yml"):
        with pytest.raises(ParameterError, match=f"{path} is no plan that can be read"):
            Plan.read(path)


# Stages, and the models of each ---------------------------------------------------------------------------------------


def test_a_stage_waits_for_the_one_before_it():
    assert waves({"ends_stage": True}, {}, {"ends_stage": True}, {}) == [["a"], ["b", "c"], ["d"]]
    assert waves({}, {"reads": True, "ends_stage": True}, {}) == [["a"], ["b"], ["c"]]


def test_between_stages_the_book_can_be_built(plan, project, executed):
    """After the first alone: nothing follows the last, and where all is up to date nothing is new."""
    plan.experiments[0]["ends_stage"] = True
    recorded = []
    settings = {"say": str, "between": lambda: recorded.append(len(executed))}
    assert run_plan(plan, project / "book", **settings) == 3
    assert recorded == [1]
    assert run_plan(plan, project / "book", **settings) == 0
    assert recorded == [1]


def test_each_wave_has_its_models_made_before(project, executed, monkeypatch):
    """Models of the second stage are not waited for by the first; a page that is up to date needs no model."""
    write(project / "notebooks" / "board.ipynb", "open(f'zoo:null-{n:02d}')")
    calls = []
    monkeypatch.setattr(plan_module.zoo, "build", lambda names, edition: calls.append((names, len(executed))))
    parameters = {"models": ["zoo:oak@smoke", "zoo:nobody", "elsewhere"]}
    inputs = [{"notebook": "tree", "parameters": parameters, "ends_stage": True}, {"notebook": "board"}]
    plan = Plan("smoke", inputs, zoo={"edition": "smoke"})
    run_plan(plan, project / "book", say=str)
    recipes = zoo.families("smoke")
    assert calls == [(["oak"], 0), (sorted(name for name in recipes if name.startswith("null-")), 1)]
    run_plan(plan, project / "book", say=str)
    assert len(calls) == 2


def test_what_does_without_a_model_that_could_not_be_made_runs_first(project, executed, monkeypatch):
    def unfinished(names, edition):
        raise zoo.Unfinished("oak was killed twice", frozenset({"oak", "oak-chat"}))

    monkeypatch.setattr(plan_module.zoo, "build", unfinished)
    needs = {"notebook": "tree", "parameters": {"models": ["zoo:oak"]}}
    messages = []
    with pytest.raises(ZooError, match="oak was killed twice"):
        run_plan(
            Plan("smoke", [needs, {"notebook": "board"}], zoo={"edition": "smoke"}), project / "x", say=messages.append
        )
    assert [name for name in messages if name.startswith("tree")] == ["tree: not run, without oak, oak-chat"]
    assert (project / "x" / "board.ipynb").is_file()
    assert not (project / "x" / "tree.ipynb").exists()


def test_every_zoo_model_is_named_by_a_notebook_of_the_study():
    """What none names would be trained by nobody, or inside a notebook, whose page would show it."""
    root = Path(__file__).parents[3]
    plan = Plan.read(root / "notebooks" / "profiles" / "default.yml")
    recipes = zoo.families("default")
    named = [
        zoo_models(root / "notebooks" / f"{item['notebook']}.ipynb", item.get("parameters", {}), recipes)
        for item in plan.experiments
    ]
    needed = {ancestor for name in set().union(*named) for ancestor in zoo.lineage(name, recipes)}
    assert needed == set(recipes)
    assert named[0] == set()  # the first page waits for none
    assert named[1] == set(zoo.collection(zoo.TREE, recipes))


def test_once_a_minute_it_is_said_what_is_running(project, monkeypatch):
    monkeypatch.setattr(plan_module, "_EVERY", 0.2)
    write(project / "notebooks" / "tree.ipynb", "import time\ntime.sleep(1.5)")
    inputs = [{"notebook": "tree", "minutes": 5.0}, {"notebook": "board"}]
    message = []
    run_plan(Plan("smoke", inputs, jobs=2), project / "book", say=message.append)
    report = [line for line in message if line.startswith("running: ")]
    assert re.fullmatch(r"running: tree for 0 min(, board for 0 min)?; about 2 min left of these", report[0]), message
