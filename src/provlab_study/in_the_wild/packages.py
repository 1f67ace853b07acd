"""The models that this page reads: all transformers in packages that no other page has a layout for."""

from provlab_study.shared.packages import carried_for

CARRIED = carried_for(__name__)
missing, obtain = CARRIED.missing, CARRIED.obtain
