"""Parts by name: what is found by tensors or below a prefix, what tests say of it, and what is refused in a line."""

import json
from pathlib import Path

import numpy as np
import pytest
import reports
from safetensors.numpy import save_file

import provlab
from provlab.attest import folder
from provlab.errors import InputError, ProvlabError
from provlab.reading.part import Part, split
from provlab.statistics.model import Model

WIDTH, UNITS, RANK = 16, 40, 8
TEXT = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 300, "tie_word_embeddings": False,
}  # fmt: skip
Tensors = dict[str, np.ndarray]


def drawn(seed, **shapes):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}


def tower(seed, blocks=2, prefix="encoder.layers"):
    """A vision tower as CLIP has it: LayerNorms, biases, fc1 and fc2."""
    made: Tensors = {"embeddings.patch_embedding.weight": drawn(seed, x=(WIDTH, 3, 4, 4))["x"]}
    for i in range(blocks):
        block = drawn(
            seed + 100 * i,
            **{f"self_attn.{q}_proj.weight": (WIDTH, WIDTH) for q in "qkv"},
            **{"mlp.fc1.weight": (UNITS, WIDTH), "mlp.fc1.bias": (UNITS,), "mlp.fc2.weight": (WIDTH, UNITS)},
            **{"mlp.fc2.bias": (WIDTH,)},
        )
        block |= {"layer_norm1.weight": np.ones(WIDTH, np.float32), "layer_norm1.bias": np.zeros(WIDTH, np.float32)}
        made |= {f"{prefix}.{i}.{name}": array for name, array in block.items()}
    return made


def llama(seed):
    made = drawn(seed, **{"model.embed_tokens.weight": (300, 32), "lm_head.weight": (300, 32)})
    made["model.norm.weight"] = np.ones(32, np.float32)
    for i in range(2):
        block = drawn(
            seed + 100 * i,
            **{f"self_attn.{q}_proj.weight": (32, 32) for q in "qkvo"},
            **{"mlp.gate_proj.weight": (64, 32), "mlp.up_proj.weight": (64, 32), "mlp.down_proj.weight": (32, 64)},
        )
        block |= {f"{n}_layernorm.weight": np.ones(32, np.float32) for n in ("input", "post_attention")}
        made |= {f"model.layers.{i}.{name}": array for name, array in block.items()}
    return made


def near(tensors, seed=0):
    """A little trained on."""
    rng = np.random.default_rng([9, seed])
    return {name: array + rng.normal(0, 0.005, array.shape).astype(np.float32) for name, array in tensors.items()}


def saved(place, config, tensors):
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config))
    save_file(tensors, place / "model.safetensors")
    return str(place)


def seeing(place, vision, text):
    """A model that sees and writes."""
    tensors = {f"vision_tower.vision_model.{name}": array for name, array in vision.items()}
    tensors |= {f"language_model.{name}": array for name, array in text.items()}
    tensors |= drawn(5, **{"projector.linear_1.weight": (32, WIDTH), "projector.linear_2.weight": (32, 32)})
    config = {"architectures": ["LlavaForConditionalGeneration"], "text_config": TEXT, "vision_config": {}}
    return saved(place, config | {"tie_word_embeddings": False}, tensors)


def adapter(place, seed, begun=True, base=None):
    shapes = {}
    for i in range(4):
        at = f"base_model.model.model.layers.{i}.mlp.up_proj"
        shapes |= {f"{at}.lora_A.weight": (RANK, 32), f"{at}.lora_B.weight": (64, RANK)}
    tensors = near(base, seed) if base else drawn(seed, **shapes)
    place.mkdir()
    (place / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": RANK, "init_lora_weights": begun}))
    save_file(tensors, place / "adapter_model.safetensors")
    return tensors


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Names of folders: a and b share a vision tower, a and c a language model; clip is a's tower alone."""
    top = tmp_path_factory.mktemp("parts")
    vision, text = tower(1), llama(2)
    clip = {"architectures": ["CLIPVisionModel"], "image_size": 16}
    made = {
        "a": seeing(top / "a", vision, text),
        "b": seeing(top / "b", near(vision), llama(3)),
        "c": seeing(top / "c", tower(4), near(text)),
        "clip": saved(top / "clip", clip, {f"vision_model.{k}": v for k, v in vision.items()}),
        "vit": saved(top / "vit", clip | {"architectures": ["Vit"]}, tower(1)),
        "llama": saved(top / "llama", {"architectures": ["LlamaForCausalLM"], **TEXT}, near(text, 1)),
    }  # fmt: skip
    first = adapter(top / "l1", 1)
    adapter(top / "l2", 2, base=first)
    adapter(top / "l3", 3)
    adapter(top / "pissa", 4, begun="pissa")
    return made | {name: str(top / name) for name in ("l1", "l2", "l3", "pissa")}


def p_of(kept, a, b, statistic="phi_u"):
    def source(text):
        name, mark, rest = text.partition("::")
        return kept[name] + mark + rest

    result = provlab.compare(source(a), source(b), statistics=[statistic], progress=False)
    return result.records[0].outcome.log10_p, result


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        ("a::vision", "b::vision", True),
        ("a::vision", "c::vision", False),
        ("b::vision", "clip::vision", True),
        ("clip", "vit", True),
        ("a::language", "c", True),
        ("a::language", "llama", True),
        ("a::language", "b::language", False),
        ("a::tower=vision_tower", "vit::tower=encoder", True),
        ("l1::adapter", "l2::adapter", True),
        ("l1::adapter", "l3::adapter", False),
    ],
)
def test_a_part_is_compared_with_what_it_was_made_from(kept, a, b, alike):
    a, b = (f"{name}::vision" if name in ("clip", "vit") else name for name in (a, b))
    log10_p, _ = p_of(kept, a, b)
    assert (log10_p < -10) == alike


@pytest.mark.parametrize(("b", "alike"), [("c", True), ("b", False)])
def test_an_embedding_alone_is_compared_by_tests_of_tables(kept, b, alike):
    result = provlab.compare(f"{kept['a']}::embedding", f"{kept[b]}::embedding", progress=False)
    assert {r.statistic for r in result.records} >= {"phi_e", "phi_axes", "phi_unseen"}
    assert all(record.outcome for record in result.records)
    assert (result.records[0].outcome.log10_p < -10) == alike
    with pytest.raises(ProvlabError, match="is a table alone; phi_e compares it"):
        provlab.compare(f"{kept['a']}::embedding", f"{kept[b]}::embedding", statistics=["phi_u"], progress=False)


def test_a_study_of_embeddings_is_by_tests_of_tables_too(kept):
    report = provlab.study([f"{kept[name]}::embedding" for name in "abc"], progress=False)
    assert {record.statistic for record in report.records if record.outcome} >= {"phi_e", "phi_axes", "phi_unseen"}
    assert all(record.outcome for record in report.records)


def test_a_part_says_what_it_is_and_is_no_other(kept):
    _, result = p_of(kept, "a::vision", "b::vision")
    notes = [note for model in result.models for note in model["notes"]]
    assert any("Only the part vision of a was compared" in note for note in notes)
    assert result.models[0]["language_part"] is None
    digests = {Model.open(f"{kept['a']}{end}").checkpoint.digest for end in ("", "::vision", "::embedding")}
    assert len(digests) == 3  # else a store would give the result of one for another


def test_by_shapes_and_by_the_table_the_same_matrices_are_read(kept):
    table, shapes = Model.open(kept["llama"]), Model.open(f"{kept['llama']}::all=model")
    for role in ("up", "gate", "down"):
        assert table.anatomy.tensor_name(role, 1) == shapes.anatomy.tensor_name(role, 1)
    assert (shapes.anatomy.n_blocks, shapes.anatomy.width, shapes.anatomy.mlp_width) == (2, 32, 64)


@pytest.mark.parametrize(
    ("names", "turned"),
    [
        ({"up": "mlp.c_fc", "down": "mlp.c_proj"}, True),  # GPT-2's Conv1D
        ({"up": "DenseReluDense.wi", "down": "DenseReluDense.wo"}, False),
        ({"up": "ffn.w3", "gate": "ffn.w1", "down": "ffn.w2"}, False),
        ({"up": "mlp.0", "down": "mlp.2"}, False),
    ],
)
def test_an_mlp_is_found_by_shapes_whatever_it_is_called(tmp_path, names, turned):
    tensors = {}
    for i in range(2):
        tensors[f"m.h.{i}.ln.weight"] = np.ones(WIDTH, np.float32)
        tensors[f"m.h.{i}.attn.c_attn.weight"] = np.ones((WIDTH, 3 * WIDTH), np.float32)
        tensors[f"m.h.{i}.attn.out.weight"] = np.ones((3 * WIDTH, WIDTH), np.float32)
        for role, name in names.items():
            shape = (WIDTH, UNITS) if role == "down" else (UNITS, WIDTH)
            tensors[f"m.h.{i}.{name}.weight"] = np.ones(shape[::-1] if turned else shape, np.float32)
            if turned:
                tensors[f"m.h.{i}.{name}.bias"] = np.ones(shape[0], np.float32)
    anatomy = Model.open(f"{saved(tmp_path / 'm', {'architectures': ['X']}, tensors)}::x=m").anatomy
    for role, name in names.items():
        assert anatomy.tensor_name(role, 1) == f"m.h.1.{name}.weight"
        assert anatomy.shape(role, 1) == ((WIDTH, UNITS) if role == "down" else (UNITS, WIDTH))
    assert anatomy.gated == ("gate" in names)


def test_of_adapters_only_the_order_of_units_is_a_test(kept):
    """Their inputs and outputs are those of one base, which makes any two alike there."""
    _, result = p_of(kept, "l1::adapter", "l3::adapter")
    assert any("begun from one seed agree too" in note for note in result.models[0]["notes"])
    with pytest.raises(ProvlabError, match="phi_u permutes the units between A and B alone"):
        p_of(kept, "l1::adapter", "l3::adapter", "phi_l2")
    with pytest.raises(ProvlabError, match="begun by pissa, which gives its units an order"):
        p_of(kept, "l1::adapter", "pissa::adapter")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("a::visoin", "there is no part 'visoin'; did you mean vision"),
        ("a::x=vision_towr", "has no tensor below vision_towr; did you mean vision_tower"),
        ("a::encoder", "has no part encoder: its blocks lie in language_model.model.layers, vision_tower"),
        ("llama::vision", "has no part vision: its blocks lie in model.layers; give the prefix: vision=PREFIX"),
        ("a::x=projector", "has 2 matrices and no block; give the prefix of blocks with an MLP, or of one table"),
        ("llama::adapter", "is no adapter, as it has no adapter_config.json"),
        ("l1::vision", "is an adapter, not a model"),
    ],
)
def test_what_is_absent_or_fits_nothing_is_refused_in_one_line(kept, source, words):
    name, _, rest = source.partition("::")
    with pytest.raises(ProvlabError) as caught:
        Model.open(f"{kept[name]}::{rest}")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_part_is_not_run(kept):
    with pytest.raises(ProvlabError, match="compared by its weights"):
        p_of(kept, "a::vision", "b::vision", "phi_jsd")
    with pytest.raises(InputError, match="and not run"):
        Model.open(f"{kept['a']}::vision").checkpoint.load_model()


def test_a_folder_whose_name_has_the_mark_is_a_folder(kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x::vision").mkdir()
    assert split("x::vision") == ("x::vision", None)
    assert split("y::tower=a.b.") == ("y", Part("tower", "a.b"))


def test_one_block_needs_no_number_and_its_key_bias_is_a_fossil(tmp_path):
    """As in PLM-CS: trained apart from one draw, of which the bias of the keys is left. Nothing says descends."""
    rng, sources = np.random.default_rng(0), []
    shapes = {"fc1.weight": (UNITS, WIDTH), "fc2.weight": (WIDTH, UNITS), "attn.k_linear.weight": (WIDTH, WIDTH)}
    begun = drawn(7, **{f"encoder.{name}": shape for name, shape in shapes.items()}, **{"decoder.pre.weight": (1, 16)})
    begun["encoder.attn.k_linear.bias"] = drawn(8, x=(WIDTH,))["x"]
    for i in range(3):
        own = {k: v + rng.normal(0, 0.02, v.shape).astype(np.float32) for k, v in begun.items() if v.ndim > 1}
        sources.append(saved(tmp_path / f"m{i}", {"architectures": ["PLM_CS"]}, begun | own) + "::encoder")
    text = " ".join(str(provlab.tree(sources, progress=False)).split())
    assert "alike in 3 of 3 pairs" in text
    assert "One draw, no descent" in text
    assert "descends;" not in text


def test_a_tree_of_towers_joins_those_that_share_one(kept, tmp_path):
    sources = [f"{kept[name]}::vision" for name in ("a", "b", "c", "clip")]
    result = provlab.tree(sources, progress=False)
    assert [len(family.models) for family in result.families] == [3, 1]
    assert "no clock: there is no embedding" in json.dumps(result.to_json())
    folder.write(tmp_path / "report", "tree", {"outgroup": None, "statistic": "phi_u", "seed": 0}, result)
    assert "recomputed bit for bit" in reports.verify(tmp_path / "report")
    tables = provlab.tree([f"{kept[name]}::embedding" for name in "abc"], statistic="phi_e", progress=False)
    assert [len(family.models) for family in tables.families] == [2, 1]


def test_the_option_gives_all_models_the_part_but_those_that_name_their_own(kept, run):
    status, out, _ = run(
        "compare", kept["a"], f"{kept['vit']}::tower=encoder", "--part", "vision", "--statistic", "phi_u"
    )
    assert status == 0
    assert f"{kept['a']}::vision and {kept['vit']}::tower=encoder: alike by order" in " ".join(out.split())
    status, out, _ = run("tree", kept["a"], kept["b"], "--part", "vision")
    assert "b::vision" in out
    status, out, _ = run(
        "study", kept["a"], kept["b"], kept["c"], "--part", "vision", "--statistic", "phi_u",
        "--pairs", f"{kept['a']},{kept['b']}",
    )  # fmt: skip
    assert "1 pair" in out
    status, _, errors = run("tree", kept["a"], "--part", "vision")
    assert (status, errors.count("\n")) == (2, 1)
