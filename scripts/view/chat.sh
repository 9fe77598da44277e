# The chat end to end: a tiny model, answers, a cancel, settings, the other screens, and ways to leave. Sourced by
# scripts/test-view.sh.

leave_twice() { # Ctrl-C twice at an idle chat: quietly
  press C-c
  see 'Ctrl-C again leaves'
  press C-c
  see 'left with 130'
  if screen | grep -q 'error:'; then
    echo "test-view: leaving the chat is no error" >&2
    return 1
  fi
}

tiny_model() {
  [ -e "$work/tiny.gguf" ] || "$bmoe" synth --shape tiny-qwen3moe --out "$work/tiny.gguf" >"$work/synth.txt" 2>&1
}

talk_on_the_screen() { # answers, settings, a cancel, the answer as a run
  tiny_model
  begin 80 24 "'$bmoe' chat '$work/tiny.gguf' -n 12 -- --threads 1 --cache-mb 2"
  see 'qwen3moe, top-4' 60
  press '/tokens 7' Enter
  see 'at most 7 tokens an answer'
  press 'Hello 灯台 🗼' Enter
  see '› Hello 灯台 🗼'
  see 'tokens +7 of 7' 60
  see 'tok/s +[0-9]'
  press '/tokens 4000' Enter
  press 'go on' Enter
  see 'answering; esc ends it'
  see 'tokens +[1-9][0-9]* of 4000' 60
  press Escape
  see 'cancelled: the conversation is' 60
  press '/stats' Enter
  see 'context  [0-9]+ of 4096 tokens'
  press Tab
  see 'answer 2  run 2 of 2'
  see 'time of each token'
  press 4
  see 'A  answer 2'
  see 'B  answer 1'
  resize 70 20
  see 'too small'
  resize 120 40
  press 5
  see 'your message'
  press F1
  see 'Chat: keys'
  press Escape
  leave_twice
}

talk_and_quit() { # /quit, the end of input, and a model that is none
  tiny_model
  begin 80 24 "'$bmoe' chat '$work/tiny.gguf' -- --threads 1 --cache-mb 2"
  see 'Say something' 60
  press '/quit' Enter
  see 'left with 0'
  begin 80 24 "'$bmoe' chat '$work/tiny.gguf' -- --threads 1 --cache-mb 2"
  see 'Say something' 60
  press C-d
  see 'left with 0'
  echo 'no model' >"$work/none.gguf"
  begin 80 24 "'$bmoe' chat '$work/none.gguf'"
  see 'error: .*none.gguf' 60
  see 'left with 3'
}

talk_in_plain_lines() { # --no-tui, and what is no terminal
  tiny_model
  begin 80 24 "'$bmoe' chat --no-tui '$work/tiny.gguf' -n 5 -- --threads 1 --cache-mb 2"
  see '^>' 60
  press 'Hello' Enter
  see 'cut off after as many tokens' 60
  leave_twice
  # A refusal is said once.
  echo Hello | "$bmoe" chat --ctx 5 "$work/tiny.gguf" -- --threads 1 --cache-mb 2 >"$work/out.txt" 2>"$work/err.txt" && return 1
  [ "$(grep -c 'context' "$work/err.txt")" = 1 ] || { cat "$work/err.txt" >&2; return 1; }
}
