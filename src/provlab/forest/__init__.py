"""From pairs of models to a family forest, in four levels that say how much each statement is worth.

1. *families*: which models are related at all, under a family-wise error (`families`). Exact.
2. *rows*: which models do not lie between two others, and which of two is the later one (`rows`). Exact up to rounding:
   embedding rows of tokens that no training saw stay parallel. Which models are made of others (`combinations`,
   `merges`, `sparse`).
3. *root*: which model may be the first, under a named model of how families grow, and directions away from an outgroup
   (`root`). Conditional.
4. *estimated*: the edges that no row decides, and their directions (`estimate`). Each with the models that its count of
   errors comes from.

Descent is a claim of its own (`descent`): that the later of two models is a child, and not a sibling or nephew, is said
only where a third, earlier model shows it. At every level, the parent may not be among the models.

Before all levels, models that are the same are one node (`copies`). A statement is made where its alternatives are
excluded, and else they are said: one of these was made of the others; longer rows, unless it is made of others.

A common initial draw, which is less than descent, is tested by `fossils`.
"""
