//! `imported.parquet`

use bmoe_trace::import::{ImportedLayer, Keys, RouteHeader};

use crate::data::column::row;
use crate::routes::RouteLayer;

row! {
    /// One imported run.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct ImportedRun {
        /// Its name: that of its file, without the ending.
        pub name: String,
        /// What a report calls it: the settings of the log's preamble, or else its name.
        pub cell: String,
        /// The files it was made of, without their folders, JSON.
        pub files_json: String,
        /// Format of the routes; null = it has none.
        pub route_format: Option<String>,
        /// Generation of the per-token log, 0 = without a preamble; null = it has no log.
        pub log_version: Option<u32>,
        /// The model's file or name, as the trace or log has it.
        pub model: Option<String>,
        /// The model's architecture.
        pub arch: Option<String>,
        /// Experts per MoE layer; null without routes.
        pub n_expert: Option<u32>,
        /// Whether the trace says so; false = one more than the highest that occurs.
        pub n_expert_known: Option<bool>,
        /// Experts per token.
        pub top_k: Option<u32>,
        /// The MoE layers, JSON: `layer`, and `expert_bytes` where it is known.
        pub layers_json: String,
        /// Rows in `routes`.
        pub route_rows: u64,
        /// Events in them.
        pub route_events: u64,
        /// Rows in `logs`.
        pub log_rows: u64,
        /// Whether decode steps were read under overlap, so that `io_ms` is time of the lanes; null without a log.
        pub overlap: Option<bool>,
        /// Everything that the route trace says about itself, JSON: pairs of key and value.
        pub route_keys_json: String,
        /// The log's preamble, likewise.
        pub log_keys_json: String,
        /// The log's `# summary`, likewise; null = it has none.
        pub summary_json: Option<String>,
        /// The device's metrics, likewise; null = there were none.
        pub device_json: Option<String>,
        /// What was left out and what does not agree, JSON.
        pub notes_json: String,
    }
}

/// A layer as `layers_json` has it.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Layer {
    layer: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    expert_bytes: Option<u64>,
}

impl ImportedRun {
    /// Takes over what a route trace says.
    pub(super) fn describe_routes(&mut self, header: &RouteHeader) {
        self.model = header.model.as_deref().map(file_name).or(self.model.take());
        self.arch = header.arch.clone().or(self.arch.take());
        self.n_expert = Some(header.n_expert);
        self.n_expert_known = Some(header.n_expert_known);
        self.top_k = Some(header.top_k);
        let layer = |l: &ImportedLayer| Layer { layer: l.index, expert_bytes: l.expert_bytes };
        self.layers_json = json(&header.layers.iter().map(layer).collect::<Vec<_>>());
        self.route_keys_json = json(&header.keys);
    }

    /// The MoE layers; a size that is not known is 0.
    #[must_use]
    pub fn layers(&self) -> Vec<RouteLayer> {
        let layers: Vec<Layer> = serde_json::from_str(&self.layers_json).unwrap_or_default();
        let layer =
            |l: Layer| RouteLayer { index: l.layer, expert_bytes: l.expert_bytes.unwrap_or(0) };
        layers.into_iter().map(layer).collect()
    }

    /// The log's preamble.
    #[must_use]
    pub fn log_keys(&self) -> Keys {
        serde_json::from_str(&self.log_keys_json).unwrap_or_default()
    }

    /// The log's summary; `None` = it has none.
    #[must_use]
    pub fn summary(&self) -> Option<Keys> {
        serde_json::from_str(self.summary_json.as_deref()?).ok()
    }

    /// The device's metrics; `None` = there were none.
    #[must_use]
    pub fn device(&self) -> Option<Keys> {
        serde_json::from_str(self.device_json.as_deref()?).ok()
    }

    /// What was left out and what does not agree, for people.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        serde_json::from_str(&self.notes_json).unwrap_or_default()
    }
}

pub(super) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Folders of another machine say nothing here.
pub(super) fn file_name(path: &str) -> String {
    path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned()
}
