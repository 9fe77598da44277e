//! A source of one's own: every expert is read from the model's files when its layer asks, with plain reads
//! and no cache.
//!
//! ```text
//! cargo run -p bmoe-engine --example own_source -- MODEL.gguf 'Once upon a time'
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use bmoe_engine::EngineError;
use bmoe_engine::flash::layout::ExpertLayout;
use bmoe_engine::flash::source::{ExpertSource, Slice};
use bmoe_engine::run::{Engine, Request, RunOptions};
use bmoe_trace::RunConfig;

/// The experts of one layer at a time.
struct PlainReads {
    layout: ExpertLayout,
    files: Vec<File>,
    layer: usize,
    experts: Vec<u16>,
    /// Slices of the running event by expert and projection.
    slices: BTreeMap<(u16, usize), Vec<u8>>,
    finished: Vec<bool>,
}

impl PlainReads {
    fn new(layout: &ExpertLayout) -> Result<Self, EngineError> {
        let open =
            |path| File::open(path).map_err(|e| EngineError::Config(format!("{path:?}: {e}")));
        Ok(Self {
            files: layout.files.iter().map(open).collect::<Result<_, _>>()?,
            layout: layout.clone(),
            layer: 0,
            experts: Vec::new(),
            slices: BTreeMap::new(),
            finished: Vec::new(),
        })
    }
}

impl ExpertSource for PlainReads {
    fn begin(&mut self, _ubatch: u32, layer: usize, experts: &[u16]) -> Result<(), EngineError> {
        let tensors = &self.layout.layers[layer].tensors;
        self.layer = layer;
        self.finished = vec![false; tensors.len()];
        self.slices.clear();
        self.experts = experts.to_vec();
        self.experts.sort_unstable();
        self.experts.dedup();
        for &expert in &self.experts {
            for (projection, tensor) in tensors.iter().enumerate() {
                let mut bytes = vec![0; tensor.slice_bytes as usize];
                self.files[tensor.file]
                    .read_exact_at(&mut bytes, tensor.slice(expert).start)
                    .map_err(|e| EngineError::Config(format!("{}: {e}", tensor.name)))?;
                self.slices.insert((expert, projection), bytes);
            }
        }
        Ok(())
    }

    fn next_round(&mut self, projection: usize) -> Result<&[u16], EngineError> {
        let all = !std::mem::replace(&mut self.finished[projection], true);
        Ok(if all { &self.experts } else { &[] })
    }

    fn finished(&self, projection: usize) -> bool {
        self.finished[projection]
    }

    fn slice(&self, expert: u16, projection: usize) -> Slice<'_> {
        Slice::new(&self.slices[&(expert, projection)])
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (model, prompt) = args.next().zip(args.next()).ok_or("give a model and a prompt")?;
    let config = RunConfig {
        model: model.into(),
        prompt,
        n_predict: 16,
        threads: 1,
        hash_logits: true,
        ..RunConfig::default()
    };
    let make = |layout: &ExpertLayout| Ok(Box::new(PlainReads::new(layout)?) as Box<_>);
    let mut engine = Engine::open_with_source(&config, &RunOptions::default(), vec![], make)?;
    engine.generate(&Request::of(&config), &mut |token| {
        print!("{}", token.delta.text);
        ControlFlow::Continue(())
    })?;
    let end = engine.close()?;
    writeln!(std::io::stdout(), "\n{}", end.logits_sha256.unwrap_or_default())?;
    Ok(())
}
