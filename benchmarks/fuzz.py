"""Spoilt checkpoints at every door: only our own error class, two seconds, 512 MB, no code run.

``python benchmarks/fuzz.py [FORMAT,...|all] [N] [FIRST SEED]`` spoils a tiny checkpoint of each format N times
(20,000), always alike, and prints what was opened, refused and wrong, with the seed of one case of each fault.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))


def main(names: str = "all", n: str = "20000", first: str = "0") -> None:
    """Print the table."""
    import mutations
    from transformers.utils import logging

    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable_progress_bar()
    for name in mutations.FORMATS if names == "all" else names.split(","):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            tried = mutations.fuzz(name, range(int(first), int(first) + int(n)), Path(folder))
        print(
            f"{name}: {tried.n} tries, {tried.opened} opened, {tried.refused} refused, {tried.faults.total()} wrong, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
        for wrong, count in tried.faults.most_common():
            print(f"  {count:6d}  {wrong}  (seed {tried.seeds[wrong]})", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
