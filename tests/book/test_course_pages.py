"""The course: eleven sessions of 90 minutes, compared with the project by links, figures, commands, minutes."""

import json
import re
import runpy
from itertools import pairwise
from pathlib import Path

import grading
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COURSE = ROOT / "book" / "course"
PAGES = sorted(COURSE.glob("*.md"))
SESSIONS = [COURSE / f"session_{number:02d}.md" for number in range(1, 12)]
GUIDE = (COURSE / "guide.md").read_text(encoding="utf-8")
ASSIGNMENTS = {path.stem for path in grading.ASSIGNMENTS}
LABS = {path.stem for path in grading.LABS}


def part(text: str, title: str) -> str:
    """What stands under a ``##`` heading."""
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]


def planned(session: Path) -> list[int]:
    """Minutes of each row of a session's plan."""
    return [int(m) for m in re.findall(r"^\| (\d+) \|", part(session.read_text(), "Plan"), re.MULTILINE)]


def guided(number: int) -> list[tuple[int, int, str]]:
    """Rows of the guide's plan of a session: from, to, what to do."""
    rows = re.findall(r"^\| (\d+) to (\d+) \| (.*) \|$", part(GUIDE, f"Session {number}"), re.MULTILINE)
    return [(int(a), int(b), words) for a, b, words in rows]


def notebook(name: str) -> dict:
    return json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))


def test_the_contents_list_every_page_of_the_course():
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text())
    listed = [c["file"] for p in toc["parts"] if p["caption"] == "Teach it" for c in p["chapters"]]
    assert listed[:13] == ["course/index", "course/transformers", *(f"course/{session.stem}" for session in SESSIONS)]
    assert sorted(listed) == sorted(f"course/{page.stem}" for page in PAGES)


@pytest.mark.parametrize("session", SESSIONS, ids=lambda s: s.stem)
def test_a_session_has_its_parts_and_takes_90_minutes(session):
    text = session.read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Plan", "Lecture", "Lab", "Discussion", "After the session"]
    assert "### By the end of this session you can\n\n- " in text
    assert "**Before the session**" in text
    assert sum(planned(session)) == 90
    assert "Compute on two cores" in part(text, "Lab")


@pytest.mark.parametrize("session", SESSIONS, ids=lambda s: s.stem)
def test_readings_end_at_a_heading_of_their_chapter(session):
    for name, heading in re.findall(r"experiments/(\w+)` up to \*([^*]+)\*", session.read_text()):
        text = "\n".join("".join(cell["source"]) + "\n" for cell in notebook(name)["cells"])
        assert re.search(rf"^##+ {re.escape(heading)}$", text, re.MULTILINE), heading


@pytest.mark.parametrize("number", range(1, 12))
def test_the_guide_plans_each_minute_along_the_session(number):
    rows = guided(number)
    assert rows[0][0] == 0
    assert rows[-1][1] == 90
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in pairwise(rows))
    ends, at = {row[1] for row in rows}, 0
    for minutes in planned(SESSIONS[number - 1]):
        at += minutes
        assert at in ends  # a block of the session's plan ends where a row of the guide's does
    headings = " | ".join(re.findall(r"^### (.*)$", SESSIONS[number - 1].read_text(), re.MULTILINE))
    for named in re.findall(r"\*(\S[^*]*)\*", " ".join(row[2] for row in rows)):
        assert named in headings  # slides are named as they are
    for piece in ("**Misconceptions**", "**Questions, and what a good answer contains**"):
        assert piece in part(GUIDE, f"Session {number}")


@pytest.mark.parametrize("session", SESSIONS, ids=lambda s: s.stem)
def test_figures_are_of_cells_that_there_are(session):
    for name, cell in re.findall(r"^% figure: (\w+) ([\w-]+)", session.read_text(), re.MULTILINE):
        assert cell in {result["id"] for result in notebook(name)["cells"]}, (name, cell)
        assert not re.fullmatch(r"cell-\d+(-\d+)?", cell), f"{name} {cell}: a cell with a figure of a slide has a name"


@pytest.mark.parametrize("session", SESSIONS, ids=lambda s: s.stem)
def test_labs_run_what_the_smoke_profile_has(session):
    plan = yaml.safe_load((ROOT / "notebooks" / "profiles" / "smoke.yml").read_text())
    runs = re.findall(r"provlab run (\w+) --profile smoke", session.read_text())
    assert set(runs) <= {experiment["notebook"] for experiment in plan["experiments"]}
    assert runs or session.stem in ("session_09", "session_10")
    quoted = re.findall(r"exercise \*([^*]+)\*", session.read_text())
    titles = {
        title
        for name in runs
        for result in notebook(name)["cells"]
        for title in re.findall(r"\{exercise\} (.*)", "".join(result["source"]))
    }
    assert set(quoted) <= titles


def test_homework_is_the_same_in_the_plan_and_in_the_sessions():
    plan = part((COURSE / "index.md").read_text(), "The plan")
    texts = [session.read_text() for session in SESSIONS]
    homework = "".join(part(text, "After the session") for text in texts)
    assert set(re.findall(r"`(\w+_\w+)`", plan)) == ASSIGNMENTS | LABS
    assert {name for name in ASSIGNMENTS if f"`{name}`" in homework} == ASSIGNMENTS
    assert {name for name in LABS if f"`{name}`" in "".join(texts)} == LABS


def test_labs_take_at_most_15_minutes_of_compute():
    index = (COURSE / "index.md").read_text()
    minutes = [(int(a), int(b)) for a, b in re.findall(r"\| (\d+), (\d+) \|", part(index, "The plan"))]
    assert len(minutes) == 11
    assert all(again <= first <= 15 for first, again in minutes)


def test_the_map_is_drawn_as_its_script_says_and_shows_every_chapter():
    script = runpy.run_path(str(COURSE / "map.py"))
    drawn = script["DRAWN"].read_text(encoding="utf-8")
    assert drawn == script["drawn"](), "run: python book/course/map.py"
    linked = re.findall(r'href="\.\./experiments/(\w+)\.html"', drawn)
    chapters = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} - {"status"}
    assert sorted(linked) == sorted(chapters)
    assert {f"{session.stem}.html" for session in SESSIONS} == set(re.findall(r'href="(session_\d+\.html)"', drawn))
    assert {end for arrow in script["ARROWS"] for end in arrow} <= chapters | {"further"}
