"""The page that tests: the same matchings and p-values as Python, one line for a bad file, and readable by all."""

import base64
import html
import json
import time

import check_axe
import numpy as np
import pytest
import safetensors.numpy

from provlab.inference import allowing, pvalues
from provlab.inference.matching import assign, match_shuffled
from provlab.inference.tail import log10_tail
from provlab_study.matching_and_pvalues import in_browser

ASSETS = check_axe.AXE.parents[3] / "book" / "_assets"
PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><title>Test two blocks here</title>
<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>
<style>:root {{ --pst-color-text-base: #222; --pst-color-text-muted: #48566b; --pst-color-link: #0f5ac8;
--pst-color-border: #8a8f98; --pst-color-surface: #f3f4f5 }} body {{ color: #222 }}
[data-theme="dark"] {{ --pst-color-text-base: #ced6dd; --pst-color-text-muted: #9ca4af; --pst-color-link: #7aaaf0;
--pst-color-border: #6c7581; --pst-color-surface: #29313d }}
[data-theme="dark"] body {{ background: #14181e; color: #ced6dd }}
{style}</style></head><body><main class="bd-article"><h1>Test two blocks here</h1><div id="provlab-tester"></div>
{blocks}<script src="{script}" defer></script></main></body></html>"""
SHAPES = [(8, 8, 4), (24, 24, 16), (12, 40, 8), (40, 12, 8), (64, 64, 64), (256, 256, 64), (200, 256, 32)]


def element(title, **tensors):
    text = base64.b64encode(safetensors.numpy.save(tensors)).decode()
    return f'<script type="text/plain" class="provlab-block" data-title="{html.escape(title)}">{text}</script>'


def block(seed, units=24, width=16, gate=True, like=None, noise=0.3):
    """A gate and an up projection, drawn apart or as a noisy copy of another's."""
    rng = np.random.default_rng(seed)
    roles = ["up", "gate"][: 1 + gate]
    fresh = {f"model.layers.0.mlp.{role}_proj.weight": rng.normal(size=(units, width)) for role in roles}
    copy = {name: like[name] + noise * rows for name, rows in fresh.items()} if like else fresh
    return {name: rows.astype(np.float32) for name, rows in copy.items()}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Chromium, with the page open: a base, its noisy copy, and a block from elsewhere."""
    if (program := check_axe.installed()) is None:
        pytest.skip("no Chromium on this machine")
    base = block(1)
    blocks = [element("base", **base), element("copy", **block(2, like=base)), element("other", **block(3))]
    data = f'<script type="application/json" id="provlab-tester-data">{json.dumps(in_browser.constants())}</script>'
    path = tmp_path_factory.mktemp("page") / "index.html"
    style = (ASSETS / "provlab.css").read_text(encoding="utf-8")
    script = (ASSETS / "tester.js").as_uri()
    path.write_text(PAGE.format(style=style, blocks=data + "".join(blocks), script=script), encoding="utf-8")
    with check_axe.browser(program) as chromium:
        chromium.path = path
        chromium.open(path)
        chromium.value(
            "window.sums = provlab.arithmetic(JSON.parse(document.getElementById('provlab-tester-data').textContent));"
            "window.matrix = (rows) => ({values: Float64Array.from(rows.flat()), rows: rows.length,"
            "  columns: rows[0].length}); true"
        )
        yield chromium


def until(page, condition, of="document.getElementById('provlab-tester')"):
    """Wait for the worker: what the page shows once a condition in its script holds."""
    began = time.monotonic()
    while not page.value(f"Boolean({condition})"):
        assert time.monotonic() - began < 60, condition
        time.sleep(0.02)
    return page.value(f"{of}.innerText")


def cases():
    """Fifty pairs of matrices: independent, and copies with more and more noise; equal and unequal widths."""
    rng = np.random.default_rng(7)
    for k in range(50):
        h1, h2, d = SHAPES[k % len(SHAPES)]
        a, b = (rng.normal(size=(h, d)).astype(np.float32) for h in (h1, h2))
        share = min(h1, h2)
        b[:share] = b[:share] * (0.2 * (k % 9)) + a[:share] if k % 3 else b[:share]
        yield a.astype(float), b.astype(float)


def test_fifty_matchings_and_p_values_are_those_of_python(page):
    gaps = []
    for k, (a, b) in enumerate(cases()):
        script = f"(() => {{const m = sums.match(matrix({a.tolist()}), matrix({b.tolist()}), sums.generator({k}));"
        there = page.value(
            f"{script} return {{...sums.spearman(m.partners, m.partners.map((_, i) => i)), "
            "partners: [...m.partners], gap: m.gap};})()"
        )
        here = match_shuffled(a, b, seed=k).indices
        assert there["partners"] == here.tolist(), k
        assert there["gap"] < 1e-12 * len(here)
        result = pvalues.spearman(here)
        assert there["rho"] == pytest.approx(result.rho, abs=1e-12)
        gaps.append(abs(there["log10_p"] - result.log10_p))
    assert max(gaps) < 1e-6


@pytest.mark.parametrize("bids", [0, 0.1, 32])
def test_bids_and_paths_find_the_best_assignment(page, bids):
    rng = np.random.default_rng(11)
    for n, m, digits in ((1, 1, 9), (1, 5, 9), (6, 6, 9), (40, 40, 9), (30, 70, 9), (60, 60, 1), (25, 60, 1)):
        C = np.round(rng.normal(size=(n, m)), digits)
        there = page.value(
            f"(() => {{const r = sums.assign(Float64Array.from({C.ravel().tolist()}), {n}, {m}, {bids});"
            "return {...r, partners: [...r.partners]};})()"
        )
        assert len(set(there["partners"])) == n
        assert there["objective"] == pytest.approx(assign(C).objective, abs=1e-9)
        assert abs(there["gap"]) < 1e-9


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11, 14, 30, 47, 48, 100, 256, 1024, 4096])
def test_the_law_is_that_of_python_at_every_depth(page, n):
    largest = (n**3 - n) // 3
    distance = np.unique(np.append(np.geomspace(1, largest + 1, 60).astype(np.int64) - 1, largest) // 2 * 2)
    there = page.value(f"{distance.tolist()}.map(d => sums.log10Tail(d, {n}))")
    assert np.abs(np.array(there) - pvalues.log10_p_spearman(distance, n)).max() < 1e-6
    assert page.value(f"sums.allowance({n})") == allowing.allowance(n)


def test_the_check_of_the_law_sees_a_wrong_constant(page):
    wrong = "(() => {const t = JSON.parse(document.getElementById('provlab-tester-data').textContent);"
    there = page.value(
        f"{wrong} t.wide.carried[1][0] *= 1.01; return provlab.arithmetic(t).log10Tail(1000000, 256)}})()"
    )
    assert abs(there - log10_tail(1000000, 256)) > 1e-6


def test_the_allowance_leaves_out_what_python_does(page):
    rng = np.random.default_rng(3)
    for agreeing in (0, 2, 30, 60):
        a = rng.permutation(64)
        b = a.copy()
        b[agreeing:] = rng.permutation(b[agreeing:])
        if agreeing == 2:
            b[[0, 1]] = b[[1, 0]]  # a swapped pair
        there = page.value(f"sums.allowing({a.tolist()}, {b.tolist()}, 5, sums.generator(2))")
        common = min(5, int((a == b).sum()))
        assert sum(a[i] == b[i] for i in there["which"]) == (a == b).sum() - common
        assert all(a[i] != b[j] or a[j] != b[i] for i in there["which"] for j in there["which"] if i != j)
        assert there["log10_p"] == pytest.approx(pvalues.spearman(*map(np.array, there["labels"])).log10_p, abs=1e-6)


def choose(page, side, bytes_, name="theirs.safetensors"):
    """Give a side of the page a file, as dropping it does."""
    text = base64.b64encode(bytes_).decode()
    page.value(
        f"provlab.tester.choose('{side}', {{blob: new File([Uint8Array.from(atob('{text}'), c => c.charCodeAt(0))],"
        f" '{name}')}}).then(() => true)"
    )
    return until(page, "!provlab.tester.busy")


def restore(page):
    page.open(page.path)
    page.value("provlab.tester.ready.then(() => true)")


def test_a_reader_picks_blocks_disguises_and_drops_a_file(page):
    restore(page)
    assert "rejected at 0.01. φ_U" in until(page, "provlab.tester.result")
    until(page, "provlab.tester.result.in_order.agree === 24")
    page.value("(() => {provlab.tester.shuffle.click(); return true})()")
    text = until(page, "!provlab.tester.busy && provlab.tester.result.in_order.agree < 10")
    assert "rejected at 0.01. gate against up" in text
    page.value("(() => {provlab.tester.noise.value = 100; provlab.tester.start(); return true})()")
    assert "not rejected at 0.01" in until(page, "!provlab.tester.busy && provlab.tester.result.any_order.agree < 10")
    assert "100%" in page.value("provlab.tester.share.textContent")
    assert page.requests() == []
    restore(page)
    plain = safetensors.numpy.save({"h.0.mlp.c_fc.weight": block(1)["model.layers.0.mlp.up_proj.weight"].T.copy()})
    assert "it has no gate" in choose(page, "b", plain)
    assert page.value("provlab.tester.result.in_order.agree") == 24  # the base, stored across and without its gate


def test_16_bits_are_read_as_what_they_are(page):
    values = np.array([[1.5, -2.0, 6.1e-5, 65504.0], [0.1, 3e-7, -0.25, 1.0]], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    for dtype, raw, kept in (
        ("F16", values.astype(np.float16).tobytes(), values.astype(np.float16).astype(float)),
        ("BF16", bits.tobytes(), (bits.astype(np.uint32) << 16).view(np.float32).astype(float)),
    ):
        name = "layers.0.fc1.weight"
        header = json.dumps({name: {"dtype": dtype, "shape": [2, 4], "data_offsets": [0, 16]}}).encode()
        choose(page, "a", len(header).to_bytes(8, "little") + header + raw)
        assert page.value("[...provlab.tester.sides.a.up.values]") == kept.ravel().tolist()


def test_a_wide_block_takes_no_more_work_than_the_time_allows(page):
    restore(page)
    choose(page, "a", safetensors.numpy.save({"layers.0.fc1.weight": np.ones((1000, 1100), np.float16)}))
    assert "the first 987 of 1,000 hidden units" in page.value("provlab.tester.sides.a.what.textContent")


def bad(entry, data=b"\0" * 64, name="layers.0.mlp.up_proj.weight"):
    header = json.dumps({name: {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]} | entry}).encode()
    return len(header).to_bytes(8, "little") + header + data


BAD = {
    b"hello": "no safetensors file",
    (10**6).to_bytes(8, "little") + b"{}": "no safetensors file",
    (2).to_bytes(8, "little") + b"[]": "its header is no list of tensors",
    bad({}, name="lm_head.weight"): "no up projection",
    bad({"dtype": "I8"}): "is stored as I8",
    bad({"shape": [4, 5]}): "cut off or damaged",
    bad({}, data=b"\0" * 30): "cut off or damaged",
    bad({}): "all zeros",
    bad({}, data=np.full(16, np.nan, np.float32).tobytes()): "not finite",
    bad({}, data=np.ones(16, np.float32).tobytes()): "compared over the same inputs only",
}


@pytest.mark.parametrize("file", BAD, ids=list(BAD.values()))
def test_a_bad_file_gets_one_clear_line(page, file):
    restore(page)
    choose(page, "b", file, name="<b>theirs</b>")
    line = page.value("document.querySelector('#provlab-tester .fault').textContent")
    assert BAD[file] in line
    assert "\n" not in line
    assert page.value("document.querySelectorAll('#provlab-tester table, #provlab-tester b').length") == 0


def test_after_a_bad_file_the_reader_chooses_again(page):
    """The list does not name a block that is not held: one that it shows cannot be chosen."""
    restore(page)
    choose(page, "b", b"hello")
    assert page.value("provlab.tester.sides.b.zoo.value") == "file"
    page.value("(() => {const {zoo} = provlab.tester.sides.b; zoo.value = 1; return true})()")
    page.value("(() => {provlab.tester.sides.b.zoo.dispatchEvent(new Event('change')); return true})()")
    assert "rejected at 0.01" in until(page, "!provlab.tester.busy && document.querySelector('#provlab-tester table')")


def test_a_folder_that_is_dropped_is_named(page):
    """The browser's own words for it name no file."""
    restore(page)
    failing = "async () => {throw new DOMException('could not be processed', 'NotReadableError')}"
    folder = f"{{name: 'my-model', size: 4096, slice: () => ({{arrayBuffer: {failing}}})}}"
    page.value(f"provlab.tester.choose('b', {{blob: {folder}}}).then(() => true)")
    line = page.value("document.querySelector('#provlab-tester .fault').textContent")
    assert line.startswith("my-model cannot be read: it is a folder")


def test_two_files_in_one_box_are_not_taken_for_one(page):
    restore(page)
    page.value(
        "(() => {const data = new DataTransfer();"
        "for (const name of ['one', 'two']) data.items.add(new File(['x'], name));"
        "document.querySelectorAll('#provlab-tester fieldset')[1]"
        ".dispatchEvent(new DragEvent('drop', {dataTransfer: data, cancelable: true})); return true})()"
    )
    line = page.value("document.querySelector('#provlab-tester .fault').textContent")
    assert line == "2 files were dropped into one box; drop one file into each."


def test_the_page_reads_on_a_phone_in_the_dark_and_by_keys(page):
    assert check_axe.check_page(page.path, page, check_axe.AXE.read_text(encoding="utf-8")) == []
    until(page, "document.querySelector('#provlab-tester svg')")
    reached = "[...document.querySelectorAll('#provlab-tester input, #provlab-tester select')]"
    assert page.value(f"{reached}.filter(one => one.offsetParent).every(one => one.labels.length && one.tabIndex >= 0)")


def test_a_question_answers_when_a_choice_is_pressed(page, tmp_path):
    choices = [
        ("", "The outputs stay: The gate row must move along."),
        ("checked", "They change: Each has another row."),
    ]
    items = "".join(
        f'<li class="task-list-item"><input type="checkbox" disabled {mark}> {text}</li>' for mark, text in choices
    )
    script = (ASSETS / "provlab.js").as_uri()
    body = f'<div class="provlab-question"><ul>{items}</ul></div><script src="{script}"></script>'
    (tmp_path / "index.html").write_text(f"<!DOCTYPE html><meta charset='utf-8'><body>{body}", encoding="utf-8")
    page.open(tmp_path / "index.html")
    answers = "[...document.querySelectorAll('button')].map(one => (one.click(),"
    answers += " document.querySelector('[role=status]').textContent))"
    assert page.value(answers) == ["Not so. The gate row must move along.", "Right. Each has another row."]
    assert "Each has another row" not in page.value("document.querySelector('.choices').textContent")


def test_a_long_table_folds_and_opens(page, tmp_path):
    rows = "<tr><td>1</td></tr>"
    tables = [f"<table><caption>How many</caption><tbody>{n * rows}</tbody></table>" for n in (15, 16)]
    script = f'<script src="{(ASSETS / "provlab.js").as_uri()}"></script>'
    body = f'<!DOCTYPE html><meta charset="utf-8"><body><div class="cell_output">{"".join(tables)}</div>{script}'
    (tmp_path / "index.html").write_text(body, encoding="utf-8")
    page.open(tmp_path / "index.html")
    assert page.value("[...document.querySelectorAll('details')].map(one => one.innerText)") == ["How many (16 rows)"]
    page.value("dispatchEvent(new Event('beforeprint'))")
    assert page.value("document.querySelector('details').open")


def test_the_search_leaves_out_words_that_ask_and_puts_lists_last(page, tmp_path):
    """With the names that Sphinx's own scripts define behind ours, and read once the page is there."""
    sphinx = "var Scorer = {}, stopwords = ['the'];"
    script = f'<script src="{(ASSETS / "provlab.js").as_uri()}"></script><script>{sphinx}</script>'
    (tmp_path / "index.html").write_text(f"<!DOCTYPE html><meta charset='utf-8'><body>{script}", encoding="utf-8")
    page.open(tmp_path / "index.html")
    scored = "['experiments/miqu', 'course/session_01', 'references'].map(one => Scorer.score([one, '', '', null, 5]))"
    chapter, course, last = page.value(scored)
    assert 5 == chapter > course > last > 2  # what matches the beginning of a word alone comes behind all
    assert page.value("['the', 'how', 'tokens'].map(word => stopwords.includes(word))") == [True, True, False]


ROWS = (
    "[...document.querySelectorAll('.provlab-rows')].filter(one => one.offsetParent).map(one => one.innerText).join()"
)


def test_the_rows_of_a_heatmap_are_named_on_a_phone(page, tmp_path):
    pairs = ("elm and oak", "fir and oak", "fir and elm")
    spots = "".join(f'<path d="M{k},0"><title>{pair}: not compared</title></path>' for k, pair in enumerate(pairs))
    figure = f'<figure class="provlab-figure"><label></label><svg class="provlab-spots">{spots}</svg></figure>'
    meta = '<!DOCTYPE html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    style = f"<style>{(ASSETS / 'provlab.css').read_text(encoding='utf-8')}</style>"
    script = f'<script src="{(ASSETS / "provlab.js").as_uri()}"></script>'
    (tmp_path / "index.html").write_text(f"{meta}{style}<body>{figure}{script}", encoding="utf-8")
    shown = []
    for width in (1280, 390):
        page.screen((width, 800))
        page.open(tmp_path / "index.html")
        shown.append(page.value("getComputedStyle(document.querySelector('.provlab-rows')).display"))
    assert shown == ["none", "block"]
    rows = page.value("document.querySelector('.provlab-rows').textContent")
    assert rows == "Rows from above, columns from the left: oak, elm, fir."
    page.screen((1280, 800))


def test_a_tall_picture_shows_its_beginning_until_it_is_asked_for(page, tmp_path):
    images = ""
    for width, height in ((200, 280), (200, 320)):
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"></svg>'
        image = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
        images += f'<figure class="provlab-figure"><label><img src="{image}" alt="a table"></label></figure>'
    script = f'<script src="{(ASSETS / "provlab.js").as_uri()}"></script>'
    (tmp_path / "index.html").write_text(f'<!DOCTYPE html><meta charset="utf-8">{images}{script}', encoding="utf-8")
    page.open(tmp_path / "index.html")
    clipped = "[...document.querySelectorAll('label')].map(one => one.className)"
    assert until(page, "document.querySelector('button')", of="document.body") == "Show the whole picture"
    assert page.value(clipped) == ["", "clipped"]
    page.value("document.querySelector('button').click()")
    assert page.value(clipped) == ["", ""]


def test_the_script_is_small():
    assert (ASSETS / "tester.js").stat().st_size + len(json.dumps(in_browser.constants())) < 100_000
