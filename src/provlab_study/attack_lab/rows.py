"""Which attacks are tried: the rows of the table, by what they are."""

from dataclasses import dataclass

from provlab.attacks.catalogue import Step
from provlab.errors import ParameterError

#: attacks that train; and all attacks in addition to those of the catalogue, in words: they come first in a row
TRAINED = ("retrained", "distilled")
OWN = {
    "retrained": "train fresh MLPs until they do what the old ones did",
    "distilled": "train a fresh model on the other's answers",
    "respelt": "respell the tokens",
}
#: group -> rows; the names after @ are the models that an attack takes from, by their places in a `Family`
ROWS = {
    "outputs kept": (
        "T1", "T2", "sorted", "T3", "T4", "T5", "T6", "T6-", "fold", "scales", "signs=0.5", "heads", "values",
        "duplicates=2", "dead=1", "decoys=2", "cancelling=1", "zeros=1", "split=3", "turned", "mirror=3", "quadratic",
        "experts=32", "dilution", "loud", "coded=1000", "pad=16", "identity=1", "vocabulary", "extend=16", "respelt",
    ),
    "outputs kept, two and three together": (
        "T1+T2", "T6-+T2", "split=3+T2", "signs=0.5+T1+T2", "identity=1+T2", "vocabulary+T2", "vocabulary+split=3+T3",
        "split=3+identity=1+T3", "split=3+experts=32+T3", "dilution+T2+T3", "loud+T2+T3", "turned+T2", "mirror=3+T2+T3",
        "quadratic+T2+T3", "pad=16+T3+T5", "respelt+T2+T3", "coded=1000+T2+T3",
        "coded=1000+front=4+T2+T3",
    ),
    "some quality lost": (
        "noise=0.3", "noise=1", "rank=32", "rank=8", "bits=4", "prune=0.5", "prune=0.9", "swap=0",
        "jitter=0.05", "jitter=0.5", "fan=0.5", "fan=0.5+T2", "imitated=0.6+T2", "murmur=0.05", "murmur=0.2",
        "redraw=0.3", "tied+T2", "hollow", "hollow+T2", "noise=0.3+T2+T3", "begin+T1+T2",
        "private+coded=1000+T2+T3", "private+coded=1000+front=4+T2+T3", "twofold+T2+T3@partner",
    ),
    "merged": (
        "average=0.5@origin", "average=0.3@partner", "average=0.5@partner", "average=0.7@partner", "slerp=0.5@partner",
        "ties=0.5@partner,origin", "lora=8@partner", "average=0.5+T2@partner",
    ),
    "trained again": ("retrained", "retrained+T1+T2", "retrained+vocabulary+T3", "distilled"),
}  # fmt: skip
#: what an unrelated model does to look derived from the origin
FRAMING = (
    "align@origin", "embedding@origin", "align+embedding@origin", "faint=0.001@origin", "faint=0.03@origin",
    "faint=0.1@origin", "mimics@origin", "posing=0.1@origin", "posing=0.3@origin", "rows@origin",
    "mimics+experts=2@origin",
)  # fmt: skip


@dataclass(frozen=True)
class AttackRow:
    """A few attacks in turn.

    Attributes
    ----------
    label
        As it is written: ``average=0.5@partner``.
    group
        Under which it stands.
    own
        The attack that the catalogue has not, or "".
    kinds
        Those of the catalogue, in their order.
    places
        Whose models they take from.
    """

    label: str
    group: str
    own: str
    kinds: tuple[str, ...]
    places: tuple[str, ...]

    @classmethod
    def read(cls, label: str, group: str) -> "AttackRow":
        """Read a row; raise ParameterError if a place is unknown, InputError if an attack is."""
        named, _, places = label.partition("@")
        names = named.split("+") if named else []
        own = names.pop(0) if names and names[0] in OWN else ""
        for name in names:
            Step.read(name)
        inputs = tuple(places.split(",")) if places else ()
        if unknown := set(inputs) - {"origin", "partner"}:
            raise ParameterError(f"{label}: attacks take from the origin or the partner, not from {min(unknown)}")
        return cls(label, group, own, tuple(names), inputs)

    @property
    def words(self) -> str:
        """What is done, where that is one thing; a row of several says it in the rows of each."""
        if len(steps := [*([self.own] if self.own else []), *self.kinds]) != 1:
            return ""
        if self.own:
            return OWN[self.own]
        step = Step.read(steps[0])
        number = step.attack.number
        return step.attack.does + (f" ({number.what}: {step.value:g})" if number else "")

    @property
    def exact(self) -> bool:
        """Whether all outputs stay."""
        return self.own not in TRAINED and all(Step.read(kind).attack.exact for kind in self.kinds)


def rows(only: list[str]) -> list[AttackRow]:
    """Return the rows, all of them or `only` these, behind the model as it is."""
    known = [AttackRow.read("", "as it is")] + [
        AttackRow.read(label, group) for group, labels in ROWS.items() for label in labels
    ]
    labels = {row.label for row in known}
    if unknown := [label for label in only if label not in labels]:
        known += [AttackRow.read(label, "asked for") for label in unknown]
    return [row for row in known if not only or row.label in (*only, "")]
