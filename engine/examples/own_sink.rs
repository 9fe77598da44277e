//! A sink of one's own: every record of a conversation comes by, here to count what each layer read.
//!
//! ```text
//! cargo run -p bmoe-engine --example own_sink -- MODEL.gguf 'First question' 'Second question'
//! ```

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bmoe_engine::EngineError;
use bmoe_engine::run::{Engine, Event, RecordSink, Request, RunOptions};
use bmoe_trace::config::Think;
use bmoe_trace::{CacheBudget, Record, RunConfig};

/// Expert bytes read, by layer, and the hit rate of each turn.
#[derive(Default)]
struct ReadsByLayer {
    bytes: BTreeMap<u32, u64>,
    hits: u64,
    lookups: u64,
}

impl RecordSink for ReadsByLayer {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        if let Record::Route(route) = record {
            *self.bytes.entry(route.layer).or_default() += route.read_bytes.iter().sum::<u64>();
            self.hits += route.read_bytes.iter().filter(|bytes| **bytes == 0).count() as u64;
            self.lookups += route.read_bytes.len() as u64;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), EngineError> {
        if let Event::TurnEnded(report) = event {
            let (hits, lookups) =
                (std::mem::take(&mut self.hits), std::mem::take(&mut self.lookups));
            println!(
                "turn {}: {} tokens computed, {} kept; {hits} of {lookups} experts were there",
                report.turn,
                report.prompt_tokens + report.tokens,
                report.reused_tokens
            );
        }
        Ok(())
    }

    fn wants_routes(&self) -> bool {
        true
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("give a model and questions")?;
    let config = RunConfig {
        model: model.into(),
        chat: true,
        threads: 1,
        cache_mib: CacheBudget::Mib(64),
        force_cache: true,
        ..RunConfig::default()
    };
    let mut sink = ReadsByLayer::default();
    let mut engine = Engine::open(&config, &RunOptions::default(), vec![&mut sink])?;
    let mut session = engine.session();
    for (id, prompt) in (1..).zip(args) {
        let think = Think::Default;
        let request = Request { id: format!("{id}"), prompt, n_predict: 8, think, clear: false };
        session.ask(&request, &mut |_| ControlFlow::Continue(()))?;
    }
    engine.close()?;
    for (layer, bytes) in &sink.bytes {
        println!("layer {layer}: {bytes} bytes read");
    }
    Ok(())
}
