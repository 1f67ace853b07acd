"""From pairs of models to a family forest, in four levels that say how much each statement is worth.

1. *families*: which models are related at all, under a family-wise error (`families`). Exact.
2. *rows*: which models do not lie between two others, and which of two is the later one (`rows`). Exact up to rounding:
   embedding rows of tokens that no training saw stay parallel. Which models are made of others (`merges`, `sparse`).
3. *root*: the direction of edges outside a root set, under a named model of how families grow (`root`). Conditional.
4. *estimated*: the edges that no row decides, and their directions (`estimate`). Each with the models that its count of
   errors comes from.

Descent is a claim of its own (`descent`): that the later of two models is a child, and not a sibling or nephew, is said
only where a third, earlier model shows it. At every level, the parent may not be among the models.

A common initial draw, which is less than descent, is tested by `fossils`.
"""
