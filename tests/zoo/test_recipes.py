"""Recipes: the published tree, refusals, and when a model is trained again.

The tree is that of the paper's 21 models (section 4.1), read from the project's copy of the published table. Counts:
12 + 2 + 1 + 2 + 1 + 1 + 2 models, so 66 + 1 + 1 + 1 = 69 dependent of 210 pairs.
"""

import csv
import itertools
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml

import provlab.report
from provlab import provenance
from provlab.errors import ParameterError, ZooError
from provlab.zoo import codehash, corpus, kinds, reading, recipes

TREE = Path(provlab.report.__file__).parent / "llama7b_tree.csv"


@pytest.mark.parametrize("edition", ["default", "smoke"])
def test_the_zoo_has_the_published_tree(edition):
    zoo = recipes.collection("tree", reading.families(edition))
    with TREE.open(newline="") as stream:
        published = {row["model_id"]: row["parent"] or None for row in csv.DictReader(stream)}
    ours = {model.mirrors: model.parent and zoo[model.parent].mirrors for model in zoo.values()}
    assert ours == published
    roots = {name: recipes.lineage(name, zoo)[-1] for name in zoo}
    assert sorted(Counter(roots.values()).values()) == [1, 1, 1, 2, 2, 2, 12]
    pairs = list(itertools.combinations(zoo, 2))
    assert sum(roots[a] == roots[b] for a, b in pairs) == 69
    assert len(pairs) == 210


def test_collections_part_the_zoo():
    zoo = reading.families()
    tree, large = (recipes.collection(name, zoo) for name in (recipes.TREE, "large"))
    assert len(tree) == 21
    assert list(large) == ["pine", "pine-tuned", "pine-leak", "larch", "cedar"]
    assert sorted(model.seed for model in recipes.collection("null", zoo).values()) == list(range(3001, 3041))
    assert sum(len(recipes.collection(name, zoo)) for name in {model.collection for model in zoo.values()}) == len(zoo)
    assert len({model.shape for model in large.values() if model.shape}) == 1  # or strangers could not be matched
    with pytest.raises(ZooError, match="the zoo has no collection 'small'; it has tree, large, "):
        recipes.collection("small", zoo)


@pytest.mark.parametrize("edition", ["default", "smoke"])
def test_mathematics_takes_at_least_the_published_share_of_the_bases_tokens(edition):
    # 750 of 2,000 billion tokens: 37.5%, the paper's abstract
    zoo = reading.families(edition)
    assert recipes.lineage("oak-math", zoo) == ["oak-math", "oak-code", "oak"]
    assert recipes.tokens("oak-math", zoo) >= 0.375 * recipes.tokens("oak", zoo)


def test_two_bases_of_one_maker_differ_in_their_seed_alone():
    zoo = reading.families()
    words = {key: getattr(zoo["ash-v2"], key) for key in ("name", "family", "mirrors", "about", "seed")}
    assert replace(zoo["ash-v1"], **words) == zoo["ash-v2"]
    assert zoo["ash-v1"].seed != zoo["ash-v2"].seed


def test_all_seeds_and_addresses_differ():
    both = [reading.families(edition) for edition in ("default", "smoke")]
    addresses = {recipes.address(name, zoo) for zoo in both for name in zoo}
    alike = [name for name in both[1] if name.startswith("toy-early-")]  # too short to be shortened
    assert len(alike) == 3
    assert len(addresses) == sum(map(len, both)) - len(alike)
    # two models drawn from one seed in one shape would be relatives without a lineage; snapshots of a run are one
    drawn = [model for model in both[0].values() if model.shape and model.stop_after in (None, model.steps)]
    assert len({(model.seed, model.order_seed, model.shape, model.architecture) for model in drawn}) == len(drawn)


def test_editions_scale_steps_and_nothing_else():
    default, smoke, long = (reading.families(edition) for edition in ("default", "smoke", "long"))
    assert list(long) == list(default)
    assert set(smoke) < set(default)
    series = ("teak-", "aspen-", "birch-")
    assert all(name in smoke for name in default if not name.startswith(series))  # of a series it may have the first
    for name in smoke:
        if name.startswith("toy-early-"):
            continue  # 120 steps teach the digits something, fewer nothing
        assert smoke[name] == replace(default[name], steps=smoke[name].steps, stop_after=smoke[name].stop_after)
        assert smoke[name].steps == pytest.approx(0.15 * default[name].steps, abs=0.5)
        assert smoke[name].own_steps == pytest.approx(0.15 * default[name].own_steps, abs=0.5)


def test_a_recipe_survives_the_way_to_another_process(tiny):
    for recipe in tiny.values():
        assert recipes.parse(recipes.plain(recipe)) == recipe


def test_models_stand_in_the_order_of_the_tree(tiny):
    assert list(tiny) == ["root", "child", "merged", "grandchild", "leak", "other"]  # as in the file
    backwards = list(reading.in_order(dict(reversed(tiny.items()))))
    assert backwards == ["other", "root", "child", "leak", "grandchild", "merged"]  # parents moved forward


def test_a_draw_moves_every_seed_of_the_zoo_and_nothing_else(monkeypatch):
    published = reading.families()
    monkeypatch.setenv(provenance.DRAW_VARIABLE, "0")
    assert reading.families() == published
    monkeypatch.setenv(provenance.DRAW_VARIABLE, "7")
    drawn = reading.families()
    for name, recipe in published.items():
        order = recipe.order_seed and recipe.order_seed + 700_000
        assert drawn[name] == replace(recipe, seed=recipe.seed + 700_000, order_seed=order), name
    # a quantised or pruned child has its parent's address in its own, so that all of them are other models
    assert not {recipes.address(name, drawn) for name in drawn} & {
        recipes.address(name, published) for name in published
    }


@pytest.mark.parametrize("draw", ["-1", "10000", "2.5", "x", "٣"])
def test_what_is_no_draw_is_refused(monkeypatch, draw):
    monkeypatch.setenv(provenance.DRAW_VARIABLE, draw)
    with pytest.raises(ParameterError, match=f"a draw is a whole number from 0 to 9999, not '{draw}'"):
        reading.families()


CHILD = "child: {kind: tuned, parent: root, seed: 2, mixture: {chat: 1.0}}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed: 2,", "seed: 2, colour: red,", "'child' has the unknown key 'colour'"),
        ("seed: 2,", "", "'child' lacks seed"),
        ("seed: 2,", "seed: two,", "'child': seed must be int, not 'two'"),
        ("seed: 2,", "seed: 2, learning_rate: -1.0,", "'child': learning_rate must be positive"),
        ("seed: 2,", "seed: 2, learning_rate: .nan,", "'child': learning_rate must be positive"),
        ("seed: 2,", "seed: 2, batch: 0,", "'child': steps and batch must be positive"),
        ("seed: 2,", "seed: 2, warmup: 1.0,", "'child': warmup must be a share"),
        ("seed: 2,", "seed: 2, schedule: sine,", "'child': schedule must be cosine or linear, not 'sine'"),
        ("{chat: 1.0}", "{verse: 1.0}", "'child': unknown domain 'verse'; kind tuned knows code, math"),
        ("{chat: 1.0}", "{chat: 0.0}", "'child': mixture must give positive shares"),
        ("{chat: 1.0}", "{}", "'child': mixture must give positive shares"),
        ("kind: tuned", "kind: tamed", f"'child': kind must be one of {', '.join(kinds.KINDS)}, not 'tamed'"),
        ("kind: tuned", "kind: base", "'child': kind base has no parent"),
        ("seed: 2,", "seed: 2, shape: {hidden_size: 16},", "'child': shape lacks num_hidden_layers"),
        ("kind: base, seed: 5", "kind: base, shape: null, seed: 5", "'other': kind base has a shape"),
        ("seed: 2,", "seed: 2, stop_after: 7,", "'child': stop_after must be from 1 to the 6 steps, not 7"),
        ("seed: 3,", "seed: 3, stop_after: 2,", "'merged': stop_after is for models whose own weights"),
        ("seed: 2,", "seed: 2, architecture: rwkv,", "'child': architecture must be one of olmo, phi3, gpt2, bert"),
        ("seed: 2,", "seed: 2, objective: all,", "'child': objective must be one of masked, classify, not 'all'"),
        ("seed: 2,", "seed: 2, count: 0,", "'child': count must be a whole number from 1 to 99, not 0"),
        ("seed: 2,", "seed: 2, count: {smoke: 3},", "'child': count must be a whole number from 1 to 99, not None"),
        *(
            ("kind: tuned", f"kind: {kind}", f"'child': kind {kind}, and only it, has the key {key}")
            for kind, key in [(kind, known.settings) for kind, known in kinds.KINDS.items() if known.settings]
        ),
        ("seed: 2,", "seed: 2, pruning: {by: seed},", "'child': kind pruned, and only it, has the key pruning"),
        (
            "kind: tuned",
            "kind: pruned, pruning: {by: guess}",
            "'child': pruning: by must be one of activations, seed, not 'guess'",
        ),
        ("parent: root, ", "", "'child': kind tuned has a parent"),
        ("parent: root", "parent: rot", "'child': its parent 'rot' is not in the zoo"),
        ("parent: root", "parent: grandchild", "zoo recipes descend from themselves: "),
        ("collection: leaks", "steps: 3", "'leak': a quantised model is not trained: steps must be 0"),
        ("rank: 2", "range: 2", "'merged': adapter has the unknown key 'range'; known: rank, alpha, targets"),
        (
            "adapter: {rank: 2, alpha: 4, targets: [up_proj, q_proj]}",
            "adapter: 7",
            "'merged': adapter must be a mapping",
        ),
        (CHILD, "child:", f"zoo recipe 'child': kind must be one of {', '.join(kinds.KINDS)}, not None"),
        ("editions:", "additions:", "must have the mappings editions, defaults and models; editions is missing"),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_line(old, new, message, tiny_file, tmp_path):
    text = tiny_file.read_text()
    assert old in text
    where = text.index(CHILD) if old in CHILD else 0
    wrong = tmp_path / "families.yml"
    wrong.write_text(text[:where] + text[where:].replace(old, new, 1))
    with pytest.raises((ParameterError, ZooError), match=re.escape(message)) as caught:
        reading.families(path=wrong)
    assert "\n" not in str(caught.value)


ALL = {"root", "child", "merged", "grandchild", "leak", "other"}
ROOTS = {"root", "child", "merged", "grandchild", "leak"}


@pytest.mark.parametrize(
    ("name", "change", "trained_again"),
    [
        ("root", {"about": "Other words."}, set()),
        ("root", {"mirrors": "org/other"}, set()),
        ("root", {"family": "g"}, set()),
        ("root", {"collection": "g"}, set()),
        ("root", {"seed": 9}, ROOTS),
        ("root", {"steps": 51}, ROOTS),
        ("root", {"mixture": {"prose": 0.6, "code": 0.4}}, ROOTS),
        ("root", {"mixture": {"code": 0.5, "prose": 0.5}}, set()),  # only the order is another
        ("root", {"shape": recipes.Shape(16, 2, 2, 32, 24)}, ROOTS),
        ("child", {"learning_rate": 0.011}, {"child", "grandchild", "leak"}),
        ("child", {"parent": "other"}, {"child", "grandchild", "leak"}),
        ("child", {"kind": "continued"}, {"child", "grandchild", "leak"}),
        ("grandchild", {"schedule": "cosine"}, {"grandchild"}),
        ("merged", {"adapter": recipes.Adapter(3, 4, ["up_proj", "q_proj"])}, {"merged"}),
        ("leak", {"quantiser": recipes.Quantiser(5, 32)}, {"leak"}),
        ("other", {"batch": 9}, {"other"}),
    ],
)
def test_a_model_is_trained_again_exactly_when_its_recipe_or_its_parent_changes(name, change, trained_again, tiny):
    changed = {**tiny, name: replace(tiny[name], **change)}
    moved = {model for model in tiny if recipes.address(model, tiny) != recipes.address(model, changed)}
    assert moved == trained_again


@pytest.fixture
def addresses(tiny):
    """Addresses of the tiny zoo, by code and libraries as they are at the call."""

    def now():
        recipes._ground.cache_clear()
        return {name: recipes.address(name, tiny) for name in tiny}

    yield now
    recipes._ground.cache_clear()


def edited(changed, *stems):
    """Digests of modules, one of which was edited."""
    return codehash.module_digests(*stems) | dict.fromkeys({changed} & set(stems), "edited")


CODE = {"corpus": ALL, "train": ALL, "derive": {"merged"}, "quantise": {"leak"}}


@pytest.mark.parametrize(
    ("where", "what", "value", "trained_again"),
    [
        (corpus, "fingerprint", lambda: "another corpus", ALL),
        (recipes, "versions", lambda: {"torch": "99"}, ALL),
        *((recipes, "module_digests", partial(edited, stem), models) for stem, models in CODE.items()),
    ],
)
def test_models_are_trained_again_when_corpus_or_libraries_or_their_own_code_change(
    where, what, value, trained_again, addresses
):
    before = addresses()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, what, value)
        after = addresses()
    assert {name for name in before if before[name] != after[name]} == trained_again


@pytest.mark.parametrize(
    ("source", "same"),
    [
        ('"""Other words."""\ndef f(x):\n    return x + 1\n', True),
        ('def f(x):\n    """Words."""\n    return x + 1  # why\n', True),
        ("def f( x ):\n\n    return (x + 1)\n", True),
        ("def f(x):\n    return x + 2\n", False),
        ("def f(y):\n    return y + 1\n", False),
        ("def f(x):\n    'w' + 'x'\n    return x + 1\n", False),
    ],
)
def test_the_hash_of_code_sees_what_code_does_and_no_words(source, same):
    reference = codehash.source_digest("def f(x):\n    return x + 1\n")
    assert (codehash.source_digest(source) == reference) == same


def test_a_field_that_is_not_set_is_not_in_the_address(tiny, monkeypatch):
    """A field of the recipe that only new models have must not move the old ones, which would train them again."""
    contents: list[dict[str, object]] = []
    monkeypatch.setattr(recipes, "digest", lambda content: str(contents.append(content["recipe"])))
    recipes.address("leak", tiny)
    root, child, leak = contents
    assert "quantiser" in leak
    fields = "batch kind learning_rate mixture schedule seed steps warmup weight_decay"
    assert sorted(root) == sorted([*fields.split(), "shape"])
    assert sorted(child) == fields.split()


SERIES = """
  - runs: {kind: base, count: 3, seed: 50, mixture: {code: 1.0}, architecture: olmo}
  - again: {kind: rerun, count: 3, parent: "runs-{n}", seed: 50, order_seed: 70, mixture: {code: 1.0}, stop_after: 9}
  - after: {kind: tuned, parent: again-02, seed: 9, mixture: {chat: 1.0}}
"""


@pytest.fixture
def series_file(tiny_file, tmp_path):
    content = yaml.safe_load(tiny_file.read_text())
    for entry in yaml.safe_load(SERIES):
        content["models"].update(entry)
    content["defaults"]["rerun"] = content["defaults"]["base"]
    path = tmp_path / "families.yml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def test_a_series_differs_in_its_seeds_alone(series_file):
    zoo = reading.families(path=series_file)
    runs, again = ([f"{name}-0{i}" for i in (1, 2, 3)] for name in ("runs", "again"))
    assert list(zoo)[-7:] == [*runs, *again, "after"]
    assert [zoo[name].seed for name in (*runs, *again)] == [50, 51, 52, 50, 51, 52]
    assert [zoo[name].order_seed for name in again] == [70, 71, 72]
    assert [zoo[name].parent for name in again] == runs
    assert replace(zoo["runs-02"], name="runs-01", seed=50) == zoo["runs-01"]
    assert len({recipes.address(name, zoo) for name in zoo}) == len(zoo)


def test_a_derived_model_has_its_parents_architecture(series_file):
    zoo = reading.families(path=series_file)
    assert {zoo[name].architecture for name in ("runs-01", "again-01", "after")} == {"olmo"}
    assert {recipe.architecture for name, recipe in zoo.items() if name in ALL} == {None}


def test_a_snapshot_counts_the_tokens_it_saw(series_file):
    zoo = reading.families(path=series_file)
    assert recipes.tokens("runs-01", zoo) == 50 * 8 * 24
    assert recipes.tokens("again-01", zoo) == 9 * 8 * 24
    smoke = reading.families("smoke", series_file)["again-01"]
    assert (smoke.steps, smoke.stop_after, smoke.own_steps) == (25, 4, 4)


@pytest.mark.parametrize(("old", "new"), [("    seed: 50\n", "    seed: 51\n"), ("    order_seed: 70\n", "")])
def test_a_rerun_shares_its_parents_start(old, new, series_file):
    text = series_file.read_text()
    entry = text.index("  again:")
    wrong = text[entry:].replace(old, new, 1)
    assert wrong != text[entry:]
    series_file.write_text(text[:entry] + wrong)
    with pytest.raises(ZooError, match="a rerun has the architecture, the shape and the seed of its parent 'runs-01'"):
        reading.families(path=series_file)
