"""What the page on the toy measures, on a space of few inputs: against sums over all of them, with faults planted."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from provlab.chapters.toy_modulo30 import measure
from provlab.chapters.toy_modulo30.enumeration import Space, enumerate_all
from provlab.chapters.toy_modulo30.joint import Joint
from provlab.chapters.toy_modulo30.measure import A, C, Sampler, Truth
from provlab.chapters.toy_modulo30.records import BiasRecord, NaiveRecord, SamplingRecord
from provlab.modeldiff import pipeline
from provlab.zoo.toy import is_valid

SPACE = Space(10, 8, (3, 1, 4, 1))


@pytest.fixture(scope="module")
def models(gpt2, tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    for k, name in enumerate("abc"):  # one model, and two that differ from it a little
        model = gpt2(0, vocab_size=10, n_positions=8, initializer_range=0.2)
        generator = torch.Generator().manual_seed(k)
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.02 * k * torch.randn(weight.shape, generator=generator)
        model.save_pretrained(folder / name)
    return list(pipeline.open_models([str(folder / name) for name in "abc"]).values())


@pytest.fixture(scope="module")
def found(models):
    return enumerate_all([model.checkpoint for model in models], SPACE, is_valid, jobs=1)


@pytest.fixture(scope="module")
def z(found):
    return measure.range_by_rule(found, [0.1, 0.6])


@pytest.fixture(scope="module")
def truth(found, z):
    return Truth.enumerated(found, z)


@pytest.fixture(scope="module")
def sampler(found, z):
    return Sampler.tuned(found, z, coldest=0.3, n_chains=16, seed=0)


@pytest.fixture(scope="module")
def runs(sampler):
    return sampler.long_runs(1, 1500, seed=0)


def test_the_range_is_of_the_valid_inputs(found, z):
    losses = found.nll(A)[is_valid(SPACE.tokens(np.arange(SPACE.size)))]
    assert np.mean(losses <= z[0]) == pytest.approx(0.1, abs=0.02)
    assert np.mean(losses <= z[1]) == pytest.approx(0.6, abs=0.02)


def test_samples_come_out_as_the_enumeration(truth, runs):
    (run,) = runs
    assert all(gate.ok for gate in run.gates.values())
    np.testing.assert_allclose(run.weighted.terms(), truth.compared.terms(), rtol=0.15)
    weighted, naive = (np.mean(truth.distances(one)) for one in (run.weighted, run.naive))
    assert weighted < 0.1
    assert naive > weighted  # the fault that weights mend
    assert truth.distances(truth.compared) == pytest.approx([0, 0], abs=1e-12)


def test_the_exact_bias_is_what_draws_without_weights_come_to(truth, runs):
    (bias,) = [row for row in measure.biases(truth, 0.123) if row.temperature == 0.123]
    a, b = truth.losses
    inside = (a >= truth.compared.z[0]) & (a <= truth.compared.z[1])
    weight = np.exp(-a[inside] / 0.123)
    rho = np.histogram((a - b)[inside], truth.edges, weights=weight)[0]
    exact = np.histogram((a - b)[inside], truth.edges)[0]
    assert pytest.approx(0.5 * np.abs(rho / rho.sum() - exact / exact.sum()).sum()) == bias.A


def test_the_error_falls_with_draws_if_they_are_weighted(truth, sampler, runs):
    record = measure.naive_record(truth, sampler, runs, 0.1)
    assert record.draws[-1] == runs[0].samples[A].nll.shape[2]
    assert list(record.draws) == sorted(set(record.draws))
    assert record.weighted[-1] == [truth.distances(runs[0].weighted)]
    assert len(record.draws) == len(record.naive) == len(record.weighted) > 1
    assert np.mean(record.weighted[-1]) < np.mean(record.weighted[0])
    curves = measure.error_curves(record, measure.biases(truth, 0.1))
    assert list(curves)[:3] == ["with weights", "without, T = 0.1", "bias, T = 0.01"]


def test_precision_and_recall_come_out_as_enumerated(found, sampler, z, runs):
    wide = (z[0], round(z[1] + 0.2, 2))
    rows = measure.oracle_records(found, sampler, runs[0], [z, wide])
    assert [tuple(row.z) for row in rows] == [z] * 4 + [wide] * 4
    for row in rows:
        assert row.precision == pytest.approx(row.exact_precision, abs=0.02)
        assert row.recall == pytest.approx(row.exact_recall, abs=0.1)


def test_the_wider_range_ends_where_half_of_the_inputs_are_valid(found, z):
    """The models are not trained, so that validity is made up: valid is what A finds likely, and later nothing is."""
    low, high = measure.half_valid(found, z)
    assert (low, high) == z  # a thirtieth of all inputs is valid, wherever one looks
    cut = np.quantile(found.nll(A)[found.nll(A) >= z[0]], 0.4)  # half of four fifths, which end beyond Z
    label = Joint.of(*(found.nll(k) for k in (0, 1)), found.nll(A) < cut)
    low, high = measure.half_valid(SimpleNamespace(joint=lambda *_: label), z)
    inside = (found.nll(A) >= z[0]) & (found.nll(A) < high)
    assert np.mean(found.nll(A)[inside] < cut) == pytest.approx(0.5, abs=0.02)


def test_three_models_through_a_reference(found, z, runs):
    first, second = measure.through_reference(found, z, runs)
    assert (first.pair, second.pair) == ("B through A", "C through A")
    a, c = found.nll(A), found.nll(C)
    both = [(x >= z[0]) & (x <= z[1]) for x in (a, c)]
    counts = [
        (both[0] & (a < c)).sum(),
        (both[0] & (a > c)).sum(),
        (both[1] & (a < c)).sum(),
        (both[1] & (a > c)).sum(),
    ]
    np.testing.assert_allclose(second.exact, np.array(counts) / both[0].sum(), rtol=1e-3)
    np.testing.assert_allclose(second.runs[0], second.exact, rtol=0.3)


def test_the_normalisation_undoes_uneven_draws_and_totals_do_not(truth):
    record = measure.normalisation(truth, seed=0)
    assert record.example == [3, 2, 3, 3]
    np.testing.assert_allclose(record.sampled, record.exact, rtol=0.1)
    assert abs(np.array(record.unnormalised) / record.exact - 1).max() > 0.5


def test_records_are_read_as_they_were_kept(truth, runs, sampler):
    blind = replace(sampler, moves=measure.BLIND).one_run(truth, 600, seed=0)
    assert len(blind.total_variation) == 2
    record = measure.sampling_record(truth, runs, measure_repeats(truth), blind, seed=0)
    again = SamplingRecord.read(record.plain())
    assert again == record
    assert again.coverage == [1, 1, 1, 1]
    spoilt = replace(record, repeats=[replace(record.repeats[0], low=[2.0] * 4), *record.repeats])
    assert spoilt.coverage == [2 / 3] * 4


def measure_repeats(truth):
    """Two short runs whose intervals hold everything."""
    exact = truth.compared.ratio().value.tolist()
    return [measure.RunRecord(exact, [0.0] * 4, [99.0] * 4)] * 2


def test_the_finding_is_of_the_numbers():
    naive = NaiveRecord([50, 200], [[[0.2, 0.4]]] * 2, [[[0.1, 0.2]], [[0.05, 0.1]]], 0.1)
    said = measure.naive_finding(naive, [BiasRecord(0.1, 0.25, 0.35), BiasRecord(1.0, 0.0, 0.0)], (1.0, 1.1))
    tenfold = "1,250 at $T = 0.1$"  # a tenth of 0.3 is 0.4 of 0.075: 200 draws over its square
    for number in ("bias is 0.3000", "came out 0.3000", "0.0750 off with", "4.0 times", "a factor of 2.7", tenfold):
        assert number in said
