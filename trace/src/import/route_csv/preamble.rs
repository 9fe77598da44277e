//! The preamble of a `route_trace` file.

use super::super::error::{ImportError, Result, quoted};
use super::super::fields::{unsigned, unsigned_32};
use super::super::keys::Keys;
use super::super::order::{HIGHEST_EXPERT, HIGHEST_LAYER};
use super::super::{ImportedLayer, RouteHeader};

/// The `#` lines before the header.
#[derive(Debug, Default)]
pub(super) struct Preamble {
    /// Lines read so far.
    pub(super) lines: u64,
    keys: Keys,
    layers: Vec<ImportedLayer>,
    model: Vec<(u64, Keys)>,
}

impl Preamble {
    /// Takes a line, without its `#`.
    pub(super) fn add(&mut self, number: u64, text: &str) -> Result<()> {
        if let Some(version) = text.trim_start().strip_prefix("route_trace ") {
            let version = version.trim();
            if version != "v1" {
                let (format, found, expected) = ("route_trace", quoted(version.as_bytes()), "v1");
                return Err(ImportError::Version { line: number, format, found, expected });
            }
            return Ok(());
        }
        let mut keys = Keys::default();
        let words = keys.add_line(text);
        if !words.is_empty() {
            self.keys.push("comment", words.join(" "));
        }
        if keys.get("layer").is_some() {
            self.add_layer(number, &keys)?;
        } else {
            for (index, (key, value)) in keys.0.iter().enumerate() {
                let before = keys.0[..index].iter().any(|(k, _)| k == key);
                if before || self.model.iter().any(|(_, keys)| keys.get(key).is_some()) {
                    return Err(ImportError::key(number, key, value, "each key once"));
                }
            }
            self.model.push((number, keys.clone()));
        }
        self.keys.0.extend(keys.0);
        self.keys.bounded(number)
    }

    fn add_layer(&mut self, number: u64, keys: &Keys) -> Result<()> {
        let text = keys.get("layer").unwrap_or_default();
        let index = unsigned_32(text.as_bytes()).filter(|layer| *layer <= HIGHEST_LAYER);
        let index =
            index.ok_or_else(|| ImportError::key(number, "layer", text, "a layer, 0 to 65535"))?;
        if self.layers.iter().any(|l| l.index == index) {
            return Err(ImportError::key(number, "layer", text, "each layer once"));
        }
        let expert_bytes = match keys.get("expert_bytes") {
            None => None,
            Some(text) => {
                let bytes = unsigned(text.as_bytes()).filter(|bytes| *bytes <= 1 << 48);
                let expected = "bytes of one expert, 0 = not known, at most 2^48";
                let bytes = bytes
                    .ok_or_else(|| ImportError::key(number, "expert_bytes", text, expected))?;
                Some(bytes).filter(|bytes| *bytes > 0)
            }
        };
        self.layers.push(ImportedLayer { index, expert_bytes });
        Ok(())
    }

    fn number(&self, key: &str, highest: u32) -> Result<Option<u32>> {
        let found = self.model.iter().find_map(|(line, keys)| Some((*line, keys.get(key)?)));
        let Some((line, text)) = found else { return Ok(None) };
        match unsigned_32(text.as_bytes()).filter(|n| *n <= highest) {
            Some(number) => Ok(Some(number).filter(|n| *n > 0)),
            None => Err(ImportError::key(
                line,
                key,
                text,
                format!("a number, 0 to {highest} (0 = not known)"),
            )),
        }
    }

    /// What it says, and the top-k when it says that.
    pub(super) fn header(
        mut self,
        extra_columns: Vec<String>,
    ) -> Result<(RouteHeader, Option<u32>)> {
        let n_expert = self.number("n_expert", HIGHEST_EXPERT + 1)?;
        let top_k = self.number("n_expert_used", HIGHEST_EXPERT + 1)?;
        let n_layer = self.number("n_layer", HIGHEST_LAYER + 1)?;
        self.layers.sort_by_key(|l| l.index);
        if let (Some(n_layer), Some(last)) = (n_layer, self.layers.last().map(|l| l.index))
            && last >= n_layer
        {
            let line = self.model.iter().find(|(_, keys)| keys.get("n_layer").is_some());
            let expected = format!("more than {last}, which the `# layer=` lines have");
            let line = line.map_or(self.lines, |(line, _)| *line);
            return Err(ImportError::key(line, "n_layer", n_layer, expected));
        }
        let word = |key: &str| self.keys.get(key).filter(|v| !v.is_empty()).map(str::to_owned);
        let header = RouteHeader {
            run_id: word("run_id"),
            model: word("model"),
            arch: word("arch"),
            n_expert: n_expert.unwrap_or(0),
            n_expert_known: n_expert.is_some(),
            top_k: top_k.unwrap_or(0),
            layers: std::mem::take(&mut self.layers),
            keys: self.keys.clone(),
            extra_columns,
        };
        Ok((header, top_k))
    }
}
