"""How long the page that tests takes in Chromium: ``python benchmarks/browser.py``.

Two independent blocks with gates: both matchings, both p-values, the noise, and the certificate of each assignment.
The first run of a width also draws the noise and computes the curve of Spearman's law. Seconds are CPU time of the
page's thread.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "book"))
from browser import Browser, browser, installed

from provlab_study.matching_and_pvalues import in_browser

SCRIPT = Path(__file__).parents[1] / "book" / "_assets" / "tester.js"
BENCH = """(() => {
  const { test, generator } = window.sums, random = generator(1);
  const values = () => Float64Array.from({ length: UNITS * WIDTH }, random.normal);
  const side = () => ({ values: values(), rows: UNITS, columns: WIDTH });
  const a = { up: side(), gate: side() }, b = { up: side(), gate: side() };
  window.again = () => test(a, b, { noise: 0.2, shuffle: true, seed: 1 }).seconds;
  return true;
})()"""


def cpu_seconds(chromium: Browser) -> float:
    """CPU time of the page's thread so far; a busy machine does not add to it."""
    metrics = chromium.ask("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime")


def main() -> None:
    """Print seconds a width."""
    program = installed()
    if program is None:
        sys.exit("no Chromium on this machine")
    with tempfile.TemporaryDirectory() as folder, browser(program) as chromium:
        page = Path(folder) / "page.html"
        page.write_text(f'<script src="{SCRIPT.as_uri()}"></script>', encoding="utf-8")
        chromium.open(page)
        chromium.value(f"window.sums = provlab.arithmetic({json.dumps(in_browser.constants())}); true")
        chromium.ask("Performance.enable")
        print("units  width  first  second  third, CPU seconds")
        for units, width in ((256, 64), (256, 256), (256, 4096), (1024, 256), (1024, 1024), (1024, 4096)):
            chromium.value(BENCH.replace("UNITS", str(units)).replace("WIDTH", str(width)))
            line = f"{units:5}  {width:5}"
            for _ in range(3):
                began = cpu_seconds(chromium)
                chromium.value("again()")
                line += f"  {cpu_seconds(chromium) - began:5.2f}"
            print(line)


if __name__ == "__main__":
    main()
