"""Words of a report on how well it was recomputed."""

from provlab.attest import folder


def verify(path, models=(), **options):
    """The sentences on how well a recomputed report agrees, a line each."""
    return "\n".join(folder.recompute(path, models, **options)[0])
