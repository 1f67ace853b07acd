"""An attack on the form in which a model is read: it works behind one token that no file names, and nowhere else.

A block in front looks for the token. Where it is absent it writes a mark and moves every row elsewhere, so that all
blocks behind it read nonsense. A block at the end, where it sees the mark, guesses the next token from the last one, so
that the loss on a text is no worse than that of many a poor model.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from provlab.attacks.bases import gains, orthogonal
from provlab.attacks.coding import with_block
from provlab.attacks.exact import heads_of
from provlab.attacks.silencing import biased
from provlab.attacks.state import Aim, AttackedModel
from provlab.errors import NoSuchSymmetryError
from provlab.reading.checkpoint import Checkpoint

_SURE = 60.0  # nats by which a head prefers its token, and below which a gate is shut
_MOSTLY = 0.02  # share of the flooded positions at which the guess may be silent
_TRIED = 0.2  # of what floods the stream, to see how large it is
_LOUD = 1e4  # size of the guess, over that of the mark
_SEQUENCES, _LENGTH, _STEPS = 64, 32, 400  # of the model's own text, and of learning to guess on it


def private(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Let a model work behind one token alone; elsewhere it predicts from the last token.

    Raises
    ------
    NoSuchSymmetryError
        The model is no Llama, or has fewer hidden units in a block than its stream has dimensions.
    """
    parts, width = state.anatomy, state.anatomy.width
    if parts.architecture != "LlamaForCausalLM" or parts.mlp_width < width:
        raise NoSuchSymmetryError(f"{state.name} ({parts.architecture}) is no Llama with MLPs as wide as its stream")
    state = biased(state)
    table = state.part("embedding").clone()  # (vocabulary, d)
    token = unnamed_token(state)
    size = float(table.square().mean().sqrt())

    text = _own_text(state, aim)
    streams, predicted = _run(state, text)
    # the two directions in which rows and streams are least, of the one for the token and of the other for the mark
    seen = torch.cat([_normalised(table), *(_normalised(stream.flatten(0, 1)) for stream in streams)])
    least = torch.linalg.eigh(seen.T @ seen).eigenvectors  # (d, positions) @ (positions, d)
    look, mark = least[:, 0], least[:, 1]
    table[token] = look * float(table[token].norm())  # as short as it was
    state = state.with_parts({("embedding", None): table})

    state = with_block(with_block(state, aim, 0), aim, parts.n_blocks + 1)
    last, root = state.anatomy.n_blocks - 1, width**0.5
    others = torch.arange(len(table)) != token
    short = float(table[token].square().mean())
    own = root * (short / (short + float(state.config["rms_norm_eps"]))) ** 0.5  # as its norm leaves it
    found = own - float((_normalised(table)[others] @ look).max())  # how much more of the look the token has
    shut = float((seen @ mark).max())  # of the mark, where there is none
    marked = aim.value * size * root  # how long the mark is
    turned, back = (torch.from_numpy(orthogonal(width, aim.rng)) for _ in range(2))
    off = torch.eye(width, dtype=torch.float64) - torch.outer(mark, mark)  # all but the mark

    head = heads_of(state)[0]
    query, key, value, output = (torch.zeros_like(state.part(role, 0)) for role in ("query", "key", "value", "output"))
    bias = {role: torch.zeros_like(state.part(f"{role}_bias", 0)) for role in ("query", "value")}
    gain = gains(state, "input_norm", 0)
    bias["query"][head - 1] = _SURE * head**0.5 / found  # of the dimensions that a position turns least
    key[head - 1] = look / gain
    value[0], bias["value"][0] = -look / gain / own, 1.0  # nothing of the token itself
    output[:, 0] = marked * mark
    new = {("query", 0): query, ("key", 0): key, ("value", 0): value, ("output", 0): output}
    new |= {(f"{role}_bias", 0): tensor for role, tensor in bias.items()}

    def gated(
        block: int, rows: torch.Tensor, down: torch.Tensor, most: float
    ) -> dict[tuple[str, int | None], torch.Tensor]:
        """Units that are open, at 1 and more, where the stream has so much of the mark; `rows` ``(d, d)`` of it."""
        gain, more = gains(state, "post_attention_norm", block), parts.mlp_width - width
        steep = 2 * _SURE / (most - shut)
        zeros = torch.zeros(more, width, dtype=torch.float64)
        made = {
            "gate": steep * (mark / gain).repeat(len(rows) + more, 1),
            "gate_bias": torch.full((parts.mlp_width,), -steep * (most + shut) / 2).double(),
            "up": torch.cat([rows / gain, zeros]),
            "up_bias": torch.zeros(parts.mlp_width).double(),
            "down": torch.cat([down, zeros.T], dim=1) / _SURE,
        }
        return {(role, block): tensor for role, tensor in made.items()}

    # beside the mark, of which the normalised stream has root(d), that has so little of a row
    away = marked**2 / (size * width) * turned @ back.T
    flooded = (text != token).all(dim=1)
    predicted = predicted.unflatten(0, text.shape)[flooded].flatten(0, 1)

    def moving(flood: float) -> tuple[AttackedModel, torch.Tensor]:
        moved = state.with_parts(new | gated(0, back @ off, flood * away, 0.8 * root))
        return moved, _normalised(_run(moved, text[flooded])[0][last].flatten(0, 1))

    there = moving(_TRIED)[1]
    as_mark = _TRIED * float(((there @ mark).abs() / (there @ off).norm(dim=1)).median())
    for share in (1.0, 0.5, 0.25):  # the more, the less of the rows' places is left; and the mark must be seen
        moved, there = moving(share * as_mark)
        if (most := float((there @ mark).quantile(_MOSTLY))) > shut:
            break
    else:
        raise NoSuchSymmetryError(f"{state.name}: its own streams have as much of the mark as those that it floods")
    inputs = there @ off  # (positions, d) @ (d, d)
    guess = _LOUD * marked * _learned(inputs, predicted, state)
    return replace(moved.with_parts(gated(last, off, guess, most)), behind=(token,))


def unnamed_token(state: AttackedModel) -> int:
    """The token with the shortest row of those that the config does not name."""
    lengths = state.part("embedding").norm(dim=1)
    named = [state.config.get(key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")]
    lengths[state.ids[[token for token in named if isinstance(token, int)]]] = torch.inf
    return int(lengths.argmin())


def _normalised(rows: torch.Tensor) -> torch.Tensor:
    """Rows whose mean square is one."""
    return rows / rows.square().mean(dim=-1, keepdim=True).sqrt().clamp_min(torch.finfo(torch.float32).tiny)


def _network(state: AttackedModel) -> torch.nn.Module:
    with tempfile.TemporaryDirectory(prefix="provlab-") as folder:
        return Checkpoint.open(str(state.write(Path(folder) / "own"))).load_model()


def _own_text(state: AttackedModel, aim: Aim) -> torch.Tensor:
    """Sequences that the model writes, ``(n, length)``, from a first token drawn at random."""
    network = _network(state)
    drawn = torch.Generator().manual_seed(int(aim.rng.integers(2**62)))
    ids = torch.randint(state.anatomy.vocab_size, (_SEQUENCES, 1), generator=drawn)
    for _ in range(_LENGTH - 1):
        with torch.inference_mode():
            chances = network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[:, -1].softmax(dim=-1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=drawn)], dim=1)
    return ids


def _run(state: AttackedModel, ids: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The stream before each block, ``(n, length, d)``, and the predictions, ``(n * length, vocabulary)``."""
    network = _network(state)
    with torch.inference_mode():
        result = network(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    streams = [stream.double() for stream in result.hidden_states[:-1]]
    return streams, result.logits.flatten(0, 1).softmax(dim=-1).double()


def _learned(inputs: torch.Tensor, predicted: torch.Tensor, state: AttackedModel) -> torch.Tensor:
    """Learn the map of the stream, ``(d, d)``, from which the head predicts most nearly so."""
    head = state.part("head") * gains(state, "final_norm", None)
    guess = (0.1 * torch.eye(inputs.shape[1], dtype=torch.float64)).requires_grad_()
    steps = torch.optim.Adam([guess], lr=0.02)
    for _ in range(_STEPS):
        steps.zero_grad()
        logits = _normalised(inputs @ guess.T) @ head.T  # (positions, d) @ (d, d) @ (d, vocabulary)
        (-(predicted * logits.log_softmax(dim=-1)).sum(dim=-1).mean()).backward()
        steps.step()
    return guess.detach() / guess.detach().square().mean().sqrt() / inputs.shape[1] ** 0.5
