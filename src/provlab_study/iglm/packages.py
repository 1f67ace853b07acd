"""The models that this page reads: IgLM and IgLM-S, which stand in one package."""

from provlab_study.shared.packages import Carried

CARRIED = Carried(("iglm", "iglm-small"))
missing, obtain = CARRIED.missing, CARRIED.obtain
