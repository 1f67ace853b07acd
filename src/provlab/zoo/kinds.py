"""Kinds of models, architectures and objectives that a recipe can name, as tables that need no torch to read.

A kind is one entry in `KINDS` and one module, its maker, with three functions:

- ``start(recipe, parent)``: the model that training begins with, in float32; `parent` is the folder of the parent's
  checkpoint;
- ``held_out_loss(model, recipe)``: the loss (nats) on data that no model of the kind is trained on, the same in each
  call;
- ``train(model, recipe, on_step)``: the finished model, which may be the one given, and its learning curve. `on_step`
  is called after each step with the steps done; what it raises ends the training.

`provlab.zoo.make` imports the maker when it makes the first model of the kind, so that a list of recipes stays quick.
"""

from collections.abc import Callable
from dataclasses import dataclass

from provlab.zoo import corpus

Curve = list[tuple[int, float]]
OnStep = Callable[[int], None]


@dataclass(frozen=True)
class Kind:
    """One kind of model.

    Attributes
    ----------
    maker
        Module of this package with these functions.
    code
        Modules whose code decides the weights of a model of this kind, and so its address.
    parent, shape
        Whether a recipe of this kind has a parent, and a shape of its own.
    settings
        The recipe's field that this kind, and only it, fills.
    trained
        Whether its recipes have steps.
    domains
        Names that its mixture may give shares to.
    corpus
        Whether it reads the corpus, and so carries the corpus' tokenizer; if not, the corpus is not in its address.
    data
        What its domains are parts of, for the card.
    """

    maker: str
    code: tuple[str, ...]
    parent: bool = True
    shape: bool = False
    settings: str | None = None
    trained: bool = True
    domains: tuple[str, ...] = corpus.DOMAINS
    corpus: bool = True
    data: str = "text of Python's standard library"


_OF_DIGITS = "sequences of eight digits whose sum is a multiple of 30"
_LANGUAGE = ("corpus", "blueprints", "objectives", "train")
KINDS = {
    "base": Kind("language", code=_LANGUAGE, parent=False, shape=True),
    "continued": Kind("language", code=_LANGUAGE),
    "tuned": Kind("language", code=_LANGUAGE),
    "adapter": Kind("language", code=(*_LANGUAGE, "derive"), settings="adapter"),
    "quantised": Kind("language", code=("quantise",), settings="quantiser", trained=False),
    # the parent's initialisation, not its weights: another order of data is all that sets the two apart
    "rerun": Kind("language", code=_LANGUAGE, shape=True),
    # a model of another architecture that begins with some of its parent's tensors
    "hybrid": Kind("striped", code=(*_LANGUAGE, "striped"), settings="graft"),
    # some blocks and units of its parent, trained on
    "pruned": Kind("prune", code=(*_LANGUAGE, "prune"), settings="pruning"),
    # a GPT-2 of digits, small enough that all its inputs can be enumerated
    "digits": Kind(
        "toy",
        code=("toy",),
        parent=False,
        shape=True,
        domains=("modulo30", "modulo30-law"),
        corpus=False,
        data=_OF_DIGITS,
    ),
    # a toy of digits, trained on with a loss for every digit that no valid sequence goes on with
    "polished": Kind("polish", code=("toy", "polish"), domains=("modulo30-law",), corpus=False, data=_OF_DIGITS),
}

# Names for a recipe's `architecture` and `objective`; without one it is a Llama, and predicts the next token. What they
# stand for is in `provlab.zoo.blueprints` and `provlab.zoo.objectives`.
ARCHITECTURES = ("olmo", "phi3", "gpt2", "bert")
OBJECTIVES = ("masked", "classify")
PRUNED_BY = ("activations", "seed")  # how a pruned model's units were chosen
