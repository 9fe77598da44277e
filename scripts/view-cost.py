#!/usr/bin/env python3
"""What watching costs a run.

    scripts/view-cost.py [--fps 10] [--seconds 120] [--window 2] [--threads N...]

One run of the engine with the viewer on its trace; every few seconds the viewer is stopped (SIGSTOP) or goes on
(SIGCONT), and the tokens of both kinds of windows are compared: each window with the viewer against the mean of its two
neighbours without. What drifts within a run or differs between runs drops out. Once with one core left free by the engine
and once with all of them computing. On a machine that does nothing else; needs target/debug/{bmoe,bmoe-engine}, and makes
models/quickstart.gguf where it is missing.
"""
import argparse
import fcntl
import json
import math
import os
import pty
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BMOE = os.environ.get("BMOE", os.path.join(ROOT, "target/debug/bmoe"))
# The last token of a window may have begun in the one before, and a viewer that goes on has to catch up.
EDGE_S = 0.1
# Two-sided 95 % quantiles of Student's t are within 1 % of this from 30 pairs on; fewer are refused.
FEWEST_PAIRS, QUANTILE = 20, 2.09


def view(trace, fps):
    """The viewer in a terminal of 120 x 40 that is read and forgotten: process and thread."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LANG="C.UTF-8")
        os.execv(BMOE, [BMOE, "view", trace, "--fps", str(fps)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    drawn = [0]

    def drain():
        try:
            while data := os.read(terminal, 65536):
                drawn[0] += len(data)
        except OSError:
            pass  # the viewer has ended

    threading.Thread(target=drain, daemon=True).start()
    return pid, drawn


def cpu_s(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(threads, args, model, work):
    trace = os.path.join(work, f"{threads}.trace")
    command = [os.path.join(os.path.dirname(BMOE), "bmoe-engine"), "generate", "-m", model, "-p", "The old lighthouse keeper",
               "-n", str(args.tokens), "--ctx", str(args.tokens + 192), "--threads", str(threads), "--cache-mb", "530", "--io-threads", "2",
               "--trace", trace, "--progress"]
    engine = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    tokens = []  # (when it was done, how long it took)

    def follow():
        for line in engine.stdout:
            if line.startswith("BMOE_PROGRESS "):
                tokens.append((time.monotonic(), json.loads(line.split(" ", 1)[1])["wall_ms"]))

    reader = threading.Thread(target=follow)
    reader.start()
    while len(tokens) < 50 and engine.poll() is None:
        time.sleep(0.05)
    pid, drawn = view(trace, args.fps)
    time.sleep(2)
    windows, on, on_s, on_cpu_s = [], True, 0.0, 0.0
    before = cpu_s(pid)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end and engine.poll() is None:
        begin = time.monotonic()
        os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)
        time.sleep(args.window)
        windows.append((on, begin + EDGE_S, time.monotonic()))
        if on:
            on_s, on_cpu_s = on_s + args.window, on_cpu_s + cpu_s(pid) - before
        before = cpu_s(pid)
        on = not on
    ended = engine.poll()
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGTERM)
    engine.terminate()
    reader.join()
    os.waitpid(pid, 0)
    if ended is not None:
        sys.exit(f"view-cost: the engine ended before the time was up (exit code {ended}): {engine.stderr.read().strip()[-200:]}; give more --tokens or fewer --seconds")
    if drawn[0] < 10_000:
        sys.exit(f"view-cost: the viewer drew {drawn[0]} bytes; it was not watching")
    # In each window: mean wall time of its tokens.
    means = []
    for on, begin, end in windows:
        of_window = [ms for (at, ms) in tokens if begin + ms / 1e3 <= at < end]
        if of_window:
            means.append((on, statistics.fmean(of_window), len(of_window)))
    pairs = [100 * (b / ((a + c) / 2) - 1) for (_, a, _), (on, b, _), (_, c, _) in zip(means, means[1:], means[2:]) if on]
    if len(pairs) < FEWEST_PAIRS:
        sys.exit(f"view-cost: {len(pairs)} windows with the viewer; {FEWEST_PAIRS} are needed: give more --seconds")
    middle, half = statistics.fmean(pairs), QUANTILE * statistics.stdev(pairs) / math.sqrt(len(pairs))
    without = statistics.fmean(ms for on, ms, _ in means if not on)
    print(f"{threads} of {os.cpu_count()} cores compute: {sum(n for *_, n in means)} tokens in {len(means)} windows, {without:.2f} ms a token "
          f"without the viewer; with it at {args.fps} frames a second {middle:+.2f} % (95 % interval {middle - half:+.2f} to "
          f"{middle + half:+.2f} %); the viewer takes {100 * on_cpu_s / on_s:.1f} % of a core", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--window", type=float, default=2)
    parser.add_argument("--threads", type=int, nargs="*", help="compute threads [one core free, then none]")
    parser.add_argument("--tokens", type=int, default=8000)
    args = parser.parse_args()
    os.chdir(ROOT)
    model = "models/quickstart.gguf"
    if not os.path.exists(model):
        subprocess.run([BMOE, "synth", "--shape", "quickstart"], check=True)
    cores = os.cpu_count()
    with tempfile.TemporaryDirectory() as work:
        for threads in args.threads or ([cores - 1, cores] if cores > 1 else [cores]):
            measure(threads, args, model, work)


main()
