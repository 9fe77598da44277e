//! `route_trace v1`: which experts every token used.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::{out_of_order, preamble_value};
use crate::record::{Phase, Record, Residency, RouteRecord, RunStart};

const HEADER: &str = "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";

/// Writes the route file of one run.
///
/// Rows stand in the order in which the engine made its cache decisions. The format has no
/// micro-batch column: consecutive prefill rows of one layer are one event.
#[derive(Debug)]
pub struct RouteCsv<W: Write> {
    out: W,
    started: bool,
    rows: String,
}

impl<W: Write> RouteCsv<W> {
    /// A writer that has written nothing yet.
    pub fn new(out: W) -> Self {
        Self { out, started: false, rows: String::new() }
    }

    /// Takes the next record of the run.
    ///
    /// # Errors
    /// The writer failed, the records do not begin with [`Record::Start`], or a route record's vectors
    /// do not fit together.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Start(start) => {
                self.out.write_all(preamble(start).as_bytes())?;
                self.started = true;
                self.out.flush()
            }
            Record::Route(_) if !self.started => Err(out_of_order("route")),
            Record::Route(route) => {
                self.rows.clear();
                push_rows(&mut self.rows, route).ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!(
                            "the route record of layer {}, micro-batch {} has vectors of other \
                             lengths than its {} tokens at top-{} need",
                            route.layer,
                            route.ubatch,
                            route.positions.len(),
                            route.top_k
                        ),
                    )
                })?;
                self.out.write_all(self.rows.as_bytes())
            }
            Record::Load(_)
            | Record::Turn(_)
            | Record::Read(_)
            | Record::Compute(_)
            | Record::Budget(_) => Ok(()),
            Record::Prefill(_) | Record::Token(_) | Record::End(_) => self.out.flush(),
        }
    }

    /// The writer underneath.
    pub fn into_inner(self) -> W {
        self.out
    }
}

fn preamble(start: &RunStart) -> String {
    let model = &start.model;
    let mut text = format!(
        "# route_trace v1\n# model={} arch={} n_layer={} n_expert={} n_expert_used={}\n",
        preamble_value(&start.config.model.to_string_lossy()),
        preamble_value(&model.arch),
        model.n_layer,
        model.n_expert,
        model.n_expert_used
    );
    if let Some(replayed) = &start.config.replay_routes {
        let _ = writeln!(text, "# replay_routes={}", preamble_value(&replayed.to_string_lossy()));
    }
    for layer in &model.layers {
        let _ = writeln!(text, "# layer={} expert_bytes={}", layer.layer, layer.expert_bytes);
    }
    text + HEADER
}

/// Appends one line per (token, slot); `None` when the record's vectors do not fit together.
fn push_rows(rows: &mut String, route: &RouteRecord) -> Option<()> {
    let top_k = route.top_k as usize;
    let pairs = route.positions.len() * top_k;
    let known = !route.residency.is_empty();
    let n_distinct = route.distinct.len();
    if route.experts.len() != pairs
        || route.weights.len() != pairs
        || (known && (route.residency.len() != n_distinct || route.read_bytes.len() != n_distinct))
    {
        return None;
    }
    let phase = match route.phase {
        Phase::Prefill => 0,
        Phase::Decode => 1,
    };
    let mut seen = vec![false; n_distinct];
    for pair in 0..pairs {
        let expert = route.experts[pair];
        let (residency, bytes) = if known {
            let entry = route.distinct.iter().position(|d| *d == expert)?;
            // The first row that names an expert is the one that caused its read.
            let first = !std::mem::replace(&mut seen[entry], true);
            let residency = match route.residency[entry] {
                Residency::Miss => 0,
                Residency::Hit => 1,
                Residency::PrefetchHit => 2,
            };
            (residency, if first { route.read_bytes[entry] } else { 0 })
        } else {
            (-1, 0)
        };
        let _ = write!(
            rows,
            "{},{phase},{},{},{},{expert},",
            route.turn,
            route.positions[pair / top_k],
            route.layer,
            pair % top_k
        );
        let weight = route.weights[pair];
        // The format writes an unknown weight in lower case.
        let _ = if weight.is_nan() { write!(rows, "nan") } else { write!(rows, "{weight}") };
        let _ = writeln!(rows, ",{residency},{bytes}");
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::record::{LayerShape, ModelShape};

    fn start() -> Record {
        Record::Start(Box::new(RunStart {
            run_id: "r".into(),
            started_unix_ms: 0,
            engine_version: "0".into(),
            llama_version: "0".into(),
            config: RunConfig { model: "models/m.gguf".into(), ..RunConfig::default() },
            model: ModelShape {
                arch: "qwen3moe".into(),
                n_layer: 1,
                n_expert: 8,
                n_expert_used: 2,
                file_bytes: 1,
                dense_bytes: 1,
                layers: vec![LayerShape { layer: 0, expert_bytes: 640 }],
            },
        }))
    }

    fn batch() -> RouteRecord {
        RouteRecord {
            turn: 0,
            ubatch: 0,
            phase: Phase::Prefill,
            layer: 0,
            top_k: 2,
            positions: vec![4, 5],
            experts: vec![3, 7, 7, 1],
            weights: vec![0.75, 0.25, f32::NAN, 0.5],
            // Not in the order of the rows, which must not matter.
            distinct: vec![1, 3, 7],
            residency: vec![Residency::PrefetchHit, Residency::Hit, Residency::Miss],
            scored: Vec::new(),
            scores: Vec::new(),
            read_bytes: vec![0, 0, 640],
        }
    }

    fn write(route: RouteRecord) -> io::Result<String> {
        let mut csv = RouteCsv::new(Vec::new());
        csv.record(&start())?;
        csv.record(&Record::Route(route))?;
        Ok(String::from_utf8(csv.into_inner()).unwrap())
    }

    #[test]
    fn the_first_row_of_a_read_expert_carries_its_bytes() {
        assert_eq!(
            write(batch()).unwrap(),
            "# route_trace v1\n\
             # model=models/m.gguf arch=qwen3moe n_layer=1 n_expert=8 n_expert_used=2\n\
             # layer=0 expert_bytes=640\n\
             turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n\
             0,0,4,0,0,3,0.75,1,0\n\
             0,0,4,0,1,7,0.25,0,640\n\
             0,0,5,0,0,7,nan,0,0\n\
             0,0,5,0,1,1,0.5,2,0\n"
        );
    }

    #[test]
    fn without_a_cache_of_ours_residency_is_unmeasured() {
        let route = RouteRecord { residency: vec![], read_bytes: vec![], ..batch() };
        let text = write(route).unwrap();
        assert!(text.ends_with("0,0,5,0,1,1,0.5,-1,0\n"), "{text}");
    }

    #[test]
    fn a_record_that_does_not_fit_together_is_refused() {
        let route = RouteRecord { weights: vec![1.0], ..batch() };
        let error = write(route).unwrap_err().to_string();
        assert!(error.contains("layer 0") && error.contains("2 tokens at top-2"), "{error}");
    }
}
