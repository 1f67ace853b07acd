"""The page that answers by a link: parts of two models from a hub, after one press, with the numbers of Python."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import check_axe
import numpy as np
import pytest
import tiny_models
import torch
from hub_server import HubServer, Repo
from safetensors.torch import load_file, save_file
from test_tester import ASSETS, PAGE, block, element, until

import provlab
from provlab_study.matching_and_pvalues import in_browser

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SETTLED = "!provlab.tester.busy && (provlab.tester.result || document.querySelector('.fault').textContent)"


def varied(base, folder, k):
    """A model whose MLPs have so much noise, in one of three dtypes, every fourth in two files with an index."""
    shutil.copytree(base, folder)
    path = folder / "model.safetensors"
    generator = torch.Generator().manual_seed(k)
    share, dtype = min(1.0, 0.08 * k), DTYPES[k % len(DTYPES)]
    tensors = load_file(path)
    for name, values in tensors.items():
        if ".mlp." in name:
            noise = torch.randn(values.shape, generator=generator) * values.float().std()
            values = (1 - share) * values.float() + share * noise
        tensors[name] = values.to(dtype).contiguous()
    if k % 4 != 3:
        save_file(tensors, path, metadata={"format": "pt"})
        return folder
    path.unlink()
    in_sorted_order = sorted(tensors)
    table = {}
    for at in range(2):  # neighbours fall apart, so that gate and up of one block lie in two files
        file = f"model-{at + 1:05}-of-00002.safetensors"
        names = in_sorted_order[at::2]
        save_file({name: tensors[name] for name in names}, folder / file, metadata={"format": "pt"})
        table |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": table}))
    return folder


@pytest.fixture(scope="module")
def here(tmp_path_factory, models):
    """Chromium, the page, and a local hub with models to ask for."""
    if (program := check_axe.installed()) is None:
        pytest.skip("no Chromium on this machine")
    root = tmp_path_factory.mktemp("link")
    data = f'<script type="application/json" id="provlab-tester-data">{json.dumps(in_browser.constants())}</script>'
    blocks = element("base", **block(1)) + element("other", **block(3))
    style, script = (ASSETS / "provlab.css").read_text(encoding="utf-8"), (ASSETS / "tester.js").as_uri()
    page = root / "index.html"
    page.write_text(PAGE.format(style=style, blocks=data + blocks, script=script), encoding="utf-8")
    repos = {"org/base": Repo(Path(models["base"])), "org/tuned": Repo(Path(models["tuned"]))}
    repos |= {f"org/m{k}": Repo(varied(models["base"], root / f"m{k}", k)) for k in range(20)}
    repos["org/gated"] = Repo(Path(models["base"]), gated=True)
    repos["org/whole"] = Repo(Path(models["base"]), ignores_range=True)
    bare = root / "bare"
    shutil.copytree(models["base"], bare)
    (bare / "model.safetensors").rename(bare / "pytorch_model.bin")
    repos["org/bare"] = Repo(bare)
    cut = root / "cut"
    shutil.copytree(models["base"], cut)
    content = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(content[: len(content) // 4])
    repos["org/cut"] = Repo(cut)
    narrow = tiny_models.copy(Path(models["base"]), root / "narrow")
    tiny_models.rewrite(
        narrow, lambda t: t.update({k: v[:, :9].clone() for k, v in t.items() if "up_proj" in k or "gate_proj" in k})
    )
    repos["org/narrow"] = Repo(narrow)
    with check_axe.browser(program) as chromium, HubServer(repos) as server:
        yield SimpleNamespace(page=page, chromium=chromium, server=server, visits=0)


def opened(here, link=""):
    """Open the page at a link, which asks for nothing."""
    here.server.log.clear()
    here.server.cors, here.server.shows_length, here.server.trouble = True, True, None
    here.visits += 1  # another address than the last one's, so that the page is loaded again
    address = f"{here.page.as_uri()}?{here.visits}{link}"
    page = SimpleNamespace(resolve=lambda: SimpleNamespace(as_uri=lambda: address), name=here.page.name)
    here.chromium.open(page)
    here.chromium.value(f"provlab.tester.endpoint = '{here.server.endpoint}'; provlab.tester.ready.then(() => true)")


def pressed(here):
    """Press the button, and return what the page shows when it is done."""
    press = "t.root.querySelector('form button').click(); return true"
    here.chromium.value(f"(() => {{ const t = provlab.tester; t.result = null; {press} }})()")
    return until(here.chromium, SETTLED)


def fault(here):
    return here.chromium.value("document.querySelector('#provlab-tester .fault').textContent")


def test_a_link_asks_for_nothing_until_the_button_is_pressed(here):
    opened(here, "#a=org/base&b=org/tuned&block=1")
    assert here.chromium.value("provlab.tester.root.innerText").count("Nothing has been asked yet") == 1
    assert here.chromium.value("[...document.querySelectorAll('form input')].map(one => one.value)") == [
        "org/base", "org/tuned", "1",
    ]  # fmt: skip
    here.chromium.value("new Promise(done => setTimeout(() => done(true), 300))")
    assert here.chromium.requests() == []
    assert here.server.log == []
    text = pressed(here)
    assert "hidden units of org/tuned stand in the order of org/base: by chance once in 10^" in text
    assert "A common ancestor makes this" in text
    gets = [(path, span) for method, path, span in here.server.log if method == "GET"]
    assert all(span for path, span in gets if path.endswith(".safetensors"))
    assert not [path for path, _ in gets if "token" in path]
    assert here.chromium.value("location.hash") == "#a=org/base&b=org/tuned&block=1"
    assert here.chromium.value("!provlab.tester.copy.hidden && provlab.tester.copy.textContent") == "Copy link"
    assert here.chromium.value("document.querySelectorAll('#provlab-tester figure svg').length") == 2


@pytest.mark.parametrize("k", range(20))
def test_the_numbers_are_those_of_python(here, k):
    which = k % 3
    opened(here, f"#a=org/base&b=org/m{k}&block={which}")
    here.server.shows_length = k % 2 == 0
    text = pressed(here)
    assert fault(here) == "", text
    folders = [here.server.repos[name].folder for name in ("org/base", f"org/m{k}")]
    (record,) = provlab.compare(*map(str, folders), statistics=["phi_u"], blocks=[which], progress=False).records
    there = here.chromium.value("(({log10_p, rho, agree}) => ({log10_p, rho, agree}))(provlab.tester.result.in_order)")
    (result,) = record.outcome.blocks
    assert there["log10_p"] == pytest.approx(result.log10_p, abs=1e-6)
    assert there["rho"] == pytest.approx(result.value, abs=1e-9)
    if k == 0:
        assert "All 48 hidden units of org/m0 stand in the order of org/base" in text


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("https://huggingface.co/org/base", "org/base"),
        (" https://huggingface.co/org/base/tree/main?show_file_info=x ", "org/base@main"),
        ("org/base/", "org/base"),
    ],
)
def test_the_address_of_a_model_is_read_as_its_name(here, typed, asked):
    opened(here)
    fields = f"const {{a, b}} = provlab.tester.form; a.value = {typed!r}; b.value = 'org/m0'; return true"
    here.chromium.value(f"(() => {{ {fields} }})()")
    pressed(here)
    assert fault(here) == ""
    assert here.chromium.value("provlab.tester.form.a.value") == asked


def no_listing(request, path):
    return path.startswith("/api/") and here_send(request, 500)


def here_send(request, status):
    request.send_response(status)
    request.send_header("Content-Length", "0")
    request.send_header("Access-Control-Allow-Origin", "*")
    request.end_headers()
    return True


REFUSED = {
    "org/nothing": ("org/nothing is not on the hub", {}),
    "org/gated": ("org/gated is not there, or is gated or private: this page has no token", {}),
    "org/whole": ("the server sends whole files only", {}),
    "org/bare": ("org/bare holds no safetensors", {}),
    "org/cut": ("org/cut", {}),
    "org/narrow": ("rows can be compared over the same inputs only", {}),
    "org/m0": ("does not let web pages read it", {"cors": False}),
    "org/m1": ("the hub answered 500; press again later", {"trouble": no_listing}),
}


@pytest.mark.parametrize("model", REFUSED)
def test_what_cannot_be_read_gets_one_line_and_the_command_to_run_instead(here, model):
    message, settings = REFUSED[model]
    opened(here, f"#a=org/base&b={model}&block=0")
    for name, value in settings.items():
        setattr(here.server, name, value)
    pressed(here)
    line = fault(here)
    assert message in line
    assert line.endswith(f"Run instead: provlab compare org/base {model} --statistic phi_u --blocks 0")
    assert here.chromium.value("provlab.tester.root.querySelectorAll('table').length") == 0


@pytest.mark.parametrize(
    ("a", "number", "message"),
    [
        ("<b>x</b>", "0", "<b>x</b> is no name of the hub"),
        ("..%2F..%2Fapi", "0", "../../api is no name of the hub"),
        ("https://elsewhere.org/a", "0", "is no name of the hub"),
        ("org/base", "-1", "Blocks are counted from 0."),
        ("org/base", "all", "Blocks are counted from 0."),
        ("org/base", "1e400", "Blocks are counted from 0."),
        ("org/base", "1e9", "org/base has no block 1000000000; blocks are counted from 0"),
        ("-o/base", "0", "-o/base is no name of the hub"),
        ("./base", "0", "./base is no name of the hub"),
        ("org/base@main%20x", "0", "org/base@main x is no name of the hub"),
        ("<img%20src%3Dx%20onerror%3Dalert(1)>", "0", "onerror=alert(1)> is no name of the hub"),
        ("org/base", "7", "org/base has no block 7; blocks are counted from 0, and its last is 2."),
        ("org/m3", "7", "org/m3 has no block 7"),
    ],
)
def test_a_link_that_names_nothing_is_refused(here, a, number, message):
    opened(here, f"#a={a}&b={a}&block={number}")
    pressed(here)
    assert message in fault(here)
    assert here.chromium.value("document.querySelectorAll('#provlab-tester :is(b, img)').length") == 0
    hosts = {url.split("/")[2] for url in here.chromium.requests()}
    assert hosts <= {here.server.endpoint.split("/")[2]}


UP, GATE = (f"model.layers.0.mlp.{role}_proj.weight" for role in ("up", "gate"))


def hostile(folder, change=lambda header: None, length=None, prefix="", values=None):
    """A model of one block of 48 units whose header was tampered with."""
    rows = np.random.default_rng(0).normal(size=(48, 16)).astype(np.float32) if values is None else values
    n = rows.nbytes
    header = {
        prefix + name: {"dtype": "F32", "shape": [48, 16], "data_offsets": [k * n, (k + 1) * n]}
        for k, name in enumerate((UP, GATE))
    }
    change(header)
    text = json.dumps(header).encode()
    start = (len(text) if length is None else length).to_bytes(8, "little")
    (folder / "model.safetensors").write_bytes(start + text + 2 * rows.tobytes())
    return Repo(folder)


def with_nan():
    rows = np.ones((48, 16), np.float32)
    rows[5, 3] = np.nan
    return rows


HOSTILE = {
    "a type of JavaScript's own": ({"change": lambda h: h[UP].update(dtype="constructor")}, "is stored as constructor"),
    "a type that is none": ({"change": lambda h: h[UP].update(dtype={"a": 1})}, "is stored as"),
    "a shape of words": ({"change": lambda h: h[UP].update(shape=["48", "16"])}, "does not fill its place"),
    "a place before the file": ({"change": lambda h: h[UP].update(data_offsets=[-3072, 0])}, "does not fill its place"),
    "a place without an end": ({"change": lambda h: h[UP].update(data_offsets=[0])}, "does not fill its place"),
    "a shape beyond all files": (
        {"change": lambda h: h[UP].update(shape=[2**40, 2**12], data_offsets=[0, 2**54])},
        "does not fill its place",
    ),
    "a header of 2^63 bytes": ({"length": 2**63}, "does not begin with the length of a header"),
    "no number": ({"values": with_nan()}, "holds a value that is not finite, in unit 6"),
    "an entry that is null": ({"change": lambda h: h.update({UP: None})}, "holds no up projection"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_file_that_was_tampered_with_gets_one_line(here, tmp_path, how):
    settings, message = HOSTILE[how]
    here.server.repos["org/hostile"] = hostile(tmp_path, **settings)
    opened(here, "#a=org/hostile&b=org/hostile&block=0")
    pressed(here)
    assert message in fault(here)
    assert "TypeError" not in fault(here)


def test_names_in_a_file_are_text_and_no_page(here, tmp_path):
    here.server.repos["org/names"] = hostile(tmp_path, prefix="<img src=x onerror='window.hacked = true'>.")
    opened(here, "#a=org/names&b=org/names&block=0")
    assert "All 48 hidden units" in pressed(here), fault(here)
    assert here.chromium.value("document.querySelectorAll('#provlab-tester img').length") == 0
    assert here.chromium.value("window.hacked") is None


def test_an_index_that_points_elsewhere_is_followed_nowhere(here, tmp_path):
    hostile(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "model-1-of-2.safetensors")
    shutil.copy(tmp_path / "model-1-of-2.safetensors", tmp_path / "model-2-of-2.safetensors")
    elsewhere = {UP: "https://elsewhere.org/x.safetensors", GATE: "../../org/base/resolve/main/model.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": elsewhere}))
    here.server.repos["org/hostile"] = Repo(tmp_path)
    opened(here, "#a=org/hostile&b=org/hostile&block=0")
    pressed(here)
    assert "org/hostile has no block 0" in fault(here)
    assert {url.split("/")[2] for url in here.chromium.requests()} == {here.server.endpoint.split("/")[2]}
    assert not [path for _, path, _ in here.server.log if path.endswith(".safetensors")]


def test_a_hub_that_answers_nothing_gets_one_line(here):
    def nothing(request, path):
        if not path.startswith("/api/"):
            return False
        request.send_response(200)
        request.send_header("Content-Length", "4")
        request.send_header("Access-Control-Allow-Origin", "*")
        request.end_headers()
        request.wfile.write(b"null")
        return True

    opened(here, "#a=org/base&b=org/m0&block=0")
    here.server.trouble = nothing
    pressed(here)
    assert "org/base holds no safetensors" in fault(here)


def test_another_link_takes_the_place_of_what_is_still_being_asked(here):
    opened(here, "#a=org/base&b=org/tuned&block=1")
    press = "t.root.querySelector('form button').click(); location.hash = '#a=org/m1&b=org/m2&block=0'"
    here.chromium.value(f"(() => {{ const t = provlab.tester; t.result = null; {press}; return true }})()")
    here.chromium.value("new Promise(done => setTimeout(() => done(true), 1500))")
    assert "Nothing has been asked yet" in here.chromium.value("provlab.tester.verdict.textContent")
    assert here.chromium.value("location.hash") == "#a=org/m1&b=org/m2&block=0"
    assert here.chromium.value("provlab.tester.result") is None


def test_a_model_beside_itself_is_said_to_be_one(here):
    opened(here, "#a=org/base&b=org/base&block=0")
    assert "a model beside itself is no copy" in pressed(here)
    opened(here, "#a=org/base&b=org/tuned&block=0")
    assert "beside itself" not in pressed(here)


def test_a_large_block_is_asked_for_in_part(here, tmp_path):
    rows = np.random.default_rng(0).normal(size=(4000, 2048)).astype(np.float16)
    tensors = {f"model.layers.0.mlp.{role}_proj.weight": torch.from_numpy(rows) for role in ("up", "gate")}
    tensors = {name: values.clone() for name, values in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    here.server.repos["org/large"] = Repo(tmp_path)
    opened(here, "#a=org/large&b=org/large&block=0")
    assert "All 724 hidden units" in pressed(here)
    # bytes are counted once: a busy browser may ask again for the rest of a part that it holds in its cache
    spans = [span for method, path, span in here.server.log if method == "GET" and path.endswith(".safetensors")]
    assert spans
    assert all(spans)
    requests = np.zeros((tmp_path / "model.safetensors").stat().st_size, bool)
    for span in spans:
        first, last = map(int, span.removeprefix("bytes=").split("-"))
        requests[first : last + 1] = True
    assert requests.sum() < 2 * 724 * 2048 * 2 + 400_000  # of a file of 33 MB


def test_a_file_dropped_beside_the_boxes_leaves_the_page(here):
    opened(here)
    dropped = "(() => { const e = new DragEvent('drop', {cancelable: true, bubbles: true});"
    assert here.chromium.value(f"{dropped} document.body.dispatchEvent(e); return e.defaultPrevented; }})()")


def test_the_form_reads_on_a_phone_in_the_dark_and_by_keys(here):
    opened(here, "#a=org/base&b=org/m3&block=0")
    pressed(here)
    here.chromium.screen(check_axe.PHONE)
    assert not here.chromium.value(check_axe.SIDEWAYS)
    here.chromium.value(check_axe.AXE.read_text(encoding="utf-8"))
    here.chromium.value(f"{check_axe.STILL}; {check_axe.THEME % 'dark'}")
    assert here.chromium.value(check_axe.RUN % check_axe.PHONE_RULES) == []
    here.chromium.value(check_axe.THEME % "light")
    here.chromium.screen(check_axe.DESKTOP)
    assert here.chromium.value(check_axe.RUN % check_axe.ALL) == []
