"""Weights that well-kept libraries wrote as codes, and the numbers that these libraries read from them.

The tests compare what provlab reads with these, way by way (`tests/formats/test_references.py`), from the file that
this script writes, so that no test needs the libraries. To make it again, with the versions that it holds:

    pip install --no-deps --target libs bitsandbytes==0.50.2 mlx==0.32.4 mlx-cpu==0.32.4 optimum-quanto==0.2.7 \
        compressed-tensors==0.20.1 loguru
    pip install --no-deps --target old compressed-tensors==0.17.0 loguru
    PYTHONPATH=libs python benchmarks/coded_references.py
    PYTHONPATH=old python benchmarks/coded_references.py packed_before

GPTQModel and AutoAWQ have no wheels: GPTQ is packed here as GPTQModel 7.7.0 does it (``pack_original`` and
``utils/planar_packing.py``), and AWQ as AutoAWQ 0.2.9 (``WQLinear_GEMM.from_linear``) and read by compressed-tensors.
"""

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

PATH = Path(__file__).parents[1] / "tests" / "formats" / "references.npz"
Case = tuple[str, dict[str, Any], dict[str, torch.Tensor], torch.Tensor]  # label, config, tensors by ending, numbers
RNG = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> torch.Tensor:
    """Numbers of a normal law."""
    return torch.randn(shape, generator=RNG)


def round_scale(scale: torch.Tensor) -> torch.Tensor:
    """Scales of bfloat16, with which all products are exact, and take less room in the file."""
    return scale.bfloat16().float()


# compressed-tensors --------------------------------------------------------------------------------------------------


def _arguments(label: str, **weights: Any) -> tuple[dict[str, Any], Any]:
    import compressed_tensors
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights), format=label)
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "format": label}}
    config = {"quant_method": "compressed-tensors", "format": label, "config_groups": groups}
    return {"quantization_config": config | {"version": compressed_tensors.__version__}}, scheme


def _factors(weight: torch.Tensor, weights: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Scales and zeros of a weight, by its strategy."""
    strategy, bits = weights["strategy"], weights["num_bits"]
    *before, rows, columns = weight.shape
    if strategy == "block":
        size = weights["block_structure"]
        pieces = [p.abs().amax() for r in weight.split(size[0]) for p in r.split(size[1], 1)]
        high = torch.stack(pieces).reshape(-(-rows // size[0]), -1)
        low = -high
    else:
        group = {"tensor": rows * columns, "channel": columns}.get(strategy, weights.get("group_size"))
        pieces = weight.reshape(*before, -1, group) if strategy == "tensor" else weight.unflatten(-1, (-1, group))
        low, high = pieces.amin(-1).clamp(max=0), pieces.amax(-1).clamp(min=0)
    most = {("float", 8): 448.0, ("float", 4): 6.0}.get((weights["type"], bits), 2.0 ** (bits - 1) - 1)
    if not weights.get("symmetric", True):
        scale = round_scale((high - low) / (2**bits - 1))
        zero = (torch.round(-low / scale) - 2 ** (bits - 1)).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return {"weight_scale": scale, "weight_zero_point": zero.to(torch.int8)}
    scale = round_scale(torch.maximum(high, -low) / most)
    return {"weight_scale": scale.reshape(1) if strategy == "tensor" and weight.ndim == 2 else scale}


def _compressed(label: str, shape: tuple[int, ...], name: str, **weights: Any) -> Case:
    from compressed_tensors.compressors.base import BaseCompressor

    config, scheme = _arguments(label, **weights)
    weight = drawn(*shape)
    compressor = BaseCompressor.get_value_from_registry(label)
    stored = compressor.compress({"weight": weight, **_factors(weight, weights)}, scheme)
    stored = {k: v for k, v in stored.items() if not (k == "weight_zero_point" and weights.get("symmetric", True))}
    read = compressor.decompress({k: v.clone() for k, v in stored.items()}, scheme)["weight"]
    return name, config, stored, read.float()


def packed(before: str = "") -> Iterator[Case]:
    """Whole numbers of 2 to 8 bits in words."""
    for bits in range(2, 9) if not before else (3, 5, 6, 7):
        for symmetric in (True, False):
            usual = {"num_bits": bits, "type": "int", "symmetric": symmetric}
            more = "" if symmetric else " with zeros"
            rows = 3 if symmetric else 9  # of fewer words of zeros the package itself makes nothing
            for strategy, shape in (("group", (rows, 96)), ("channel", (rows, 20)), ("channel", (rows, 33))):
                if strategy == "group" and not symmetric:
                    shape = (rows, 64)
                size = {"group_size": 32} if strategy == "group" else {}
                name = f"compressed-tensors{before} {bits} bits{more} by {strategy} {shape[0]}x{shape[1]}"
                yield _compressed("pack-quantized", shape, name, strategy=strategy, **usual, **size)
        if not before:
            usual = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16}
            yield _compressed("pack-quantized", (2, 3, 32), f"compressed-tensors {bits} bits of experts", **usual)


def packed_before() -> Iterator[Case]:
    """The same of versions before 0.18, which left the upper bits of words empty."""
    yield from packed(" before 0.18")


def naive() -> Iterator[Case]:
    """Numbers of 8 bits as they are."""
    for kind, label in (("int", "int-quantized"), ("float", "float-quantized")):
        for strategy in ("tensor", "channel"):
            usual = {"num_bits": 8, "type": kind, "strategy": strategy, "symmetric": True}
            yield _compressed(label, (6, 20), f"compressed-tensors {kind}8 by {strategy}", **usual)
    usual = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False}
    yield _compressed("int-quantized", (6, 20), "compressed-tensors int8 with zeros", **usual)
    for shape, sizes in (((16, 24), ([8, 8],)), ((16, 20), ([8, 8], [6, 10])), ((17, 9), ([8, 8],))):
        for size in sizes:
            usual = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": size}
            name = f"compressed-tensors float8 {shape[0]}x{shape[1]} in blocks of {size[0]}x{size[1]}"
            yield _compressed("float-quantized", shape, name, **usual)


def micro() -> Iterator[Case]:
    """Formats with a scale for 16 or 32 neighbours, read in float32, where the package would round to bfloat16."""
    from compressed_tensors.compressors.nvfp4.helpers import quantize_and_pack_fp4, unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    for columns in (64, 96):
        weight = drawn(4, columns)
        usual = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
        config, scheme = _arguments("nvfp4-pack-quantized", **usual)
        whole = round_scale(448 * 6 / weight.abs().max()).reshape(1)
        scale = (weight.unflatten(1, (-1, 16)).abs().amax(-1) / 6 * whole).to(torch.float8_e4m3fn)
        words = quantize_and_pack_fp4(weight, scale.float(), global_scale=whole, zero_point=None, group_size=16)
        numbers = unpack_fp4_from_uint8(words, 4, columns, torch.float32)
        read = dequantize(numbers, scale.float(), args=scheme.weights, global_scale=whole, dtype=torch.float32)
        stored = {"weight_packed": words, "weight_scale": scale, "weight_global_scale": whole}
        yield f"compressed-tensors NVFP4 4x{columns}", config, stored, read
        settings = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
        stored = {"weight": words, "weight_scale": scale, "weight_scale_2": (1 / whole).reshape(())}
        read = numbers * (scale.float() * (1 / whole)).repeat_interleave(16, 1)
        yield f"ModelOpt NVFP4 4x{columns}", {"quantization_config": settings}, stored, read
        for bits, label in ((4, "mxfp4-pack-quantized"), (8, "mxfp8-quantized")):
            usual = {"num_bits": bits, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True}
            config, scheme = _arguments(label, **usual)
            power = (weight.unflatten(1, (-1, 32)).abs().amax(-1).log2().floor() - (2 if bits == 4 else 8)).exp2()
            exponents = (power.log2() + 127).to(torch.uint8)
            if bits == 4:
                words = quantize_and_pack_fp4(weight, power, global_scale=None, zero_point=None, group_size=32)
                numbers, name = unpack_fp4_from_uint8(words, 4, columns, torch.float32), "weight_packed"
            else:
                words = (weight / power.repeat_interleave(32, 1)).clamp(-448, 448).to(torch.float8_e4m3fn)
                numbers, name = words.float(), "weight"
            read = dequantize(numbers, power, args=scheme.weights, dtype=torch.float32)
            yield f"compressed-tensors MXFP{bits} 4x{columns}", config, {name: words, "weight_scale": exponents}, read


# GPTQ and AWQ --------------------------------------------------------------------------------------------------------


def _codes(shape: tuple[int, int], bits: int, group: int) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """Codes ``(inputs, outputs)`` of a random weight ``shape``, zeros and scales ``(groups, outputs)``."""
    outputs, inputs = shape
    groups = -(-inputs // group)
    rng = np.random.default_rng(bits * 1000 + group)
    codes = rng.integers(0, 2**bits, (inputs, outputs))
    zeros = rng.integers(1, 2**bits, (groups, outputs))
    return codes, zeros, round_scale(torch.from_numpy(rng.uniform(0.01, 0.03, (groups, outputs))).float()).half()


def _stream(codes: np.ndarray, bits: int, planes: bool) -> torch.Tensor:
    """Pack along the first axis: one code behind the other, or of every 32 their lower bits before the upper ones."""
    n = codes.shape[0]
    padded = np.zeros((-(-n // 32) * 32, codes.shape[1]), np.uint64)
    padded[:n] = codes
    if not planes:
        bitstream = (padded[..., None] >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)  # (n, columns, bits)
        lines = bitstream.transpose(1, 0, 2).reshape(codes.shape[1], -1)
    else:
        widths = {5: ((4, 0), (1, 4)), 6: ((4, 0), (2, 4)), 7: ((4, 0), (2, 4), (1, 6)), 3: ((2, 0), (1, 2))}[bits]
        blocks = padded.reshape(-1, 32, codes.shape[1])
        pieces = []
        for width, lowest in widths:
            field = (blocks >> np.uint64(lowest)) & np.uint64(2**width - 1)
            stream = (field[..., None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
            pieces.append(stream.transpose(2, 0, 1, 3).reshape(codes.shape[1], len(blocks), -1))
        lines = np.concatenate(pieces, axis=2).reshape(codes.shape[1], -1)
    words = np.packbits(lines.astype(np.uint8), axis=1, bitorder="little").view(np.uint32)
    return torch.from_numpy(words.view(np.int32).T[: -(-n * bits // 32)].copy())


def gptq() -> Iterator[Case]:
    """Codes of GPTQModel, with the label of each layout of zeros."""
    for bits in (2, 3, 4, 5, 6, 7, 8):
        for label in ("gptq", "gptq_v2", *(["gptq_p"] if bits == 3 else [])):
            for order in (
                (False, True, None) if label == "gptq" and bits in (3, 4, 8) else (False,)
            ):  # None: no tensor says to which group an input belongs
                planes = bits in (5, 6, 7) or label == "gptq_p"
                codes, zeros, scales = _codes((32 if planes else 8, 32), bits, 8)
                group = np.arange(32) // 8
                group = np.random.default_rng(bits).permutation(group) if order else group
                kept = (zeros - (label == "gptq")) % 2**bits
                tensors = {
                    "qweight": _stream(codes, bits, planes),
                    "qzeros": _stream(kept.T, bits, planes).T.contiguous(),
                }
                tensors["scales"] = scales
                if order is not None:
                    tensors["g_idx"] = torch.from_numpy(group.astype(np.int32))
                settings = {
                    "quant_method": "gptq",
                    "bits": bits,
                    "group_size": 8,
                    "sym": False,
                    "desc_act": bool(order),
                }
                read = torch.from_numpy(codes - zeros[group]).float() * scales.float()[group]
                words = {False: "", True: " reordered", None: " without g_idx"}[order]
                config = {"quantization_config": settings | {"checkpoint_format": label}}
                yield f"GPTQ {bits} bits {label}{words}", config, tensors, read.T.contiguous()
    for bits in (4, 8):  # symmetric codes, whose zero some tools store itself under the label of the other layout
        for stored in (0, 1):
            codes, zeros, scales = _codes((8, 32), bits, 32)
            zeros[:] = 2 ** (bits - 1)
            kept = _stream((zeros - stored).T, bits, False).T.contiguous()
            settings = {
                "quant_method": "gptq",
                "bits": bits,
                "group_size": -1,
                "sym": True,
                "checkpoint_format": "gptq",
            }
            read = torch.from_numpy(codes - zeros[0]).float() * scales.float()[0]
            tensors = {"qweight": _stream(codes, bits, False), "qzeros": kept, "scales": scales}
            name = f"GPTQ {bits} bits symmetric, zero stored as {2 ** (bits - 1) - stored}"
            yield name, {"quantization_config": settings}, tensors, read.T.contiguous()


def awq() -> Iterator[Case]:
    """Codes of AutoAWQ, read by compressed-tensors."""
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.entrypoints.convert.converters import AutoAWQConverter

    order = [0, 2, 4, 6, 1, 3, 5, 7]
    for group in (16, 32, 64):
        codes, zeros, scales = _codes((24, 64), 4, group)

        def words(numbers: np.ndarray) -> torch.Tensor:
            result = np.zeros((len(numbers), numbers.shape[1] // 8), np.uint32)
            for column in range(result.shape[1]):
                for i in range(8):
                    result[:, column] |= (numbers[:, column * 8 + order[i]] << (i * 4)).astype(np.uint32)
            return torch.from_numpy(result.view(np.int32).copy())

        tensors = {"qweight": words(codes), "qzeros": words(zeros), "scales": scales}
        settings = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
        converter = AutoAWQConverter(group_size=group)
        theirs = converter.process({f"m.{key}": value.clone() for key, value in tensors.items()})
        shape = theirs["m.weight_shape"]
        numbers = unpack_from_int32(theirs["m.weight_packed"], 4, shape).float()
        zero = unpack_from_int32(theirs["m.weight_zero_point"], 4, (shape[0], 64 // group), packed_dim=0).float()
        read = (numbers - zero.repeat_interleave(group, 1)) * theirs["m.weight_scale"].float().repeat_interleave(
            group, 1
        )
        yield f"AWQ in groups of {group}", {"quantization_config": settings}, tensors, read


# bitsandbytes, MLX, quanto, transformers -----------------------------------------------------------------------------


def bitsandbytes() -> Iterator[Case]:
    """Codes of 4 bits, in bytes or kept as numbers of 16 and 32 bits, and of 8."""
    from bitsandbytes import functional

    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            for storage in (torch.uint8, torch.bfloat16, torch.float32):
                for shape in ((2, 128), (5, 13)):
                    if storage != torch.uint8 and shape == (5, 13):
                        continue
                    weight = drawn(*shape)
                    usual = {"blocksize": 64, "compress_statistics": nested, "quant_type": kind}
                    codes, state = functional.quantize_4bit(weight, quant_storage=storage, **usual)
                    read = functional.dequantize_4bit(codes, state)
                    stored = {"weight": codes} | {f"weight.{k}": v for k, v in state.as_dict(packed=True).items()}
                    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}
                    words = f"{' nested' * nested} {shape[0]}x{shape[1]} in {str(storage)[6:]}"
                    yield f"bitsandbytes {kind}{words}", {"quantization_config": settings}, stored, read.float()
    weight = drawn(6, 20).half()
    codes, largest, _ = functional.int8_vectorwise_quant(weight)
    read = functional.int8_vectorwise_dequant(codes, largest)
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    stored = {"weight": codes, "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    yield "bitsandbytes int8", {"quantization_config": settings}, stored, read.float()


def mlx() -> Iterator[Case]:
    """Codes of MLX, by its modes."""
    import mlx.core as mx

    ways = [("affine", bits, size) for bits in (2, 3, 4, 5, 6, 8) for size in (32, 64, 128)]
    for mode, bits, size in [*ways, ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]:
        weight = mx.array(round_scale(drawn(2, 128)).numpy()).astype(mx.float32)
        parts = mx.quantize(weight, group_size=size, bits=bits, mode=mode)
        if mode == "affine":
            parts = [parts[0], *(mx.array(part).astype(mx.float16).astype(mx.float32) for part in parts[1:])]
        usual = {"group_size": size, "bits": bits, "mode": mode}
        read = np.array(mx.dequantize(*parts, group_size=size, bits=bits, mode=mode, dtype=mx.float32))
        names = ("weight", "scales", "biases")
        stored = {name: torch.from_numpy(np.array(part)) for name, part in zip(names, parts, strict=False)}
        config = {"quantization": usual, "quantization_config": usual}
        yield f"MLX {mode} {bits} bits in groups of {size}", config, stored, torch.from_numpy(read)


def quanto() -> Iterator[Case]:
    """Numbers of 8 bits of optimum-quanto."""
    from optimum.quanto import AbsmaxOptimizer, qfloat8_e4m3fn, qint8, quantize_weight

    for kind in (qint8, qfloat8_e4m3fn):
        weight = drawn(6, 20)
        coded = quantize_weight(weight, kind, 0, scale=round_scale(AbsmaxOptimizer()(weight, kind, 0)))
        stored = {"weight._data": coded._data, "weight._scale": coded._scale}
        yield f"quanto {kind.name}", {"quantization_config": {"quant_method": "quanto"}}, stored, coded.dequantize()


def transformers() -> Iterator[Case]:
    """FP8 by squares, FP4 of DeepSeek-V4's experts, and MXFP4 as transformers reads them."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    reader = Fp8Dequantize(None)
    for shape, size in (((16, 24), (8, 8)), ((24, 20), (12, 10)), ((256, 128), (128, 128))):
        weight = drawn(*shape) if size[0] < 128 else drawn(2, 1).repeat_interleave(128, 0).repeat_interleave(128, 1)
        grid = (shape[0] // size[0], size[0], shape[1] // size[1], size[1])
        scale = round_scale(weight.reshape(grid).abs().amax((1, 3)) / 448)
        whole = scale.repeat_interleave(size[0], 0).repeat_interleave(size[1], 1)
        codes = (weight / whole).to(torch.float8_e4m3fn)
        read = reader._dequantize_one(codes, scale, torch.float32)
        settings = {"quant_method": "fp8", "weight_block_size": list(size)}
        stored = {"weight": codes, "weight_scale_inv": scale}
        yield f"FP8 {shape[0]}x{shape[1]} in squares", {"quantization_config": settings}, stored, read
    codes = torch.randint(-128, 128, (4, 32), dtype=torch.int8, generator=RNG)
    scale = torch.randint(120, 131, (4, 2), dtype=torch.uint8, generator=RNG).view(torch.float8_e8m0fnu)
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}, "expert_dtype": "fp4"}
    read = reader._dequantize_one(codes, scale, torch.float32)
    yield "FP4 of DeepSeek-V4's experts", config, {"weight": codes, "scale": scale}, read


ALL = (packed, naive, micro, gptq, awq, bitsandbytes, mlx, quanto, transformers)


def content(value: torch.Tensor) -> bytes:
    """Bytes of a tensor, one number behind the other."""
    return torch.empty(value.numel(), dtype=value.dtype).copy_(value.flatten()).view(torch.uint8).numpy().tobytes()


def main(names: list[str]) -> None:
    """Write the cases of some functions, or of `ALL`, into the file, in place of those of the same label.

    The file holds two arrays: ``index``, which says of each case its config and, by ending, the dtype and shape of each
    tensor (the empty ending is what the library reads), and ``data``, the bytes of all of them, one behind the other.
    """
    held: dict[str, tuple[dict[str, Any], bytes]] = {}
    if names and PATH.exists():
        with np.load(PATH) as file:
            at, data = 0, file["data"].tobytes()
            for label, case in json.loads(str(file["index"])).items():
                held[label] = case, data[at : at + case["nbytes"]]
                at += case["nbytes"]
    for made in [globals()[name] for name in names] or ALL:
        for label, config, tensors, read in (cases := list(made())):
            parts = {**tensors, "": read}
            infos = {ending: [str(value.dtype)[6:], list(value.shape)] for ending, value in parts.items()}
            data = b"".join(map(content, parts.values()))
            held[label] = {"config": config, "tensors": infos, "nbytes": len(data)}, data
        print(f"{made.__name__:15} {len(cases):4} cases")
    index = {label: case for label, (case, _) in held.items()}
    data = np.frombuffer(b"".join(data for _, data in held.values()), np.uint8)
    with zipfile.ZipFile(PATH, "w", zipfile.ZIP_LZMA) as archive:
        for key, array in (("index", np.array(json.dumps(index))), ("data", data)):
            with archive.open(f"{key}.npy", "w") as file:
                np.save(file, array)
    print(f"{len(index)} cases, {PATH.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
