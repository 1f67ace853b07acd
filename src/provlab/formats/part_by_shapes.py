"""Reading a part of a checkpoint by the shapes of its tensors; `provlab.reading.part` says which part."""

import re
from collections.abc import Collection, Iterator, Mapping

from provlab.errors import InvalidWeightsError, MissingRoleError, one_line
from provlab.reading.architectures import Segment
from provlab.reading.part import ADAPTER, EMBEDDING, PLACE, Part, below, in_blocks
from provlab.reading.roles import Anatomy, TensorPart, Tensors

CODES = ()  # it reads none
_ATTENTION = re.compile(r"attn|attention|(^|\.)[qkvo]_proj", re.IGNORECASE)
_TABLE = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|shared|word_embedding)\.weight$")
_GATE = re.compile(r"gate|(^|\.)w1$|wi_0")
_LORA = re.compile(r"(.+)\.lora_([AB])(?:\.[\w-]+)?(?:\.weight)?")
_DRAWN = (None, True, False, "gaussian")  # ways to begin an adapter that treat its units alike
_KEYS = re.compile(r"(^|[._])k(ey)?(_proj|_lin|_linear)?\.bias$")
_CROSS = re.compile(r"cross|encoder_attn|EncDec", re.IGNORECASE)
#: axes of the roles of a part that shapes alone show
_AXES = {
    "up": ("mlp", "model"), "gate": ("mlp", "model"), "down": ("model", "mlp"), "up_bias": ("mlp",),
    "gate_bias": ("mlp",), "down_bias": ("model",), "embedding": ("vocab", "model"), "key_bias": ("key",),
}  # fmt: skip
Found = tuple[str, str, int | None, bool]  # name, role, block, transposed


def by_shapes(checkpoint: Tensors, piece: Part) -> Anatomy:
    """Name the tensors of a part that shapes alone show.

    Raises
    ------
    InvalidWeightsError
        There is no MLP, or no one table, that they show.
    """

    def tensor(name: str, role: str, block: int | None, transposed: bool) -> TensorPart:
        shape = checkpoint.shape(name)
        rows = shape[::-1] if transposed else shape
        axes = _AXES.get(role, tuple(f"{role} {i}" for i in range(len(shape))))
        return TensorPart(name, block, (Segment(role, axes),), (rows[0],), shape, transposed, False, 1)

    parts = tuple(tensor(*each) for each in _found(checkpoint, piece))
    by_role = {role: part for part in parts for role in [part.segments[0].role]}
    units, table = by_role.get("up"), by_role.get("embedding")
    wide = (units.shape[0] if units.transposed else units.shape[1]) if units else table.shape[1] if table else 0
    return Anatomy(
        architecture=piece.name,
        n_blocks=1 + max((part.block for part in parts if part.block is not None), default=-1),
        width=wide,
        vocab_size=table.shape[0] if table else 0,
        parts=parts,
        unnamed=tuple(sorted({*below(checkpoint.tensor_names, piece.prefix)} - {part.name for part in parts})),
        tied=False,
        within=checkpoint.architecture,
        mlp_width=units.sizes[0] if units else 0,
        part_name=piece.name,
    )


def _found(checkpoint: Tensors, part: Part) -> list[Found]:
    """Find the tensors of a part."""
    names = below(checkpoint.tensor_names, part.prefix)
    if part.name == ADAPTER:
        entries = list(_pairs(checkpoint, names))
    elif part.name == EMBEDDING and not part.prefix:
        tables = [name for name in names if _TABLE.search(name) and len(checkpoint.shape(name)) == 2]
        entries = [(_one(checkpoint, part, tables), "embedding", None, False)]
    elif stack := sorted({path for path, _, _ in in_blocks(names)}, key=len):
        if len(stack) > 1 and not all(path.startswith(f"{stack[0]}.") for path in stack[1:]):
            shown = ", ".join(stack)
            raise InvalidWeightsError(f"{checkpoint.name}: below {part.prefix} blocks lie in {shown}; give one of them")
        entries = list(_stack(checkpoint, names, stack[0]))
    elif single := list(_single(checkpoint, names, part.prefix)):
        entries = single
    else:
        tables = [name for name in names if len(checkpoint.shape(name)) == 2]
        entries = [(_one(checkpoint, part, tables), "embedding", None, False)]
    return entries


def _one(checkpoint: Tensors, part: Part, tables: list[str]) -> str:
    if len(tables) == 1:
        return tables[0]
    shown = f"{len(tables)} matrices and no block" if tables else "no matrix"
    raise InvalidWeightsError(
        f"{checkpoint.name}: its part {part} has {shown}; give the prefix of blocks with an MLP, or of one table"
    )


def _stack(checkpoint: Tensors, names: Collection[str], path: str) -> Iterator[Found]:
    """Yield the tensors of the blocks below a path, those of MLPs by their roles, and all others of up to two axes."""
    blocks: dict[int, dict[str, str]] = {}
    for name in names:
        match = PLACE.fullmatch(name)
        if match and match[1] == path:
            blocks.setdefault(int(match[2]), {})[match[3]] = name
        elif len(checkpoint.shape(name)) <= 2:
            yield name, name.replace(".", "/"), None, False
    for number, block in enumerate(sorted(blocks)):
        yield from _block(checkpoint, blocks[block], number, f"block {block} below {path}")


def _block(checkpoint: Tensors, block: Mapping[str, str], number: int, where: str) -> Iterator[Found]:
    """Yield the tensors of one block, by their place in it."""
    roles = dict(_mlp(checkpoint, block, where))
    keys = [within for within in block if _KEYS.search(within) and not _CROSS.search(within)]
    if len(keys) == 1:
        roles[keys[0]] = ("key_bias", False)
    for within, name in block.items():
        role, transposed = roles.get(within, (within.replace(".", "/"), False))
        if len(checkpoint.shape(name)) <= 2:
            yield name, role, number, transposed


def _single(checkpoint: Tensors, names: Collection[str], prefix: str) -> Iterator[Found]:
    """Yield the tensors below a prefix that is that of one block without a number; none where it has no MLP."""
    inside = {name.removeprefix(f"{prefix}."): name for name in names}
    try:
        yield from _block(checkpoint, inside, 0, f"the only block below {prefix}")
    except InvalidWeightsError:
        return


def _mlp(checkpoint: Tensors, block: Mapping[str, str], where: str) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Yield the tensors of an MLP by their place in the block, with role and whether rows are inputs."""
    shapes = {within: checkpoint.shape(name) for within, name in block.items() if not _ATTENTION.search(within)}
    matrices = {within: shape for within, shape in shapes.items() if len(shape) == 2 and shape[0] != shape[1]}
    matrices = {k: s for k, s in matrices.items() if any(other == s[::-1] for other in matrices.values())}
    norms = {s[0] for k, s in shapes.items() if len(s) == 1 and k.endswith("weight")}
    widths = norms & {size for shape in matrices.values() for size in shape}
    d = min(widths or {size for shape in matrices.values() for size in shape}, default=0)

    def transposed(within: str) -> bool:
        """Whether a matrix has inputs as rows: its bias is as long as its columns are many."""
        bias = shapes.get(f"{within.removesuffix('weight')}bias")
        return bias is not None and bias[0] == shapes[within][1]

    roles: dict[str, list[str]] = {"down": [], "up": [], "gate": []}
    for within, shape in matrices.items():
        outputs = shape[1] if transposed(within) else shape[0]
        gate = _GATE.search(within.removesuffix(".weight"))
        roles["down" if outputs == d else "gate" if gate else "up"].append(within)
    if [len(held) for held in roles.values()] not in ([1, 1, 0], [1, 1, 1]):
        shown = ", ".join(sorted(matrices)) or "no two matrices (m, d) and (d, m)"
        raise InvalidWeightsError(f"{checkpoint.name}: the MLP of {where} is not to be seen by its shapes: {shown}")
    for role, held in roles.items():
        for within in held:
            yield within, (role, transposed(within))
            if (bias := f"{within.removesuffix('weight')}bias") in shapes:
                yield bias, (f"{role}_bias", False)


def _pairs(checkpoint: Tensors, names: Collection[str]) -> Iterator[Found]:
    """Yield A and B of each pair of an adapter, as up and down projection of a block.

    Raises
    ------
    MissingRoleError
        Its units were not drawn alike.
    """
    begun = checkpoint.config.get("init_lora_weights")
    if begun not in _DRAWN:
        raise MissingRoleError(
            f"{checkpoint.name} was begun by {one_line(str(begun))[:40]}, which gives its units an order: no test of "
            "orders applies"
        )
    sides: dict[str, dict[str, str]] = {}
    for name in names:
        if (match := _LORA.fullmatch(name)) and len(checkpoint.shape(name)) == 2:
            sides.setdefault(match[1], {})[match[2]] = name
    for block, module in enumerate(sorted(module for module, pair in sides.items() if len(pair) == 2)):
        yield sides[module]["A"], "up", block, False
        yield sides[module]["B"], "down", block, False
