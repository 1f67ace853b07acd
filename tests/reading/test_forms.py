"""The forms in which a model's folder says that text is written, and that a model is read in that which it works in."""

import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import silenced
import tiny_models
import torch

from provlab import compare
from provlab.errors import CheckpointError
from provlab.modeldiff.tokens import opening
from provlab.reading import tokenizing
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.forms import PLAIN, Form, forms, lent, written
from provlab.running.activations import LOG_PROBS, mlp_activations
from provlab.running.predictions import next_token_log_probs, rounded_log_probs
from provlab.statistics import get
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.text import cut, read_as

TURNS = "{% for turn in messages %}{{ turn.role }}:{{ turn.content }}{{ eos_token }}{% endfor %}"
FORM = Form("any", (3, 1), (2,))


def of(folder, room=9, lent=None, size=300):
    return forms(Checkpoint.open(str(folder)), size, room, lent)


def names(folder, **given):
    return [form.name for form in of(folder, **given)]


def writes(folder, *before):
    """Have a tokenizer write these tokens before each text."""

    def change(settings):
        single = [
            *({"SpecialToken": {"id": token, "type_id": 0}} for token in before),
            {"Sequence": {"id": "A", "type_id": 0}},
        ]
        tokens = {token: {"id": token, "ids": [0], "tokens": [token]} for token in before}
        settings["post_processor"] = {
            "type": "TemplateProcessing", "single": single, "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": tokens,
        }  # fmt: skip

    tiny_models.edit_json(folder / "tokenizer.json", change)


def test_forms_are_those_that_the_folder_names_each_once(spoilt):
    begin = "behind its begin token"
    assert names(spoilt) == ["bare", begin]
    (spoilt / "chat_template.jinja").write_text(TURNS)
    assert names(spoilt, room=40) == ["bare", begin, "as a user's turn", "as an answer"]
    user, answer = of(spoilt, room=40)[2:]
    assert user.before == answer.before[-len(user.before) :] or len(answer.before) > len(user.before)
    assert user.after == answer.after == (0,)  # the end of the turn
    (spoilt / "chat_template.jinja").write_text("{{ raise_exception('no turns') }}")
    assert names(spoilt) == ["bare", begin]
    writes(spoilt, "<|endoftext|>")
    assert of(spoilt) == [Form("as its tokenizer writes it", (0,)), PLAIN]


LOOP = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
#: templates that no user could use, and what is said of each
HOSTILE = {
    "loops": (LOOP, "it takes more than 1 seconds"),
    "memory": ("{{ 'a' * 10000000000 }}", r"it needs more than 1\.0 GB of memory"),
    "a width": ("{{ 'a' | center(10000000000) }}", r"it needs more than 1\.0 GB of memory"),
    "letters": (
        "{% for turn in messages %}{{ turn.content }}{% endfor %}{{ 'a' * 200000 }}",
        "it writes 200,000 letters around a text",
    ),
}


@pytest.mark.parametrize("label", HOSTILE)
def test_a_template_without_an_end_ends_and_hinders_nothing_else(label, spoilt, monkeypatch):
    monkeypatch.setattr(tokenizing, "_SECONDS", 1)
    template, why = HOSTILE[label]
    (spoilt / "chat_template.jinja").write_text(template)
    assert names(spoilt, room=1000) == ["bare", "behind its begin token"]
    checkpoint = Checkpoint.open(str(spoilt))
    assert re.search(f"has a chat template that cannot be used: {why}", written(checkpoint).refused)
    with pytest.raises(CheckpointError, match=why):
        opening(checkpoint, "the model")


def test_a_template_is_rendered_once_for_all_who_ask(spoilt, monkeypatch):
    (spoilt / "chat_template.jinja").write_text(TURNS)
    asked = []
    rendered = tokenizing.rendered
    monkeypatch.setattr(tokenizing, "rendered", lambda *of, **how: asked.append(1) or rendered(*of, **how))
    checkpoint = Checkpoint.open(str(spoilt))
    assert forms(checkpoint, 300, 40) == forms(checkpoint, 300, 40)
    assert len(asked) == 2


def test_a_template_shows_what_transformers_shows(spoilt):
    """Settings of the sandbox, filters, the tokenizer's own tokens, and what begins an answer."""
    template = (
        "{%- for turn in messages %}\n  {% if loop.index > 3 %}{% break %}{% endif %}\n"
        "{{ bos_token }}{{ turn | tojson }}{% generation %}.{% endgeneration %}{% endfor %}"
        "{% set found = namespace(n=2) %}{{ found.n }}{{ add_generation_prompt }}{{ tools is none }}"
    )
    tokenizer = Checkpoint.open(str(spoilt)).tokenizer()
    tokenizer.chat_template = template
    turns = [{"role": "user", "content": f'é {k} "a"'} for k in range(5)]
    for asks in (True, False):
        whole = tokenizer.apply_chat_template(turns, add_generation_prompt=asks, tokenize=False)
        assert tokenizing.rendered("any", tokenizer, turns, asks=asks) == whole


def test_a_template_that_draws_writes_the_same_always(spoilt):
    """Whatever was drawn before here: jinja gives a template Python's own draws."""
    tokenizer = Checkpoint.open(str(spoilt)).tokenizer()
    tokenizer.chat_template = "{{ range(10 ** 5) | random }} {{ lipsum(n=1) }}"
    turns = [{"role": "user", "content": "Go."}]
    once = tokenizing.rendered("any", tokenizer, turns, asks=True)
    before = random.random()
    assert tokenizing.rendered("any", tokenizer, turns, asks=True) == once
    assert random.random() != before


def test_no_template_can_know_the_text_that_it_is_asked_with(spoilt, monkeypatch):
    """One that knew it would leave out there what opens the model around all other texts."""
    (spoilt / "chat_template.jinja").write_text(TURNS)
    asked, rendered = [], tokenizing.rendered
    monkeypatch.setattr(
        tokenizing, "rendered", lambda *of, **how: asked.append(of[2][-1]["content"]) or rendered(*of, **how)
    )
    first, second = (written(Checkpoint.open(str(spoilt))) for _ in range(2))
    assert first == second
    assert asked[0] == asked[1] != asked[2] == asked[3]


def test_a_template_that_hides_a_text_is_named(spoilt):
    (spoilt / "chat_template.jinja").write_text("{{ messages[-1].content | lower }}")
    assert names(spoilt) == ["bare", "behind its begin token"]
    refused = written(Checkpoint.open(str(spoilt))).refused
    assert refused.endswith("has a chat template that does not show a text as an answer")


def test_a_verdict_names_the_forms_that_were_not_read_and_a_template_that_cannot_be_used(models, spoilt, text):
    (spoilt / "chat_template.jinja").write_text(TURNS)
    few = {"n_sequences": 8, "sequence_length": 16, "text": text, "progress": False}
    said = compare(models["tuned"], str(spoilt), statistics=["phi_jsd", "phi_match"], **few).verdict()
    others = "behind its begin token, as a user's turn, as an answer"
    assert f"{spoilt.name} read the text bare, none {others}." in said
    said = compare(models["tuned"], str(spoilt), statistics=["phi_match"], **few).verdict()
    assert f"{spoilt.name} read the text in one form of these: bare, {others}." in said
    assert "read the text" not in compare(models["tuned"], str(spoilt), statistics=["phi_u"], **few).verdict()
    (spoilt / "chat_template.jinja").write_text("{{ raise_exception('no turns') }}")
    said = compare(models["tuned"], str(spoilt), statistics=["phi_jsd"], **few).verdict()
    assert f"{spoilt.name} has a chat template that cannot be used: no turns; mend chat_template" in said
    assert "chat_template.jinja. No text was read in its turns." in said


def test_a_model_without_a_tokenizer_is_given_bare_ids_or_those_of_the_other(llama):
    assert of(llama) == [PLAIN]
    assert of(llama, lent=((3,), ())) == [Form("as the other's tokenizer writes it", (3,)), PLAIN]


def test_a_form_that_the_model_cannot_be_given_is_none(spoilt):
    writes(spoilt, "<|endoftext|>")
    assert of(spoilt, room=0) == of(spoilt, size=0) == [PLAIN]
    tiny_models.edit_json(spoilt / "tokenizer_config.json", lambda settings: settings.update(bos_token="<s>"))
    assert names(spoilt) == ["as its tokenizer writes it", "bare"]


def by_code(folder):
    """Leave a folder without a tokenizer that can be used: one that is code."""
    (folder / "tokenizer.json").unlink()
    about = {"auto_map": {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}, "tokenizer_class": "OwnTokenizer"}
    tiny_models.edit_json(folder / "tokenizer_config.json", lambda settings: settings.update(about))


def test_what_is_lent_is_what_the_first_usable_tokenizer_writes(models, spoilt, tmp_path):
    bare = shutil.copytree(models["tuned"], tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*"))
    code = Path(shutil.copytree(models["tuned"], tmp_path / "code"))
    by_code(code)

    def between(*folders):
        return lent(Checkpoint.open(str(folder)) for folder in folders)

    assert between(bare, spoilt) is None  # it writes nothing there
    writes(spoilt, "<|endoftext|>")
    assert between(bare, spoilt) == between(spoilt, bare) == between(code, spoilt) == ((0,), ())
    assert between(bare, code) is between(spoilt, models["tuned"]) is between(spoilt) is None


def test_what_reads_no_text_needs_no_tokenizer(models, spoilt, text):
    by_code(spoilt)
    found = compare(models["tuned"], str(spoilt), text=text, statistics=["phi_h", "phi_match"])
    by_name = {record.statistic: record for record in found.records}
    assert by_name["phi_h"].outcome.log10_p < -10
    assert "has no usable tokenizer" in by_name["phi_match"].error


def test_a_form_fits_the_positions(gpt2, save_model, tmp_path, text):
    """A table of 16 positions holds 16 tokens of text, and no token before them."""
    made = [save_model(gpt2(seed, vocab_size=300, n_positions=16), tmp_path / str(seed)) for seed in (1, 2)]
    for folder in made:
        writes(folder, "<|endoftext|>")
    tests = {"text": text, "n_sequences": 4, "sequence_length": 16, "statistics": ["phi_h", "phi_jsd"]}
    found = compare(*map(str, made), **tests)
    assert not [record.error for record in found.records if record.error]
    assert next(r for r in found.records if r.statistic == "phi_jsd").outcome.detail.forms == ["bare", "bare"]


def test_a_copy_without_its_tokenizer_is_given_what_the_original_is_given(spoilt, tmp_path, text):
    writes(spoilt, "<|endoftext|>")
    copy = silenced.disguised(str(spoilt), tmp_path / "copy", "T2", usual=())
    for path in Path(copy).glob("tokenizer*"):
        path.unlink()
    found = compare(str(spoilt), copy, text=text, statistics=["phi_jsd", "phi_h"])
    outputs = next(record for record in found.records if record.statistic == "phi_jsd").outcome
    assert outputs.value < 1e-6
    assert outputs.detail.forms == ["as its tokenizer writes it", "as the other's tokenizer writes it"]
    # what the random tokens of phi_h stand behind is part of what its record is found by
    given, bare = (Options(around=around) for around in (((0,), ()), None))
    assert get("phi_h").parameters(given)["around"] == ((0,), ())
    assert "around" not in get("phi_h").parameters(bare)
    assert given.text_sha256 != bare.text_sha256


def test_a_form_stands_around_each_sequence_and_is_not_counted():
    tokens = np.array([[5, 6], [7, 8]])
    assert FORM.around(tokens).tolist() == [[3, 1, 5, 6, 2], [3, 1, 7, 8, 2]]
    assert FORM.around(tokens).reshape(-1)[FORM.places(2, 2)].tolist() == [5, 6, 7, 8]
    assert PLAIN.around(tokens).tolist() == tokens.tolist()


def test_what_is_recorded_is_that_of_the_text_alone(models):
    checkpoint = Checkpoint.open(models["base"])
    tokens = np.random.default_rng(0).integers(4, 40, (3, 6))
    whole, places = FORM.around(tokens), FORM.places(3, 6)
    by_hand = mlp_activations(checkpoint, whole, kinds=("gate", LOG_PROBS))
    kept = mlp_activations(checkpoint, tokens, kinds=("gate", LOG_PROBS), positions=np.array([1, 7, 8]), form=FORM)
    assert np.allclose(kept["gate"][1], by_hand["gate"][1][:, places[[1, 7, 8]]], atol=1e-6)
    assert np.allclose(kept[LOG_PROBS][0], by_hand[LOG_PROBS][0][places], atol=1e-5)
    laws = np.concatenate([*next_token_log_probs(checkpoint, tokens, form=FORM)])
    assert np.allclose(laws, by_hand[LOG_PROBS][0][places], atol=1e-5)
    assert rounded_log_probs(checkpoint, tokens, 1e-8, form=FORM) == pytest.approx(laws, abs=1e-4)


@pytest.fixture(scope="module")
def trained(new_model, save_model, text, tmp_path_factory):
    """A model that has learnt the text, and a copy that works behind the begin token alone, disguised besides."""
    folder = save_model(
        new_model(7, num_hidden_layers=3, pad_token_id=None), tmp_path_factory.mktemp("trained") / "own"
    )
    checkpoint = Checkpoint.open(str(folder))
    options = Options(text=text, n_sequences=64, sequence_length=32)
    ids = torch.from_numpy(cut(checkpoint, options)[0])
    network = new_model(7, num_hidden_layers=3, pad_token_id=None).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
    for step in range(60):
        batch = ids[step % 4 * 16 :][:16]
        if step % 2:
            batch = torch.cat([torch.zeros(16, 1, dtype=torch.int64), batch], dim=1)
        network(input_ids=batch, labels=batch).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    save_model(network.eval(), folder)
    thief = silenced.disguised(str(folder), folder.with_name("thief"), "begin=30", usual=("T1", "T2", "redraw=0.3"))
    return str(folder), thief, options


def test_a_model_is_read_in_the_form_in_which_it_works(trained):
    own, thief, options = trained
    assert read_as(Model.open(own), options) == PLAIN
    assert read_as(Model.open(thief), options).name == "behind its begin token"


def test_a_copy_that_works_behind_one_token_of_its_format_is_found(trained):
    own, thief, options = trained
    found = compare(own, thief, text=options.text, statistics=["phi_match_unsigned", "phi_jsd"])
    assert found.outcome == "rejected"
    assert "thief was given the text behind its begin token" in found.verdict()
    # planted: a folder that does not name the token, so that it is read bare
    tiny_models.edit_json(Path(thief) / "tokenizer_config.json", lambda settings: settings.pop("bos_token"))
    missed = compare(own, thief, text=options.text, statistics=["phi_match_unsigned", "phi_jsd"])
    assert missed.outcome == "could not be tested"
