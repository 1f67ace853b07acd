"""What a folder says of how its weights are coded, wherever the tool that coded them wrote it.

Tools put it under `_KEYS` of ``config.json`` or of a config inside it (``text_config``), or into a file beside it
(`SIDE_FILES`), and give one thing several names: `_FIELDS` has them all. `Declared` brings them together, and answers
for one module, as some are coded otherwise than the rest. What is said twice must agree, else the question is refused,
and so is one to which there is no answer: no length of a tensor stands for what is not said.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import regex

from provlab.errors import one_line

#: files beside ``config.json`` in which tools write how they coded weights
SIDE_FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
_KEYS = ("quantization_config", "compression_config", "quantization")
#: places that one tool alone writes, which need not name its method
_OF_TOOLS = {_KEYS[2]: "mlx", **dict(zip(SIDE_FILES, ("gptq", "awq", "modelopt"), strict=True))}
#: what stands inside such a declaration and belongs to it
_INNER = ("meta", "quantization", "quantization_config")
#: what stands in the config itself
_BESIDE = "expert_dtype"
#: dtypes of numbers that are what they say, and of buffers
PLAIN = ("float64", "float32", "float16", "bfloat16", "int64", "bool")
#: entries by module, which count for those that their keys name or, behind ``re:``, match
_BY_MODULE = ("dynamic", "extra_config")
_SECONDS = 0.2  # that a pattern of names may take


class DeclarationError(ValueError):
    """What is said of codes contradicts itself or the tensors, or is too little; a line without the folder's name."""


def _text(value: Any) -> str:
    return str(value).lower()


def _whole(value: Any) -> int:
    """Return a whole number, which some tools write as text."""
    if isinstance(value, bool) or int(value) != float(value):
        raise ValueError
    return int(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool) and _text(value) not in ("true", "false"):
        raise ValueError
    return _text(value) == "true"


def _block(value: Any) -> tuple[int, ...]:
    """Return rows and columns of a block, which may be written ``"128x128"``."""
    sizes = tuple(map(_whole, value.lower().split("x") if isinstance(value, str) else value))
    if len(sizes) != 2 or min(sizes) < 1:
        raise ValueError
    return sizes


#: what is asked -> the keys under which tools write it, and how its value is read
_FIELDS: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "method": (("quant_method",), _text),
    "algorithm": (("quant_algo",), _text),
    "bits": (("bits", "w_bit", "num_bits"), _whole),
    "group": (("group_size", "q_group_size"), _whole),
    "block": (("weight_block_size", "block_structure"), _block),
    "symmetric": (("sym", "symmetric"), _flag),
    "number": (("type",), _text),
    "strategy": (("strategy",), _text),
    "label": (("checkpoint_format", "format"), _text),
    "packing": (("packing_format",), _text),
    "version": (("version",), _text),
    "mode": (("mode",), _text),
    "ordered": (("desc_act",), _flag),
    "experts": (("expert_dtype",), _text),
    "kind": (("bnb_4bit_quant_type",), _text),
}
_OF_KEY = {key: field for field, (keys, _) in _FIELDS.items() for key in keys}

_Said = dict[str, list[tuple[Any, str]]]  # field -> what was said, and where

_FP4 = {"number": "float", "bits": 4}
#: compressed-tensors' names of whole schemes, which may stand for what they mean
_SCHEMES: dict[str, dict[str, Any]] = {
    "w8a8": {"number": "int", "bits": 8, "strategy": "channel"},
    "int8": {"number": "int", "bits": 8, "strategy": "channel"},
    "fp8": {"number": "float", "bits": 8, "strategy": "tensor"},
    "fp8_dynamic": {"number": "float", "bits": 8, "strategy": "channel"},
    "fp8_block": {"number": "float", "bits": 8, "strategy": "block", "block": (128, 128)},
    **dict.fromkeys(("nvfp4", "nvfp4a16"), _FP4 | {"strategy": "tensor_group", "group": 16}),
    **dict.fromkeys(("mxfp4", "mxfp4a16"), _FP4 | {"strategy": "group", "group": 32}),
    **{
        f"w{bits}a16{more}": {"number": "int", "bits": bits, "strategy": "group", "group": 128, "symmetric": not more}
        for bits in range(2, 9)
        for more in ("", "_asym")
    },
}


class Declaration:
    """What is said of one module's codes."""

    def __init__(self, said: _Said, places: Iterable[str] = (), uncoded: str = "") -> None:
        self._said, self._places = said, tuple(places)
        #: where it is said that the module is not coded; empty where that is not said
        self.uncoded = uncoded

    def get(self, field: str) -> Any:
        """Return what is said; None where nothing is.

        Raises
        ------
        DeclarationError
            It is said twice, and not alike.
        """
        first, *others = self._said.get(field) or [(None, "")]
        for value, where in (first, *others):
            if isinstance(value, _Unread):
                raise DeclarationError(value.line)
            if value != first[0]:
                raise DeclarationError(
                    f"{first[1]} says {_shown(first[0])}, and {where} says {_shown(value)}; remove the one that is not "
                    "true of these weights"
                )
        return first[0]

    def need(self, field: str) -> Any:
        """Return what is said; raise DeclarationError where nothing is."""
        if (value := self.get(field)) is None:
            place = next(iter(self._places), _KEYS[0])
            place += "" if place.endswith(".json") else " of config.json"
            raise DeclarationError(
                f"{' or '.join(_FIELDS[field][0])}, which decides the numbers, is not stated in {place}; state it "
                "there as the tool that coded the weights was given it"
            )
        return value

    def where(self, field: str) -> str:
        """Say what is said, and where: ``group_size of quantization_config says 64``."""
        value, place = (self._said.get(field) or [(None, _FIELDS[field][0][0])])[0]
        return f"{place} says {_shown(value)}"


class Declared:
    """All that a folder says of codes.

    Parameters
    ----------
    config
        Content of ``config.json``.
    beside
        Content of `SIDE_FILES` that are there, by name.
    """

    def __init__(self, config: Mapping[str, Any], beside: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        #: where something is said, and what, as it stands there
        self.content = [*_found(config, ""), *(beside or {}).items()]
        self._places = [_Place(where, content) for where, content in self.content]

    @property
    def places(self) -> list[str]:
        """Where something is said."""
        return [place.where for place in self._places]

    def of(self, module: str) -> Declaration:
        """Return what is said of one module, by the name of its weight without ``.weight``."""
        said: _Said = {}
        uncoded = ""
        for place in self._places:
            of_it = place.of(module)
            uncoded = uncoded or of_it[1]
            _join(said, of_it[0])
        if "method" not in said:
            wheres = [place.where for place in self._places]
            tools = [(_OF_TOOLS.get(where) or _OF_TOOLS.get(where.rpartition(".")[2]), where) for where in wheres]
            said["method"] = [(tool, where) for tool, where in tools if tool]
        return Declaration(said, self.places, uncoded)


def looks_coded(name: str, dtype: str, axes: int) -> bool:
    """Whether a tensor, by its dtype, may be of a weight that is stored as codes; some buffers may be, too."""
    return axes > 1 and dtype not in PLAIN and (dtype.startswith("float8") or name.endswith("weight"))


def _found(config: Mapping[str, Any], before: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield the declarations in a config and in those inside it, with where they stand."""
    for key, value in config.items():
        if key == _BESIDE:
            yield f"{before}config.json", {key: value}
        elif key in _KEYS and isinstance(value, Mapping) and value:
            yield f"{before}{key}", value
        elif isinstance(value, Mapping) and str(key).endswith("_config") and key not in _KEYS:
            yield from _found(value, f"{before}{key}.")


class _Place:
    """One declaration: what it says of all modules, of those that it names, and of those that its patterns match."""

    def __init__(self, where: str, content: Mapping[str, Any]) -> None:
        self.where = where
        self.general = _fields(content, where)
        # where, and what is said; None where it is said that there are no codes
        self.patterns: list[tuple[str, _Rule]] = []
        self.classes: list[_Rule] = []
        self.named: dict[str, list[_Rule]] = {}  # by the name of a module
        self.shorter: dict[str, list[_Rule]] = {}  # by what remains of that name without its first words
        self._groups(content.get("config_groups"))
        for key in _INNER:
            if isinstance(inner := content.get(key), Mapping):
                _join(self.general, _fields(inner, f"{where}.{key}"))
                self._groups(inner.get("config_groups"))
        for key, value in content.items():
            if key in _BY_MODULE and isinstance(value, Mapping):
                for name, of_it in value.items():
                    self._rule(f"re:{name}", name, of_it, key)
            elif "." in str(key) and isinstance(value, Mapping | bool):  # MLX: a module by its name
                self._rule(str(key), str(key), value, str(key))

    def _rule(self, target: str, name: str, of_it: Any, key: str) -> None:
        """Add one entry by module; GPTQModel writes ``-:`` before what is not coded, and ``+:`` before others."""
        where = f"{self.where}.{key}" if key == name else f"{self.where}.{key}[{name}]"
        if of_it is False or name.startswith("-:"):
            self._target(target, _Rule(where, None))
        elif isinstance(of_it, Mapping):
            self._target(target, _Rule(where, _fields(of_it, where)))

    def _target(self, target: str, rule: "_Rule") -> None:
        """Add a rule for a module, for those that a pattern matches, or for a class of modules."""
        if target.startswith("re:"):
            self.patterns.append((re.sub(r"^re:([+-]:)?", "", target), rule))
        elif "." not in target:
            self.classes.append(rule)
        else:
            self.named.setdefault(target, []).append(rule)
            for shorter in _suffixes(target):
                self.shorter.setdefault(shorter, []).append(rule)

    def _groups(self, groups: Any) -> None:
        """Read compressed-tensors' groups, each with its targets; one alone counts for all modules."""
        named = groups.items() if isinstance(groups, Mapping) else enumerate(groups if isinstance(groups, list) else ())
        read: list[tuple[list[str], str, _Said]] = []
        for name, group in named:
            where = f"{self.where}.config_groups.{name}"
            if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping):
                said = _fields(group["weights"], f"{where}.weights")
                _join(said, _fields({"format": group.get("format")}, where))
                read.append(([str(target) for target in group.get("targets") or ()], where, said))
            elif isinstance(group, list) and (scheme := _SCHEMES.get(str(name).lower())):
                read.append((list(map(str, group)), where, {field: [(v, where)] for field, v in scheme.items()}))
        if len(read) == 1:
            self._say(self.general, read[0][2])
        for targets, where, said in read if len(read) > 1 else ():
            for target in targets:
                self._target(target, _Rule(where, said))

    def _say(self, general: _Said, said: _Said) -> None:
        """Add what a group says; a label of its own takes the place of that of all."""
        for field, values in said.items():
            general[field] = values if field == "label" else general.get(field, []) + values

    def of(self, module: str) -> tuple[_Said, str]:
        """Return what this declaration says of one module, and where it says that the module is not coded."""
        rules = [rule for pattern, rule in self.patterns if _matches(pattern, module)]
        rules += self.shorter.get(module, [])  # the target stands in a wrapper, or the module does
        for name in (module, *_suffixes(module)):
            rules += self.named.get(name, [])
        said = {field: list(values) for field, values in self.general.items()}
        special: _Said = {}
        uncoded = ""
        for where, more in rules or self.classes:
            uncoded = uncoded or (where if more is None else "")
            _join(special, more or {})
        return said | special, uncoded


class _Rule(NamedTuple):
    """Where something is said of some modules, and what; None where it is said that they are not coded."""

    where: str
    said: _Said | None


def _suffixes(name: str) -> list[str]:
    """Return what remains of a module's name without its first words: two words and more."""
    words = name.split(".")
    return [".".join(words[start:]) for start in range(1, len(words) - 1)]


def _matches(pattern: str, module: str) -> bool:
    try:
        return regex.match(pattern, module, timeout=_SECONDS) is not None
    except (regex.error, TimeoutError):
        return False  # as it names nothing, what is said of all modules is compared with the tensors


def _fields(content: Mapping[str, Any], where: str) -> _Said:
    """Read what a mapping says by the names of `_FIELDS`."""
    said: _Said = {}
    for key, value in content.items():
        field = _OF_KEY.get(str(key))
        if field == "block" and value is None:  # there are no blocks, and that is said
            said.setdefault(field, []).append(((), f"{key} of {where}"))
        elif field and value is not None and not isinstance(value, Mapping):
            try:
                read = _FIELDS[field][1](value)
            except (ValueError, TypeError, OverflowError, AttributeError) as error:
                read = _Unread(
                    f"{key} of {where} is {_shown(value)}, and no value that it can have ({one_line(error)})"
                )
            said.setdefault(field, []).append((read, f"{key} of {where}"))
    if (zeros := content.get("zero_point")) in (True, False) and "symmetric" not in said:  # AWQ's word for it
        said["symmetric"] = [(not zeros, f"zero_point of {where}")]
    return said


class _Unread(NamedTuple):
    """A value that its field cannot have: it is refused when it is asked for."""

    line: str


def _join(said: _Said, more: _Said) -> None:
    for field, values in more.items():
        said.setdefault(field, []).extend(values)


def _shown(value: Any) -> str:
    return one_line(str(list(value) if isinstance(value, tuple) else value))[:40] or "nothing"
