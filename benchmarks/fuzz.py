"""Spoilt checkpoints at every door: only our own error class, two seconds, 512 MB, no code run.

``python benchmarks/fuzz.py [FORMAT,...|all] [N] [FIRST SEED]`` spoils a tiny checkpoint of each format N times
(20,000), always alike, and prints what was opened, refused and wrong: every ten seconds, and each fault as it is found,
with the seed of its first case. 400 of all formats take about three CPU minutes.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

EVERY = 10.0  # seconds between two lines


def main(names: str = "all", n: str = "20000", first: str = "0") -> None:
    """Print the table."""
    import mutations
    from transformers.utils import logging

    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable_progress_bar()
    for name in mutations.FORMATS if names == "all" else names.split(","):
        seeds = range(int(first), int(first) + int(n))
        began = shown = time.monotonic()
        known: set[str] = set()
        with tempfile.TemporaryDirectory() as folder:
            for done, tried in enumerate(mutations.attempts(name, seeds, Path(folder)), 1):
                for wrong in tried.faults.keys() - known:
                    print(f"  {name}: {wrong}  (seed {tried.seeds[wrong]})", flush=True)
                known.update(tried.faults)
                if time.monotonic() - shown > EVERY or done == len(seeds):
                    shown = time.monotonic()
                    print(f"{name}: {done} of {len(seeds)} files, {tried}, {shown - began:.0f} s", flush=True)
        for wrong, count in tried.faults.most_common():
            print(f"  {count:6d}  {wrong}  (seed {tried.seeds[wrong]})", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
