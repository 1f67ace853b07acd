"""A limit of memory is kept: the largest resident size of a process that runs a study, as the system reports it.

The features of all models together would pass the tighter limit; the wider one has room for them.
"""

import json
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from provlab.engine.memory import LIBRARIES, Allowance

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says it so")

WIDTH, HIDDEN, MODELS = 4096, 256, 12
STUDY = """
import json, sys
from provlab.reading.counting import counting
from provlab.statistics.options import Options
from provlab.engine import memory
from provlab.engine.pairs import open_models, run_pairs

def resident(what):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(what)]
    return 1024 * int(line.split()[1])

more, names, sources = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
options = Options(text="a b c " * 9999, n_permutations=3, n_block_permutations=3, n_sequences=2, sequence_length=8)
opened = open_models(sources)
run_pairs(open_models(sources[:2]), names, options, progress=False)  # now all libraries are there
most, libraries, memory.LIBRARIES = resident("VmHWM"), resident("VmRSS"), 0
open("/proc/self/clear_refs", "w").write("5")  # from here on the largest size is measured again
limit = libraries + more
with counting() as count:
    records = run_pairs(opened, names, options, progress=False, memory=limit)
values = [record.outcome.value for record in records if not record.error]
assert not [record.error for record in records if record.error]
more = resident("VmHWM") - libraries
print(json.dumps({"libraries": most, "more": more, "read": count.tensors, "values": values}))
"""


def study(more, names, sources):
    """Run a study in a process of its own that may take `more` bytes beyond the libraries."""
    command = [sys.executable, "-c", STUDY, str(more), names, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def large(new_model, tmp_path_factory):
    """Models of one block with a wide stream and few hidden units: large up projections, and quick to match."""
    root = tmp_path_factory.mktemp("large")
    shape = {"hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": 1, "head_dim": 8, "vocab_size": 16}
    for seed in range(MODELS):
        new_model(seed, **shape).save_pretrained(root / str(seed))
    return [str(root / str(seed)) for seed in range(MODELS)]


@pytest.mark.slow
def test_the_limit_is_kept_and_changes_no_number(large):
    up, features = 4 * WIDTH * HIDDEN, 8 * WIDTH * HIDDEN
    little, much = 14 * up, 60 * up  # about one projection a model, and five
    tight, wide = study(little, "phi_u", large), study(much, "phi_u", large)
    assert tight["more"] <= little
    assert tight["read"] > MODELS * up  # what is not held is read again
    assert wide["more"] <= much
    assert wide["read"] == MODELS * up
    assert wide["more"] > little  # so the tight limit was one
    assert wide["more"] > (MODELS - 3) * features
    assert tight["values"] == wide["values"]


@pytest.mark.slow
def test_tensors_held_for_several_statistics_keep_the_limit(large):
    """phi_u reads a third of what phi_l2 reads: where there is room, nothing is read twice."""
    few, up = large[:5], 4 * WIDTH * HIDDEN
    tight, wide = (study(more, "phi_u,phi_l2", few) for more in (25 * up, 120 * up))
    assert tight["more"] <= 25 * up
    assert wide["more"] <= 120 * up
    assert 3 * up * len(few) < wide["read"] < 4 * up * len(few) < tight["read"]  # MLPs, and small attention
    assert tight["values"] == wide["values"]


@pytest.mark.slow
def test_what_the_libraries_take(models):
    """A process that did a little of everything, with models of next to nothing."""
    names = "phi_u,phi_h,phi_l2,phi_jsd,phi_match"
    libraries = study(4 * 10**9, names, list(models.values())[:2])["libraries"]
    assert LIBRARIES / 2 < libraries <= LIBRARIES


def test_no_thread_but_the_main_one_traces():
    """`tracemalloc.stop` in a thread ended the process while another thread was in a compiled kernel."""
    peaks = []

    def work():
        with (there := Allowance(0)).first_comparison():
            assert not tracemalloc.is_tracing()
            np.ones(1000)
        peaks.append(there.working)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with (here := Allowance(0)).first_comparison():
        np.ones(1000)
    assert peaks == [0]
    assert here.working >= 8000
