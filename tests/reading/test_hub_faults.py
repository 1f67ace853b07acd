"""The hub's faults, played by a local server: each gives one line, with the remedy."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import tiny_models
import torch
from hub_server import COMMIT, Repo

from provlab.errors import CheckpointError
from provlab.files import cache_dir
from provlab.reading import asking, hub
from provlab.reading.checkpoint import Checkpoint

PAGE = b"<!DOCTYPE html><html>Please log in</html>"
NAME = "lm_head.weight"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Wait for nothing, not even for a server that does not answer."""
    monkeypatch.setattr(asking, "_WAITS", (0.0, 0.0))


def same_tensor(folder):
    """Whether the hub's copy of a folder gives what is in it."""
    return torch.equal(Checkpoint.open("org/name").tensor(NAME), Checkpoint.open(folder).tensor(NAME))


def names_alone(server):
    """List files by their names alone, as some mirrors do."""

    def trouble(request, path):
        if not _is("api")(path):
            return False
        files = [{"rfilename": path.name} for path in server.repos["org/name"].folder.iterdir()]
        server.send(request, 200, json.dumps({"sha": COMMIT, "siblings": files}).encode(), {})
        return True

    return trouble


def _is(kind):
    """Tell the requests that are meant: ``"api"``, or files."""
    return lambda path: path.startswith("/api/") if kind == "api" else "/resolve/" in path and path.endswith(kind)


def answers(kind, status, content=b"", **headers):
    """Answer requests of a kind with this."""
    fields = {key.replace("_", "-"): value for key, value in headers.items()}

    def make(server):
        def trouble(request, path):
            if not _is(kind)(path):
                return False
            server.send(request, status, content if isinstance(content, bytes) else content.encode(), fields)
            return True

        return trouble

    return make


def store(statuses):
    """Send large files from elsewhere, as the hub does; that store answers with these statuses, and then well."""

    def make(server):
        left = list(statuses)

        def trouble(request, path):
            if path.startswith("/store/"):
                if left:
                    server.send(request, left.pop(0), b"<Error>AccessDenied</Error>", {})
                else:
                    server._file(request, server.repos["org/name"], COMMIT, "model.safetensors", body=True)
                return True
            if _is("model.safetensors")(path):
                server.send(request, 302, b"", {"Location": f"{server.endpoint}/store{path}?signed"})
                return True
            return False

        return trouble

    return make


def cut(kind, after, *, times=10**9, claims=None, wait=None):
    """Send so many bytes of a file, and then nothing: close the connection, or keep it open for `wait` to be set."""

    def make(server):
        left = iter(range(times))

        def trouble(request, path):
            if not _is(kind)(path) or next(left, None) is None:
                return False
            repo = next(iter(server.repos.values()))
            content = (repo.folder / path.rpartition("/")[2]).read_bytes()
            first = int((request.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
            request.send_response(206 if first else 200)
            if first:
                request.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            request.send_header("Content-Length", str(len(content) - first if claims is None else claims))
            request.end_headers()
            request.wfile.write(content[first : first + after])
            request.wfile.flush()
            if wait:
                wait.wait(10)
            request.close_connection = True
            return True

        return trouble

    return make


def hangs_up(server):
    """Close the connection without a word."""

    def trouble(request, path):
        request.close_connection = True
        return True

    return trouble


def gated_later(server):
    """Ask for a licence once the files are listed."""

    def trouble(request, path):
        if "/resolve/" not in path:
            return False
        server.send(request, 401, b"", {"X-Error-Code": "GatedRepo"})
        return True

    return trouble


FILE = "org/name: model.safetensors"
TABLE = {
    "a login page for the listing": (
        answers("api", 200, PAGE, Content_Type="text/html; charset=utf-8"),
        r"org/name is no folder here, .*a web page answers: a login of this network, or a proxy.* not in the cache"
        r".*; log in with a browser, or set HTTPS_PROXY, and try again, or give a local folder",
    ),
    "no JSON for the listing": (answers("api", 200, b"hello"), "a web page answers"),
    "deep JSON for the listing": (answers("api", 200, b"[" * 10**6), "a web page answers"),
    "another JSON for the listing": (answers("api", 200, b"[7]"), "answers, but not as a hub does; check HF_ENDPOINT"),
    "a listing of nonsense": (
        answers("api", 200, json.dumps({"sha": COMMIT, "siblings": [7, {"rfilename": "..", "size": "x"}]}).encode()),
        "org/name has no config.json",
    ),
    "a login page for a file": (
        answers("model.safetensors", 200, PAGE, Content_Type="text/html"),
        FILE + r" is not in the cache .* cannot be fetched \(in place of .* a web page answers.*; log in with",
    ),
    "a store that refuses": (
        store([403] * 9),
        FILE + r" .*the store that the hub sends to refuses \(403\), also at a new address\); see whether",
    ),
    "a commit that vanished": (
        answers("config.json", 404, X_Error_Code="RevisionNotFound"),
        "org/name: config.json: commit 0123456789ab has vanished from the hub since it was listed; open the",
    ),
    "a repository that vanished": (
        answers("config.json", 404, X_Error_Code="RepoNotFound"),
        "commit 0123456789ab has vanished .*, or set HF_TOKEN if it is private now",
    ),
    "a file that vanished": (
        answers("model.safetensors", 404, X_Error_Code="EntryNotFound"),
        FILE + " has vanished from the hub since it was listed; open the model again",
    ),
    "a mirror that lacks it": (answers("model.safetensors", 404), FILE + " has vanished from the hub"),
    "a shorter file": (
        cut("model.safetensors", 50, claims=50),
        FILE + r" arrived damaged \(50 bytes instead of [0-9]+\)",
    ),
    "a longer file": (
        cut("model.safetensors", 50, claims=10**6),
        FILE + r" arrived damaged \(1000000 bytes instead of",
    ),
    "a cut": (
        cut("model.safetensors", 50),
        FILE + r" .*the connection to http.* was cut: .*; try again; what came is kept",
    ),
    "a hang-up": (hangs_up, r"org/name is no folder here, .*the connection to http.* was cut"),
    "busy": (answers("model.safetensors", 503), FILE + r" .*it answers 503\); try again later"),
    "busy for long": (
        answers("model.safetensors", 429, Retry_After="900"),
        FILE + r" .*it answers 429 and asks to wait 900 s\); try again later",
    ),
    "too many requests, in the hub's words": (
        answers("model.safetensors", 429, RateLimit='"api";r=0;t=255'),
        FILE + " .*it answers 429 and asks to wait 255 s",
    ),
    "gated since": (gated_later, "org/name: config.json is gated: accept its licence on http.* and set HF_TOKEN"),
    "a token of the past": (
        answers("api", 401, X_Error_Message="Invalid credentials in Authorization header"),
        r"org/name: the hub refuses the token in HF_TOKEN \(401\); make a new one, or unset it",
    ),
    "no access": (
        answers("api", 403),
        r"org/name: the hub refuses access \(403\); accept the licence and set HF_TOKEN",
    ),
    "a config without end": (
        answers("api", 200, json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "config.json", "size": 2**40}]})),
        "org/name: config.json has 1099511627776 bytes, as no such file has; it is not fetched",
    ),
    "another status": (answers("api", 418), r"it answers 418\).*; check HF_ENDPOINT"),
}


@pytest.mark.parametrize(("trouble", "message"), TABLE.values(), ids=TABLE)
def test_one_line(trouble, message, serve, llama):
    server = serve(org__name=Repo(llama))
    server.trouble = trouble(server)
    with pytest.raises(CheckpointError, match=message) as refusal:
        Checkpoint.open("org/name").tensor(NAME)
    text = str(refusal.value)
    assert "\n" not in text
    assert len(text) < 500
    server.trouble = None  # nothing wrong is left behind
    assert same_tensor(llama)


PASSING = {
    "an address that is out of date": store([403]),
    "a store that is fine": store([]),
    "a cut": cut("model.safetensors", 500, times=2),
    "a mirror that lists no sizes": names_alone,
}


@pytest.mark.parametrize("in_part", [False, True])
@pytest.mark.parametrize("trouble", PASSING.values(), ids=PASSING)
def test_what_passes_is_not_noticed(trouble, in_part, serve, llama, request):
    if in_part:
        request.getfixturevalue("large")
    server = serve(org__name=Repo(llama))
    server.trouble = trouble(server)
    assert same_tensor(llama)


@pytest.mark.parametrize("kind", ["api", "config.json", "model.safetensors"])
@pytest.mark.parametrize("large_files", [False, True])
def test_a_busy_hub_is_asked_again_whatever_is_asked(kind, large_files, serve, llama, request, monkeypatch):
    """Listing, whole files and pieces: after as long as the server says, as a number, a date, or in its own words."""
    if large_files:
        request.getfixturevalue("large")
    waited = []
    monkeypatch.setattr(asking.time, "sleep", waited.append)
    server = serve(org__name=Repo(llama))
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    busy = [(429, {"Retry-After": date}), (429, {"RateLimit": '"api";r=0;t=11'})]

    def trouble(call, path):
        if not _is(kind)(path) or not busy:
            return False
        status, headers = busy.pop(0)
        server.send(call, status, b"", headers)
        return True

    server.trouble = trouble
    monkeypatch.setattr(hub, "_AT_ONCE", 1)
    assert same_tensor(llama)
    assert 25 < waited[0] <= 30
    assert waited[1:] == [11]


@pytest.mark.parametrize(("status", "content"), [(200, PAGE), (503, b"")])
def test_the_cache_serves_behind_a_login_page_and_while_the_hub_is_in_trouble(status, content, serve, llama):
    server = serve(org__name=Repo(llama))
    Checkpoint.open("org/name").folder()
    server.trouble = lambda request, _: server.send(request, status, content, {"Content-Type": "text/html"}) or True
    assert same_tensor(llama)
    with pytest.raises(CheckpointError, match="not in the cache"):
        Checkpoint.open("org/other")


def drips(server):
    """Send bytes, but so slowly that the end is hours away."""

    def trouble(request, path):
        if not _is("model.safetensors")(path):
            return False
        content = (server.repos["org/name"].folder / "model.safetensors").read_bytes()
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        for byte in content[:100]:
            request.wfile.write(bytes([byte]))
            threading.Event().wait(0.05)
        return True

    return trouble


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (drips, r"\([0-9]+ bytes came in 0 s\); try again on a better line; what came is"),
        (cut("model.safetensors", 10, wait=threading.Event()), r"no answer in time\); try again; what came is kept"),
    ],
)
def test_a_drip_and_silence_have_a_deadline(trouble, message, serve, llama, monkeypatch):
    monkeypatch.setattr(asking, "SECONDS", 0.2)
    server = serve(org__name=Repo(llama))
    server.trouble = trouble(server)
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.open("org/name").tensor(NAME)


def test_a_name_that_nobody_knows(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    with pytest.raises(CheckpointError, match=r"no connection to http://hub.invalid.*; connect, or give a local"):
        Checkpoint.open("org/name")


@pytest.mark.parametrize("large_files", [False, True])
def test_what_came_is_not_fetched_again(large_files, serve, llama, request, monkeypatch):
    """A whole file, in one piece or in many, whose connection was cut: the next call asks for the rest alone."""
    monkeypatch.setattr(asking, "_WAITS", ())
    monkeypatch.setattr(hub, "_AT_ONCE", 1)
    size = (llama / "model.safetensors").stat().st_size
    if large_files:
        request.getfixturevalue("large")
        monkeypatch.setattr(hub, "_SMALL", 10**6)
    server = serve(org__name=Repo(llama))
    checkpoint = Checkpoint.open("org/name")
    server.trouble = cut("model.safetensors", 700)(server)
    good, bad = iter(range(2 * large_files)), server.trouble  # two pieces come well
    server.trouble = lambda *call: _is("model.safetensors")(call[1]) and next(good, None) is None and bad(*call)
    with pytest.raises(CheckpointError, match="try again; what came is kept"):
        checkpoint.folder()
    server.trouble = None
    server.log.clear()
    folder = Checkpoint.open("org/name").folder()
    first = min(int(span.removeprefix("bytes=").split("-")[0]) for *_, span in server.log if span)
    assert first == (2700 if large_files else 700)
    assert (folder / "model.safetensors").stat().st_size == size
    assert not any(span is None for _, path, span in server.log if path.endswith("safetensors"))
    assert not list((cache_dir() / "hub" / "org--name" / COMMIT).glob("model.safetensors"))


@pytest.mark.parametrize("in_part", [False, True])
def test_no_token_is_sent_to_another_host(in_part, serve, llama, request, monkeypatch):
    """Large files come from a store elsewhere, to which the hub sends."""
    if in_part:
        request.getfixturevalue("large")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    elsewhere, server = serve(org__name=Repo(llama)), serve(org__name=Repo(llama))
    tokens = {"hub": set(), "elsewhere": set()}

    def send_away(call, path):
        tokens["hub"].add(call.headers.get("Authorization"))
        if _is("model.safetensors")(path):
            server.send(call, 302, b"", {"Location": f"{elsewhere.endpoint}{path}?signed"})
            return True
        return False

    server.trouble = send_away
    elsewhere.trouble = lambda call, path: tokens["elsewhere"].add(call.headers.get("Authorization"))
    assert same_tensor(llama)
    assert tokens == {"hub": {"Bearer hf_secret"}, "elsewhere": {None}}


def test_a_dead_server_is_not_asked_for_every_piece(serve, llama, large):
    server = serve(org__name=Repo(llama))
    checkpoint = Checkpoint.open("org/name")
    assert checkpoint.shape(NAME)
    server.log.clear()
    server.broken = True
    with pytest.raises(CheckpointError, match="it answers 503"):
        checkpoint.tensor("model.layers.0.mlp.up_proj.weight")
    assert len(server.log) <= 3 * (hub._AT_ONCE + 1)


def test_ranges_that_are_not_those_asked_for(serve, llama, large):
    """A proxy that knows ranges, but sends another one: the whole file is fetched, and compared with its hash."""
    server = serve(org__name=Repo(llama))

    def trouble(request, path):
        if not _is("model.safetensors")(path) or not request.headers.get("Range"):
            return False
        content = (llama / "model.safetensors").read_bytes()
        server.send(request, 206, content[:1000], {"Content-Range": f"bytes 0-999/{len(content)}"})
        return True

    server.trouble = trouble
    assert same_tensor(llama)


def _snapshot(server, llama):
    Checkpoint.open("org/name").folder()
    return hub.hub_cache() / "models--org--name" / "snapshots" / COMMIT


def test_links_to_blobs_that_are_gone(serve, llama, monkeypatch):
    """Fetched again where the hub can be asked; named where it cannot."""
    server = serve(org__name=Repo(llama))
    snapshot = _snapshot(server, llama)
    (snapshot / "model.safetensors").resolve().unlink()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CheckpointError, match=r"safetensors is not in the cache .*\(HF_HUB_OFFLINE is set\); conn"):
        Checkpoint.open("org/name").tensor(NAME)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert same_tensor(llama)
    assert (snapshot / "model.safetensors").is_file()


@pytest.mark.parametrize("left", [("config.json",), ()])
def test_a_cache_that_others_began(left, serve, llama, monkeypatch):
    """Some files of a snapshot, and nothing known of the others."""
    server = serve(org__name=Repo(llama))
    snapshot = _snapshot(server, llama)
    for path in snapshot.iterdir():
        if path.name not in left:
            path.unlink()
    hub._listing_path("org/name", "model", "", COMMIT).unlink()
    server.stop()
    with pytest.raises(CheckpointError) as refusal:
        Checkpoint.open("org/name").tensor(NAME)
    assert f"holds only {left[0] if left else 'an empty folder'}, and the hub cannot be asked" in str(refusal.value)
    assert str(refusal.value).endswith("; connect")


def test_no_room_to_keep_anything(serve, llama, monkeypatch, tmp_path):
    """A refusal of the disk is not blamed on the network."""
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "taken"))
    serve(org__name=Repo(llama))
    with pytest.raises(CheckpointError, match=r"config.json cannot be kept in .*taken.*; make room, or set HF_H"):
        Checkpoint.open("org/name")


def test_two_at_once_fetch_a_file_once(serve, llama):
    server = serve(org__name=Repo(llama))
    checkpoints = [Checkpoint.open("org/name") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(Checkpoint.folder, checkpoints))
    assert server.fetched().count("model.safetensors") == 1
    assert os.path.islink(checkpoints[0].folder() / "model.safetensors")
    assert checkpoints[0].shape(NAME)[1] == tiny_models.WIDTH
