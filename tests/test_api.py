"""`provlab.compare` and `provlab.study` as a user calls them from Python."""

import inspect
from pathlib import Path

import pytest

import provlab
from provlab import api, studying, zoo
from provlab.errors import CheckpointError, InputError, NotComparableError, ParameterError
from provlab.statistics import USUAL

SMALL = {"n_permutations": 9, "n_block_permutations": 9, "n_sequences": 2, "sequence_length": 8}


@pytest.fixture
def no_corpus(monkeypatch):
    """The zoo's text takes a while to make: fail if it is asked for."""

    def refuse(domain):
        raise AssertionError("the corpus was asked for")

    monkeypatch.setattr(zoo, "held_out_text", refuse)


def test_the_public_names_are_there():
    assert provlab.compare is api.compare
    for name in provlab.__all__:
        assert getattr(provlab, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = provlab.nonsense


def test_paths_are_sources_too(models, no_corpus):
    a, b = Path(models["base"]), Path(models["tuned"])
    comparison = provlab.compare(a, b, statistics=["phi_u"], progress=False)
    again = provlab.compare(models["base"], models["tuned"], statistics=["phi_u"], progress=False)
    assert comparison == again
    assert provlab.study([a, b], statistics=["phi_u"], progress=False).records == again.records


def test_the_corpus_is_made_only_for_statistics_that_read_text(models, monkeypatch, text, no_corpus):
    pair = models["base"], models["tuned"]
    provlab.compare(*pair, statistics=["phi_u", "phi_h", "phi_l2"], progress=False, **SMALL)
    with pytest.raises(CheckpointError, match="does not exist"):
        provlab.compare(models["base"], "/no/such/folder", progress=False)
    requests = []
    monkeypatch.setattr(zoo, "held_out_text", lambda domain: requests.append(domain) or text)
    comparison = provlab.compare(*pair, statistics=["phi_match"], progress=False, **SMALL)
    assert requests == ["prose"]
    assert comparison.options.text == text


def test_settings_reach_the_statistics(models, no_corpus):
    pair = models["base"], models["stranger"]
    item, other = (provlab.compare(*pair, statistics=["phi_h"], seed=seed, progress=False, **SMALL) for seed in (0, 1))
    assert item.records[0].outcome.log10_p != other.records[0].outcome.log10_p
    (record,) = provlab.compare(*pair, statistics=["phi_u"], blocks=[2], progress=False).records
    assert [block.block for block in record.outcome.blocks] == [2]


def test_a_statistic_that_does_not_apply_is_a_row_and_not_an_end(models, new_model, save_model, tmp_path, text):
    deep = str(save_model(new_model(8, num_hidden_layers=2), tmp_path / "deep"))
    comparison = provlab.compare(models["base"], deep, text=text, progress=False, **SMALL)
    ran = {r.statistic for r in comparison.records if r.error is None}
    assert ran == {
        "phi_anchor",
        "phi_jsd",
        "phi_match",
        "phi_match_unsigned",
        "phi_u",
        "phi_unseen",
        "stream_score",
    }  # phi_u by all blocks
    with pytest.raises(NotComparableError, match="base has 3 and deep 2 blocks"):
        provlab.compare(models["base"], deep, statistics=["phi_h"], progress=False)


def test_a_model_without_tokenizer_is_given_the_other_ones_ids(models, new_model, tmp_path, text):
    bare = tmp_path / "bare"
    new_model(8).save_pretrained(bare)
    comparison = provlab.compare(models["base"], bare, text=text, progress=False, **SMALL)
    assert {record.statistic: record.error for record in comparison.records} == dict.fromkeys(
        (*USUAL, "phi_match_all", "phi_anchor", "stream_score")
    )


def test_too_little_text_is_said(models):
    with pytest.raises(NotComparableError, match=r"has \d+ tokens for base, fewer than the 2048 asked for; lower"):
        provlab.compare(models["base"], models["other"], statistics=["phi_jsd"], text="too short", progress=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"seed": 1.5}, "seed must be"),
        ({"seed": True}, "seed must be"),
        ({"seed": None}, "seed must be"),
        ({"dtype": "int8"}, "dtype must be float32, float64, bfloat16, float16, not 'int8'"),
        ({"dtype": None}, "dtype must be"),
        ({"device": "abacus"}, "device 'abacus' cannot be used on this machine .*; use cpu"),
        ({"device": "meta"}, "device 'meta' cannot be used"),
        ({"device": ""}, "device '' cannot be used"),
        ({"device": "hpu"}, "device 'hpu' cannot be used"),
        ({"device": None}, "device must be text such as cpu or cuda:0, not None"),
        ({"n_sequences": 0}, "n_sequences must be a whole number of at least 1, not 0"),
        ({"sequence_length": -3}, "sequence_length must be"),
        ({"n_permutations": "99"}, "n_permutations must be a whole number of at least 1, not '99'"),
        ({"n_block_permutations": True}, "n_block_permutations must be a whole number of at least 1, not True"),
        ({"statistics": []}, r"statistics must be a list of one or more of phi_u, .*, not \[\]"),
        ({"statistics": "phi_u"}, "statistics must be a list .*, not 'phi_u'"),
        ({"statistics": ["phi_x"]}, "no statistic is called 'phi_x'; there are phi_u, phi_h"),
    ],
)
def test_options_are_checked_before_anything_is_opened(settings, message):
    with pytest.raises(ParameterError, match=message) as refused:
        provlab.compare("/no/such/folder", "/nor/this", **settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("zoo:oak", "models must be a list of sources, not the text 'zoo:oak'"),
        (["zoo:*@none"], "unknown zoo edition 'none'"),
    ],
)
def test_lists_of_models_are_checked(models, message):
    with pytest.raises((InputError, ParameterError), match=message):
        provlab.study(models, statistics=["phi_u"])


def test_a_study_outlives_a_model_of_an_unknown_edition(models, no_corpus):
    sources = [models["base"], "zoo:oak@none", models["tuned"]]
    report = provlab.study(sources, statistics=["phi_u"], progress=False)
    assert [record.error is None for record in report.records] == [False, True, False]
    assert "unknown zoo edition 'none'" in report.records[0].error


def test_expand_puts_the_zoo_in_the_order_of_its_tree():
    names = [f"zoo:{name}" for name in zoo.collection("tree", zoo.families("default"))]
    assert len(names) == 21
    assert sorted(studying.expand(["zoo:*"])) == sorted(names)
    smoke = studying.expand(["/a", "zoo:*@smoke", "org/b"])
    assert smoke[0] == "/a"
    assert smoke[-1] == "org/b"
    assert sorted(smoke[1:-1]) == sorted(f"{name}@smoke" for name in names)
    parents = zoo.parents(zoo.families("smoke"))
    for source in smoke[1:-1]:
        name = source.removeprefix("zoo:").partition("@")[0]
        if parents[name]:
            assert smoke.index(f"zoo:{parents[name]}@smoke") < smoke.index(source)


def test_every_documented_option_is_one():
    """The docstring of `compare` names its arguments; `study` has more: the pairs, and the workers.

    One pair alone can have all blocks compared with all.
    """
    alone = ("all_blocks",)
    more = ("models", "pairs", "memory", "workers", "executor")
    compare, study = (inspect.signature(function).parameters for function in (api.compare, studying.study))
    assert [name for name in list(compare)[2:] if name not in alone] == [name for name in study if name not in more]
    for name in more[1:]:
        assert f"`{name}`" in (studying.study.__doc__ or "")
    for name in compare:
        assert name in (api.compare.__doc__ or "")


def test_a_study_of_some_pairs(models):
    sources = [models[name] for name in ("base", "tuned", "stranger")]
    report = studying.study(sources, statistics=["phi_u"], pairs=[(sources[0], sources[2])])
    assert [(record.a, record.b) for record in report.records] == [(sources[0], sources[2])]
    with pytest.raises(InputError, match=r"pairs name /else, which is not among the models"):
        studying.study(sources, statistics=["phi_u"], pairs=[(sources[0], "/else")])
