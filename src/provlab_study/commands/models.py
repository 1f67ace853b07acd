"""Models that a page is given: each is opened by its headers before a kernel starts."""

from collections.abc import Mapping
from typing import Any

from provlab.cli import sources
from provlab.errors import ParameterError
from provlab.plugins import SCHEMES, named
from provlab.reading.checkpoint import Checkpoint
from provlab.studying import expand
from provlab_study.publishing.declared import Parameter, model_names, of_ones_own
from provlab_study.publishing.own import check_lineage


def check_models(declared: Mapping[str, Parameter], values: Mapping[str, Any]) -> None:
    """Open what each parameter names; a model of a scheme may still have to be made, and is looked up by its name.

    A name with braces stands for many, which the page counts.

    Raises
    ------
    ProvlabError
        If there is no such model, its files are damaged, two names of one parameter are one model, or the file of the
        parameter ``lineage`` tells of none of them.
    """
    check_lineage(str(values.get("lineage", "")), of_ones_own(declared, values))
    for name, value in values.items():
        if name not in declared or not declared[name].takes_models:
            continue
        opened: dict[str, str] = {}
        for model in expand(model_names([value])):
            if "{" in model:
                continue
            sources.check(model)
            if model.partition(":")[0] in named(SCHEMES):
                continue
            known = Checkpoint.open(model, allow_pickle=bool(values.get("allow_pickle", False))).source
            other = opened.setdefault(known, model)
            if other != model and not declared[name].rule.repeat:  # type: ignore[union-attr]
                raise ParameterError(f"parameter {name} names one model twice: {other} and {model}; give it once")
