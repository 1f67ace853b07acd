"""What a shell offers when the tab key is pressed: the words that may stand next, without anything slow."""

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from provlab.cli import COMMANDS, completion

BREAKS = " \t\n\"'><=;|&(:"  # what bash breaks words at
CASES = {
    "provlab ": [*COMMANDS, "--help", "--version"],
    "provlab com": ["compare"],
    "provlab zoo bu": ["build"],
    "provlab compare a b --stati": ["--statistic"],
    "provlab compare a b --statistic phi_u,phi_mat": ["phi_u,phi_match", "phi_u,phi_match_unsigned"],
    "provlab compare zo": ["zoo:"],
    "provlab compare zoo:oak-math": ["oak-math", "oak-math-chat"],  # bash puts the word before the colon back
    "provlab compare a b --fail-on rejected,by": ["rejected,by-order-alone"],
    "provlab disguise a b --with T1+spl": ["T1+split"],
    "provlab run llama_": ["llama_tree"],
    "provlab run exchangeability -p n_pa": ["n_pairs="],
    "provlab run llama_tree -p models=zoo:oak,zoo:oak-math-c": ["oak-math-chat"],
    "provlab run audit --profile sm": ["smoke"],
}


@pytest.mark.parametrize("line", CASES)
def test_the_words_that_may_stand_next(line, tmp_path):
    answers = tmp_path / "answers"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_COMP_WORDBREAKS": BREAKS,
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answers),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-c", "from provlab.cli import main; main()"]
    root = Path(__file__).parents[1]  # whose notebooks are offered
    subprocess.run(command, env={**os.environ, **asked}, cwd=root, check=True, timeout=60)
    found = [word.strip() for word in answers.read_text().split("\n")]
    assert sorted(found) == sorted(CASES[line])


def test_no_word_waits_for_torch():
    code = (
        "import sys; from argparse import Namespace; from provlab.cli import completion, disguise\n"
        "assert 'zoo:oak' in completion.models(Namespace(), 'zoo:o') and 'split' in disguise._attacks()\n"
        "assert 'phi_anchor' in completion.statistics()\n"
        "sys.exit(sorted({'torch', 'transformers', 'pandas', 'matplotlib'} & sys.modules.keys()) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_scheme_is_loaded_only_once_it_is_written(monkeypatch):
    monkeypatch.setattr("provlab.plugins.hook", lambda *_: pytest.fail("loaded"))
    assert completion.models(Namespace(), "") == completion.models(Namespace(), "zo")
