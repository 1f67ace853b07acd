"""The models that this page reads: PLM-CS, one model for each of six kinds of atoms."""

from provlab_study.shared.packages import Carried, models

CARRIED = Carried(tuple(name for name, model in models().items() if model.lineage == "plm-cs"))
missing, obtain = CARRIED.missing, CARRIED.obtain
