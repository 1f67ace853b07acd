"""A shell offers the words that may stand next when the tab key is pressed, without anything slow."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provlab.cli import COMMANDS, sources

ROOT = Path(__file__).parents[1]  # whose notebooks are offered
CASES = {
    "provlab ": [*COMMANDS],
    "provlab --v": ["--version"],
    "provlab com": ["compare"],
    "provlab zoo bu": ["build"],
    "provlab compare a b --stati": ["--statistic"],
    "provlab compare a b --statistic phi_u,phi_mat": [
        "phi_u,phi_match",
        "phi_u,phi_match_all",
        "phi_u,phi_match_unsigned",
    ],
    "provlab compare zoo:oak-math": ["oak-math", "oak-math-chat"],  # bash puts the word before the colon back
    "provlab compare a b --statistic=phi_anch": ["phi_anchor"],
    "provlab compare a b --fail-on rejected,by": ["rejected,by-order-alone"],
    "provlab disguise a b --with T1+spl": ["T1+split"],
    "provlab run llama_": ["llama_tree"],
    "provlab run exchangeability -p n_pa": ["n_pairs="],
    "provlab run llama_tree -p models=zoo:oak,zoo:oak-math-c": ["oak-math-chat"],
    "provlab run audit --profile sm": ["smoke"],
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize("line", CASES)
def test_the_words_that_may_stand_next(line):
    """By bash itself, with the function that it is given; it parts words at colons and signs of equality."""
    words = [part for word in line.split(" ") for part in re.split("([:=])", word)]
    script = f"""
        eval "$(_PROVLAB_COMPLETE=bash_source provlab)"
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1} COMPREPLY=()
        compopt() {{ :; }}  # of a shell that waits for a key alone
        _provlab_completion provlab
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=path, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == sorted(CASES[line])


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_asked_by_clicks_own(shell):
    variables = {
        **os.environ,
        "_PROVLAB_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "provlab compare",
        "COMP_CWORD": "1",
    }
    if shell == "fish":
        variables |= {"COMP_WORDS": "provlab comp", "COMP_CWORD": "comp"}
    command = [Path(sys.executable).with_name("provlab")]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=60)
    assert "compare" in done.stdout


def test_no_word_waits_for_torch():
    code = (
        "import sys; from provlab import statistics\n"
        "from provlab.attacks import command; from provlab.cli import sources\n"
        "assert 'zoo:oak' in sources.names('zoo:o') and 'split' in command.attacks()\n"
        "assert 'phi_anchor' in statistics.REGISTRY\n"
        "sys.exit(sorted({'torch', 'transformers', 'pandas', 'matplotlib'} & sys.modules.keys()) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_scheme_is_loaded_only_once_it_is_begun(monkeypatch):
    monkeypatch.setattr("provlab.plugins.hook", lambda scheme, _: pytest.fail("loaded") if scheme == "zoo" else None)
    assert "zoo:" in sources.names("")
    assert sources.names("dis") == ["disguised:"]
