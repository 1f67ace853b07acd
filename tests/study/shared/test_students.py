"""Students: what they must recover, and what decides them.

Outputs of teachers are compared with the modules of transformers; what a student must find is planted: the units of a
small network with known weights, which a good imitation has to contain.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from provlab.errors import CheckpointError, InputError, MissingRoleError, ParameterError
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab_study.shared import students as distill
from provlab_study.shared.students import Settings, relative_error
from provlab_study.shared.teachers import BlockMlp, block_mlp, in_place, mlp_inputs

TOKENS = np.random.default_rng(0).integers(0, 50, size=(3, 7))
QUICK = Settings(steps=20, batch=32)


def planted(width=6, hidden=5, seed=0):
    rng = torch.Generator().manual_seed(seed)
    gate, up = (torch.randn(hidden, width, generator=rng) for _ in range(2))
    down = torch.randn(width, hidden, generator=rng) / hidden**0.5
    return BlockMlp("planted", {"gate": gate, "up": up, "down": down}, "silu")


def trained(teacher, settings, cache, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROVLAB_CACHE", str(cache))
        return distill.distill(teacher, settings, progress=False, **options)


# Teachers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["llama", "llama_biased", "phi3", "gpt2", "gemma2", "gpt_neox"])
def test_a_teacher_gives_what_the_module_of_the_model_gives(label, tiny):
    checkpoint = Checkpoint.open(tiny(label))
    parts = anatomy.of(checkpoint)
    model = checkpoint.load_model(dtype=torch.float32, device="cpu")
    hooked = {}
    for role, what in (("up", "inputs"), ("down", "outputs")):
        module = model.get_submodule(parts.module(role, 1))
        module.register_forward_hook(
            lambda _, x, y, what=what: hooked.update({what: (x[0] if what == "inputs" else y).flatten(0, 1)})
        )
    with torch.no_grad():
        model(input_ids=torch.from_numpy(TOKENS), attention_mask=torch.ones(TOKENS.shape))
    bias = parts.read(checkpoint, "down_bias", 1) if parts.has("down_bias") else 0.0
    teacher = block_mlp(checkpoint, 1)
    np.testing.assert_allclose(teacher(hooked["inputs"]), hooked["outputs"].detach().numpy() - bias, atol=2e-6)
    inputs = mlp_inputs(checkpoint, TOKENS)
    np.testing.assert_allclose(inputs[1], hooked["inputs"].detach(), atol=2e-6)
    assert (teacher.width, teacher.mlp_width) == (parts.width, parts.mlp_width)


@pytest.mark.parametrize("label", ["llama", "phi3", "gpt2"])
def test_the_block_itself_in_its_own_place_changes_nothing(label, tiny):
    checkpoint = Checkpoint.open(tiny(label))
    network = checkpoint.load_model(dtype=torch.float32, device="cpu")
    ids = torch.from_numpy(TOKENS)
    mask = torch.ones(TOKENS.shape)
    with torch.no_grad():
        plain = network(input_ids=ids, attention_mask=mask).logits
        with in_place(network, checkpoint, 1, block_mlp(checkpoint, 1)):
            same = network(input_ids=ids, attention_mask=mask).logits
        with in_place(network, checkpoint, 1, torch.zeros_like):
            other = network(input_ids=ids, attention_mask=mask).logits
        after = network(input_ids=ids, attention_mask=mask).logits
    np.testing.assert_allclose(same, plain, atol=2e-6)
    assert (other - plain).abs().max() > 1e-4
    assert torch.equal(after, plain)


def test_an_mlp_that_is_no_module_cannot_be_replaced(tiny):
    checkpoint = Checkpoint.open(tiny("bert_base"))
    with (
        pytest.raises(InputError, match="no module of its own"),
        in_place(checkpoint.load_model(dtype=torch.float32, device="cpu"), checkpoint, 0, torch.zeros_like),
    ):
        pass


def test_an_mlp_without_a_gate_has_no_activations_of_one(tiny):
    with pytest.raises(MissingRoleError, match="has no gate"):
        block_mlp(Checkpoint.open(tiny("gpt2")), 0).activations(np.zeros((1, 8), dtype=np.float32))


def test_a_config_without_activation_function_is_refused(tiny):
    checkpoint = Checkpoint.open(tiny("llama"))
    checkpoint.config = {key: value for key, value in checkpoint.config.items() if key != "hidden_act"}
    with pytest.raises(CheckpointError, match="names no activation function"):
        block_mlp(checkpoint, 0)


# Training -------------------------------------------------------------------------------------------------


def test_gradients_by_hand_are_those_of_autograd():
    rng = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=rng, requires_grad=True) for shape in ((7, 5), (7, 5), (4, 7))]
    gradients = distill._Gradients(weights, 9)
    for _ in range(2):  # the second time in memory that holds the first's
        inputs, outputs = torch.randn(9, 5, generator=rng), torch.randn(9, 4, generator=rng)
        with torch.no_grad():
            gradients.of_error(inputs, outputs)
        expected = torch.autograd.grad(functional.mse_loss(distill._glu(inputs, *weights), outputs), weights)
        for weight, gradient in zip(weights, expected, strict=True):
            torch.testing.assert_close(weight.grad, gradient)


def test_a_good_imitation_contains_the_planted_units(tmp_path):
    teacher = planted(width=16, hidden=8)
    student = trained(teacher, Settings(steps=1500, width_factor=4.0), tmp_path)
    assert student.relative < 1e-3
    assert student.gate.shape == (32, 16)
    best = [
        (functional.cosine_similarity(gate, student.gate) * functional.cosine_similarity(up, student.up).abs()).max()
        for gate, up in zip(teacher.weights["gate"], teacher.weights["up"], strict=True)
    ]
    # a unit may be split among several; of random directions none comes near
    assert sum(value > 0.95 for value in best) >= 6
    noise = np.random.default_rng(1).standard_normal((2000, 16)).astype(np.float32)
    assert relative_error(student, teacher, noise) == pytest.approx(student.relative, rel=1.0)


def test_the_curve_begins_at_one_and_has_the_teachers_units(tmp_path):
    teacher = planted()
    student = trained(teacher, QUICK, tmp_path)
    assert [point.step for point in student.curve][:2] == [0, 1]
    assert student.curve[-1].step == 20
    # a student that says almost nothing errs by the teacher's mean square
    assert student.curve[0].relative == pytest.approx(1.0, abs=0.2)
    louder = replace(teacher, weights={**teacher.weights, "down": 1000 * teacher.weights["down"]})
    other = trained(louder, QUICK, tmp_path)
    assert other.relative == pytest.approx(student.relative, rel=1e-3)
    assert other.loss == pytest.approx(1e6 * student.loss, rel=1e-3)
    inputs = torch.ones(1, 6)
    np.testing.assert_allclose(other(inputs), 1000 * student(inputs), rtol=1e-2)


def test_a_seed_decides(tmp_path):
    teacher = planted()
    first = trained(teacher, QUICK, tmp_path / "a")
    again = trained(teacher, QUICK, tmp_path / "b")
    assert torch.equal(first.gate, again.gate)
    assert first.curve == again.curve
    assert not torch.equal(first.gate, trained(teacher, replace(QUICK, seed=1), tmp_path / "a").gate)


def test_snapshots(tmp_path):
    teacher = planted()
    settings = replace(QUICK, snapshots=(0, 7))
    student = trained(teacher, settings, tmp_path)
    early = student.at(7)
    assert early.curve[-1].step == 7
    assert early.relative > student.relative
    assert student.at(20) is student
    # the same steps without a snapshot lead to the same weights
    assert torch.equal(student.gate, trained(teacher, QUICK, tmp_path).gate)
    with pytest.raises(InputError, match="not kept at step 3; snapshots: 0, 7"):
        student.at(3)


def test_the_penalty_turns_gates_away_from_ups(tmp_path):
    gate = planted().weights["gate"]
    alike = BlockMlp("alike", {**planted().weights, "up": gate.clone()}, "silu")
    free, kept_apart = (trained(alike, Settings(steps=300, parallel_penalty=weight), tmp_path) for weight in (0.0, 3.0))
    assert kept_apart.gate_up_cosine() < 0.5 * free.gate_up_cosine()


def test_matched_inputs_have_the_mean_and_the_covariance_of_the_sample():
    rng = np.random.default_rng(0)
    sample = (rng.standard_normal((500, 3)) @ np.array([[2, 1, 0], [0, 1, 0], [0, 0, 0.1]]) + 5).astype(np.float32)
    rows = distill._inputs(3, Settings(inputs="matched"), torch.from_numpy(sample), "cpu")(20_000).numpy()
    # 20,000 draws: standard errors below 0.02 for means and 0.06 for covariances up to 5
    np.testing.assert_allclose(rows.mean(0), sample.mean(0), atol=0.06)
    np.testing.assert_allclose(np.cov(rows.T), np.cov(sample.T), atol=0.2)


# Refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width_factor": 0}, "width_factor must be positive"),
        ({"steps": 0}, "steps and batch must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"schedule": "linear"}, "schedule must be one of cosine, constant"),
        ({"beta2": 1.0}, "beta2 must be from 0 to below 1"),
        ({"inputs": "text"}, "inputs must be one of gaussian, matched"),
        ({"parallel_penalty": -1.0}, "parallel_penalty must not be negative"),
        ({"steps": 5, "snapshots": (6,)}, "snapshots must be steps from 0 to 5"),
    ],
)
def test_bad_settings(wrong, message):
    with pytest.raises(ParameterError, match=message):
        Settings(**wrong)


def test_a_teacher_that_cannot_be_imitated_is_refused(tmp_path):
    teacher = planted()
    silent = replace(teacher, weights={**teacher.weights, "down": 0 * teacher.weights["down"]})
    with pytest.raises(InputError, match="nothing to imitate"):
        trained(silent, QUICK, tmp_path)
    with pytest.raises(ParameterError, match=r"diverged by step .*; lower learning_rate"):
        trained(teacher, replace(QUICK, learning_rate=1e30), tmp_path)
    with pytest.raises(ParameterError, match="need a sample"):
        trained(teacher, replace(QUICK, inputs="matched"), tmp_path)
    with pytest.raises(ParameterError, match=r"\(n, 6\) for planted, not \(4, 5\)"):
        trained(teacher, replace(QUICK, inputs="matched"), tmp_path, sample=np.ones((4, 5), dtype=np.float32))
    assert not list(tmp_path.rglob("*.safetensors"))


# Keeping --------------------------------------------------------------------------------------------------


def test_a_student_is_trained_once(tmp_path, monkeypatch):
    teacher = planted()
    settings = replace(QUICK, snapshots=(7,))
    student = trained(teacher, settings, tmp_path)

    def never(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(distill, "_train", never)
    again = trained(replace(teacher, name="another name"), settings, tmp_path)
    assert torch.equal(again.down, student.down)
    assert again.curve == student.curve
    assert torch.equal(again.at(7).up, student.at(7).up)
    changed = replace(teacher, weights={**teacher.weights, "down": teacher.weights["down"] + 1e-6})
    first, second = np.random.default_rng(0).standard_normal((2, 50, 6)).astype(np.float32)
    trained(teacher, settings, tmp_path, sample=first)  # noise needs no sample, and so does not depend on one
    monkeypatch.undo()
    matched = replace(settings, inputs="matched")
    kept = trained(teacher, matched, tmp_path, sample=first)
    monkeypatch.setattr(distill, "_train", never)
    assert torch.equal(trained(teacher, matched, tmp_path, sample=first).gate, kept.gate)
    for other, how, sample in (
        (changed, settings, None),
        (replace(teacher, activation="gelu"), settings, None),
        (teacher, replace(settings, seed=1), None),
        (teacher, matched, second),
    ):
        with pytest.raises(AssertionError, match="trained again"):
            trained(other, how, tmp_path, sample=sample)


def test_a_damaged_student_is_refused_by_name(tmp_path):
    trained(planted(), QUICK, tmp_path)
    (path,) = (tmp_path / "students").iterdir()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=f"{path.name} is damaged .*delete that file"):
        trained(planted(), QUICK, tmp_path)


def test_the_rate_may_stay_as_it_is(tmp_path):
    """As in the paper; a rate that falls to zero ends elsewhere."""
    teacher = planted()
    falling, constant = (trained(teacher, replace(QUICK, schedule=name), tmp_path) for name in ("cosine", "constant"))
    assert falling.curve[0].loss == constant.curve[0].loss
    assert falling.loss != constant.loss
