# Functions for end-to-end tests in a terminal of tmux's own server: type, and wait for what must be seen.
# Sourced by scripts/test-view.sh.

begin() { # begin WIDTH HEIGHT COMMAND: a fresh terminal that stays when the command ends
  "${tmux[@]}" kill-server 2>/dev/null || true
  # Another server: the one before may still be ending, and would take this terminal with it.
  terminals=$((${terminals:-0} + 1))
  tmux=(tmux -L "bmoe-test-$$-$terminals" -f /dev/null)
  "${tmux[@]}" new-session -d -x "$1" -y "$2" "$3; echo \"left with \$?\"; cat"
}

press() { "${tmux[@]}" send-keys "$@"; }

screen() { "${tmux[@]}" capture-pane -p "$@"; }

resize() { "${tmux[@]}" resize-window -x "$1" -y "$2"; }

see() { # see PATTERN [SECONDS]: waits until a line matches
  local tries=$(( ${2:-20} * 10 ))
  for _ in $(seq "$tries"); do
    if screen | grep -qE -- "$1"; then return 0; fi
    sleep 0.1
  done
  echo "test-view: never saw \"$1\"; the screen is:" >&2
  screen >&2
  return 1
}
