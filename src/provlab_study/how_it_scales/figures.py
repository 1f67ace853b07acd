"""How costs grow: seconds against size for two ways of one thing, hours by what they go to, and tables of both."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.ticker import NullLocator, StrMethodFormatter

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_count, format_duration, format_ratio
from provlab.plots.style import styled
from provlab.plots.tables import FrameTable, table

# name of a way -> the column of its CPU seconds, colour, marker and line
WAYS = {"provlab": ("ours", "#009E73", "o", "-"), "reference": ("reference", style.MUTED, "s", "--")}
# what time goes to: a colour and a hatch each
SMALL = "64 wide, 2 blocks"  # models of the table by vocabulary
SHAPE, DEPTH = "llama-2-7b", 32  # blocks: a row of fewer is a trial
_ON_GPU = "goals.py --device cuda --work "
_NO_GPU = f"goals.py --shape {SHAPE} --work "
_NOT_RUN = "not run here"
_LITTLE = 2.0  # seconds
_PARTS = {"read": ("#56B4E9", "///"), "compare": ("#009E73", "...")}


@styled
def growth(timings: pd.DataFrame, *, exponents: Mapping[tuple[str, str], float], caption: str = "") -> Figure:
    """Draw seconds against size on logarithmic axes, one panel a kind of rows, one line a way.

    Parameters
    ----------
    timings
        Columns kind, rows, ours and reference (CPU seconds).
    exponents
        (kind, way) -> fitted growth, written at the line.
    """
    seconds = timings[["ours", "reference"]].to_numpy()
    kinds = list(timings["kind"].unique())
    figure = style.canvas(2.7)
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    ratios = []
    for axes, kind in zip(panels, kinds, strict=True):
        of_kind = timings[timings["kind"] == kind].sort_values("rows")
        sizes = of_kind["rows"].to_numpy()
        middle = len(sizes) // 2
        for way, (column, color, marker, line) in WAYS.items():
            values = of_kind[column].to_numpy()
            axes.plot(sizes, values, marker + line, color=color, markersize=4)
            above = way == "reference"  # the slower way is named above its line, ours below
            axes.annotate(
                f"{way}\n$n^{{{exponents[kind, way]:.1f}}}$",
                (sizes[middle], values[middle]),
                xytext=(-6, 5) if above else (6, -5),
                textcoords="offset points",
                ha="right" if above else "left",
                va="bottom" if above else "top",
                color=style.ink(color),
                fontsize=style.SMALL,
            )
        axes.set(xscale="log", yscale="log", xlabel="rows", title=kind)
        every = 1 if len(sizes) < 4 else 2  # labels, from the largest down
        axes.set_xticks(sizes, [f"{n:,}" if (len(sizes) - 1 - i) % every == 0 else "" for i, n in enumerate(sizes)])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(sizes[0] * 0.55, sizes[-1] * 1.8)
        style.value_grid(axes, "y")
        largest = of_kind.iloc[-1]
        ratios.append(f"{format_ratio(largest['reference'] / largest['ours'])} at {sizes[-1]:,} {kind} rows")
    panels[0].set_ylim(seconds.min() / 6, seconds.max() * 6)
    panels[0].set_ylabel("CPU seconds")
    text = f"reference over provlab: {', '.join(ratios)}."
    alt = f"CPU seconds against the number of rows, {len(kinds)} panels ({', '.join(kinds)}). {text}"
    return Figure(figure, f"{caption} {text}".strip(), alt)


@styled
def bills(hours: pd.DataFrame, *, caption: str = "") -> Figure:
    """Draw hours as stacked bars, one a machine.

    Parameters
    ----------
    hours
        One row a machine, by its label; columns read and compare.
    """
    figure = style.canvas(0.45 * len(hours) + 1.15)
    axes = figure.add_subplot()
    parts = hours[list(_PARTS)]
    parts.plot.barh(stacked=True, ax=axes, width=0.6, legend=False, color=[color for color, _ in _PARTS.values()])
    for bars, (_, hatch) in zip(axes.containers, _PARTS.values(), strict=True):
        for bar in bars:
            bar.set(hatch=hatch, edgecolor="white")
    words = []
    for height, whole in enumerate(parts.sum(axis=1)):
        words.append(f"{whole:,.0f} h" if whole >= 9.95 else f"{whole:.1f} h")
        axes.annotate(
            words[-1], (whole, height), xytext=(5, 0), textcoords="offset points", va="center", fontsize=style.SMALL
        )
    axes.set(
        ylim=(len(hours) - 0.5, -0.5), xlim=(0, parts.sum(axis=1).max() * 1.45), xlabel="hours by the clock", ylabel=""
    )
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.tick_params(axis="y", length=0)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(_PARTS), handlelength=1.4)
    text = "; ".join(f"{' '.join(label.split())}: {word}" for label, word in zip(hours.index, words, strict=True))
    return Figure(figure, f"{caption} {text}.".strip(), f"Stacked bars of hours by {', '.join(_PARTS)}. {text}.")


def timing_table(rows: Sequence[Mapping[str, Any]], *, caption: str) -> FrameTable:
    """Both ways side by side."""
    frame = pd.DataFrame(rows)
    columns = {
        "rows": frame["kind"] + ", " + frame["rows"].map(format_count),
        "provlab": frame["ours"].map("{:.3f} s".format),
        "reference": frame["reference"].map("{:.3f} s".format),
        "ratio": (frame["reference"] / frame["ours"]).map(format_ratio),
        "certified": frame["certified"].map({True: "yes", False: "no"}),
        "gap per row": frame["error"].map("{:.0e}".format).str.replace("-", "\N{NON-BREAKING HYPHEN}"),
    }
    return table(pd.DataFrame(columns), caption=caption)


def diff_table(costs: Sequence[Mapping[str, Any]], *, caption: str) -> FrameTable:
    """Model-diff's cost by model and length."""
    frame = pd.DataFrame(costs)
    planned = pd.DataFrame(list(frame["planned"]))
    speeds = frame[["judged", "written", "bare"]].map(lambda speed: "" if pd.isna(speed) else f"{speed:,.0f}")
    columns = {
        "model": frame["model"],
        "parameters": planned["parameters"].map(format_count),
        "vocabulary": frame["vocabulary"].map(format_count),
        "length": frame["length"],
        "judged, tokens/s": speeds["judged"],
        "written": speeds["written"],
        "bare passes": speeds["bare"],
        "planned": (planned["tokens"] / planned["cpu_seconds"]).map(format_count),
        "tokens in all": planned["tokens"].map(format_count),
        "GB": ((planned["weights"] + planned["held"]) / 1e9).map("{:.2g}".format),
        "one core": planned["cpu_seconds"].map(format_duration),
    }
    return table(pd.DataFrame(columns), caption=caption)


def whole_table(rows: pd.DataFrame, *, caption: str) -> FrameTable:
    """What whole comparisons took, measured beside the page (`benchmarks/modeldiff.py whole`).

    Parameters
    ----------
    rows
        Columns as that script writes them; ``outputs`` and ``in_z`` are effective draws of what a model writes and in
        Z, of the model that has fewer; ``each`` CPU seconds for one of the former, or of the latter where there are no
        others; ``rhat`` and ``least`` the highest R-hat and the fewest effective draws of the loss at any temperature.
    """
    rows = rows.sort_values(["vocabulary", "length"], ignore_index=True)

    def shown(name: str, form: str) -> "pd.Series[str]":
        return rows[name].map(lambda value: "" if pd.isna(value) else form.format(value))

    columns = {
        "vocabulary": rows["vocabulary"].map(format_count),
        "length": rows["length"],
        "drawn": rows["way"].str.cat(rows["n"].astype(str), sep=", "),
        "CPU s": shown("cpu", "{:.0f}"),
        "of it the system's": shown("system", "{:.1f}"),
        "peak MB": shown("memory", "{:,.0f}"),
        "effective draws of outputs": shown("outputs", "{:,.0f}"),
        "in Z": shown("in_z", "{:.3g}"),
        "CPU s for one": shown("each", "{:.2g}"),
        "R-hat": shown("rhat", "{:.2f}"),
        "fewest effective draws": shown("least", "{:.0f}"),
        "note": rows["note"].fillna(""),
        "measured": rows["date"] + ", " + rows["commit"],
    }
    frame = pd.DataFrame(columns)
    return table(frame.loc[:, (frame != "").any()], caption=caption)


def estimate_table(checks: Sequence[Mapping[str, Any]], *, caption: str) -> FrameTable:
    """Estimates beside measurements."""
    rows = [
        {
            "what": check["what"],
            "estimated": format_duration(check["estimated"]),
            "measured": format_duration(check["measured"]),
            "measured / estimated": f"{check['measured'] / check['estimated']:.2f}",
        }
        for check in checks
    ]
    return table(pd.DataFrame(rows), caption=caption)


def vocabulary_table(rows: pd.DataFrame, *, caption: str) -> FrameTable:
    """Costs of commands by vocabulary, measured beside the page (`benchmarks/vocabulary.py`).

    Parameters
    ----------
    rows
        Columns as that script writes them.
    """
    rows = rows[rows["shape"] == SMALL]
    spent = rows.assign(both=rows["cpu"].map("{:,.1f} s, ".format) + rows["memory"].map("{:,.0f} MB".format))
    frame = spent.pivot(index="work", columns="vocabulary", values="both").loc[rows["work"].unique()]
    frame.columns = [f"{n:,} tokens" for n in frame.columns]
    frame["growth"] = growths(rows)
    frame["measured"] = rows.groupby("work")[["date", "commit"]].last().agg(", ".join, axis=1)
    return table(frame.rename_axis("command").reset_index(), caption=caption)


def growths(rows: pd.DataFrame) -> "pd.Series[float]":
    """By command, CPU seconds of a token more at the largest vocabulary, over those of a token more before it.

    1 where the time grows as the vocabulary does, 3 where as its square (at the sizes of the benchmark). NaN where it
    hardly grows: by less than `_LITTLE` seconds up to the vocabulary before the largest, which a busy machine adds too.
    """
    seconds = rows.pivot(index="work", columns="vocabulary", values="cpu")
    least, *_, before, most = seconds.columns
    gained = seconds[before] - seconds[least]
    growth = (seconds[most] - seconds[before]) / (most - before) / (gained / (before - least))
    return growth.where(gained >= _LITTLE)


def goals_table(goals: pd.DataFrame, vocabulary: pd.DataFrame, *, caption: str) -> FrameTable:
    """Goals for a study of real models, what was measured, and the command that measures it.

    Parameters
    ----------
    goals
        Rows of `benchmarks/goals.py`.
    vocabulary
        Rows of `benchmarks/vocabulary.py`.
    """
    whole = goals[(goals["shape"] != SHAPE) | (goals["blocks"] == DEPTH)]
    last = whole.drop_duplicates(["work", "shape", "device"], keep="last").set_index(["shape", "device", "work"])

    def when(row: "pd.Series[Any]") -> str:
        return f"{row['date']}, {row['commit']}"

    def on_gpu(*works: str) -> tuple[str, str]:
        if any((SHAPE, "cuda", work) not in last.index for work in works):
            return _NOT_RUN, ""
        rows = [last.loc[SHAPE, "cuda", work] for work in works]
        return ", ".join(
            f"{row['seconds']:,.0f} s, {row['host'] / 1e3:,.0f} GB, {float(row['on_device']) / 1e3:,.0f} GB on it"
            for row in rows
        ), f"{when(rows[0])}, {rows[0]['machine']}"

    def without_gpu(work: str) -> tuple[str, str]:
        if (SHAPE, "cpu", work) not in last.index:
            return _NOT_RUN, ""
        row = last.loc[SHAPE, "cpu", work]
        return f"{row['seconds'] / 60:,.1f} min, {row['host'] / 1e3:,.1f} GB", when(row)

    tiny, light, zoo = (
        last.loc[key] for key in (("tiny", "cpu", "pair"), ("tiny", "cpu", "phi_u"), ("zoo", "cpu", "all"))
    )
    small = vocabulary[vocabulary["shape"] == SMALL]
    steepest = growths(small)
    rows = [
        ("default tests, a pair of 7B, one GPU", "90 s, 16 GB, 40 GB on it", *on_gpu("pair"), f"{_ON_GPU}pair"),
        ("phi_U, phi_H, phi_MATCH of 210 such pairs, one GPU", "60 min", *on_gpu("study"), f"{_ON_GPU}study"),
        ("diff of such a pair, 200 and 2,000 sequences", "like times", *on_gpu("diff", "diff, ten times"),
         f'{_ON_GPU}diff "diff, ten times"'),
        ("default tests, a pair of 7B, no GPU", "30 min, 8 GB", *without_gpu("pair"), f"{_NO_GPU}pair"),
        ("compare --quick, a pair of 7B, no GPU", "6 min, 8 GB", *without_gpu("quick"), f"{_NO_GPU}quick"),
        ("default tests, and phi_U alone, of two tiny folders", "6 and 2 CPU s",
         f"{tiny['cpu']:.1f} and {light['cpu']:.1f} CPU s", when(tiny), "goals.py --work pair phi_u"),
        ("time by vocabulary: 1 linear, 3 quadratic", "1, not 3",
         f"{steepest.min():.2f} to {steepest.max():.2f}", when(small.iloc[-1]), "vocabulary.py"),
        ("the zoo's study from nothing", "45 min", f"{zoo['seconds'] / 60:.0f} min", when(zoo), "make reproduce"),
    ]  # fmt: skip
    return table(pd.DataFrame(rows, columns=["work", "goal", "here", "measured", "command"]), caption=caption)
