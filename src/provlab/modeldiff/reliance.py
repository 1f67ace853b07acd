"""What of a comparison is not to be relied on, with what to change, and what its numbers rest on."""

from provlab.modeldiff.excess import too_short
from provlab.modeldiff.findings import minded
from provlab.modeldiff.found import Found
from provlab.modeldiff.outputs import enough
from provlab.modeldiff.pipeline import N_CHAINS
from provlab.modeldiff.representative import LEAST_EFFECTIVE
from provlab.plots.numbers import format_range


def remedies(found: Found) -> list[str]:
    """What the draws do not carry, and what to change."""
    if found.copies:
        return []
    summary = found.summary if found.carried and not found.equal else None
    ratios = (
        [("R3", summary.by_r3, " The ratio by counts needs no R3."), ("counts", summary.by_count, "")]
        if summary
        else []
    )
    unopened, unseen = minded(found)
    return [
        *unopened,
        *filter(None, (_lacking(found, k) for k in range(2))),
        *[f"{found.apart.where} gives means without intervals: {_short(found)}."]
        * bool(found.text_loss and not found.apart.has_interval),
        *(f"No ratio by {by}: {of['error']}.{more}" for by, of, more in ratios if "error" in of),
        *[f"Replica exchange gives no number: {found.exchange}."] * isinstance(found.exchange, str),
        *unseen,
    ]


def _lacking(found: Found, k: int) -> str:
    """Why there is no number of one model's inputs in Z, and what to change; empty where there is one."""
    name, side, (in_z, drawn, low, high) = "AB"[k], found.sides[k], found.weighed[k].losses
    if not side["in_z"]:
        assert found.z is not None
        return (
            f"{name} has no number in Z: {side['model']} has {in_z} of {drawn} sequences with a loss in Z = "
            f"[{found.z[0]:g}, {found.z[1]:g}], too few; most have {format_range(low, high, '.3g')}: move Z there, "
            "write more, or, for lower losses, with tempers such as 1, 1.15, 1.3."
        )
    if side["effective"] >= LEAST_EFFECTIVE:
        return ""
    return (
        f"{name}'s {side['in_z']} draws in Z are worth {side['effective']:.1f} equally weighted ones, and "
        f"{LEAST_EFFECTIVE:.0f} are needed: no number of {name}'s inputs in Z is given. "
        f"{enough(found.parameters, side['effective'])}, or move Z to losses that both models write often."
    )


def _short(found: Found) -> str:
    return too_short(len(found.apart.each), found.parameters["length"])


def assumptions(found: Found) -> list[str]:
    """What the numbers rest on."""
    if found.copies or found.z is None:
        return []
    low, high = found.z
    sentences = [
        f"An input is a sequence of {found.parameters['length']} tokens. {found.words['tokens']} "
        f"{found.words['start']}",
        "A divergence over what a model writes counts each output as often as the model writes it, at temperature "
        "1. It is the mean of the divergences of the laws of the next token, which never are negative; the nats of "
        "an output are their sum over it.",
        f"Z is {format_range(low, high)} nats per token, {found.words['z']}. Numbers of inputs are of those in Z, "
        "each counted once, and nearly all of these lie at its upper end; another Z gives others.",
        "Each model wrote its inputs with known probability, so that weights are numbers of inputs and nothing has "
        f"to converge; 95% intervals are by resampling {N_CHAINS} groups of draws."
        + " Draws of both models are weighted as one sample of their mixture."
        * found.parameters["mixed"],
        "D = NLL of A - NLL of B says what the two disagree about, and neither which of them is right nor where "
        f"they come from. Rounding alone moves it by up to {found.floor:.1e} nats per token here (losses of what "
        "was written, token by token and read at once); a smaller D counts as 0.",
    ]
    if found.roundings:
        made = "; ".join(
            f"to {way.way} on {way.where}, {way.mean:.2g} where A and B are {way.between:.2g} apart, and "
            f"{way.farthest:.2g} where they are {way.between_farthest:.2g}, the farthest"
            for way in found.roundings
        )
        sentences.append(f"Rounding the weights of a model moves its own law by so many nats per token: {made}.")
    if found.apart.references:
        sentences += [
            "A reference is a model that was made as B was, without the change: another seed, or A fine-tuned "
            "again. If B were one more of them, they and B would be exchangeable, so that the rank is exact: "
            "of the larger of mean distance and 99% quantile over pieces, each in units of its median.",
            "The interval of the excess is Student's: it takes distances as normal, and seeds that lie far out "
            "make it too narrow.",
        ]
    return sentences
