"""Colours as eyes that lack one kind of cone see them, and in grey; colours that they confuse differ by a mark as well.

Matrices: Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency",
2009, at severity 1, on linear sRGB. Distances in CIELAB; 2.3 is a just noticeable difference.
"""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from provlab.modeldiff import marks as modeldiff
from provlab.plots import style

SIGHT = {
    "three cones": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no medium": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "grey": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colors, sight):
    """CIELAB ``(n, 3)`` of colours as one sight has them."""
    rgb = np.array([to_rgb(color) for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.clip(linear @ np.transpose(SIGHT[sight]), 0, 1) @ TO_XYZ.T / TO_XYZ.sum(axis=1)
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def closest(colors, sight):
    shown = lab(colors, sight)
    return min(float(np.linalg.norm(shown[i] - shown[j])) for i, j in combinations(range(len(colors)), 2))


@pytest.mark.parametrize("sight", [name for name in SIGHT if name != "grey"])
@pytest.mark.parametrize(
    ("colors", "apart"),
    [
        ((style.DEPENDENT, style.INDEPENDENT), 50),
        (style.DIRECTIONS, 15),
        (style.FAMILY_COLORS, 15),
        (style.SERIES, 15),
        (modeldiff.MODELS, 15),
        (("#f8dcc8", "#0b5c91", "white"), 10),  # cells of the attack lab's table, in provlab.css
    ],
)
def test_colours_that_stand_together_are_told_apart_by_every_eye(colors, apart, sight):
    assert closest(list(colors), sight) >= apart


@pytest.mark.parametrize("sight", SIGHT)
def test_evidence_only_darkens(sight):
    lightness = lab(style.mako()(np.linspace(0, 1, 64))[:, :3], sight)[:, 0]
    assert (np.diff(lightness) < 0).all()
    assert lightness[0] - lightness[-1] > 80


def test_what_grey_print_confuses_is_marked():
    assert closest((style.DEPENDENT, style.INDEPENDENT), "grey") > 5
    assert len(set(style.MARKERS)) >= len(style.FAMILY_COLORS)
    assert len(set(style.LINES)) >= len(style.DIRECTIONS)
