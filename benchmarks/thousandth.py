"""Cost of a verdict on models on the hub: requests, bytes and seconds, by a server that takes 0.9 s to answer.

``python benchmarks/thousandth.py`` serves a pair in the shape of Llama-2-7b, the second a noisy copy of the first in
the units that are compared and holes elsewhere (the files take no room), and prints

- the bytes that phi_U needs of one model and those that were sent for them (config, table of shards and headers
  included), for one block and for all, of one file and of three shards;
- what ``compare --blocks 0 --units 1024 --statistic phi_u`` of the pair takes by the clock, imports included, and what
  it says.
"""

import hashlib
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
DELAY = 0.9  # seconds before each answer
UNITS, BLOCK = 1024, 0
SMALL = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8, "vocab_size": 2000}


def write(folder: Path, config: dict[str, Any], shards: int, seed: int) -> None:
    """Write a checkpoint of holes but for the first units of one block; seed 1 is seed 0 with noise."""
    from provlab.planning.skeleton import Skeleton

    shapes = Skeleton("served", config).shapes
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    names = [list(part) for part in np.array_split(list(shapes), shards)]
    files = [f"model-{i:05d}-of-{shards:05d}.safetensors" for i in range(1, shards + 1)]
    files = files if shards > 1 else ["model.safetensors"]
    if shards > 1:
        weight_map = {str(name): file for file, held in zip(files, names, strict=True) for name in held}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for file, held in zip(files, names, strict=True):
        header, end = {}, 0
        for name in held:
            start, end = end, end + 2 * math.prod(shapes[name])
            header[name] = {"dtype": "BF16", "shape": list(shapes[name]), "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        with (folder / file).open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            if (up := f"model.layers.{BLOCK}.mlp.up_proj.weight") in header:
                stream.seek(8 + len(text) + header[up]["data_offsets"][0])
                rows = [
                    np.random.default_rng(i).standard_normal((UNITS, shapes[up][1]), dtype=np.float32)
                    for i in range(seed + 1)
                ]
                stream.write((sum(rows).view(np.uint32) >> 16).astype(np.uint16).tobytes())
            stream.truncate(8 + len(text) + end)


@contextmanager
def served(delay: float, **folders: Path) -> Iterator[Any]:
    """Serve folders as ``org/NAME`` to this process and its children; ``.bytes`` counts what was sent."""
    from hub_server import COMMIT, HubServer, Repo

    server = HubServer({f"org/{name}": Repo(folder) for name, folder in folders.items()})
    server.bytes = 0

    def answer(request: Any, path: str) -> bool:
        """Answer what would read whole files of many gigabytes."""
        if not path.startswith(("/api/models/org/", "/org/")):
            return False
        time.sleep(delay)
        name = path.split("/")[4 if path.startswith("/api/") else 2]
        folder = folders[name]
        if path.startswith("/api/"):
            siblings = [{"rfilename": file.name, "size": file.stat().st_size} for file in sorted(folder.iterdir())]
            for entry in siblings:  # the whole file is never fetched, so that this is compared with nothing
                if entry["rfilename"].endswith(".safetensors"):
                    entry["lfs"] = {"sha256": hashlib.sha256(f"{name} {entry}".encode()).hexdigest()}
            content = json.dumps({"id": f"org/{name}", "sha": COMMIT, "siblings": siblings}).encode()
            server.send(request, 200, content, {})
            return True
        file = folder / path.rpartition("/")[2]
        span = request.headers.get("Range")
        first, last = map(int, span.removeprefix("bytes=").split("-")) if span else (0, file.stat().st_size - 1)
        content = np.fromfile(file, np.uint8, last - first + 1, offset=first).tobytes()
        headers = {"X-Repo-Commit": COMMIT}
        if span:
            headers["Content-Range"] = f"bytes {first}-{last}/{file.stat().st_size}"
        server.bytes += len(content)
        server.send(request, 206 if span else 200, content, headers)
        return True

    server.trouble = answer
    with server, tempfile.TemporaryDirectory() as scratch:
        own = {"HF_ENDPOINT": server.endpoint, "HF_HOME": f"{scratch}/hf", "PROVLAB_CACHE": f"{scratch}/cache"}
        old = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            yield server
        finally:
            for name, value in old.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def fetched(config: dict[str, Any], label: str) -> None:
    """Print bytes needed and sent for one model, their ratio, and requests."""
    from provlab.statistics import get
    from provlab.statistics.base import Model, Options, tensor_bytes

    with tempfile.TemporaryDirectory() as scratch:
        for shards in (1, 3):
            folder = Path(scratch) / f"{shards}"
            write(folder, config, shards, 0)
            for n_blocks in (1, config["num_hidden_layers"]):
                with served(0.0, a=folder) as server:
                    model, needed = Model.open("org/a"), 0
                    for block in range(n_blocks):
                        tensors = get("phi_u").tensors(model, model, block, Options())
                        needed += sum(tensor_bytes(model, name, rows) for name, rows in tensors.items())
                        model.anatomy.read(model.checkpoint, "up", block)
                    what = f"{label}, {shards} file(s), {n_blocks} block(s)"
                    sent, requests = server.bytes, len(server.log)
                    print(f"{what:<46}{needed:>14,}{sent:>14,}{sent / needed:>9.4f}{requests:>6} requests")


def decided(config: dict[str, Any]) -> None:
    """Print what the verdict on a pair takes by the clock."""
    program = "from provlab.cli import main; raise SystemExit(main())"
    command = [
        sys.executable,
        "-c",
        program,
        "compare",
        "org/a",
        "org/b",
        "--units",
        str(UNITS),
        "--blocks",
        str(BLOCK),
        "--statistic",
        "phi_u",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch) / name for name in "ab"}
        for seed, folder in enumerate(folders.values()):
            write(folder, config, 3, seed)
        whole = sum(file.stat().st_size for folder in folders.values() for file in folder.iterdir())
        with served(DELAY, **folders) as server:
            began = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - began
            print(done.stdout, done.stderr)
            work = resource.getrusage(resource.RUSAGE_CHILDREN)
            print(
                f"{seconds:.1f} s (of the processor {work.ru_utime + work.ru_stime:.1f}) at {DELAY} s a request, "
                f"{len(server.log)} requests, {server.bytes:,} of {whole:,} bytes ({server.bytes / whole:.4%})"
            )


if __name__ == "__main__":
    from provlab.planning.shapes import shape

    llama = shape("llama-2-7b")
    small = llama | SMALL | {"num_attention_heads": 8, "num_key_value_heads": 8}
    decided(llama)
    fetched(small, "small")
    fetched(llama, "llama-2-7b")
