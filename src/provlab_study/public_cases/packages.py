"""The models that this page reads: six of PLM-CS, IgFold's ensemble of four, and IgLM in two sizes."""

from provlab_study.shared.packages import Carried, carried_for

#: that of the two sizes is fetched by another page as well
CARRIED = Carried((*carried_for(__name__).names, "iglm", "iglm-small"))
missing, obtain = CARRIED.missing, CARRIED.obtain
