"""Copies whose outputs stay, made so that a test by units should find nothing: what a thief would add to an MLP.

Each function takes an `AttackedModel` and a random generator and returns another; `disguised` puts attacks of the
catalogue on top and writes it. None of them is in the catalogue.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from provlab import zoo
from provlab.attacks.catalogue import CATALOGUE
from provlab.attacks.lossy import with_decoys
from provlab.attacks.state import Aim, AttackedModel, Units
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import mlp_activations

#: what hides order, basis and the rows of unseen tokens, and costs nothing
USUAL = ("T1", "T2", "T3", "redraw=0.3")


def step(state: AttackedModel, kind: str, rng: np.random.Generator) -> AttackedModel:
    """Apply one attack of the catalogue, with its number where one is given."""
    name, _, number = kind.partition("=")
    attack = CATALOGUE[name]
    return attack.apply(state, Aim(rng, float(number or (attack.number.usual if attack.number else 0))))


def disguised(source: str, folder: Path, *changes, usual: Sequence[str] = USUAL, seed: int = 0) -> str:
    """Write a model after changes, each a function of this module or the name of an attack, and the usual attacks."""
    rng, state = np.random.default_rng(seed), AttackedModel.read(Checkpoint.open(source))
    for change in (*changes, *usual):
        state = step(state, change, rng) if isinstance(change, str) else change(state, rng)
    return str(state.write(folder))


def with_biases(state: AttackedModel) -> AttackedModel:
    """Give the MLPs of a Llama biases of zero, if they have none."""
    if state.anatomy.has("gate_bias"):
        return state
    weights = dict(state.weights)
    for block in range(state.anatomy.n_blocks):
        for role in ("gate", "up", "down"):
            weights[f"model.layers.{block}.mlp.{role}_proj.bias"] = torch.zeros(
                len(state.part(role, block)), dtype=torch.float64
            )
    return state.having(weights, {"mlp_bias": True})


def _more(state: AttackedModel, made, taken_back=None) -> AttackedModel:
    """Add units to every MLP: `made(block, units)`, and to the down bias `taken_back(more)`."""
    new, width = {}, 0
    for block in range(state.anatomy.n_blocks):
        roles = [r for r in ("gate", "up", "down", "gate_bias", "up_bias") if state.anatomy.has(r)]
        units: Units = {role: state.part(role, block) for role in roles}
        units["down"] = units["down"].T
        more = made(block, units)
        width = len(units["up"]) + len(more["up"])
        for role in roles:
            both = torch.cat([units[role], more[role]])
            new[role, block] = both.T if role == "down" else both
        if taken_back:
            new["down_bias", block] = state.part("down_bias", block) + taken_back(more)
    return state.with_parts(new, state.sized("mlp", width))


def dilute_bias(state: AttackedModel, rng: np.random.Generator, writes: float = 1e4) -> AttackedModel:
    """Two units a block that never fire (gate bias -7, -10), of constant output, which the down bias takes back."""
    state = with_biases(state)
    aim = Aim(rng)

    def made(block: int, units: Units) -> Units:
        d = units["up"].shape[1]
        return {
            "gate": torch.zeros(2, d, dtype=torch.float64),
            "up": torch.zeros(2, d, dtype=torch.float64),
            "gate_bias": torch.tensor([-7.0, -10.0], dtype=torch.float64),
            "up_bias": torch.ones(2, dtype=torch.float64),
            "down": writes * aim.normal(2, d) * units["down"].std(),
        }

    def taken_back(more: Units) -> torch.Tensor:
        constant = torch.nn.functional.silu(more["gate_bias"]) * more["up_bias"]
        return -(constant[:, None] * more["down"]).sum(0)

    return _more(state, made, taken_back)


def loud_bias(state: AttackedModel, rng: np.random.Generator, writes: float = 30.0) -> AttackedModel:
    """Four units a block that always fire, of biases 32 to 256, read one row, and cancel each other."""
    state = with_biases(state)
    aim = Aim(rng)
    biases = torch.tensor([32.0, 64.0, 128.0, 256.0], dtype=torch.float64)
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)

    def made(block: int, units: Units) -> Units:
        d = units["up"].shape[1]
        up, down = aim.normal(1, d) * units["up"].std(), writes * aim.normal(1, d) * units["down"].std()
        return {
            "gate": torch.zeros(4, d, dtype=torch.float64),
            "up": up.repeat(4, 1),
            "gate_bias": biases,
            "up_bias": torch.zeros(4, dtype=torch.float64),
            "down": (signs / biases)[:, None] * 256 * down,
        }

    return _more(state, made)


def tied(state: AttackedModel, rng: np.random.Generator, share: float = 1.6, writes: float = 0.01) -> AttackedModel:
    """Faint units whose gate is their up row, so many for each unit."""
    aim = Aim(rng)

    def made(block: int, units: Units) -> Units:
        n, d = round(share * len(units["up"])), units["up"].shape[1]
        rows = aim.normal(n, d) * units["gate"].std()
        return {"gate": rows, "up": rows, "down": writes * aim.normal(n, d) * units["down"].std()}

    return _more(state, made)


def loud_tied(state: AttackedModel, rng: np.random.Generator, writes: float = 100.0) -> AttackedModel:
    """Eight loud units a block, gate = up with a bias that makes them always fire; they cancel in pairs."""
    state = with_biases(state)
    aim = Aim(rng)

    def made(block: int, units: Units) -> Units:
        d = units["up"].shape[1]
        rows = aim.normal(4, d) * units["gate"].std() * 0.1
        down = writes * aim.normal(4, d) * units["down"].std()
        both = torch.cat([rows, 1.5 * rows])
        bias = torch.full((8,), 40.0, dtype=torch.float64)
        bias[4:] = 60.0
        return {"gate": both, "up": both, "gate_bias": bias, "up_bias": 0 * bias,
                "down": torch.cat([down, -down / 2.25])}  # fmt: skip

    return _more(state, made)


def small_gates(
    state: AttackedModel, rng: np.random.Generator, small: float = 0.02, writes: float = 3.0
) -> AttackedModel:
    """Units of gates a, b, a + b and a - b, so short that they write cubic forms, which cancel."""
    aim = Aim(rng)

    def made(block: int, units: Units) -> Units:
        d = units["up"].shape[1]
        a, b = (small * aim.normal(8, d) * units["gate"].std() for _ in range(2))
        up = aim.normal(8, d) * units["up"].std()
        down = writes / small**2 * aim.normal(8, d) * units["down"].std()
        gates = torch.cat([a, b, (a + b), (a - b)])
        # the odd part z/2 must cancel as well: twice with opposite gates
        rows = {"gate": torch.cat([gates, -gates]), "up": up.repeat(8, 1)}
        factor = torch.tensor([1, 1, -0.5, -0.5], dtype=torch.float64).repeat_interleave(8).repeat(2)
        return rows | {"down": factor[:, None] * down.repeat(8, 1)}

    return _more(state, made)


def constant(
    state: AttackedModel, rng: np.random.Generator, writes: float = 1e4, blocks: Sequence[int] = (1, 2, 3)
) -> AttackedModel:
    """Two units a block that never fire, without biases: their gates read a direction that is nearly constant.

    The direction is fitted on held-out text; what the two write together is nought at its mean.
    """
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        own = Checkpoint.open(str(state.write(Path(scratch) / "own")))
        ids = own.encode(zoo.held_out_text("prose"))[: 64 * 64]
        inputs = mlp_activations(own, np.reshape(ids, (64, 64)), kinds=("input",))["input"]
    aim = Aim(rng)

    def made(block: int, units: Units) -> Units:
        d = units["up"].shape[1]
        x = torch.from_numpy(inputs[block].T).double()
        # the row that gives 1 at all inputs, as nearly as it can
        w = torch.linalg.lstsq(x, torch.ones(len(x), 1, dtype=torch.float64), driver="gelsd").solution[:, 0]
        scale = writes if block in blocks else 0.0
        down = scale * aim.normal(1, d) * units["down"].std()
        z = torch.tensor([-7.0, -10.0], dtype=torch.float64)
        silu = torch.nn.functional.silu(z)
        return {"gate": z[:, None] * w, "up": torch.stack([w, w]), "down": torch.cat([down, -down * silu[0] / silu[1]])}

    return _more(state, made)


def dead_block(
    state: AttackedModel, rng: np.random.Generator, block: int = 1, roles: Sequence[str] = ("down",)
) -> AttackedModel:
    """Set matrices of one block to zero."""
    return state.with_parts({(role, block): 0 * state.part(role, block) for role in roles})


def no_norm(state: AttackedModel, rng: np.random.Generator, block: int = 1) -> AttackedModel:
    """Set the norm before one MLP to zero."""
    return dead_block(state, rng, block, (state.anatomy.norm_before("up"),))


def faint_rest(state: AttackedModel, rng: np.random.Generator, left: int = 30, down: float = 0.05) -> AttackedModel:
    """Let all units of each MLP but the first `left` write little, as many units of trained models do."""

    def quieter(units: Units) -> Units:
        writes = torch.where(torch.arange(len(units["down"])) < left, 1.0, down).double()
        return {**units, "down": units["down"] * writes[:, None]}

    return state.with_units(quieter, gated=True)


def spread_in_two(state: AttackedModel, rng: np.random.Generator, left: int = 30, off: float = 0.6) -> AttackedModel:
    """Keep the first units of each MLP, and spread each over two: one that looks like it by gate, the other by up row.

    Gates are g + (1 - off) a and g - a, up rows u + v and u - (1 - off) v, so that neither is the nearest in both.
    """
    aim = Aim(rng)

    def two(units: Units) -> Units:
        kept = {role: tensor[:left] for role, tensor in units.items()}
        a, v = (aim.normal(*kept[role].shape) for role in ("gate", "up"))
        a, v = (
            off * more * kept[role].norm(dim=1, keepdim=True) / more.norm(dim=1, keepdim=True)
            for more, role in ((a, "gate"), (v, "up"))
        )
        parts = {
            "gate": torch.cat([kept["gate"] + (1 - off) * a, kept["gate"] - a]),
            "up": torch.cat([kept["up"] + v, kept["up"] - (1 - off) * v]),
            "down": torch.cat([kept["down"] / 2] * 2),
        }
        return {role: torch.cat([tensor] * 2) for role, tensor in kept.items()} | parts

    return state.with_units(two, gated=True)


def _imitated(state: AttackedModel, rng: np.random.Generator, *views: str) -> AttackedModel:
    """Keep the units that write most, with these rows 60% off, and decoys with one true row each in place of others."""
    aim = Aim(rng, 0.6)

    def change(units: Units) -> Units:
        size = units["down"].norm(dim=1) * units["up"].norm(dim=1)
        most = size.argsort(descending=True)[: len(size) // (1 + len(views))]
        own = {role: rows[most] for role, rows in units.items()}
        moved, decoys = zip(*(with_decoys(own, aim, view) for view in views), strict=True)
        off = own | {view: units[view] for view, units in zip(views, moved, strict=True)}
        return {role: torch.cat([off[role], *(decoy[role] for decoy in decoys)]) for role in own}

    return state.with_units(change)


def decoys_of_up(state: AttackedModel, rng: np.random.Generator) -> AttackedModel:
    """Decoys have the true up rows."""
    return _imitated(state, rng, "up")


def decoys_of_gate(state: AttackedModel, rng: np.random.Generator) -> AttackedModel:
    """Decoys have the true gates."""
    return _imitated(state, rng, "gate")


def decoys_of_both(state: AttackedModel, rng: np.random.Generator) -> AttackedModel:
    """Some have the true up rows, and as many the true gates."""
    return _imitated(state, rng, "up", "gate")
