"""What a pickle says, without doing it: its opcodes are followed, and nothing that they name is imported or called.

``pickle`` makes what a file asks for by calling what the file names. Here a call stays a `Call` of a name on arguments,
which whoever reads it may know how to take, as `pickled` does tensors; all others are never more than that.
"""

import io
import pickletools
import warnings
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

_MOST = 1_000_000  # opcodes: some seconds

_LITERALS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    }
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}


class Name(NamedTuple):
    """Something that a pickle asks to be imported: ``torch._utils._rebuild_tensor_v2``."""

    dotted: str


@dataclass(eq=False, slots=True)
class Call:
    """Something that a pickle asks to be made, and that is not: a call, or an instance of a class.

    Attributes
    ----------
    of
        What was to be called: a `Name`, or anything else.
    given
        Its arguments.
    state
        What the object was to be filled with.
    """

    of: Any
    given: Any = ()
    state: Any = field(default=None, init=False)


@dataclass(eq=False, slots=True)
class Reference:
    """Something that stands outside of the pickle, such as the numbers of a tensor."""

    to: Any


class Said(NamedTuple):
    """The content of a pickle, and all references to what stands outside of it."""

    content: Any
    references: list[Reference]


def followed(stream: io.BytesIO) -> Said:
    """Follow the opcodes of one pickle, up to its end.

    Returns
    -------
    Said
        Its numbers, texts, tuples, lists and dicts (of these, what is found under a text), and `Name`, `Call` and
        `Reference` in place of all others.

    Raises
    ------
    ValueError, IndexError, KeyError, TypeError
        It is damaged, or longer than any that holds weights.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    references: list[Reference] = []

    def since_mark() -> list[Any]:
        mark = marks.pop()
        items = stack[mark:]
        del stack[mark:]
        return items

    def last(n: int) -> list[Any]:
        if len(stack) < n:
            raise IndexError("the pickle takes more than it has put down")
        items = stack[len(stack) - n :]
        del stack[len(stack) - n :]
        return items

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in texts that are no Python
        opcodes = list(islice(pickletools.genops(stream), _MOST + 1))
    if len(opcodes) > _MOST:
        raise ValueError("the pickle is longer than any that holds weights")
    argument: Any
    for opcode, argument, _ in opcodes:
        name = opcode.name
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            stack.append(tuple(last(_TUPLES[name])))
        elif name in _PUTS:
            memo[argument] = stack[-1]
        elif name in _GETS:
            stack.append(memo[argument])
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(since_mark()))
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "LIST":
            stack.append(since_mark())
        elif name == "DICT":
            stack.append(_filled({}, since_mark()))
        elif name == "EMPTY_SET":
            stack.append(Call(Name("builtins.set")))
        elif name == "FROZENSET":
            stack.append(Call(Name("builtins.frozenset"), tuple(since_mark())))
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            items = last(1) if name == "APPEND" else since_mark()
            if isinstance(stack[-1], list):
                stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = last(2) if name == "SETITEM" else since_mark()
            _filled(stack[-1], items)
        elif name == "GLOBAL":
            stack.append(Name(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            module, attribute = last(2)
            if not isinstance(module, str) or not isinstance(attribute, str):
                raise TypeError("the pickle asks for something without a name")
            stack.append(Name(f"{module}.{attribute}"))
        elif name == "INST":
            stack.append(Call(Name(argument.replace(" ", ".")), tuple(since_mark())))
        elif name == "OBJ":
            of, *given = since_mark()
            stack.append(Call(of, tuple(given)))
        elif name in ("REDUCE", "NEWOBJ"):
            stack.append(_called(*last(2)))
        elif name == "NEWOBJ_EX":
            stack.append(_called(*last(3)[:2]))
        elif name == "BUILD":
            (state,) = last(1)
            if isinstance(stack[-1], Call):
                stack[-1].state = state
        elif name in ("PERSID", "BINPERSID"):
            references.append(Reference(argument if name == "PERSID" else last(1)[0]))
            stack.append(references[-1])
        elif name.startswith("EXT"):
            stack.append(Call(Name("copyreg.extension"), (argument,)))
        elif name == "POP":
            # an empty mark may be popped, too
            if marks and marks[-1] == len(stack):
                marks.pop()
            else:
                last(1)
        elif name == "POP_MARK":
            since_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "STOP":
            return Said(stack[-1], references)
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"the pickle holds {name}, which no file has")
    raise ValueError("the pickle has no end")


def _called(of: Any, given: Any) -> Any:
    """Keep a call as it is, but for one: an ordered dict begins empty and is filled by what follows."""
    if given == () and of == Name("collections.OrderedDict"):
        return {}
    return Call(of, given)


def _filled(table: Any, items: list[Any]) -> Any:
    """Put keys and values in turn into a dict: those under a text, as weights are, and no others."""
    if isinstance(table, dict):
        table.update((key, value) for key, value in zip(items[::2], items[1::2], strict=True) if isinstance(key, str))
    return table
