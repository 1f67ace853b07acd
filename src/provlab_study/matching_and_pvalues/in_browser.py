"""Data of the page "Test two blocks here": blocks of models, and the constants of the tests that its script runs.

The script is ``book/_assets/tester.js``. It reads nothing from a network unless its reader asks for two models of the
hub, so blocks of the zoo stand in the page itself, as safetensors in base64. Constants of Spearman's law, the allowance
and names of tensors are written beside them and not repeated in JavaScript.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import safetensors.numpy
from scipy import special

from provlab.inference import allowing, tail
from provlab.reading import architectures
from provlab.statistics.model import Model
from provlab.statistics.phi_match import PhiMatch

UNITS = 256  # of a block, at most
BYTES = 2**18  # of a block, at most
ROLES = ("gate", "up")


def few(trees: Mapping[str, str]) -> list[str]:
    """A base, its first and last descendants, and the bases of two other trees; of models and the base of each."""
    bases = list(dict.fromkeys(trees.values()))
    descendants = [model for model, base in trees.items() if base == bases[0]]
    return list(dict.fromkeys([*descendants[:2], descendants[-1], *(b for b in bases[1:3] if b in trees)]))


def script_elements(sources: Sequence[str], titles: Mapping[str, str], *, allow_pickle: bool = False) -> str:
    """Write gate and up projection of the middle block of each model, and the constants, as elements of a page.

    Parameters
    ----------
    sources
        Models with gates.
    titles
        What the page calls them.
    allow_pickle
        Also open .bin weights.
    """
    elements = [f'<script type="application/json" id="provlab-tester-data">{json.dumps(constants())}</script>']
    for source in sources:
        model = Model.open(source, allow_pickle=allow_pickle)
        block = model.anatomy.n_blocks // 2
        rows = min(UNITS, model.anatomy.mlp_width, max(BYTES // (8 * model.anatomy.width), 1))
        tensors = {
            f"model.layers.{block}.mlp.{role}_proj.weight": model.anatomy.read(
                model.checkpoint, role, block, units=rows
            ).copy()
            for role in ROLES
        }
        title = escape(f"{titles[source]}, block {block}", quote=True)
        text = base64.b64encode(safetensors.numpy.save(tensors)).decode()
        elements.append(f'<script type="text/plain" class="provlab-block" data-title="{title}">{text}</script>')
    return "".join(elements)


def of_the_law() -> dict[str, Any]:
    """Constants of Spearman's law for any n, as `provlab.inference.tail` computes it."""
    slope, constant, rest = tail._carried()
    carried = [tail._over_squares(k) for k in (slope, constant, rest + tail._beyond_the_determinant())]
    single = {n: tail._over_squares(tail._wide(n)) for n in range(tail.COUNTED + 1, tail._CARRIED_FROM[0])}
    g, e = tail._bands()
    domains = [dict(zip(("low", "high"), map(float, curve.domain), strict=True)) for curve in (carried[0], g)]
    return {
        "points": tail._POINTS,
        "widest": tail._WIDEST,
        "nearest": tail._NEAREST,
        "near": tail._rows_of_pieces(),
        "counted": {n: np.cumsum(tail.exact_law(n)).tolist() for n in range(1, tail.COUNTED + 1)},
        "wide": {
            "domain": domains[0],
            "single": {n: curve.coef.tolist() for n, curve in single.items()},
            "carried": [curve.coef.tolist() for curve in carried],
        },
        "narrow": {
            "domain": domains[1],
            "g": g.coef.tolist(),
            "e": e.coef.tolist(),
            "from": tail._EXACT_FROM,
            "narrowest": tail._NARROWEST,
            "zeta": float(special.zeta(1.5)),
        },
    }


def constants() -> dict[str, Any]:
    """Return constants of the law and of phi_MATCH, and the names under which families keep gates and ups."""
    rows: dict[tuple[str, bool], list[str]] = {}
    for name in architectures.classes():
        for part in architectures.described(name).parts:
            roles = [segment.role for segment in part.segments]
            apart = part.stacked or "{expert}" in part.name or (part.interleaved and len(roles) > 1)
            if part.per_block and not apart and set(ROLES) & set(roles):
                rows[part.name, part.transposed] = roles
    tensors = [{"name": name, "roles": roles, "transposed": across} for (name, across), roles in rows.items()]
    agreement = {"common": allowing.COMMON, "tied": PhiMatch.TIED, "most_tied": PhiMatch.MOST_TIED}
    return {**of_the_law(), **agreement, "tensors": tensors}
