"""Every attack by its name: what it does, whether outputs stay, what it costs, and the number it takes.

``T1+split=3+T3`` is three attacks in turn, the second with the number 3.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from provlab.errors import InputError
from provlab.models.attacks import exact, lossy
from provlab.models.attacks.exact import Aim
from provlab.models.attacks.state import State
from provlab.models.evasion import EmbeddingRotations, MlpScalings, QueryKeyRotations, ReplacedNorms
from provlab.models.symmetry import EmbeddingPermutations, MlpPermutations, Transformations


@dataclass(frozen=True)
class Number:
    """The number that an attack takes.

    Attributes
    ----------
    usual
        If none is given; a whole number if this is one.
    least, most
        What it may be.
    what
        What it counts or measures.
    """

    usual: float
    least: float
    most: float
    what: str

    def read(self, text: str, name: str) -> float:
        """Read the number from text; raise InputError unless it may be that."""
        whole = isinstance(self.usual, int)
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = float("nan")
        if not self.least <= value <= self.most:
            kind = "a whole number" if whole else "a number"
            raise InputError(f"{name}={text}: {self.what}, {kind} from {self.least:g} to {self.most:g}")
        return value


@dataclass(frozen=True)
class Attack:
    """One thing that an adversary can do.

    Attributes
    ----------
    does
        In one line.
    apply
        Returns the attacked model.
    cost
        To the adversary, besides what a lossy attack costs in quality.
    exact
        Whether outputs stay: proved by the logits whenever it is applied.
    number
        That it takes, if any.
    others
        What it takes from other models, in order.
    """

    does: str
    apply: Callable[[State, Aim], State]
    cost: str = "nothing"
    exact: bool = True
    number: Number | None = None
    others: tuple[str, ...] = ()


def _drawn(family: Callable[[State], Transformations]) -> Callable[[State, Aim], State]:
    """Make an attack of a class of transformations, from which it draws one."""
    return lambda state, aim: state.having(family(state).sample(aim.rng)(state.weights))


def _number(usual: float, what: str, least: float = 0.0, most: float = 1.0) -> Number:
    return Number(usual, least, most, what)


def _many(usual: int = 1) -> Number:
    return Number(usual, 1, 16, "how many for each unit")


_SHARE = _number(0.5, "share of the other model")
_TAKEN = ("the other model",)
_WIDER = "wider MLPs"

#: name -> attack; T1 to T6 are the names of "Independence Tests for Language Models" (Appendix D, Table 6)
CATALOGUE: Mapping[str, Attack] = {
    "T1": Attack("permute the coordinates of the residual stream", _drawn(lambda s: EmbeddingPermutations(s.anatomy))),
    "T2": Attack("permute the hidden units of each MLP", _drawn(lambda s: MlpPermutations(s.anatomy))),
    "T3": Attack("rotate the residual stream", _drawn(lambda s: EmbeddingRotations(s.anatomy))),
    "T4": Attack("rotate queries and keys of each head alike", _drawn(QueryKeyRotations)),
    "T5": Attack("draw new norm weights, which the matrices undo", _drawn(lambda s: ReplacedNorms(s.anatomy))),
    "T6": Attack("scale the up projection of each block", _drawn(lambda s: MlpScalings(s.anatomy))),
    "T6-": Attack("scale it by a negative number", _drawn(lambda s: MlpScalings(s.anatomy, negative=True))),
    "fold": Attack(
        "fold the norm weights into the matrices, all become 1", _drawn(lambda s: ReplacedNorms(s.anatomy, folded=True))
    ),
    "scales": Attack("scale the up row of each unit by its own number", exact.scales),
    "signs": Attack(
        "negate up row and down column of some units", exact.signs, number=_number(0.5, "share of the units")
    ),
    "heads": Attack("permute the attention heads", exact.heads),
    "values": Attack("write the values of each head in another basis", exact.values),
    "duplicates": Attack(
        "share what each unit writes among copies of it", exact.duplicates, _WIDER, number=Number(2, 2, 16, "copies")
    ),
    "dead": Attack("add random units that write nothing", exact.dead, _WIDER, number=_many()),
    "decoys": Attack(
        "add units with the gate of one and the up row of another, which write nothing",
        exact.decoys, _WIDER, number=_many(2),
    ),
    "cancelling": Attack(
        "add such units twice, writing with opposite signs", exact.cancelling, _WIDER, number=_many()
    ),
    "zeros": Attack("add units that are zero", exact.zeros, _WIDER, number=Number(1, 1, 4096, "units for each MLP")),
    "split": Attack(
        "write each unit as the difference of two with its gate", exact.split, _WIDER,
        number=_number(3.0, "length of what is added to the up row, over its own", 0.0, 100.0),
    ),
    "turned": Attack("write each unit as three with other gates", exact.turned, _WIDER),
    "pad": Attack(
        "widen the residual stream by coordinates that carry nothing", exact.pad, "a wider stream",
        number=Number(16, 1, 4096, "coordinates, at least"),
    ),
    "identity": Attack(
        "insert blocks that write nothing", exact.identity, "more blocks", number=Number(1, 1, 16, "blocks")
    ),
    "vocabulary": Attack("number the tokens otherwise, in the tokenizer's files too", exact.vocabulary),
    "extend": Attack(
        "add tokens that no text has; the logits of the others stay", exact.extend, "a larger vocabulary",
        number=Number(16, 1, 65536, "tokens"),
    ),
    "align": Attack(
        "put the units in the order of another model's, to look derived from it", exact.align, others=_TAKEN
    ),
    "average": Attack("average with another model", lossy.average, exact=False, number=_SHARE, others=_TAKEN),
    "slerp": Attack("average on the arc between the two", lossy.slerp, exact=False, number=_SHARE, others=_TAKEN),
    "ties": Attack(
        "merge what both learned beyond a base, by TIES", lossy.ties, exact=False,
        number=_number(0.5, "share of the numbers that is kept", 0.01), others=(*_TAKEN, "their base"),
    ),
    "lora": Attack(
        "merge an adapter cut out of another model", lossy.lora, exact=False, number=Number(8, 1, 4096, "its rank"),
        others=_TAKEN,
    ),
    "embedding": Attack(
        "take another model's embedding, to look derived from it", lossy.embedding, exact=False, others=_TAKEN
    ),
    "noise": Attack(
        "add noise to every matrix", lossy.noise, exact=False, number=_number(0.3, "standard deviations", 0.0, 100.0)
    ),
    "rank": Attack(
        "cut every matrix to a rank", lossy.rank, exact=False, number=Number(32, 1, 65536, "singular values kept")
    ),
    "bits": Attack("round every matrix to a few bits", lossy.bits, exact=False, number=Number(4, 2, 16, "bits")),
    "prune": Attack(
        "set the smallest numbers of every matrix to zero", lossy.prune, exact=False,
        number=_number(0.5, "share of the numbers"),
    ),
    "jitter": Attack(
        "split each unit in two whose gates differ a little", lossy.jitter, _WIDER, exact=False,
        number=_number(0.05, "standard deviations of the gate", 0.0, 100.0),
    ),
    "murmur": Attack(
        "add three decoys for each unit that write a little", lossy.murmur, _WIDER, exact=False,
        number=_number(0.15, "of what a unit writes"),
    ),
    "swap": Attack(
        "exchange a block with the next one", lossy.swap, exact=False, number=Number(1, 0, 1000, "the block")
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """An attack with its number.

    Attributes
    ----------
    name
        In the catalogue.
    value
        Its number, 0 if it takes none.
    """

    name: str
    value: float

    @property
    def attack(self) -> Attack:
        """What the catalogue says."""
        return CATALOGUE[self.name]

    @classmethod
    def read(cls, text: str) -> "Step":
        """Read ``T3`` or ``noise=0.3``.

        Raises
        ------
        InputError
            There is no such attack, or its number is none that it takes.
        """
        name, given, value = text.partition("=")
        if name not in CATALOGUE:
            raise InputError(f"there is no attack {name!r}; there are {', '.join(CATALOGUE)}")
        number = CATALOGUE[name].number
        if number is None and given:
            raise InputError(f"{name} takes no number; write {name}, not {text}")
        return cls(name, 0.0 if number is None else number.read(value, name) if given else number.usual)


def listing() -> str:
    """Return the catalogue as text, an attack a line."""
    rows = []
    for name, one in CATALOGUE.items():
        number = f"={one.number.usual:g}" if one.number else ""
        told = [f"{one.number.what}" if one.number else "", f"of {' and '.join(one.others)}" if one.others else ""]
        kind = "exact" if one.exact else "lossy"
        note = "; ".join(text for text in (*told, f"costs {one.cost}" if one.cost != "nothing" else "") if text)
        rows.append(f"{name + number:<16}{kind}  {one.does}{f' ({note})' if note else ''}")
    return "\n".join(rows)
