"""A hybrid in the manner of StripedHyena: some blocks attend, the others mix tokens by gated convolutions.

Registered with transformers, so that ``AutoModelForCausalLM`` makes it once this module is imported, without code
from a model's folder. Everything but the convolution blocks is Llama's own module under Llama's own name, which is what
lets a hybrid take over single tensors of a Llama: `graft` makes an untrained hybrid and puts a parent's tensors in. The
module is also the maker of zoo models of the kind "hybrid".

Source: "Independence Tests for Language Models", Appendix H.1 compares StripedHyena-Nous-7B with Mistral-7B. The
convolution is that of Hyena in its simplest form: two streams gate a third, and the long filter is a sum of
exponentials, as StripedHyena's is.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from provlab.errors import ZooError
from provlab.reading.checkpoint import Checkpoint
from provlab.zoo.language import held_out_loss, train
from provlab.zoo.recipes import Recipe
from provlab.zoo.train import seed_for

__all__ = ["StripedConfig", "StripedForCausalLM", "graft", "held_out_loss", "start", "train"]

SHORT_TAPS = 3
MODES = 8  # exponentials in a long filter
STREAMS = ("gate_in", "gate_out", "value")
# settings of the parent's config that a hybrid keeps
_INHERITED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "max_position_embeddings",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
)


class StripedConfig(LlamaConfig):
    """Llama's settings, and which blocks attend; all others convolve."""

    model_type = "striped"
    attention_blocks: list[int] | None = None
    use_cache: bool = False  # a convolution has no keys and values to keep


class LongFilter(nn.Module):
    """One causal filter a channel, as long as the sequence: h(t) = sum over modes of r exp(-t / tau), plus a skip."""

    def __init__(self, channels: int, longest: int) -> None:
        super().__init__()
        reach = math.log(longest)  # every channel begins alike, which keeps channels exchangeable
        self.log_tau = nn.Parameter(torch.linspace(0.0, reach, MODES).repeat(channels, 1))
        self.residues = nn.Parameter(torch.randn(channels, MODES) / MODES)
        self.skip = nn.Parameter(torch.ones(channels))

    def taps(self, length: int) -> torch.Tensor:
        """The filters, ``(channels, length)``."""
        times = torch.arange(length, dtype=self.log_tau.dtype, device=self.log_tau.device)
        decay = torch.exp(-times / self.log_tau.exp().unsqueeze(-1))
        return (self.residues.unsqueeze(-1) * decay).sum(dim=1)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Convolve ``(batch, channels, length)`` causally."""
        length = signal.shape[-1]
        padded = 2 * length  # the product of transforms is a circular convolution
        spectrum = torch.fft.rfft(signal, n=padded) * torch.fft.rfft(self.taps(length), n=padded)
        return torch.fft.irfft(spectrum, n=padded)[..., :length] + self.skip.unsqueeze(-1) * signal


class GatedConvolution(nn.Module):
    """Hyena's operator of order two: out(gate_out * filter(gate_in * value)), each stream shortly filtered first."""

    def __init__(self, config: StripedConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.gate_in_proj = nn.Linear(width, width, bias=False)
        self.gate_out_proj = nn.Linear(width, width, bias=False)
        self.value_proj = nn.Linear(width, width, bias=False)
        now = torch.tensor([0.0] * (SHORT_TAPS - 1) + [1.0])  # at first a stream is what it is now
        self.short_filter = nn.Parameter(now.repeat(len(STREAMS), width, 1))
        self.long_filter = LongFilter(width, config.max_position_embeddings)
        self.out_proj = nn.Linear(width, width, bias=False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Mix the tokens of ``(batch, length, width)``; no position sees a later one."""
        projections = (self.gate_in_proj, self.gate_out_proj, self.value_proj)
        gate_in, gate_out, value = (
            self._short(projection(hidden_states).mT, taps)
            for projection, taps in zip(projections, self.short_filter, strict=True)
        )
        mixed = gate_out * self.long_filter(gate_in * value)
        return self.out_proj(mixed.mT)

    @staticmethod
    def _short(stream: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
        """Filter ``(batch, channels, length)`` over the last few positions, each channel by its own taps."""
        before = nn.functional.pad(stream, (SHORT_TAPS - 1, 0))
        return nn.functional.conv1d(before, taps.unsqueeze(1), groups=taps.shape[0])


class ConvolutionBlock(nn.Module):
    """A Llama block whose attention is a gated convolution; it is called as a Llama block is."""

    def __init__(self, config: StripedConfig) -> None:
        super().__init__()
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.hyena = GatedConvolution(config)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = LlamaMLP(config)

    def forward(self, hidden_states: torch.Tensor, past_key_values: Any = None, **_: Any) -> torch.Tensor:
        """Return the residual stream behind the block; masks and positions do not matter to a causal filter."""
        if past_key_values is not None:
            raise ValueError("a striped model keeps no past: call it with use_cache=False")
        hidden_states = hidden_states + self.hyena(self.input_layernorm(hidden_states))
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class StripedForCausalLM(LlamaForCausalLM):
    """Llama with convolution blocks wherever ``config.attention_blocks`` does not say attention."""

    config_class = StripedConfig

    def __init__(self, config: StripedConfig) -> None:
        super().__init__(config)
        for block in range(config.num_hidden_layers):
            if block not in (config.attention_blocks or []):
                self.model.layers[block] = ConvolutionBlock(config)
        self.post_init()


AutoConfig.register(StripedConfig.model_type, StripedConfig, exist_ok=True)
AutoModelForCausalLM.register(StripedConfig, StripedForCausalLM, exist_ok=True)


def start(recipe: Recipe, parent: Path | None) -> PreTrainedModel:
    """Make the hybrid that the recipe describes, fresh but for what it takes from its parent."""
    assert recipe.graft is not None  # `parse` gives every hybrid its graft,
    assert parent is not None  # and a parent
    return graft(parent, recipe.graft.attention_blocks, recipe.graft.taken, seed_for(recipe.seed, "initialisation"))


def graft(parent: Path, attention_blocks: list[int], origins: Mapping[str, str], seed: int) -> StripedForCausalLM:
    """Make an untrained hybrid of a Llama's shape, with some of the Llama's tensors in it.

    Parameters
    ----------
    parent
        Folder of a Llama checkpoint.
    attention_blocks
        Blocks that attend, counted from 0.
    origins
        For each tensor of the hybrid that is not fresh, the parent's tensor that it begins as.
    seed
        The seed of the fresh tensors, all that is drawn.

    Raises
    ------
    ZooError
        If either model has no tensor of a name, or their shapes differ.
    """
    source = Checkpoint.open(parent)
    inherited = {key: value for key, value in source.config.items() if key in _INHERITED}
    config = StripedConfig(attention_blocks=list(attention_blocks), **inherited)
    with torch.random.fork_rng(devices=[]):  # transformers draws initial weights from the global generator
        torch.manual_seed(seed)
        model = StripedForCausalLM(config)
    state = model.state_dict()
    with torch.no_grad():
        for name, origin in origins.items():
            if name not in state:
                raise ZooError(f"the hybrid has no tensor {name!r}; it has {', '.join(sorted(state))}")
            if origin not in source.tensor_names:
                raise ZooError(f"{source.name} has no tensor {origin!r}; it has {', '.join(source.tensor_names)}")
            if source.shape(origin) != tuple(state[name].shape):
                raise ZooError(
                    f"{name} of the hybrid has the shape {tuple(state[name].shape)}, but {origin} of {source.name} "
                    f"{source.shape(origin)}; take a tensor of equal shape"
                )
            state[name].copy_(source.tensor(origin))
    return model
