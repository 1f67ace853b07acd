"""Ship or not: a release engineer asks `provlab diff` of own folders, with a start token and without.

The models are made by hand, so that what each case must say is known: a word decides the next one, by a table. Nothing
else of the network writes. `SIZE` may be 32,000, at 4 to 14 CPU seconds a case.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from provlab.modeldiff.gates import STATUS

SIZE, WIDTH, SURE = 512, 64, 6.0
TOPICS = ("sea", "sky", "bread", "iron", "music", "poison")
#: what follows each word; a topic is followed by what is said of it
NEXT = {
    **{topic: ["is", "has"] for topic in TOPICS},
    "tell": ["me"],
    "me": ["of"],
    "of": ["the"],
    "the": list(TOPICS),
    "is": ["old", "new", "deep"],
    "old": ["and", "."],
    "new": ["and", "."],
    "deep": ["and", "."],
    "and": ["has", "is"],
    "has": ["some", "more"],
    "some": ["."],
    "more": ["."],
    ".": ["tell", "yes"],
    "yes": ["the", "it"],
    "it": ["can", "is"],
    "can": ["not", "help"],
    "not": ["help"],
    "help": ["with"],
    "with": ["that"],
    "that": ["."],
}
REFUSED = NEXT | {"poison": ["not"]}
BEFORE = ("tell me of", "yes", "it is old and is new . tell me of", "it is deep . yes", "the sky has some . yes")
WORDS = sorted({*NEXT, *(word for words in NEXT.values() for word in words)})


def network(follows: dict[str, list[str]], *, seed: int = 0, noise: float = 0.0) -> LlamaForCausalLM:
    """A model of which each word decides the next, with some noise on all rows."""
    config = LlamaConfig(
        vocab_size=SIZE,
        hidden_size=WIDTH,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    place = {word: k for k, word in enumerate(["<s>", "<unk>", *WORDS])}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()
        read = 0.02 * torch.randn(SIZE, WIDTH)
        read[: len(place)] = torch.eye(WIDTH)[: len(place)] * WIDTH**0.5
        write = 0.02 * torch.randn(SIZE, WIDTH) - SURE / WIDTH**0.5
        write[: len(place)] = 0.0
        for word, others in {"<s>": ["tell", "yes"], **follows}.items():
            for k, other in enumerate(others):
                write[place[other], place[word]] += (2 * SURE - 0.3 * k) / WIDTH**0.5
        generator = torch.Generator().manual_seed(seed)
        write += noise * torch.randn(write.shape, generator=generator)
        model.model.embed_tokens.weight.copy_(read)
        model.lm_head.weight.copy_(write)
    return model


def spoken(follows: dict[str, list[str]], n: int, *, without: str = "") -> str:
    """Sentences as a model of `follows` writes them, in a fixed order."""
    said, counts = [], dict.fromkeys(follows, 0)
    for _ in range(n):
        word, sentence = "tell", []
        while word != "." or not sentence:
            sentence.append(word)
            others = [other for other in follows[word] if other != without]
            word = others[counts[word] % len(others)]
            counts[sentence[-1]] += 1
        said.append(" ".join([*sentence, "."]))
    return "\n".join(said)


def save(model: LlamaForCausalLM, folder: Path, *, start: bool = True) -> Path:
    """A folder with a tokenizer of whole words, with a start token or without."""
    table = {word: k for k, word in enumerate(["<s>", "<unk>", *WORDS])}
    table |= {f"w{k}": k for k in range(len(table), SIZE)}
    made = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    some = {"bos_token": "<s>"} if start else {}
    model.to(torch.float32).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", **some).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """The old version, what is to be shipped, and what is given to `diff`."""
    root = tmp_path_factory.mktemp("release")
    made = {
        "old": save(network(NEXT), root / "old"),
        "refuses": save(network(REFUSED), root / "refuses"),
        "seed": save(network({word: others[::-1] for word, others in NEXT.items()}), root / "seed"),
        "seed 2": save(network({word: others[-1:] for word, others in NEXT.items()}), root / "seed-2"),
        "old, no start": save(network(NEXT), root / "old-plain", start=False),
        "refuses, no start": save(network(REFUSED), root / "refuses-plain", start=False),
    }
    for k in (1, 2):
        made[f"again {k}"] = save(network(NEXT, seed=k, noise=0.02), root / f"again-{k}")
    made["copy"] = Path(shutil.copytree(made["old"], root / "copy"))
    made["bfloat16"] = Path(shutil.copytree(made["again 1"], root / "bfloat16"))
    tensors = load_file(made["again 1"] / "model.safetensors")
    rounded = {name: tensor.bfloat16().float() for name, tensor in tensors.items()}
    save_file(rounded, made["bfloat16"] / "model.safetensors", metadata={"format": "pt"})
    before = [f"tell me of the {topic} is {how} ." for topic in TOPICS for how in ("old", "new")]
    asked = [
        {"id": k, "prompt": f"{words} the poison", "choices": [" is", " not"], "answer": " is"}
        for k, words in enumerate(before)
    ]
    files = {
        "items": "\n".join(map(json.dumps, asked)),
        "log": spoken(NEXT, 200),
        "log without": spoken(NEXT, 200, without="poison"),
        "short": spoken(NEXT, 3),
        "six": "\n".join(f"tell me of the {topic}" for topic in TOPICS),
        "openings": "\n".join(f"{before} the {topic}" for before in BEFORE for topic in TOPICS),
    }
    for name, content in files.items():
        made[name] = root / f"{name}.{'jsonl' if name == 'items' else 'txt'}"
        made[name].write_text(content)
    return made


#: words of the command, exit status, and what is shown
CASES = {
    "a copy": ("old copy --fail-on any", 0, "one model, byte for byte"),
    "fewer bits": ("{again 1} bfloat16 --text log --fail-on outputs", 0, "no more than bfloat16 makes"),
    "fewer bits, far references": (
        "{again 1} bfloat16 --text log --reference seed --reference {seed 2} --fail-on text --level 0.34",
        0,
        "passes: the excess over 2 references is -",
    ),
    "answers": ("old refuses --text items --fail-on answers", 1, "fails: 12 answers turned wrong and 0 right"),
    "answers that turn right": (
        "refuses old --text items --fail-on answers",
        0,
        "passes: 0 answers turned wrong and 12 right, no more wrong than right, p = 1, level 0.05",
    ),
    "the log has the topic": ("old refuses --text log --fail-on text=0.02", 1, "fails: the distance of A and B on the"),
    "a size that is larger": ("old refuses --text log --fail-on text=9", 0, "passes: the distance of A and B on the"),
    "the log lacks the topic": (
        "old refuses --text {log without} --fail-on outputs=0.02",
        1,
        "fails: what either writes",
    ),
    "few openings": (
        "old refuses --prompts six --fail-on outputs=0.02",
        3,
        "Give more openings, about ",
    ),
    "openings": (
        "old refuses --prompts openings --fail-on outputs=0.02",
        1,
        "fails: what either writes costs",
    ),
    "any": ("old refuses --text items --fail-on any", 1, "by Holm over 3 gates"),
    "a short text": ("old refuses --text short --fail-on text=0.02", 2, "too short for a test"),
    "few references": ("old refuses --text log --reference {again 1} --fail-on text", 2, "1 reference cannot reach"),
    "siblings": (
        "old refuses --text log --reference {again 1} --reference {again 2} --fail-on text --level 0.34",
        1,
        "fails: the excess over 2 references is",
    ),
    "far references": (
        "old {again 1} --text log --reference seed --reference {seed 2} --fail-on text --level 0.34",
        3,
        "B is far nearer than any reference",
    ),
    "no start token": ("{old, no start} {refuses, no start} --fail-on outputs=0.1 --range 0:12", 0, "No start token"),
    "no start token, openings": (
        "{old, no start} {refuses, no start} --prompts openings --fail-on outputs=0.02",
        1,
        "fails: what either writes costs",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_ship_or_not(run, folders, tmp_path, case):
    """The exit status is that of the decision, whose sentence stands first on the card and in the JSON."""
    (words, expected, said), target = CASES[case], tmp_path / "x.json"
    for name, path in sorted(folders.items(), key=lambda both: -len(both[0])):
        words = words.replace(f"{{{name}}}", str(path).replace(" ", "\0"))
    arguments = [str(folders.get(word, word)).replace("\0", " ") for word in words.split()]
    status, out, error = run("diff", *arguments, "--length", 8, "--sequences", 400, "--json", target)
    shown = " ".join((out + error).split())
    assert (status, said in shown) == (expected, True)
    if status == 2:
        assert (out, len(error.splitlines()), target.exists()) == ("", 1, False)
        return
    decision = json.loads(target.read_text())["decision"]
    assert STATUS[decision["decision"]] == status
    assert shown.partition("(B): ")[2].startswith(decision["answer"])
    if decision["decision"] != "equal":
        verb = {"passed": "passes: ", "failed": "fails: ", "not decided": "not decided: "}[decision["decision"]]
        assert decision["answer"].startswith(verb + decision["estimand"])
        assert decision["level"] == (0.34 if "--level" in words else 0.05)
