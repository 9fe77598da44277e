"""Imports a trace and two logs with `bmoe import` and asks DuckDB about them: scripts/test-duckdb.sh.

The queries are those of docs/formats.md below the line `<!-- queries -->`, run as they stand there, in a folder that
has the import at the place which they name.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import duckdb

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLISHED = ROOT.parent / "shared" / "data" / "published"

# Two layers, top-2: layer 0 repeats one of two experts from token to token, layer 1 none.
ROUTES = """\
# route_trace v1
# model=m.gguf arch=qwen3moe n_layer=2 n_expert=8 n_expert_used=2
# layer=0 expert_bytes=1048576
# layer=1 expert_bytes=1048576
turn,phase,step,layer,slot,expert,weight,residency,expert_bytes
0,0,0,0,0,1,0.75,0,1048576
0,0,0,0,1,2,0.25,0,1048576
0,0,0,1,0,5,0.75,0,1048576
0,0,0,1,1,6,0.25,0,1048576
0,1,1,0,0,1,0.75,1,0
0,1,1,0,1,3,0.25,0,1048576
0,1,1,1,0,1,0.75,0,1048576
0,1,1,1,1,2,nan,0,1048576
0,1,2,0,0,4,0.75,0,1048576
0,1,2,0,1,1,0.25,1,0
0,1,2,1,0,7,0.75,0,1048576
0,1,2,1,1,0,0.25,0,1048576
"""
HEADER = "step,steps,wall_ms,io_ms,compute_ms,read_bytes,cache_hit_pct,stall_ms"
LOG = HEADER + "\n1,2,100.0,60.0,40.0,3145728,10.00,0.0\n2,2,300.0,60.0,40.0,1048576,25.00,0.0\n# summary tokens=2\n"
# Another generation, with a column that nobody knows.
LATER = (
    "# bmoe_metrics v1\n# model=m.gguf moe_stream=1 cache_mb=2000 io_threads=4 overlap=1\n"
    + HEADER + ",mood\n1,1,50.0,30.0,20.0,-1,-1.00,5.0,good\n# summary tokens=1\n"
)


def queries():
    text = (ROOT / "docs" / "formats.md").read_text()
    _, marker, rest = text.partition("<!-- queries -->")
    assert marker, "docs/formats.md has no line <!-- queries -->"
    found = re.findall(r"```sql\n(.*?)```", rest, flags=re.S)
    assert len(found) >= 3, f"docs/formats.md has {len(found)} queries below the line; expected three"
    return found[:3]


def ask(query):
    result = duckdb.sql(query)
    return [dict(zip(result.columns, row)) for row in result.fetchall()]


def main(bmoe):
    rates, hottest, overlap = queries()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, text in {"a.csv": LOG, "a.route.csv": ROUTES, "2026-07-12.csv": LATER}.items():
            pathlib.Path(name).write_text(text)

        def bring(*paths, out="imports/phone", force=False):
            command = [bmoe, "import", *map(str, paths), "--out", out] + (["--force"] if force else [])
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        bring("a.csv", "a.route.csv", "2026-07-12.csv")

        rows = {row["cell"]: row for row in ask(rates)}
        assert set(rows) == {"a", "stream, cache 2000 MiB, 4 lanes, overlap"}, rows
        assert abs(rows["a"]["tok_s"] - 5.0) < 1e-9 and abs(rows["a"]["mib_token"] - 2.0) < 1e-9, rows
        later = rows["stream, cache 2000 MiB, 4 lanes, overlap"]
        assert abs(later["tok_s"] - 20.0) < 1e-9 and later["mib_token"] is None, rows

        rows = ask(hottest)
        first = {row["layer"]: (row["expert"], row["uses"]) for row in reversed(rows)}
        assert first[0] == (1, 2), rows
        assert all(row["run_id"] == "a" for row in rows), rows

        rows = ask(overlap)
        assert [row["run_id"] for row in rows] == ["a"], rows
        # Two of eight: layer 0 once for the second token; the first decode token has none before it in decode.
        assert abs(rows[0]["share"] - 0.25) < 1e-9, rows

        whole = duckdb.sql(
            "SELECT count(*), sum(read_bytes), count(weight) FROM 'imports/phone/data/routes/*/*.parquet' "
        ).fetchall()[0]
        assert whole == (12, 10 * 1048576, 11), whole

        if PUBLISHED.is_dir():
            route = PUBLISHED / "2026-07-15-route" / "qwen.route.csv"
            bring(*sorted((PUBLISHED / "2026-07-12").glob("*.csv")), route, force=True)
            rows = {row["cell"]: row for row in ask(rates)}
            assert round(rows["qwen_c4000_l4_ov"]["tok_s"], 2) == 3.98, rows
            rows = ask(overlap)
            # 38.0 % of a token's experts were the previous token's.
            assert round(100 * rows[0]["share"], 1) == 38.0, rows
            assert len({row["layer"] for row in ask(hottest)}) == 48
        else:
            print("test-duckdb: the published data (../shared/data) are not here; only made-up ones were read")
    print(f"test-duckdb: DuckDB {duckdb.__version__} reads the imports; the queries of docs/formats.md give what they should")


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()))
