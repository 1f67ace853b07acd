"""Statistics on pairs of models, by name."""

from collections.abc import Sequence

from provlab.errors import ParameterError
from provlab.statistics.base import Statistic
from provlab.statistics.huref import HuRefA, HuRefB, HuRefC
from provlab.statistics.median_max import MedianMax
from provlab.statistics.phi_h import PhiH
from provlab.statistics.phi_jsd import PhiJSD
from provlab.statistics.phi_l2 import PhiL2
from provlab.statistics.phi_match import PhiMatch, PhiMatchUnsigned
from provlab.statistics.phi_u import PhiU
from provlab.statistics.phi_views import PhiViews, PhiViewsOuter

REGISTRY: dict[str, Statistic] = {
    s.name: s
    for s in (
        PhiU(),
        PhiH(),
        PhiL2(),
        PhiJSD(),
        PhiMatch(),
        HuRefA(),
        HuRefB(),
        HuRefC(),
        MedianMax(),
        PhiMatchUnsigned(),
        PhiViews(),
        PhiViewsOuter(),
    )
}
#: what runs if no statistic is named
USUAL = tuple(name for name, statistic in REGISTRY.items() if not statistic.on_request)


def get(name: str) -> Statistic:
    """Return a registered statistic by name.

    Raises
    ------
    ParameterError
        If no statistic has that name.
    """
    if name not in REGISTRY:
        raise ParameterError(f"no statistic is called {name!r}; there are {', '.join(REGISTRY)}")
    return REGISTRY[name]


def checked_names(names: Sequence[str] | None) -> list[str]:
    """Return the names given, each known and once, or `USUAL` for None.

    Raises
    ------
    ParameterError
        If a name is unknown, or the names are none at all.
    """
    if names is not None and (isinstance(names, str) or not names):
        raise ParameterError(f"statistics must be a list of one or more of {', '.join(REGISTRY)}, not {names!r}")
    return list(dict.fromkeys(get(name).name for name in names)) if names is not None else list(USUAL)
