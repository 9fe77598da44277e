# The viewer end to end: a run that it starts, and a replay. Sourced by scripts/test-view.sh.

watch_a_run() { # starts a real run, changes screens, pauses, quits
  cat > "$work/watched.toml" <<'TOML'
name = "watched"
repetitions = 2
timeout_s = 60
baseline = { mode = "mmap" }

[[model]]
name = "tiny"
synth = { shape = "tiny-qwen3moe" }

[base]
prompt = "once"
n_predict = 400
ctx_tokens = 1024
threads = 1

[axes]
mode = ["mmap", "stream"]

[gate]
off = true
TOML
  begin 80 24 "'$bmoe' view --matrix '$work/watched.toml' --out '$work/watched' -- --models '$work'"
  see '● live' 60
  see 'token [1-9][0-9]* of' 60
  press Space
  see '^‖ 1x'
  press 2
  see 'runs done, [0-9]+ cells'
  see 'baseline'
  # The heatmap fills while tokens arrive: the token after which it holds moves by itself.
  press G 3
  see 'uses in all tokens, most [1-9]'
  see 'after token [1-9]'
  local before
  before=$(screen | grep -oE 'after token [0-9]+' | head -n 1)
  for _ in $(seq 100); do
    [ "$(screen | grep -oE 'after token [0-9]+' | head -n 1)" = "$before" ] || break
    sleep 0.1
  done
  [ "$(screen | grep -oE 'after token [0-9]+' | head -n 1)" != "$before" ] || {
    echo "test-view: the heatmap stands still at \"$before\"" >&2
    screen >&2
    return 1
  }
  press 1
  see 'time of each token'
  resize 70 20
  see 'too small'
  resize 120 40
  see 'time of each token'
  press 2
  see '4 of 4 runs done' 90
  see '2 of 2 valid'
  press Enter
  see 'run 2 attempt 1  valid'
  press Enter
  see 'time of each token'
  press q
  see 'left with 0'
  # The text is aligned with the tokens, since the run's own files are there.
  begin 100 30 "'$bmoe' view '$work/watched'"
  see 'text, after a prompt of'
  press G
  see 'token 400 of 400'
  press C-c
  see 'left with 0'
}

replay_results() { # plays, seeks and steps through results of this repository
  begin 120 40 "'$bmoe' view results/quickstart"
  see 'run 1 of 14'
  see 'replay'
  press Space g
  see 'token 0 of 64'
  press l l
  see 'token 2 of 64'
  press h
  see 'token 1 of 64'
  press + +
  see '^‖ 4x'
  press Space
  see 'token 64 of 64'
  press n n
  see 'run 3 of 14'
  press '?'
  see 'hold the view'
  press Escape
  press q
  see 'left with 0'
  # No terminal: plain lines.
  "$bmoe" view results/quickstart >"$work/plain.txt"
  grep -q 'mmap: 64 tokens, [0-9.]* tok/s' "$work/plain.txt"
}

watch_a_signal() { # a signal gives the terminal back
  begin 80 24 "sh -c 'echo \$\$ >$work/pid; exec \"$bmoe\" view results/quickstart'"
  see 'time of each token'
  kill -TERM "$(cat "$work/pid")"
  see 'left with 143'
  see 'interrupted by SIGTERM'
  # Echo and line mode are back.
  press 'typed again' Enter
  see 'typed again'
}

watch_a_panic() { # a panic gives the terminal back before it is told
  local test
  test=$(cargo test --workspace --no-run --test view --message-format=json 2>/dev/null | python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("target", {}).get("name") == "view" and message.get("executable"):
        print(message["executable"])')
  begin 80 24 "'$test' --ignored --exact --nocapture terminal::a_panic_gives_the_terminal_back"
  see 'the viewer has panicked on purpose'
  see 'left with 101'
  press 'typed again' Enter
  see 'typed again'
}

watch_a_hang_up() { # a terminal that goes away ends the viewer
  begin 80 24 "sh -c 'echo \$\$ >$work/pid; exec \"$bmoe\" view results/quickstart'"
  see 'time of each token'
  "${tmux[@]}" kill-server
  for _ in $(seq 100); do
    kill -0 "$(cat "$work/pid")" 2>/dev/null || return 0
    sleep 0.1
  done
  echo "test-view: the viewer outlived its terminal" >&2
  kill -9 "$(cat "$work/pid")"
  return 1
}
