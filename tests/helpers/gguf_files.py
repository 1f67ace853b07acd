"""Models written as GGUF, as llama.cpp's converter writes them from a checkpoint of transformers."""

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tiny_models
import torch
from transformers import PreTrainedModel

from provlab.reading.checkpoint import Checkpoint

# transformers' names of modules -> llama.cpp's
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}  # fmt: skip
EXPERTS = {
    f"{at}.{ours}": f"ffn_{theirs}"
    for at, ways in (
        ("block_sparse_moe", {"experts.w1": "gate_exps", "experts.w2": "down_exps", "experts.w3": "up_exps"}),
        ("mlp", {f"experts.{kind}_proj": f"{kind}_exps" for kind in ("gate", "down", "up")}),
    )
    for ours, theirs in (ways | {"gate": "gate_inp"}).items()
}
#: norms that stand elsewhere than in a Llama
GLM_NORMS = {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}
FOUR_NORMS = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip


def q4_k(weight: np.ndarray) -> bytes:
    """Blocks of 256, in eight parts, each with a scale and a minimum of 6 bits in units of the whole block."""
    pieces = []
    for block in weight.reshape(-1, 8, 32):
        low = np.minimum(block.min(axis=1), 0)
        step = (block.max(axis=1) - low) / 15
        of_steps, of_lows = np.float16(step.max() / 63 + 1e-7), np.float16(-low.min() / 63 + 1e-7)
        s, m = (np.rint(v / np.float32(d)).clip(0, 63).astype(int) for v, d in ((step, of_steps), (-low, of_lows)))
        width = np.float32(of_steps) * s[:, None]
        codes = np.rint((block + np.float32(of_lows) * m[:, None]) / np.where(width, width, 1))
        codes = codes.clip(0, 15).astype(np.uint8).reshape(4, 2, 32)
        sixes = [*(s[:4] | s[4:] >> 4 << 6), *(m[:4] | m[4:] >> 4 << 6), *(s[4:] & 15 | (m[4:] & 15) << 4)]
        pieces += [of_steps.tobytes(), of_lows.tobytes(), bytes(int(b) for b in sixes)]
        pieces.append((codes[:, 0] | codes[:, 1] << 4).tobytes())
    return b"".join(pieces)


def stored(weight: np.ndarray, kind: str) -> bytes:
    """Bytes of a tensor in one type of codes; the package writes all but the K-quants."""
    return q4_k(weight) if kind == "Q4_K" else gguf.quantize(weight, gguf.GGMLQuantizationType[kind]).tobytes()


def text(value: str) -> bytes:
    """A text, behind its length."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, value: Any) -> bytes:
    """One key and its value: a text, a list of texts or integers, an integer or a float."""
    if isinstance(value, list):
        texts = isinstance(value[0], str)
        content = b"".join(text(item) if texts else struct.pack("<i", item) for item in value)
        return text(key) + struct.pack("<IIQ", 9, 8 if texts else 5, len(value)) + content
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    code, kind = ("f", 6) if isinstance(value, float) else ("I", 4)
    return text(key) + struct.pack(f"<I{code}", kind, value)


def content(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[np.ndarray, str]], version: int = 3, aligned: int = 32
) -> bytes:
    """Bytes of a file, from the model's metadata, and its tensors with the name of their type."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    header += b"".join(entry(key, value) for key, value in metadata.items())
    data = b""
    for name, (weight, kind) in tensors.items():
        data += b"\0" * (-len(data) % aligned)
        shape = struct.pack(f"<I{weight.ndim}Q", weight.ndim, *weight.shape[::-1])
        header += text(name) + shape + struct.pack("<IQ", gguf.GGMLQuantizationType[kind], len(data))
        data += stored(weight, kind)
    return header + b"\0" * (-len(header) % aligned) + data


def _stacked(folder: Checkpoint) -> dict[str, torch.Tensor]:
    """Tensors of a checkpoint, those of a block's experts together."""
    together: dict[str, list[torch.Tensor]] = {}
    for name in folder.tensor_names:
        together.setdefault(re.sub(r"\.experts\.\d+\.", ".experts.", name), []).append(folder.tensor(name))
    return {name: torch.stack(some) if len(some) > 1 else some[0] for name, some in together.items()}


def converted(
    model: PreTrainedModel, kind: str = "F32", of_experts: Checkpoint | None = None
) -> tuple[dict[str, Any], dict[str, tuple[np.ndarray, str]]]:
    """A model's metadata and tensors in the file: matrices in one type of codes, vectors as they are.

    The tensors of a model with experts are taken from its checkpoint.
    """
    config = model.config
    arch = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3", "qwen3_moe": "qwen3moe"}
    arch = (arch | {"cohere": "command-r", "olmo3": "olmo2"}).get(config.model_type, config.model_type)
    sizes = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
    }
    eps = {"starcoder2": "norm_epsilon", "command-r": "layer_norm_eps", "nemotron": "norm_eps"}
    eps = eps.get(arch, "rms_norm_eps")
    sizes[f"attention.layer_norm_{'rms_' * (eps == 'rms_norm_eps')}epsilon"] = getattr(config, eps)
    scales = {"embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier"}
    scales |= {"attention.scale": "attention_multiplier"}
    scales["logit_scale"] = "logits_scaling" if arch == "granite" else "logit_scale"
    sizes |= {key: float(getattr(config, ours)) for key, ours in scales.items() if hasattr(config, ours)}
    if arch == "nemotron":
        head = config.hidden_size // config.num_attention_heads
        sizes["rope.dimension_count"] = int(config.rope_parameters["partial_rotary_factor"] * head)
    if arch not in ("gemma", "gemma2"):
        rotary = config.rope_parameters
        sizes["rope.freq_base"] = float(rotary.get("full_attention", rotary)["rope_theta"])
    if arch in ("gemma2", "gemma3"):
        sizes |= {"attention.key_length": config.head_dim, "attention.sliding_window": config.sliding_window}
    if config.model_type in ("olmo3", "exaone4") and config.sliding_window:
        slides = [int(kind == "sliding_attention") for kind in config.layer_types]
        sizes |= {"attention.sliding_window": config.sliding_window, "attention.sliding_window_pattern": slides}
    if arch == "glm4":
        sizes["rope.dimension_count"] = int(config.rope_parameters["partial_rotary_factor"] * config.head_dim)
    if of_experts:
        sizes |= {"expert_count": config.num_local_experts, "expert_used_count": config.num_experts_per_tok}
        sizes |= {"expert_feed_forward_length": config.moe_intermediate_size} if arch == "qwen3moe" else {}
    metadata = {"general.architecture": arch} | {f"{arch}.{key}": value for key, value in sizes.items()}
    metadata["tokenizer.ggml.tokens"] = [f"t{i}" for i in range(config.vocab_size)]
    names = NAMES | EXPERTS | (FOUR_NORMS if arch in ("gemma2", "gemma3", "olmo2", "exaone4") else GLM_NORMS)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    tensors = {}
    for name, parameter in (_stacked(of_experts) if of_experts else model.state_dict()).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weight = parameter.float().numpy().copy()
        module, _, ending = name.rpartition(".")
        old = names.get(module)
        if old is None:
            _, _, block, part = module.split(".", 3)
            old = f"blk.{block}.{names[part]}"
        n = heads.get(module.rpartition(".")[2])
        if arch in ("llama", "granite", "smollm3") and n:  # LlamaModel.permute of convert_hf_to_gguf.py
            weight = weight.reshape(n, 2, len(weight) // n // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
        if arch.startswith(("gemma", "nemotron")) and name.endswith("norm.weight"):
            weight += 1
        tensors[f"{old}.{ending}"] = (weight, kind if weight.ndim > 1 else "F32")
    return metadata, tensors


def save(model: str | PreTrainedModel, path: Path, seed: int = 0) -> Path:
    """Write a model, or the tiny random one of a label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content(*converted(tiny_models.build(model, seed=seed) if isinstance(model, str) else model)))
    return path
