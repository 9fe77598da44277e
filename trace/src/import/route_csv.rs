//! `route_trace v1`: one row per (layer, token, slot).

mod columns;
mod preamble;

use std::io::Read;

use columns::{Columns, Role, Row};
use preamble::Preamble;

use super::chunk::RouteChunk;
use super::error::{ImportError, Result, quoted};
use super::lines::{LONGEST_ROW, Lines};
use super::order::{Disorder, HIGHEST_EXPERT, LayersSeen, MOST_SLOTS, Order, TokenOfLayer};
use super::{CHUNK_BYTES, CHUNK_ROWS, ImportedLayer, RouteHeader};
use crate::record::Residency;

/// Reads a file row by row.
#[derive(Debug)]
pub(super) struct RouteCsvRows<R> {
    lines: Lines<R>,
    columns: Columns,
    header: RouteHeader,
    /// The header says how many experts a layer has, and how many a token uses.
    top_k: Option<u32>,
    layers: LayersSeen,
    order: Order,
    /// The token whose rows are being read; `None` before the first and behind a whole one of known top-k.
    token: Option<TokenOfLayer>,
    /// Rows of it so far.
    slots: u32,
    rows: RouteChunk,
    /// Bytes of their lines.
    bytes: usize,
    notes: Vec<String>,
    at_end: bool,
}

impl<R: Read> RouteCsvRows<R> {
    /// Reads the preamble and the header line.
    pub(super) fn open(input: R) -> Result<Self> {
        let mut lines = Lines::new(input, LONGEST_ROW);
        let mut preamble = Preamble::default();
        let columns = loop {
            let Some(line) = lines.next()? else {
                return Err(ImportError::line(
                    preamble.lines + 1,
                    "the end of the file",
                    "a header line with the columns",
                ));
            };
            preamble.lines = line.number;
            if line.is_blank() {
                continue;
            }
            match line.text()?.strip_prefix('#') {
                Some(text) => preamble.add(line.number, text)?,
                None => break Columns::of(&line)?,
            }
        };
        let (header, top_k) = preamble.header(columns.extra())?;
        let rows = RouteChunk {
            extra: vec![Vec::new(); header.extra_columns.len()],
            ..RouteChunk::default()
        };
        Ok(Self {
            lines,
            columns,
            layers: LayersSeen::listed(header.layers.iter().map(|l| l.index)),
            order: Order::new(header.layers.iter().map(|l| l.index).collect()),
            header,
            top_k,
            token: None,
            slots: 0,
            rows,
            bytes: 0,
            notes: Vec::new(),
            at_end: false,
        })
    }

    pub(super) fn header(&self) -> &RouteHeader {
        &self.header
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    pub(super) fn next(&mut self) -> Result<Option<RouteChunk>> {
        if self.at_end {
            return Ok(None);
        }
        loop {
            let Some(line) = self.lines.next()? else {
                self.end(None);
                break;
            };
            if line.bytes.first() == Some(&b'#') {
                let words = self.header.keys.add_line(&line.text()?[1..]);
                if !words.is_empty() {
                    self.header.keys.push("comment", words.join(" "));
                }
                self.header.keys.bounded(line.number)?;
                continue;
            }
            if !line.ended {
                let number = line.number;
                self.end(Some(number));
                break;
            }
            if line.bytes.is_empty() {
                continue;
            }
            let row = self.columns.row(&line, &mut self.rows.extra)?;
            self.bytes += line.bytes.len();
            let number = line.number;
            let whole = self.rows.len();
            let begins = self.take(number, row)?;
            // A chunk ends where a token does.
            if begins && (whole >= CHUNK_ROWS || self.bytes >= CHUNK_BYTES) {
                self.bytes = 0;
                let mut rest = self.rows.split_off(whole);
                rest.reserve(CHUNK_ROWS + 1);
                return Ok(Some(std::mem::replace(&mut self.rows, rest)));
            }
        }
        Ok(Some(std::mem::take(&mut self.rows)))
    }

    /// Adds a row; `true` when it begins a token.
    #[inline]
    fn take(&mut self, line: u64, row: Row) -> Result<bool> {
        let token =
            TokenOfLayer { turn: row.turn, phase: row.phase, layer: row.layer, position: row.step };
        let begins = self.token != Some(token);
        if begins {
            if self.layers.note(row.layer) == Err(()) {
                let expected = self.layers.expected();
                return Err(self.columns.wrong(
                    line,
                    Role::Layer,
                    quoted(row.layer.to_string().as_bytes()),
                    expected,
                ));
            }
            if let Some(top_k) =
                self.top_k.filter(|top_k| self.token.is_some() && self.slots != *top_k)
            {
                return Err(self.too_few(line, top_k));
            }
            if self.token.is_some() && self.top_k.is_none() {
                self.top_k = Some(self.slots);
                self.header.top_k = self.slots;
            }
            let place =
                self.order.next(token).map_err(|disorder| self.disorder(line, token, &disorder))?;
            self.slots = 0;
            self.token = Some(token);
            self.rows.event.push(place.event);
            self.rows.ubatch.push(place.ubatch);
        } else {
            // The token's own, which its first row has brought.
            let (event, ubatch) =
                (self.rows.event.last().copied(), self.rows.ubatch.last().copied());
            self.rows.event.push(event.unwrap_or_default());
            self.rows.ubatch.push(ubatch.unwrap_or_default());
        }
        if row.slot != self.slots || row.slot >= self.top_k.unwrap_or(MOST_SLOTS) {
            return Err(self.wrong_slot(line, row.slot));
        }
        let before = self.rows.len() - self.slots as usize;
        if row.expert >= self.header.n_expert {
            self.note_expert(line, row.expert)?;
        }
        if row.read_bytes > 0 {
            self.check_bytes(line, &row)?;
        }
        if self.rows.expert[before..].contains(&row.expert) {
            let expected = "an expert that no other slot of the token has";
            return Err(self.columns.wrong(
                line,
                Role::Expert,
                quoted(row.expert.to_string().as_bytes()),
                expected,
            ));
        }
        self.slots += 1;
        let rows = &mut self.rows;
        rows.turn.push(row.turn);
        rows.phase.push(row.phase);
        rows.layer.push(row.layer);
        rows.position.push(row.step);
        rows.slot.push(row.slot);
        rows.expert.push(row.expert);
        rows.weight.push(row.weight);
        rows.residency.push(row.residency);
        rows.read_bytes.push(row.read_bytes);
        Ok(begins)
    }

    /// An expert beyond those known of: wrong when the header says how many there are.
    #[cold]
    fn note_expert(&mut self, line: u64, expert: u32) -> Result<()> {
        let expected = if self.header.n_expert_known {
            format!("an expert, 0 to {}", self.header.n_expert.saturating_sub(1))
        } else if expert > HIGHEST_EXPERT {
            format!("an expert, 0 to {HIGHEST_EXPERT}")
        } else {
            self.header.n_expert = expert + 1;
            return Ok(());
        };
        Err(self.columns.wrong(line, Role::Expert, quoted(expert.to_string().as_bytes()), expected))
    }

    /// Bytes are of a read, and of one expert at most.
    fn check_bytes(&self, line: u64, row: &Row) -> Result<()> {
        let layers = &self.header.layers;
        let at = layers.binary_search_by_key(&row.layer, |layer| layer.index);
        let highest = at.ok().and_then(|at| layers[at].expert_bytes).unwrap_or(1 << 48);
        let expected = if row.residency == Some(Residency::Hit) {
            "0, since the row is a hit (residency 1)".to_owned()
        } else if row.read_bytes > highest {
            format!("at most {highest}, the bytes of one expert of layer {}", row.layer)
        } else {
            return Ok(());
        };
        let value = quoted(row.read_bytes.to_string().as_bytes());
        Err(self.columns.wrong(line, Role::ExpertBytes, value, expected))
    }

    #[cold]
    fn too_few(&self, line: u64, top_k: u32) -> ImportError {
        let token = self
            .token
            .map_or(String::new(), |t| format!("token {} of layer {}", t.position, t.layer));
        let found = format!("{token} ends before this line with {} slots", self.slots);
        ImportError::line(line, found, format!("{top_k} rows for each token of a layer"))
    }

    #[cold]
    fn wrong_slot(&self, line: u64, slot: u32) -> ImportError {
        let expected = match self.top_k {
            Some(top_k) if self.slots >= top_k => {
                format!("another token, since each has {top_k} slots (a repeated row?)")
            }
            None if self.slots >= MOST_SLOTS => format!("at most {MOST_SLOTS} slots"),
            _ => format!(
                "slot {}, since the slots of a token follow each other (a row is lost or repeated)",
                self.slots
            ),
        };
        self.columns.wrong(line, Role::Slot, quoted(slot.to_string().as_bytes()), expected)
    }

    #[cold]
    fn disorder(&self, line: u64, token: TokenOfLayer, disorder: &Disorder) -> ImportError {
        let (role, value) = match disorder {
            Disorder::Turn { .. } => (Role::Turn, token.turn),
            Disorder::Phase => (Role::Phase, 0),
            Disorder::Lost(lost) if lost.is_of_layer() => (Role::Layer, token.layer),
            Disorder::Position { .. } | Disorder::Lost(_) | Disorder::TooMany => {
                (Role::Step, token.position)
            }
        };
        self.columns.wrong(
            line,
            role,
            quoted(value.to_string().as_bytes()),
            disorder.expected(token),
        )
    }

    /// The end of the file: what a writer that was ended has left unfinished is left out, and told.
    fn end(&mut self, unfinished_line: Option<u64>) {
        self.at_end = true;
        if let Some(line) = unfinished_line {
            self.notes.push(format!(
                "line {line}, the last, has no end and was left out: it may have been cut off"
            ));
        }
        let whole = self.top_k.is_none_or(|top_k| self.slots == top_k);
        // Without a top-k the only token is whole unless the file was cut off in it.
        if let Some(token) =
            self.token.filter(|_| !whole || (self.top_k.is_none() && unfinished_line.is_some()))
        {
            let at = self.rows.len() - self.slots as usize;
            self.rows.split_off(at);
            self.notes.push(format!(
                "the last token (position {}, layer {}) has only {} slots and was left out",
                token.position, token.layer, self.slots
            ));
        } else if self.top_k.is_none() {
            self.header.top_k = self.slots;
        }
        self.notes.extend(self.order.notes());
        if self.header.layers.is_empty() {
            let layer = |index| ImportedLayer { index, expert_bytes: None };
            self.header.layers = self.layers.all().map(layer).collect();
        }
    }
}
