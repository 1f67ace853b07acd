"""The models that this page reads: PLM-CS, one for each of six kinds of atoms, and IgFold, an ensemble of four."""

from provlab_study.shared.packages import carried_for

CARRIED = carried_for(__name__)
missing, obtain = CARRIED.missing, CARRIED.obtain
