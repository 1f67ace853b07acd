"""``make rehearsal``: the paper profile from consent to scoreboard, against small stand-ins for the paper's models.

A server on this machine speaks the hub's protocol, and the real client fetches from it; nothing leaves the machine. The
plan is ``notebooks/profiles/paper.yml`` with the parameters of ``cuts.yml``. Its pages on the zoo alone are left out:
``PROFILE=smoke`` runs these.

With ``--width true`` the stand-ins are as wide as the originals and one block deep, the GPT-2s two. Each page is a run
of its own, and a row of ``paper.costs.csv`` beside the profile: its minutes by the clock and of processor time, the
most memory that its processes held, and how many times longer the page may take with the sizes that ``cuts.yml`` made
smaller; of models of one kind some are left out. Pages that are done in the table are skipped, so that it goes on
where it was; a page that is under way when this is ended (SIGTERM, Ctrl-C) is ended too, and gets no row.
"""

import argparse
import contextlib
import csv
import math
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import psutil
import yaml

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "helpers")]

import repositories  # noqa: E402
from hub_server import HubServer, Repo, git_sha1  # noqa: E402

from provlab import provenance, zoo  # noqa: E402
from provlab.files import atomic_file  # noqa: E402
from provlab_study.commands.reproduce import costs_of  # noqa: E402
from provlab_study.publishing import texts  # noqa: E402
from provlab_study.publishing.parameters import find_notebook, parameters_of  # noqa: E402
from provlab_study.publishing.plan import Plan  # noqa: E402

ROOT = HERE.parents[1]
PROFILE = ROOT / "notebooks" / "profiles" / "paper.yml"
TOKEN = "hf_rehearsal"
PROVLAB = (sys.executable, "-c", "import sys; from provlab.cli import main; sys.exit(main())")
WEIGHTS = (".safetensors", ".bin")


class Failed(Exception):
    """Faults that a real user would have met."""


def plan_of(pages: list[str], cut: repositories.Cut = repositories.SMALL) -> Plan:
    """The paper's plan with smaller sizes: its pages that fetch models, or those named, and what reads records."""
    plan = Plan.read(PROFILE)
    everywhere, cuts, stays, _ = cuts_of(cut)
    experiments = []
    for item in plan.experiments:
        name, inputs = item["notebook"], item.get("parameters", {})
        if (pages and name not in pages) or not (item.get("reads") or models_of(item, plan)):
            continue
        less = {key: value for key, value in everywhere.items() if key in inputs} | cuts.get(name, {})
        assert not models_of({"parameters": less}, plan), f"cuts.yml names a model for {name}"
        less |= {key: [inputs[key][place] for place in places] for key, places in stays.get(name, {}).items()}
        experiments.append({**item, "parameters": {**inputs, **less}} if inputs or less else item)
    needed = {id_ for item in experiments for id_ in models_of(item, plan)}
    fetches = [model for model in plan.fetches if model["id"] in needed]
    return replace(plan, profile="rehearsal", experiments=experiments, fetches=fetches)


def cuts_of(cut: repositories.Cut) -> tuple[dict, dict, dict, dict]:
    """What ``cuts.yml`` has: for all pages, page by page, which models of lists stay, and what grows together."""
    cuts = yaml.safe_load((HERE / "cuts.yml").read_text(encoding="utf-8"))
    names = ("everywhere", "at_true_width", "stay_at_true_width", "grows")
    everywhere, further, stays, grows = (cuts.pop(name) for name in names)
    if cut != repositories.TRUE:
        return everywhere, cuts, {}, grows
    for page, less in further.items():
        cuts[page] |= less
    return everywhere, cuts, stays, grows


def times_longer(page: str) -> float:
    """How many times longer a page may take with the paper's sizes than at true width."""
    _, cuts, stays, grows = cuts_of(repositories.TRUE)
    given = next(item.get("parameters", {}) for item in Plan.read(PROFILE).experiments if item["notebook"] == page)
    whole = {name: each.value for name, each in parameters_of(find_notebook(page)).items()} | given
    here = whole | cuts[page] | stays.get(page, {})

    def size(value: "float | list") -> float:
        return len(value) if isinstance(value, list) else value

    ratios = [[size(whole[name]) / size(here[name]) for name in group] for group in grows.get(page, [])]
    return max((math.prod(group) for group in ratios), default=1.0)


def models_of(experiment: dict, plan: Plan) -> list[str]:
    """Ids of the plan's models that the parameters of an experiment name."""
    return [model["id"] for model in plan.models_of(experiment)]


def made_texts(plan: Plan, folder: Path) -> dict[str, Path]:
    """Stand-ins for the data sets that a plan reads: the archive that it names, with prose of the zoo in it."""
    made = {}
    for address in plan.texts:
        name, member = texts.repository(address), address.removeprefix("zip://").partition("::")[0]
        archive = address.rpartition("/")[2]
        path = folder / name.replace("/", "--")
        path.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path / archive, "w") as zipped:
            zipped.writestr(member, zoo.held_out_text("prose"))
        made[name] = path
    return made


class Rehearsal:
    """A server with the models of a plan, and a user's folders that nobody used before."""

    def __init__(self, plan: Plan, folder: Path, cut: repositories.Cut = repositories.SMALL) -> None:
        self.plan, self.folder, self.failures = plan, folder, []
        ids = [repositories.bare(id_) for id_ in plan.models]
        made = repositories.make(ids, folder / "repositories", cut)
        self.server = HubServer(
            {
                item: Repo(
                    path,
                    commit=repositories.assumed(item).revision or git_sha1(item.encode()),
                    gated=repositories.assumed(item).gated,
                    token=TOKEN,
                )
                for item, path in made.items()
            }
            | {f"datasets/{name}": Repo(path) for name, path in made_texts(plan, folder / "texts").items()}
        )
        self.plan_file = folder / "paper.yml"
        self.pages = folder / "pages"
        for used in ("hub", "cache", "results", "pages"):
            shutil.rmtree(folder / used, ignore_errors=True)
        self._write(plan)

    def _write(self, plan: Plan) -> None:
        content = {name: getattr(plan, name) for name in ("profile", "needs", "fetches", "experiments")}
        self.plan_file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    def environment(self, token: bool) -> dict[str, str]:
        mine = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING_FACE_", "PROVLAB_"))}
        folders = {"HF_HOME": "hub", "PROVLAB_CACHE": "cache", "PROVLAB_RESULTS": "results"}
        mine |= {name: str(self.folder / folder) for name, folder in folders.items()}
        return mine | {"HF_ENDPOINT": self.server.endpoint} | ({"HF_TOKEN": TOKEN} if token else {})

    def reproduce(
        self, answer: str | None, *, token: bool = True, until: Callable[[], bool] | None = None
    ) -> tuple[int, str]:
        """Run ``provlab reproduce`` and answer its question, as in a terminal; None is nobody there.

        Where `until` becomes true, the run is killed without warning.
        """
        message = self.folder / "said.txt"
        terminal, inside = pty.openpty()
        with message.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(
                [*PROVLAB, "reproduce", str(self.plan_file), "--output", str(self.pages)],
                cwd=ROOT,
                env=self.environment(token),
                stdin=subprocess.DEVNULL if answer is None else inside,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if answer is not None:
            os.write(terminal, f"{answer}\n".encode())
        try:
            while process.poll() is None:
                time.sleep(0.1)
                if until and until():
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    time.sleep(3)  # its kernel ends by itself
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            os.close(terminal)
            os.close(inside)
        return process.returncode, message.read_text(encoding="utf-8")

    def fetched(self) -> Counter:
        """How often each file, or part of one, was sent: by path and range of bytes."""
        return Counter(
            (path, span) for method, path, span in list(self.server.log) if method == "GET" and "/resolve/" in path
        )

    def weights(self) -> set[str]:
        return {path for path, _ in self.fetched() if path.endswith(WEIGHTS)}

    def measured(self, limit: float) -> tuple[str, dict[str, str]]:
        """Run the only page: what came out, and what it took; it is ended where it holds more GB than `limit`."""
        started, processor, peak, looked = time.monotonic(), used_by_children(), 0.0, 0.0

        def too_much() -> bool:
            nonlocal peak, looked
            if time.monotonic() - looked > 2:  # a look costs more than a step of what is looked at
                looked, peak = time.monotonic(), max(peak, held_by_children())
            return peak > limit

        status, text = self.reproduce("y", until=too_much)
        took = {
            "minutes": f"{(time.monotonic() - started) / 60:.1f}",
            "processor_minutes": f"{(used_by_children() - processor) / 60:.1f}",
            "peak_gb": f"{peak:.1f}",
        }
        if peak > limit:
            return f"more than {limit:g} GB", took
        return "done" if status == 0 else said_of_failure(text), took

    # what is rehearsed -------------------------------------------------------------------------------------------

    def consent(self) -> str:
        """The question is asked, and a user who does not agree gets nothing."""
        for answer, message in (("n", "nothing was fetched"), ("", "nothing was fetched"), (None, "agree with --yes")):
            status, text = self.reproduce(answer)
            missing = [model["id"] for model in self.plan.fetches if model["id"] not in text]
            if status != 2 or message not in text or missing or self.server.log:
                raise Failed(
                    f"answer {answer!r}: status {status}, {len(self.server.log)} requests; it said: {text[-300:]}"
                )
        return "asked, refused three ways, nothing fetched"

    def token(self) -> str:
        """Without a token the gated model and the variable are named, and no weights are fetched without need."""
        gated = [id_ for id_ in self.plan.models if repositories.assumed(id_).gated]
        if not gated:
            return "none of these is gated"
        status, text = self.reproduce("y", token=False)
        weights = self.weights()
        if status != 2 or "HF_TOKEN" not in text or not any(item in text for item in gated) or weights:
            raise Failed(f"status {status}, {len(weights)} weight files fetched; it said: {text[-300:]}")
        return text.strip().splitlines()[-1].removeprefix("Fetch them? [y/N, or names of pages] ")

    def kill(self) -> str:
        """Killed after some weights have come; the next run goes on from there."""
        self.reproduce("y", until=lambda: len(self.weights()) > 5)
        return f"killed after {len(self.weights())} files of weights"

    def whole(self) -> str:
        """All pages; one that fails is named and left out, and the others go on."""
        plan = self.plan
        while True:
            status, text = self.reproduce("y")
            print(re.sub(r"^  .* GB\n", "", text, flags=re.MULTILINE), flush=True)
            if status == 0:
                return f"{len(plan.experiments)} pages"
            failed = re.search(r"notebook (\w+) failed|notebook (\w+): the kernel died", text)
            if not failed:
                raise Failed(text[-600:])
            name = failed[1] or failed[2]
            self.failures.append(text.strip().splitlines()[-1])
            plan = replace(plan, experiments=[item for item in plan.experiments if item["notebook"] != name])
            self._write(plan)

    def traffic(self) -> str:
        """Nothing came twice but what a kill cut off, and nothing that nobody asked for."""
        fetched = self.fetched()
        twice = [item for item, n in fetched.items() if n > 1]
        files = {path for path, _ in fetched}
        better = {path.rpartition("/")[0] for path in files if path.endswith(".safetensors")}
        vain = [
            path
            for path in files
            if path.rpartition("/")[2] in repositories.UNASKED
            or (path.rpartition("/")[0] in better and path.endswith(".bin"))
        ]
        if len(twice) > 1 or vain:
            raise Failed(f"fetched twice: {twice[:5]}; without need: {vain[:5]}")
        return f"{len(files)} files in {len(fetched)} pieces, {len(twice)} of them twice"

    def steps(self) -> dict[str, Callable[[], str]]:
        return {
            "consent": self.consent,
            "token": self.token,
            "kill": self.kill,
            "pages": self.whole,
            "traffic": self.traffic,
        }


def said_of_failure(text: str) -> str:
    """What ended a page, without places on this machine."""
    ends = (
        re.findall(r"notebook \w+ failed (.*?)(?:; see |$)", text, flags=re.MULTILINE)
        or (text.strip().splitlines() or ["ended without a word"])[-1:]
    )
    return " ".join(re.sub(r"(?:https?:/)?/\S+", "...", ends[-1]).split())[:200]


def shapes_of(models: list[repositories.Assumed]) -> str:
    """Widths of stream and MLP, tokens and dtype of each kind of model."""
    shapes = {}
    for config in (model.small_config(repositories.TRUE) for model in models):
        width = config.get("hidden_size") or config["n_embd"]
        mlp = config.get("intermediate_size") or config.get("n_inner") or 4 * width
        shapes[f"{width} x {mlp} of {config['vocab_size']} tokens {config['torch_dtype']}"] = None
    return ", ".join(shapes)


def depths(models: list[repositories.Assumed]) -> tuple[int, int]:
    """Blocks of the stand-in of the deepest of some models, and of the original."""
    deepest = max(models, key=lambda model: model.n_blocks)
    config = deepest.small_config(repositories.TRUE)
    return config.get("num_hidden_layers") or config["n_layer"], deepest.n_blocks


def used_by_children() -> float:
    """Seconds of processor time of the processes below this one that have ended; others beside them do not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def held_by_children() -> float:
    """GB that the processes below this one hold for themselves; pages of mapped files are not theirs."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            memory = process.memory_info()
            total += memory.rss - memory.shared
    return total / 1e9


def alone(page: str, folder: Path) -> Rehearsal:
    """Make the rehearsal of one page at true width."""
    return Rehearsal(plan_of([page], repositories.TRUE), folder, repositories.TRUE)


def at_true_width(pages: list[str], folder: Path, limit: float) -> int:
    """Run the pages one by one, and keep a row of each; return how many were not done."""
    rows = costs_of(PROFILE)
    lost = 0
    for item in plan_of(pages, repositories.TRUE).experiments:
        name = item["notebook"]
        if item.get("reads") or (rows.get(name, {}).get("outcome") == "done" and name not in pages):
            continue
        rehearsal = alone(name, folder)
        with rehearsal.server:
            outcome, took = rehearsal.measured(limit)
        models = [repositories.assumed(id_) for id_ in rehearsal.plan.models]
        blocks, of_blocks = depths(models)
        rows = costs_of(PROFILE)  # another run may have added some
        rows[name] = {
            "page": name,
            "shapes": shapes_of(models),
            "outcome": outcome,
            **took,
            "times": f"{times_longer(name):.1f}",
            "blocks": str(blocks),
            "of_blocks": str(of_blocks),
            "date": date.today().isoformat(),
            "commit": provenance.commit(),
            "machine": f"{provenance.processor()}, limit {limit:g} GB",
        }
        with atomic_file(PROFILE.with_suffix(".costs.csv")) as temporary, temporary.open("w", newline="") as file:
            table = csv.DictWriter(file, rows[name].keys(), lineterminator="\n")
            table.writeheader()
            table.writerows(rows.values())
        print(f"{name}: {outcome} ({', '.join(f'{key} {value}' for key, value in took.items())})", flush=True)
        lost += outcome != "done"
    return lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help="only these")
    parser.add_argument("--steps", nargs="*", help="only these: consent, token, kill, pages, traffic")
    parser.add_argument("--folder", type=Path, default=ROOT / "_build" / "rehearsal")
    parser.add_argument("--width", choices=("small", "true"), default="small", help="of the stand-ins")
    parser.add_argument("--memory", type=float, default=20.0, help="GB that a page at true width may hold")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through what ends the page that is under way
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.width == "true":
        return at_true_width(arguments.pages, arguments.folder.resolve() / "true", arguments.memory)
    print("Assumed from memory, not looked up:")
    rehearsal = Rehearsal(plan_of(arguments.pages), arguments.folder.resolve())
    for id_ in rehearsal.plan.models:
        print(f"  {repositories.assumed(id_)}")
    with rehearsal.server:
        for name, step in rehearsal.steps().items():
            if arguments.steps and name not in arguments.steps:
                continue
            started = time.monotonic()
            try:
                message = step()
            except Failed as error:
                rehearsal.failures.append(f"{name}: {error}")
                message = "FAILED"
            print(f"{name}: {message} ({time.monotonic() - started:,.0f} s)", flush=True)
    print(f"{used_by_children() / 60:.1f} minutes of processor time")
    for failure in rehearsal.failures:
        print(f"FAILED {failure}")
    return 1 if rehearsal.failures else 0


if __name__ == "__main__":
    sys.exit(main())
