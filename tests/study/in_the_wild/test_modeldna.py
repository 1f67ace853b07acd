"""modelDNA is asked in a process of its own; here a stand-in answers, a package with the functions that are called."""

from pathlib import Path

import pytest

from provlab.errors import ProvlabError
from provlab_study.in_the_wild import measure, modeldna

STAND_IN = {
    "compare": "def compare_fingerprints(a, b):\n    return a, b\n",
    "fingerprint/extract": (
        "def extract_fingerprint(source, mode, model_id):\n"
        "    if 'pickle' in source: raise OSError(source)\n"
        "    return type('Print', (), {'arch': type('Arch', (), {'torch_dtype': 'float32'}), 'name': source})()\n"
    ),
    "io/source": "def open_source(folder):\n    return folder\n",
    "verdict": (
        "ANSWERS = {'near': 0.95, 'far': 0.2, 'nan': float('nan'), 'apart': None}\n"
        "def judge(evidence, suspect_dtype, candidate_dtypes):\n"
        "    ((first, second), name), = evidence\n"
        "    probability = ANSWERS[name]\n"
        "    return type('Verdict', (), {'candidates': [type('Candidate', (), {'probability': probability})()]})()\n"
    ),
}


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put the stand-in where the process finds it, and say that it is the version that is known here."""
    for name, text in STAND_IN.items():
        path = tmp_path / "modeldna" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(modeldna, "version", lambda _: modeldna.VERSION)
    return tmp_path / "modeldna"


def pairs(*names):
    return [(Path("base"), Path(name)) for name in names]


def test_each_pair_has_its_answer_or_none(stand_in):
    answers = modeldna.probabilities(pairs("near", "apart", "far", "nan", "a-pickle"))
    assert answers == [0.95, None, 0.2, None, None]


def test_an_error_of_its_own_is_said_with_a_way_out(stand_in):
    (stand_in / "verdict.py").write_text("def judge(*_, **__):\n    raise RuntimeError('no calibration')\n")
    with pytest.raises(ProvlabError, match=r"no calibration.*pip install modeldna==0.1.0"):
        modeldna.probabilities(pairs("near"))


@pytest.mark.parametrize("installed", [None, "0.2.0"])
def test_where_it_is_not_installed_or_another_nobody_is_asked(installed, monkeypatch):
    def version(_):
        if installed is None:
            raise modeldna.PackageNotFoundError
        return installed

    monkeypatch.setattr(modeldna, "version", version)
    scored = [{"a": "zoo:oak", "b": "zoo:elm", "scores": {}}]
    measure.ask_modeldna(scored)
    assert not modeldna.here()
    assert scored == [{"a": "zoo:oak", "b": "zoo:elm", "scores": {}}]


def test_its_answer_stands_among_the_scores(stand_in, models, monkeypatch):
    monkeypatch.setattr(modeldna, "probabilities", lambda _: [0.91, None])
    base, tuned, stranger = (str(models[name]) for name in ("base", "tuned", "stranger"))
    scored = [{"a": base, "b": other, "scores": {"spread": 1.0}} for other in (tuned, stranger)]
    measure.ask_modeldna(scored)
    assert [pair["scores"] for pair in scored] == [{"spread": 1.0, measure.DNA: 0.91}, {"spread": 1.0}]
