"""The check in a browser is itself checked: each fault it looks for is planted once. Skipped without a Chromium."""

import json
import os
import sys

import check_axe
import pytest

PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><title>A page</title>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<style>[data-theme="dark"] body {{ background: #111; color: #eee }}</style></head>
<body><main><h1>A page</h1><p>Words.</p>{}</main></body></html>"""
PROGRAM = check_axe.installed()


@pytest.fixture(scope="module")
def chromium():
    if PROGRAM is None:
        pytest.skip("no Chromium on this machine")
    with check_axe.browser(PROGRAM) as started:
        yield started


def faults(chromium, folder, body):
    page = folder / "index.html"
    page.write_text(PAGE.format(body), encoding="utf-8")
    return check_axe.check_page(page, chromium, check_axe.AXE.read_text(encoding="utf-8"))


def test_a_sound_page_passes(tmp_path, chromium):
    boxed = '<div style="overflow-x: auto" tabindex="0"><p style="width: 900px">wide, in its own box</p></div>'
    assert faults(chromium, tmp_path, f'<img alt="a tree" src="data:,"/><h2>On</h2>{boxed}') == []


def test_each_fault_is_found(tmp_path, chromium):
    planted = {
        "image-alt": '<img src="data:,"/>',
        "color-contrast:": '<p style="color: #999">pale</p>',
        "color-contrast on a phone, in the dark": '<p style="color: #333">dark on dark</p>',
        "heading-order": "<h3>one too deep</h3>",
        "button-name": "<button></button>",
        "scrollable-region-focusable on a phone": f'<pre style="overflow-x: auto" tabindex="-1">{"wide " * 200}</pre>',
        "scrolls sideways on a phone, 9": '<p style="width: 900px">wide</p>',
        "cuts a formula on a phone, in wide: e = mc": (
            '<p id="wide" style="overflow: hidden"><mjx-container>e = mc'
            '<svg aria-hidden="true" width="900" height="9"/></mjx-container></p>'
        ),
        "a first reading of 2": (
            '<div style="height: 20000px"></div><section id="for-the-record"><h2>For the record</h2></section>'
        ),
        "a script of it stops: ReferenceError: gone is not defined": "<script>gone()</script>",
        "asks for https://example.invalid/x.png": '<img alt="x" src="https://example.invalid/x.png"/>',
    }
    chapters = tmp_path / "experiments"
    chapters.mkdir()
    lines = faults(chromium, chapters, "".join(planted.values()))
    assert [fault for fault in planted if not any(line.startswith(fault) for line in lines)] == []


def test_a_page_to_look_things_up_in_may_be_long(tmp_path, chromium):
    long = '<div style="height: 20000px"></div><section id="for-the-record"><h2>For the record</h2></section>'
    assert faults(chromium, tmp_path, long) == []


def test_without_a_browser_it_says_so_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check_axe, "installed", lambda: None)
    monkeypatch.setattr(sys, "argv", ["check_axe.py", str(tmp_path)])
    assert check_axe.main() == 0
    assert "apt-get install chromium" in capsys.readouterr().out


def test_a_browser_that_does_not_start_is_no_fault_of_the_book(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check_axe, "installed", lambda: "/bin/false")
    monkeypatch.setattr(sys, "argv", ["check_axe.py", str(tmp_path)])
    assert check_axe.main() == 0
    assert "/bin/false does not work here" in capsys.readouterr().out


def test_a_folder_without_a_page_is_no_book(tmp_path, chromium, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["check_axe.py", str(tmp_path)])
    assert check_axe.main() == 1
    assert "holds no page" in capsys.readouterr().err


def test_the_end_of_an_earlier_load_is_not_taken_for_the_page_s(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[check_axe.Browser.__module__], "PATIENCE", 0.3)
    (read, says), (letterbox, asks) = os.pipe(), os.pipe()

    def say(*messages):
        os.write(says, b"".join(json.dumps(message).encode() + b"\0" for message in messages))

    def lifecycle(name, load):
        return {"method": "Page.lifecycleEvent", "params": {"name": name, "loaderId": load, "frameId": "page"}}

    say({"id": 1, "result": {"targetId": "page"}}, {"id": 2, "result": {"sessionId": "one"}})
    say(*({"id": n, "result": {}} for n in (3, 4, 5, 6)))
    chromium = check_axe.Browser(asks, read)
    say(lifecycle("init", "old"), {"id": 7, "result": {"loaderId": "new", "frameId": "page"}})
    say({"method": "Page.loadEventFired", "params": {}}, lifecycle("load", "old"))
    with pytest.raises(OSError, match="it said nothing"):
        chromium.open(tmp_path)
    assert b"Runtime.evaluate" not in os.read(letterbox, 1 << 16)  # the script of a page that is not there yet
    say({"id": 8, "result": {"loaderId": "newest", "frameId": "page"}})
    say(lifecycle("init", "newest"), lifecycle("load", "newest"))
    say({"id": 9, "result": {"result": {"value": True}}})
    chromium.open(tmp_path)
    assert b"Runtime.evaluate" in os.read(letterbox, 1 << 16)
    for end in (read, says, letterbox, asks):
        os.close(end)


def test_a_page_that_sends_us_to_another_is_opened_there(tmp_path, chromium):
    (tmp_path / "there.html").write_text("<!DOCTYPE html><title>there</title>", encoding="utf-8")
    sends = tmp_path / "index.html"
    sends.write_text("<!DOCTYPE html><script>location.replace('there.html')</script>", encoding="utf-8")
    chromium.open(sends)
    assert chromium.value("document.title") == "there"
