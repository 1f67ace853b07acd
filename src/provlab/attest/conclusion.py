"""What a report says first, to a reader who is no engineer: date, models by name, three sentences, what is left open.

It is a function of ``result.json``, so that `verify` makes it again.
"""

from collections.abc import Mapping
from datetime import date
from html import escape
from typing import Any

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
#: what no test of two models says
NOT_SAID = (
    "who took from whom, or which model was first",
    "whether a use was allowed, or which licence applies",
    "on which data either model was trained",
    "that these files are what their makers published: it names the files by their hashes alone",
)


def opening(content: Mapping[str, Any]) -> str:
    """HTML of the date, the models and the conclusion, from what ``result.json`` holds."""
    result = content["result"]
    names = list(short_names([model["source"] for model in result["models"]]).values())
    day = date.fromisoformat(content["date"])
    head = f"Report of {day.day} {day:%B} {day.year}: {', '.join(names)}"
    said = CONCLUSIONS.get(result.get("outcome", ""), "").format(**dict(zip("ab", names, strict=False)))
    left = "".join(f"<li>{escape(line)}</li>" for line in NOT_SAID)
    told = f"<p>{escape(said)}</p>" if said else ""
    return f"<h1>{escape(head)}</h1>{told}<p>It does not say</p><ul>{left}</ul>"
