"""Retrain an MLP from scratch to do what another does (Section 4.2.1, Appendices F and H.3).

An adversary can throw away the weights of an MLP and train fresh ones to imitate its outputs, on inputs that cost
nothing: Gaussian noise. The *student* here is always a GLU MLP (Definition 3), ``D (silu(G x) * (U x))``, wider than
its *teacher*, which may be a GLU MLP as well, retrained as in Section 4.2.1, or a plain feedforward network, distilled
as in Appendix H.3.

>>> teacher = block_mlp(Checkpoint.open("zoo:walnut-chat"), 0)  # doctest: +SKIP
>>> student = distill(teacher, Settings(steps=500))  # doctest: +SKIP
>>> gate, up = student.activations(mlp_inputs(checkpoint, tokens)[0])  # doctest: +SKIP

Students are kept in provlab's cache under the hash of the teacher's weights, the settings and the code that
trains: each is trained once.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch.nn import functional
from tqdm import tqdm

from provlab.codehash import code_digest
from provlab.errors import InputError, ParameterError
from provlab.files import atomic_file, cache_dir, digest, reading
from provlab_study.shared.teachers import BlockMlp, tensor_sha256

INPUTS = ("gaussian", "matched")
#: share of the learning rate, by the share of the steps that are taken
SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda done: 0.5 * (1 + float(np.cos(np.pi * done))),
    "constant": lambda done: 1.0,
}
#: rows of held-out input that the learning curve is measured on
_N_HELD_OUT = 1024
_CURVE_POINTS = 12
_ROLES = ("gate", "up", "down")
_DOWN_SCALE = 0.3  # a smaller first output projection: the student begins near zero, and not beside its target


@dataclass(frozen=True)
class Settings:
    """How a student is trained.

    Attributes
    ----------
    width_factor
        Hidden units of the student for each one of the teacher's (the paper: 2).
    steps, batch, learning_rate
        Those of Adam on the mean squared error (the paper: 10,000 steps of 5,000 inputs, rate 0.001).
    schedule
        How the rate goes on: ``"cosine"`` falls to zero, ``"constant"`` stays, as in the paper.
    beta2
        Adam's memory of squared gradients: at the usual 0.999 a short training still divides by those of its beginning.
    inputs
        The student's inputs: ``"gaussian"`` noise of variance 1 as in the paper, or noise ``"matched"`` in mean and
        covariance to a sample of real inputs.
    parallel_penalty
        Weight of the mean squared cosine between a unit's gate and its up row, added to the relative error; 0 as in the
        paper.
    snapshots
        Steps at which the student is kept as well, see `Student.at`.
    seed
        The seed of the student's first weights and of its inputs.
    """

    width_factor: float = 2.0
    steps: int = 1000
    batch: int = 128
    learning_rate: float = 0.01
    schedule: str = "cosine"
    beta2: float = 0.95
    inputs: str = "gaussian"
    parallel_penalty: float = 0.0
    snapshots: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for message, holds in {
            f"width_factor must be positive, not {self.width_factor}": self.width_factor > 0,
            f"steps and batch must be at least 1, not {self.steps}, {self.batch}": min(self.steps, self.batch) >= 1,
            f"learning_rate must be positive, not {self.learning_rate}": self.learning_rate > 0,
            f"schedule must be one of {', '.join(SCHEDULES)}, not {self.schedule!r}": self.schedule in SCHEDULES,
            f"beta2 must be from 0 to below 1, not {self.beta2}": 0 <= self.beta2 < 1,
            f"inputs must be one of {', '.join(INPUTS)}, not {self.inputs!r}": self.inputs in INPUTS,
            f"parallel_penalty must not be negative, not {self.parallel_penalty}": self.parallel_penalty >= 0,
            f"snapshots must be steps from 0 to {self.steps}, not {list(self.snapshots)}": all(
                0 <= step <= self.steps for step in self.snapshots
            ),
        }.items():
            if not holds:
                raise ParameterError(message)


@dataclass(frozen=True)
class Point:
    """One point of a learning curve.

    Attributes
    ----------
    step
        Steps taken.
    loss
        Mean squared error on held-out inputs, in the teacher's units (the paper's train loss).
    relative
        The same over the teacher's mean square: 1 for a student that says nothing.
    """

    step: int
    loss: float
    relative: float


@dataclass(frozen=True)
class Student:
    """A trained GLU MLP.

    Attributes
    ----------
    gate, up, down
        Its weights, float32 on the CPU: ``(m, width)``, ``(m, width)``, ``(outputs, m)`` for m hidden units.
    curve
        Error on held-out inputs of the kind that it was trained on, at steps that grow geometrically.
    kept
        The weights at the snapshots, by step.
    """

    gate: torch.Tensor = field(repr=False)
    up: torch.Tensor = field(repr=False)
    down: torch.Tensor = field(repr=False)
    curve: tuple[Point, ...] = field(repr=False)
    kept: Mapping[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=dict, repr=False)

    @property
    def loss(self) -> float:
        """Last mean squared error."""
        return self.curve[-1].loss

    @property
    def relative(self) -> float:
        """Last relative error."""
        return self.curve[-1].relative

    def at(self, step: int) -> "Student":
        """Return the student as it was after `step` steps, one of the snapshots or the last."""
        if step == self.curve[-1].step:
            return self
        if step not in self.kept:
            raise InputError(f"the student was not kept at step {step}; snapshots: {', '.join(map(str, self.kept))}")
        return Student(*self.kept[step], tuple(point for point in self.curve if point.step <= step))

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Outputs ``(n, outputs)`` for inputs ``(n, width)``."""
        return _glu(inputs, self.gate, self.up, self.down)

    def activations(self, inputs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return gate and up activations, each ``(m, n)`` float32, on inputs ``(n, width)``, for phi_MATCH."""
        return self.gate.numpy() @ inputs.T, self.up.numpy() @ inputs.T

    def gate_up_cosine(self) -> float:
        """Mean over hidden units of the absolute cosine between a unit's gate row and its up row."""
        return float(functional.cosine_similarity(self.gate, self.up).abs().mean())


def relative_error(student: Student, teacher: BlockMlp, inputs: NDArray[np.float32]) -> float:
    """Mean squared error of a student's outputs on inputs ``(n, width)``, over the teacher's mean square."""
    rows = torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32))
    outputs = teacher(rows)
    return float((student(rows) - outputs).square().mean() / outputs.square().mean())


# Training -------------------------------------------------------------------------------------------------


def distill(
    teacher: BlockMlp,
    settings: Settings = Settings(),
    *,
    sample: NDArray[np.float32] | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> Student:
    """Train a GLU MLP from scratch to give a teacher's outputs, or read it if that was done before.

    Parameters
    ----------
    teacher
        The MLP that is imitated, such as `block_mlp` returns.
    settings
        How.
    sample
        Real inputs ``(n, width)``, for inputs that are matched to it.
    device
        Where it is trained; students of different devices differ in rounding, and are kept under one key.
    progress
        Show a bar on stderr.

    Returns
    -------
    Student
        The same for the same arguments.

    Raises
    ------
    ParameterError
        The inputs need a sample and there is none, or one of another width; or the training diverges.
    InputError
        The teacher gives zeros or infinities.
    CheckpointError
        A student kept before is damaged.
    """
    rows = _checked_sample(sample, teacher, settings)
    key = digest(
        {
            "code": code_digest(distill),
            "torch": torch.__version__.split("+")[0],
            "teacher": teacher.digest,
            "settings": asdict(settings),
            "sample": None if rows is None else tensor_sha256(rows),
        }
    )
    path = cache_dir() / "students" / f"{key[:32]}.safetensors"
    if not path.exists():
        _write(path, _train(teacher, settings, rows, device, progress))
    return _read(path)  # mapped: the students of all blocks are larger than their model


def _checked_sample(sample: NDArray[np.float32] | None, teacher: BlockMlp, settings: Settings) -> torch.Tensor | None:
    """Return the sample as a tensor if the inputs need one; None if they need none, whatever is given."""
    if settings.inputs == "gaussian":
        return None
    if sample is None:
        raise ParameterError(f"inputs {settings.inputs!r} need a sample of real inputs; give sample")
    if sample.ndim != 2 or sample.shape[1] != teacher.width or not np.isfinite(sample).all():
        raise ParameterError(f"sample must be finite, (n, {teacher.width}) for {teacher.name}, not {sample.shape}")
    return torch.from_numpy(np.ascontiguousarray(sample, dtype=np.float32))


def _train(teacher: BlockMlp, settings: Settings, sample: torch.Tensor | None, device: str, progress: bool) -> Student:
    """Minimise the error over fresh inputs at each step."""
    draw = _inputs(teacher.width, settings, sample, device)
    teacher = teacher.to(device)
    with torch.inference_mode():
        held_out = draw(_N_HELD_OUT)
        target = teacher(held_out)
        power = float(target.square().mean())
    if not 0 < power < float("inf"):
        raise InputError(f"{teacher.name} gives outputs of mean square {power} on these inputs: nothing to imitate")
    weights = _fresh(teacher.width, round(settings.width_factor * teacher.mlp_width), target.shape[1], settings, device)
    scale = power**0.5  # the student learns outputs of mean square 1, whatever the teacher's
    optimiser = torch.optim.Adam(weights, lr=settings.learning_rate, betas=(0.9, settings.beta2), fused=True)
    gradients = _Gradients(weights, settings.batch)
    curve: list[Point] = []
    kept: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
    regular = np.geomspace(1, settings.steps, _CURVE_POINTS).round().astype(int).tolist()
    measured = {0, *regular, *settings.snapshots}
    bar = tqdm(
        total=settings.steps,
        desc=f"student of {teacher.name}",
        unit="step",
        leave=False,
        delay=2,
        mininterval=1,
        disable=not progress,
    )
    for step in range(settings.steps + 1):
        if step in measured:
            with torch.inference_mode():
                relative = float((_glu(held_out, *weights) - target / scale).square().mean())
            if not np.isfinite(relative):
                raise ParameterError(f"the student of {teacher.name} diverged by step {step}; lower learning_rate")
            curve.append(Point(step, relative * power, relative))
            if step in settings.snapshots:
                kept[step] = _finished(weights, scale)
            bar.set_postfix_str(f"relative error {relative:.3g}", refresh=False)
        if step == settings.steps:
            break
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * SCHEDULES[settings.schedule](step / settings.steps)
        inputs = draw(settings.batch)
        with torch.no_grad():
            gradients.of_error(inputs, teacher(inputs) / scale)
        if settings.parallel_penalty:
            cosines = functional.cosine_similarity(weights[0], weights[1])
            (settings.parallel_penalty * cosines.square().mean()).backward()  # adds to what is there
        optimiser.step()
        bar.update()
    bar.close()
    return Student(*_finished(weights, scale), tuple(curve), kept)


class _Gradients:
    """Gradients of the mean squared error: autograd's numbers, in memory that is used again, which halves the time."""

    def __init__(self, weights: Sequence[torch.Tensor], batch: int) -> None:
        self._weights, self._gradients = weights, [torch.empty_like(weight) for weight in weights]
        for weight, gradient in zip(weights, self._gradients, strict=True):
            weight.grad = gradient
        shape = (batch, len(weights[0]))
        self._hidden = [torch.empty(shape, device=weights[0].device) for _ in range(6)]

    def of_error(self, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
        """Set the ``grad`` of each weight for inputs ``(batch, width)`` and outputs ``(batch, outputs)``."""
        gate, up, down = self._weights
        of_gate, of_up, of_down = self._gradients
        g, u, act, h, dh, dg = self._hidden  # (batch, m) each: h = act * u with act = silu(g)
        torch.mm(inputs, gate.T, out=g)
        torch.mm(inputs, up.T, out=u)
        torch.ops.aten.silu.out(g, out=act)
        torch.mul(act, u, out=h)
        error = torch.mm(h, down.T).sub_(outputs)
        error.mul_(2 / error.numel())
        torch.mm(error.T, h, out=of_down)
        torch.mm(error, down, out=dh)
        torch.mul(dh, u, out=h)
        torch.ops.aten.silu_backward.grad_input(h, g, grad_input=dg)
        torch.mm(dg.T, inputs, out=of_gate)
        torch.mm(torch.mul(dh, act, out=dh).T, inputs, out=of_up)


def _inputs(width: int, settings: Settings, sample: torch.Tensor | None, device: str) -> Callable[[int], torch.Tensor]:
    """Return a function that draws n inputs ``(n, width)``; the same sequence for the same seed."""
    rng = torch.Generator(device).manual_seed(2 * settings.seed + 1)
    if sample is not None:
        values, vectors = torch.linalg.eigh(torch.cov(sample.double().T))
        root = ((vectors * values.clamp(min=0).sqrt()) @ vectors.T).float().to(device)
        mean = sample.double().mean(0).float().to(device)

    def draw(n: int) -> torch.Tensor:
        noise = torch.randn(n, width, generator=rng, device=device)
        return noise if sample is None else mean + noise @ root

    return draw


def _fresh(width: int, mlp_width: int, outputs: int, settings: Settings, device: str) -> list[torch.Tensor]:
    """Draw first weights: gate, up, down."""
    rng = torch.Generator().manual_seed(2 * settings.seed)  # on the CPU, so that all devices begin alike
    gate, up = (torch.randn(mlp_width, width, generator=rng) / width**0.5 for _ in range(2))
    down = torch.randn(outputs, mlp_width, generator=rng) * (_DOWN_SCALE / mlp_width**0.5)
    return [tensor.to(device).requires_grad_() for tensor in (gate, up, down)]


def _finished(weights: Sequence[torch.Tensor], scale: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Copy the weights to the CPU, in the teacher's units."""
    gate, up, down = (tensor.detach().to("cpu", copy=True) for tensor in weights)
    return gate, up, down * scale


def _glu(inputs: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return (functional.silu(inputs @ gate.T) * (inputs @ up.T)) @ down.T


# Keeping --------------------------------------------------------------------------------------------------


def _write(path: Path, student: Student) -> None:
    """Keep a student; snapshots under ``gate@STEP`` and so on."""
    tensors = {"gate": student.gate, "up": student.up, "down": student.down}
    for step, weights in student.kept.items():
        tensors |= {f"{role}@{step}": tensor for role, tensor in zip(_ROLES, weights, strict=True)}
    with atomic_file(path) as temporary:
        save_file(tensors, temporary, {"curve": json.dumps([asdict(point) for point in student.curve])})


def _read(path: Path) -> Student:
    with reading(path, safetensors.SafetensorError):
        with safetensors.safe_open(path, framework="pt") as file:
            curve = tuple(Point(**point) for point in json.loads(file.metadata()["curve"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        steps = sorted(int(name.partition("@")[2]) for name in tensors if name.startswith("gate@"))
        gate, up, down = (tensors[role] for role in _ROLES)
        kept = {n: (tensors[f"gate@{n}"], tensors[f"up@{n}"], tensors[f"down@{n}"]) for n in steps}
        return Student(gate, up, down, curve, kept)
