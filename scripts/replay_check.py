#!/usr/bin/env python3
"""replay_check.py BMOE DIR [TRACE]: what the engine measured against the simulation of the same routes.

Every valid streamed run with a cache must have the hits (to the thousandth of a per cent) and the bytes per token (to the
hundredth of a MiB) of the simulation: of the routes that the run itself recorded, and of TRACE, whose experts must have the
same sizes. Prints a table; exit code 1 when anything differs.
"""
import csv
import io
import json
import pathlib
import subprocess
import sys


def simulate(bmoe, source, policy, budget_mib):
    command = [bmoe, "simulate", source, "--policies", policy, "--budgets-mib", str(budget_mib), "--csv"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    row = next(csv.DictReader(io.StringIO(text)))
    return float(row["hit_pct_total"]), float(row["mib_per_token"]), float(row["hit_pct_decode"])


def done(folder):
    lines = (folder / "lines.txt").read_text(errors="replace").splitlines()
    return json.loads(next(l for l in reversed(lines) if l.startswith("BMOE_DONE ")).split(" ", 1)[1])


def main():
    bmoe, out = sys.argv[1], pathlib.Path(sys.argv[2])
    trace = sys.argv[3] if len(sys.argv) > 3 else None
    records = {}
    for line in (out / "cells.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["verdict"] == "valid" and record["config"]["mode"] == "stream" and record["config"]["cache_mib"]:
            records.setdefault(record["id"], []).append(record)
    if not records:
        sys.exit(f"replay_check: {out} has no valid streamed run with a cache")
    differs = False
    print(f"{'MiB':>6}  {'run':>4}  {'hit % measured':>14}  {'simulated':>9}  {'MiB/token':>12}  {'simulated':>12}  decode hit %")
    for runs in sorted(records.values(), key=lambda runs: runs[0]["config"]["cache_mib"]):
        config, name = runs[0]["config"], runs[0]["name"]
        policy, budget = config.get("cache_policy", "lru"), config["cache_mib"]
        own = simulate(bmoe, f"{out}:{name}", policy, budget)
        sources = [("own routes", own)]
        if trace:
            published = simulate(bmoe, trace, policy, budget)
            sources.append(("trace", published))
        for record in runs:
            said = done(out / "runs" / f"{record['id']}-r{record['repetition']}-a{record['attempt']}")
            measured = said["read_mib"] / said["tokens"]
            for source, (hit_pct, mib_per_token, decode_pct) in sources:
                same = abs(said["cache_hit_pct"] - hit_pct) < 0.0006 and abs(measured - mib_per_token) < 0.006
                differs |= not same
                mark = "" if same else f"  DIFFERS from {source}"
                print(f"{budget:>6}  {record['repetition']:>4}  {said['cache_hit_pct']:>14.3f}  {hit_pct:>9.3f}  "
                      f"{measured:>12.2f}  {mib_per_token:>12.2f}  {decode_pct:.3f}{mark}")
    sys.exit(1 if differs else 0)


main()
