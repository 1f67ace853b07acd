"""The models that this page reads: all transformers in packages."""

from provlab_study.shared.packages import Carried, models

#: PLM-CS has a page and a layout of its own
CARRIED = Carried(tuple(name for name, model in models().items() if model.lineage != "plm-cs"))
missing, obtain = CARRIED.missing, CARRIED.obtain
