//! The shortest program: load a model, generate, print each token as it comes.
//!
//! ```text
//! cargo run -p bmoe-engine --example minimal -- MODEL.gguf 'Once upon a time'
//! ```

use std::io::Write;
use std::ops::ControlFlow;

use bmoe_engine::run::{Engine, Request, RunOptions};
use bmoe_trace::{CacheBudget, RunConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(model), Some(prompt)) = (args.next(), args.next()) else {
        return Err("give a model and a prompt".into());
    };
    let config = RunConfig {
        model: model.into(),
        prompt,
        n_predict: 16,
        threads: 1,
        cache_mib: CacheBudget::Mib(64),
        force_cache: true,
        ..RunConfig::default()
    };
    let mut engine = Engine::open(&config, &RunOptions::default(), vec![])?;
    let report = engine.generate(&Request::of(&config), &mut |token| {
        print!("{}", token.delta.text);
        // A closed standard output ends the text.
        match std::io::stdout().flush() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    println!();
    eprintln!("{} tokens in {} ms", report.tokens, report.decode_ns / 1_000_000);
    engine.close()?;
    Ok(())
}
