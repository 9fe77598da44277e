"""Called by test-html.sh with the paths of bmoe and of Chromium."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BMOE, CHROMIUM = sys.argv[1:3]
REPOSITORY = Path(__file__).resolve().parent.parent
PUBLISHED = REPOSITORY.parent / "shared/data/published/2026-07-15-route/qwen.route.csv"
# A page of 128 tokens and 48 layers is ready in less.
READY_MS = 2000
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1360,1500",
]  # fmt: skip

failures = []


def check(holds, what):
    if not holds:
        failures.append(what)
        print(f"test-html: FAILED: {what}")


def chromium(scratch, page, *flags):
    """Its standard output, with a profile of its own for each start."""
    with tempfile.TemporaryDirectory(dir=scratch) as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout


def probed(scratch, page, *flags):
    """What html_probe.js found in a copy of the page."""
    probe = (REPOSITORY / "scripts/html_probe.js").read_text()
    copy = scratch / f"{page.parent.name}-probe.html"
    copy.write_text(page.read_text().replace("</body>", f"<script>\n{probe}</script>\n</body>"))
    dom = chromium(scratch, copy, "--dump-dom", *flags)
    found = re.search(r'id="probe">(.*?)</script>', dom, re.S)
    if not found:
        sys.exit(f"test-html: {page.parent.name}: the page was not worked through; it ends with\n{dom[-2000:]}")
    return json.loads(found[1])


def synthetic(path):
    """A trace of the size of the published one, without weights."""
    numbers = random.Random(1979)
    with path.open("w") as out:
        for token in range(128):
            layers = [sorted(numbers.sample(range(128), 8)) for _ in range(48)]
            out.write(json.dumps({"tok": token, "layers": layers}) + "\n")


def routes_page(scratch):
    """The report of an imported trace of 128 tokens and 48 layers."""
    trace = PUBLISHED
    if not trace.is_file():
        trace = scratch / "synthetic.jsonl"
        synthetic(trace)
    folder = scratch / "routes"
    subprocess.run([BMOE, "import", trace, "--out", folder], check=True, capture_output=True)
    subprocess.run([BMOE, "report", folder], check=True, capture_output=True)
    return folder / "report.html"


def results_page(scratch):
    """The report of the quickstart's results."""
    folder = scratch / "results"
    shutil.copytree(REPOSITORY / "results/quickstart", folder)
    subprocess.run([BMOE, "report", folder], check=True, capture_output=True)
    return folder / "report.html"


def number(text):
    return float(re.match(r"[-+]?[\d.]+", text.replace("−", "-"))[0])


def look(name, found, page):
    check("error" not in found, f"{name}: {found.get('error')}")
    if "error" in found:
        return
    print(
        f"test-html: {name}: {page.stat().st_size / 1024:.0f} KiB, drawn after {found['ready_ms']:.0f} ms"
    )
    check(found["ready_ms"] < READY_MS, f"{name}: ready in {READY_MS} ms")
    check(found["drawn"]["colours"] > 2 and found["drawn"]["largest"] < 0.95, f"{name}: drawn: {found['drawn']}")
    check(found["loaded"] == [], f"{name}: it loads {found['loaded']}")
    check(found["hover_shown"] and found["hover_hidden"], f"{name}: the tip comes and goes")
    check(found["hover"][1:5] == ["expert", "weight", "residency", "bytes read"], f"{name}: {found['hover']}")
    check(re.fullmatch(r"position \d+ \(generated\), layer \d+", found["hover"][0]), f"{name}: {found['hover'][0]}")
    check(" × 2 layers" in found["two_layers"], f"{name}: {found['two_layers']}")
    check(found["two_layers_drawn"] != found["drawn"], f"{name}: a filter draws something else")
    check(found["bad_layers"][0] == "true" and "expected layers" in found["bad_layers"][1], f"{name}: bad layers")
    check(found["keyboard"] and found["keyboard"].startswith("position"), f"{name}: keys move: {found['keyboard']}")


def main():
    scratch = Path(tempfile.mkdtemp(prefix="bmoe-html-"))
    try:
        routes, results = routes_page(scratch), results_page(scratch)
        found = probed(scratch, routes)
        look("128 tokens × 48 layers", found, routes)
        check("128 tokens × 48 layers" in found.get("decode", ""), f"size: {found.get('decode')}")

        found = probed(scratch, results)
        look("results/quickstart", found, results)
        check(found["runs"] == 7, f"{found['runs']} runs to choose from; expected 7")
        check(found["pictures"] >= 8, f"{found['pictures']} pictures; expected a heatmap and 7 timelines")
        hover = found["last_run_hover"]
        check(any(text in ("read", "in the cache") for text in hover), f"residency: {hover}")
        check(found["last_run_colour"] == "residency", f"colour: {found['last_run_colour']}")
        check(" in memory, " in found["last_run"], f"hits: {found['last_run']}")
        for direction, reverse in [("ascending", False), ("descending", True)]:
            state, cells = found[direction]
            values = [number(cell) for cell in cells]
            check(state == direction and values == sorted(values, reverse=reverse), f"{direction}: {cells}")
        check(found["again"] == [None, found["unsorted"]], f"as it was: {found['again']}")
        check(found["dark"] is False, "light unless asked for")
        dark = probed(scratch, results, "--blink-settings=preferredColorScheme=0")
        check(dark["dark"] is True, "dark when asked for")

        keep = os.environ.get("KEEP")
        if keep:
            Path(keep).mkdir(parents=True, exist_ok=True)
            for page in (routes, results):
                shutil.copy(page, Path(keep) / f"{page.parent.name}.html")
                for scheme, setting in [("light", 1), ("dark", 0)]:
                    shot = Path(keep) / f"{page.parent.name}-{scheme}.png"
                    chromium(
                        scratch, page, f"--screenshot={shot}",
                        f"--blink-settings=preferredColorScheme={setting}",
                    )  # fmt: skip
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if failures:
        sys.exit(f"test-html: {len(failures)} checks failed")
    print("test-html: everything held")


main()
