"""Hashes of the code that trains: a model of the zoo is addressed by them (`provlab.codehash` says what counts)."""

from pathlib import Path

from provlab.codehash import source_digest


def module_digests(*stems: str) -> dict[str, str]:
    """`source_digest` of modules of this package, by file stem."""
    here = Path(__file__).parent
    return {stem: source_digest((here / f"{stem}.py").read_text(encoding="utf-8")) for stem in stems}
