"""What a report says first, to a reader who is no engineer: date, models by name, three sentences, what is left open.

It is a function of ``result.json``, so that `verify` makes it again.
"""

from collections.abc import Iterable, Mapping
from datetime import date
from html import escape
from typing import Any

from provlab.attest.statement import SHOWN
from provlab.report.decide import EQUAL, IDENTICAL, NOT_REJECTED, ORDER, REJECTED, ROWS, SAME, UNTESTED
from provlab.report.lineage import short_names

#: outcome of a pair -> three sentences
CONCLUSIONS = {
    IDENTICAL: "{a} and {b} are the same files, byte for byte. No test was needed to see it. One was copied from the "
    "other, or both from a third.",
    EQUAL: "{a} and {b} hold the same weights, number for number, in files that differ. No test was needed to see it. "
    "One was copied from the other, or both from a third.",
    SAME: "{a} and {b} give the same answers to all that they were asked here. One was made from the other, or both "
    "from a third. The models do not show which was first.",
    REJECTED: "{a} and {b} were not trained independently of each other. Had they been, the tests, corrected "
    "together, would say this wrongly in at most one case of a hundred, under the assumptions below. One may come from "
    "the other, or both from a third: the models do not show which.",
    ROWS: "{a} and {b} have rows of their tables of tokens from one origin. Such rows can be copied into any model. "
    "The tests say nothing of the rest of the weights.",
    ORDER: "Parts of {a} and {b} stand in a common order. Such an order can be given to any model, and changes nothing "
    "of what it computes. So this is weaker evidence than a finding that the two were not trained independently.",
    NOT_REJECTED: "No test found a common origin of {a} and {b}. A copy would have been found unless its maker hid it "
    "at some cost, which may be small. This does not say that the two were trained independently.",
    UNTESTED: "Whether {a} and {b} have a common origin could not be tested. A copy could have been hidden at no cost "
    "from all tests that ran. This speaks neither for nor against a common origin.",
}
#: the same of a `diff`, which asks nothing of how models were made
DIFFERENCE = (
    "{a} and {b} were compared by what they answer, and not by how they were made. The findings below say over which "
    "texts the two part, and by how much. Models that answer alike may have been trained independently, and a copy may "
    "have been taught other answers."
)
_THE_SAME = {"identical", "equal"}  # relations of an edge that need no test
#: relation of an edge whose parent is shown -> what shows it
_BY = {"descends": "a third, earlier model shows", "merge": "the numbers themselves show"}
_NAMED = 6  # models that a sentence names
#: what no test of two models says; a tree may say it
OF_TWO = "who took from whom, or which model was first"
#: what no test of models says
NOT_SAID = (
    "whether a use was allowed, or which licence applies",
    "on which data a model was trained",
    "that these files are what their makers published: it names the files by their hashes alone",
)


def opening(content: Mapping[str, Any]) -> str:
    """HTML of the date, the models and the conclusion, from what ``result.json`` holds."""
    result = content["result"]
    names = short_names([model["source"] for model in result["models"]])
    day = date.fromisoformat(content["date"])
    head = f"Report of {day.day} {day:%B} {day.year}: {', '.join(names.values())}"
    if "families" in result:
        said, silent = of_tree(result, names), list(NOT_SAID)
    else:
        silent = [OF_TWO, *NOT_SAID]
        said = CONCLUSIONS.get(result.get("outcome", ""), DIFFERENCE).format(
            **dict(zip("ab", names.values(), strict=False))
        )
    left = "".join(f"<li>{escape(line)}</li>" for line in silent)
    return f"<h1>{escape(head)}</h1><p>{escape(said)}</p><p>It does not say</p><ul>{left}</ul>"


def of_tree(result: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Three sentences of a `tree`: who has a common origin, who is shown to come from whom, and how sure that is."""
    families = [family for family in result["families"] if len(family["models"]) > 1]
    between, unread = result["bridges"], result["not_compared_with_all"]
    single = [family["models"][0] for family in result["families"] if len(family["models"]) == 1]
    alone = [model for model in single if model not in (*between, *unread)]

    def listed(models: Iterable[str]) -> str:
        *first, last = [names[model] for model in models]
        if len(first) >= _NAMED:
            first, last = first[:_NAMED], f"{len(first) + 1 - _NAMED} more"
        return f"{', '.join(first)} and {last}" if first else last

    found = [f"{listed(family['models'])} have a common origin" for family in families]
    if between:
        are = "is" if len(between) == 1 else "are"
        found.append(f"{listed(between)} {are} related to models of more than one origin")
    if alone:
        found.append(f"no relation of {listed(alone)} to another model was found")
    if unread:
        found.append(f"{listed(unread)} could not be compared with all others")
    first = f"Of these {len(names)} models {'; '.join(found)}"
    edges = [edge for family in families for edge in family["edges"]]
    shown: dict[str, list[str]] = {}
    for e in edges:
        if e["parent"] == SHOWN:
            shown.setdefault(_BY[e["relation"]], []).append(f"{names[e['b']]} was made from {names[e['a']]}")
    if shown:
        second = "; ".join(f"{how} that {', and that '.join(some)}" for how, some in shown.items())
        second = (
            f"{second[0].upper()}{second[1:]}, up to the errors below, unless models were written to look so, which "
            "whoever has the later one can do without training"
        )
    else:
        second = "Nothing here shows which model was made from which"
    if not families and not between:
        third = "A copy whose maker hid it may have been missed"
    elif {edge["relation"] for edge in edges} <= _THE_SAME and not between:
        third = "No test was needed to see it: their numbers are the same"
    else:
        third = (
            "Had these models no common origin, the tests, taken together, would say this wrongly in at most one case "
            "of a hundred, under the assumptions below"
        )
    return f"{first}. {second}. {third}."
