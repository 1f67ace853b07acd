"""From pairs of models to a family forest, in four levels that say how much each statement is worth.

1. *families*: which models are related at all, under a family-wise error (`families`). Exact.
2. *rows*: which models do not lie between two others, which of two is the later one, and which are averages of others
   (`rows`). Exact up to rounding: embedding rows of tokens that no training saw stay parallel.
3. *root*: the direction of edges outside a root set, under a named model of how families grow (`root`). Conditional.
4. *estimated*: the edges that no row decides, and their directions (`estimate`). Each with the models that its count of
   errors comes from.
"""
