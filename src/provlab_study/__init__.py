"""The study on top of `provlab`: one package a chapter, what makes pages of its notebooks, and its commands.

A chapter has ``claims.yml``, ``predicates.py`` (how its claims are judged) and the measurements, nulls, trainers and
figures that it alone uses; `shared` has what several use. `publishing` makes pages and verdicts of notebooks. `begin`
starts an experiment in a notebook.
"""

from typing import TYPE_CHECKING

from provlab.lazy import lazily

if TYPE_CHECKING:
    from provlab_study.publishing.experiment import begin

__all__ = ["begin"]

#: the module that holds each name
HOMES = {"begin": "provlab_study.publishing.experiment"}
__getattr__ = lazily(__name__, HOMES)
