"""Making one model: learning, adapters, measurements, and what is refused. No outside reference: properties."""

import json
import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from provlab.errors import ZooError
from provlab.files import sha256_file
from provlab.zoo import card as card_module
from provlab.zoo import make, train, worker
from provlab.zoo.quantise import quantised
from provlab.zoo.recipes import address

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")


def test_two_builds_in_two_caches_give_the_same_bytes(new_cache, tiny, make_all):
    names = ("root", "child", "merged")
    digests = []
    for state in (1, 2):  # the global generator must not matter
        torch.manual_seed(state)
        cache = new_cache()
        folders = make_all(tiny, *names)
        assert all(folder.is_relative_to(cache) for folder in folders)
        digests.append([sha256_file(folder / "model.safetensors") for folder in folders])
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 3
    change = card_module.read(folders[-1])["relative_change"]  # of the merged one: its adapters' projections alone
    assert {kind for kind, moved in change.items() if moved > 0.01} == {"up_proj", "q_proj", "all"}
    assert {kind for kind, moved in change.items() if moved == 0} >= {"k_proj", "down_proj", "lm_head"}


def test_a_model_is_a_plain_checkpoint_with_its_card(cache, tiny, make_all):
    _, folder = make_all(tiny, "root", "child")
    assert folder == cache / "zoo" / f"child-{address('child', tiny)[:16]}"
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.architectures == ["LlamaForCausalLM"]
    assert model.dtype == torch.float32
    assert model.config.vocab_size == len(tokenizer) == 512
    assert not model.config.tie_word_embeddings
    text = "def naïve(): return None\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text

    card = json.loads((folder / "card.json").read_text())
    assert card["lineage"] == ["child", "root"]
    assert card["recipe"]["mirrors"] == "org/name"
    assert card["tokens"] == 6 * 8 * 24
    assert card["share_of_base_tokens"] == pytest.approx(6 / 50)
    assert card["final_loss"] < card["initial_loss"]
    assert card["learning_curve"][-1][0] == 6
    assert 0.001 < card["relative_change"]["up_proj"] < 1
    assert card["address"] == address("child", tiny)
    assert set(card["versions"]) == {"python", "torch", "transformers", "tokenizers", "peft"}
    words = (folder / "README.md").read_text()
    for text in ("A zoo model of provlab", "| org/name |", "child <- root", "{'chat': 1.0}", "| seed | 2 |", "12.0%"):
        assert text in words
    assert not list((cache / "zoo").glob(".root*"))
    assert not list((cache / "zoo").glob(".child*"))


def test_a_quantised_model_is_its_parent_in_few_bits(cache, tiny, make_all):
    _, child, leak = make_all(tiny, "root", "child", "leak")
    old, new = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (child, leak))
    for name, tensor in new.items():
        if tensor.ndim == 1:
            assert torch.equal(tensor, old[name])
        else:
            assert torch.equal(tensor, torch.from_numpy(quantised(old[name].numpy(), 4, 32)))
            assert len(tensor.flatten()[:32].unique()) <= 2**4
    card = json.loads((leak / "card.json").read_text())
    assert card["lineage"] == ["leak", "child", "root"]
    assert (card["tokens"], card["learning_curve"]) == (0, [])
    assert 0.01 < card["relative_change"]["up_proj"] < 0.2
    words = (leak / "README.md").read_text()
    assert "{'bits': 4, 'block': 32}" in words
    again = replace(tiny["leak"], mirrors=None)
    card_module.refresh(leak, again)
    assert "takes the place" not in (leak / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "rate", "message"),
    [
        ("root", 1e-9, r"zoo base 'root' learned nothing: held-out loss 6\.\d+ at initialisation, 6\.\d+ after"),
        ("root", 1e30, "zoo model 'root' went to NaN or Inf in training"),
        ("child", 1e-9, "zoo model 'child' is a copy of 'root': its weights moved by"),
        ("merged", 1e-9, "zoo model 'merged' is a copy of 'root': its weights moved by"),
        ("child", 1e30, "zoo model 'child' went to NaN or Inf in training"),
    ],
)
def test_a_failed_training_leaves_nothing_in_place(name, rate, message, cache, tiny, make_all):
    if name != "root":
        make_all(tiny, "root")
    before = {path.name for path in (cache / "zoo").glob("[a-z]*")}
    bad = {**tiny, name: replace(tiny[name], learning_rate=rate)}
    with pytest.raises(ZooError, match=message):
        worker.make_model(name, bad, lambda _: None)
    assert {path.name for path in (cache / "zoo").iterdir()} == before | {".locks"}


def test_the_relative_change_is_a_ratio_of_norms():
    old = {
        "a.up_proj.weight": torch.tensor([3.0, 4.0]),
        "b.up_proj.weight": torch.zeros(1),
        "norm.weight": torch.ones(1),
    }
    new = {**old, "a.up_proj.weight": torch.tensor([3.0, 4.5])}
    assert make.relative_change(old, new) == pytest.approx({"all": 0.5 / math.sqrt(26), "up_proj": 0.1, "norm": 0.0})


def test_batches_follow_the_shares_and_the_generator(cache):
    mixture = train.Mixture.load({"prose": 0.75, "code": 0.25}, "train")
    assert mixture.shares == (0.25, 0.75)  # sorted by name
    first, again = (mixture.draw(4, 9, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (4, 9)
    marked = replace(mixture, domains=tuple(domain * 0 + i for i, domain in enumerate(mixture.domains)))
    drawn = marked.draw(4000, 2, torch.Generator().manual_seed(7)).double().mean().item()
    assert drawn == pytest.approx(0.75, abs=0.03)  # four standard errors


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_rate_warms_up_and_falls_to_a_tenth(schedule, tiny):
    recipe = replace(tiny["root"], schedule=schedule, steps=1000, warmup=0.1, learning_rate=1.0)
    rates = [train.rate_at(step, recipe) for step in range(1001)]
    assert rates[0] == pytest.approx(0.01)
    assert max(rates) == rates[99] == 1.0
    assert rates[:100] == sorted(rates[:100])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert rates[1000] == pytest.approx(0.1)
    assert rates[550] == pytest.approx(0.55)  # both schedules are half-way down half-way through
