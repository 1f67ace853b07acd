"""Answers that a stranger replays, and answers from a shelf of fingerprints.

`folder` writes an answer of `compare`, `tree` or `diff` as one folder and recomputes it from the models' bytes; all but
its page is a function of the result, see `statement`. `shelf` keeps a fingerprint of each model, and says which of them
a new model is kin of.
"""
