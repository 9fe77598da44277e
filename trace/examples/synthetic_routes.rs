//! Writes a `route_trace v1` file of any length to standard output, for measurements of what reads such files.
//!
//! ```text
//! cargo run -p bmoe-trace --example synthetic_routes -- 100000000 > routes.csv
//! ```

use std::io::{self, BufWriter, Write};

const LAYERS: u32 = 48;
const EXPERTS: u32 = 128;
const TOP_K: u32 = 8;
const EXPERT_BYTES: u32 = 3_059_712;

fn main() -> io::Result<()> {
    let rows: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    writeln!(
        out,
        "# route_trace v1\n# model=synthetic.gguf arch=qwen3moe n_layer={LAYERS} n_expert={EXPERTS} n_expert_used={TOP_K}"
    )?;
    for layer in 0..LAYERS {
        writeln!(out, "# layer={layer} expert_bytes={EXPERT_BYTES}")?;
    }
    writeln!(out, "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes")?;
    // xorshift: the same file every time.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let tokens = rows / u64::from(LAYERS * TOP_K);
    for token in 0..tokens {
        for layer in 0..LAYERS {
            // An odd stride visits every expert of a power of two once.
            let (first, stride) = (random() % u64::from(EXPERTS), random() | 1);
            for slot in 0..TOP_K {
                let expert =
                    first.wrapping_add(stride.wrapping_mul(u64::from(slot))) % u64::from(EXPERTS);
                let weight = random() % 500_000;
                let hit = random() % 4 != 0;
                let bytes = if hit { 0 } else { EXPERT_BYTES };
                writeln!(
                    out,
                    "0,1,{token},{layer},{slot},{expert},0.{weight:06},{},{bytes}",
                    u8::from(hit)
                )?;
            }
        }
    }
    out.flush()
}
