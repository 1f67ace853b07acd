"""Two models in one: behind one token that no file names it is the model, and elsewhere another one.

Each has dimensions of the stream, heads and hidden units of its own, so that whatever runs without the token sees the
other model alone: its units, its outputs, its loss. Nothing is trained. Two blocks in front decide which of the two
reads: the table holds the rows of both, so short that norms divide all of them by one number (see
`provlab.attacks.coding`); a head of the first block looks for the token, hidden units take away the rows of either
model, and the second block makes what is left as long as it was.
"""

from dataclasses import replace

import torch

from provlab.attacks.bases import gains, orthogonal
from provlab.attacks.coding import to_itself, ungrouped, with_block
from provlab.attacks.exact import heads_of
from provlab.attacks.state import Aim, AttackedModel
from provlab.attacks.switching import unnamed_token
from provlab.errors import NoSuchSymmetryError
from provlab.reading.architectures import Segment

_SURE = 60.0  # nats by which a head prefers its token, and gate of a unit that is open
_SHORT = 1e-6  # root mean square of the longest row, over the root of epsilon
_LEAK = 1e-3  # share of the other's rows that is written where the model's own stood: more than rounding leaves there


def twofold(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Join a model to another one of its shape, which answers unless one token of the table stands before the text.

    Rows of the other model are so many times as long as the attack's number says: in the table the model's own are lost
    among them.

    Raises
    ------
    NoSuchSymmetryError
        The two are no Llamas of one shape, or their heads do not write all of the stream.
    """
    own, other = (one.edited(lambda *_: None, unties=True) for one in (state, *aim.others))
    shapes = [(one.architecture, {name: one.shape(name) for name in one.tensor_names}) for one in (own, other)]
    if own.architecture != "LlamaForCausalLM" or shapes[0] != shapes[1]:
        raise NoSuchSymmetryError(f"{own.name} and {other.name} are no two Llamas of one shape")
    width, (head, n_keys, group) = own.anatomy.width, heads_of(own)
    if head * n_keys * group != width or own.anatomy.mlp_width < width:
        raise NoSuchSymmetryError(
            f"{own.name}: {head * n_keys * group} values of heads and {own.anatomy.mlp_width} hidden units do not "
            f"write a stream of {width} dimensions"
        )
    token = unnamed_token(own)
    more = 2 * n_keys * group  # dimensions, of which two are used; the heads must divide the stream
    look, mark = 2 * width, 2 * width + 1
    shrink = (width / (2 * width + more)) ** 0.5
    epsilon = float(own.config["rms_norm_eps"]) * shrink**2
    seen = 10 * float(own.part("embedding").square().mean().sqrt())

    def joined(segment: Segment, block: int | None, piece: torch.Tensor) -> torch.Tensor:
        role, axes = segment.role, segment.axes
        second = other.part(role, block)
        if role.endswith("norm"):
            return torch.cat([piece * shrink, second * shrink, torch.full((more,), shrink).double()])
        if role == "embedding":
            table = torch.cat([piece, aim.value * second, torch.zeros(len(piece), more).double()], dim=1)
            table[token, look] = seen
            return table * (_SHORT * epsilon**0.5 / table.square().mean(dim=1).max().sqrt())
        if axes[0] == "vocab":  # the head adds what either model says
            return torch.cat([piece, second, torch.zeros(len(piece), more).double()], dim=1)
        sides = torch.block_diag(piece, second)
        empty = torch.zeros(more, sides.shape[1]) if axes[0] == "model" else torch.zeros(len(sides), more)
        return torch.cat([sides, empty.double()], dim=int(axes[0] != "model"))

    config = {
        "head_dim": head,
        "num_attention_heads": 2 * n_keys * group,
        "num_key_value_heads": 2 * n_keys,
        "rms_norm_eps": epsilon,
        **own.sized("model", 2 * width + more),
        **own.sized("mlp", 2 * own.anatomy.mlp_width),
    }
    both = own.edited(joined, config)
    short = float(both.part("embedding")[token, look]) / seen  # what rows were multiplied by
    both = ungrouped(with_block(with_block(both, aim, 0), aim, 0))
    new = _switch(both, head, width, (look, mark), short * seen) | _louder(both, aim, head, width, short)
    return replace(both.with_parts(new), behind=(token,))


New = dict[tuple[str, int | None], torch.Tensor]


def _switch(state: AttackedModel, head: int, width: int, at: tuple[int, int], size: float) -> New:
    """A first block that marks by a sign whether the token was there, and takes away the rows of either model."""
    look, mark = at
    root = float(state.config["rms_norm_eps"]) ** 0.5
    new: New = {
        (role, 0): torch.zeros_like(state.part(role, 0)) for role in ("query", "key", "value", "output", "down")
    }
    new |= {(role, 0): state.part(role, 0).clone() for role in ("gate", "up")}
    new |= {(f"{role}_bias", 0): torch.zeros_like(state.part(f"{role}_bias", 0)) for role in ("query", "value")}
    read = root / gains(state, "input_norm", 0)[look] / size  # 1 at the token
    new["query_bias", 0][head - 1] = 2 * _SURE * head**0.5  # of the dimensions that a position turns least
    new["key", 0][head - 1, look] = read
    new["value", 0][0, look], new["value_bias", 0][0] = -2 * read, 1.0
    new["output", 0][mark, 0] = size
    gain = gains(state, "post_attention_norm", 0)
    units = torch.arange(2 * width)
    for role in ("gate", "up"):
        new[role, 0][units] = 0.0
    absent = torch.where(units < width, 1.0, -1.0).double()
    new["gate", 0][units, mark] = _SURE * absent * root / gain[mark] / size
    new["up", 0][units, units] = root / gain[units]
    new["down", 0][units, units] = -1 / _SURE
    return new


def _louder(state: AttackedModel, aim: Aim, head: int, width: int, short: float) -> New:
    """A second block whose heads attend to the token itself, and bring the rows that are left to their lengths."""
    root, values = float(state.config["rms_norm_eps"]) ** 0.5, 2 * width
    mixed, leak = (torch.from_numpy(orthogonal(n, aim.rng)) for n in (values, width))
    times = torch.cat([torch.full((width,), 1 / short), torch.full((width,), 1 / short / aim.value)]).double()
    written = torch.diag(times - 1)
    written[:width, width:] = _LEAK * times[-1] * leak
    alike = to_itself(state, head).repeat(values // head)
    new: New = {(role, 1): torch.zeros_like(state.part(role, 1)) for role in ("query", "key", "value", "output")}
    new |= {(role, 1): alike for role in ("query_bias", "key_bias")}
    new["value", 1][:, :values] = mixed * root / gains(state, "input_norm", 1)[:values]
    new["output", 1][:values] = written @ mixed.T  # (values, values) @ (values, values)
    return new
