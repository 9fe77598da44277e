# Experts and comparisons over results of this repository. Sourced by scripts/test-view.sh.

replay_experts() { # the heatmap, a layer over time, seeking
  begin 80 24 "'$bmoe' view results/quickstart"
  see 'run 1 of 14'
  press n n n n n n n n n n
  see 'run 11 of 14'
  see 'of 64'
  press G 3
  see 'uses in all tokens, most [0-9]+'
  see 'after token 64'
  # The replayed cache and what was measured say the same.
  see 'lru replayed, the same in 100.0 %'
  press j j l
  see 'layer 2, expert 1:'
  press Enter
  see 'rows 1 to [0-9]+ of 12|experts 0 to 73 of 128'
  press e
  see 'layer 2, tokens 1 to 64'
  press Escape
  see 'uses in all tokens'
  press m
  see 'uses in last 64 tokens'
  press g
  see 'after token 0'
  press . .
  see 'after token 2'
  press q
  see 'left with 0'
}

replay_two_runs() { # two cells side by side
  begin 80 24 "'$bmoe' view results/quickstart"
  see 'run 1 of 14'
  see 'of 64'
  press 4 G
  see '^A  mmap'
  see 'mean of tokens 1 to 64'
  see 'the same text'
  press b b
  see '^B  .*run 4 of 14'
  press a
  see '^A  .*run 2 of 14'
  press m m
  see '┌token [0-9]+─'
  press q
  see 'left with 0'
}
