//! How the tokens of a run were routed, as plain numbers.

use std::collections::{BTreeMap, BTreeSet};

use bmoe_trace::record::Phase;

use crate::data::RouteRow;

/// Decode routing of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    /// Per MoE layer, in order.
    pub layers: Vec<LayerRouting>,
    /// Experts per MoE layer.
    pub n_expert: u32,
    /// Experts per token.
    pub top_k: u32,
    /// Decode tokens.
    pub tokens: u32,
}

/// Decode routing of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerRouting {
    /// Index of the layer in the model.
    pub layer: u32,
    /// Decode tokens routed to each expert, by expert.
    pub uses: Vec<u32>,
    /// Mean share of a token's experts that the previous token used too; `None` with fewer than two.
    pub overlap_previous: Option<f64>,
    /// The same against the token eight steps back.
    pub overlap_eighth: Option<f64>,
}

impl Routing {
    /// From the routes of one run; `None` when it has no decode routes.
    #[must_use]
    pub fn new(routes: &[RouteRow], n_expert: u32) -> Option<Self> {
        let mut sets: BTreeMap<u32, BTreeMap<u32, BTreeSet<u32>>> = BTreeMap::new();
        for row in routes.iter().filter(|r| r.phase == Phase::Decode) {
            let layer = sets.entry(row.layer).or_default();
            layer.entry(row.position).or_default().insert(row.expert);
        }
        let layers: Vec<_> =
            sets.iter().map(|(layer, tokens)| layer_routing(*layer, tokens, n_expert)).collect();
        let tokens = sets.values().map(BTreeMap::len).max()?;
        let top_k = sets.values().flat_map(BTreeMap::values).map(BTreeSet::len).max()?;
        Some(Self {
            layers,
            n_expert,
            top_k: u32::try_from(top_k).ok()?,
            tokens: u32::try_from(tokens).ok()?,
        })
    }

    /// Highest share of decode tokens that one expert of one layer has, 0 to 1.
    #[must_use]
    pub fn highest_share(&self) -> f64 {
        let uses = self.layers.iter().flat_map(|l| l.uses.iter().copied()).max().unwrap_or(0);
        self.share(uses)
    }

    /// A number of uses as a share of the decode tokens.
    #[must_use]
    pub fn share(&self, uses: u32) -> f64 {
        if self.tokens == 0 { 0.0 } else { f64::from(uses) / f64::from(self.tokens) }
    }

    /// Distinct experts used in each layer.
    #[must_use]
    pub fn touched(&self) -> Vec<usize> {
        self.layers.iter().map(|l| l.uses.iter().filter(|u| **u > 0).count()).collect()
    }

    /// Mean over the layers of the overlap with the previous and with the eighth-previous token.
    #[must_use]
    pub fn mean_overlaps(&self) -> (Option<f64>, Option<f64>) {
        let mean = |of: fn(&LayerRouting) -> Option<f64>| {
            crate::stats::mean(&self.layers.iter().filter_map(of).collect::<Vec<_>>())
        };
        (mean(|l| l.overlap_previous), mean(|l| l.overlap_eighth))
    }
}

fn layer_routing(layer: u32, tokens: &BTreeMap<u32, BTreeSet<u32>>, n_expert: u32) -> LayerRouting {
    let mut uses = vec![0; n_expert as usize];
    for expert in tokens.values().flatten() {
        // An expert past the declared number would be a damaged record; it has no column to count in.
        if let Some(count) = uses.get_mut(*expert as usize) {
            *count += 1;
        }
    }
    let overlap = |distance: u32| {
        let shares: Vec<f64> = tokens
            .iter()
            .filter_map(|(position, now)| {
                let before = tokens.get(&position.checked_sub(distance)?)?;
                Some(now.intersection(before).count() as f64 / now.len() as f64)
            })
            .collect();
        crate::stats::mean(&shares)
    };
    LayerRouting { layer, uses, overlap_previous: overlap(1), overlap_eighth: overlap(8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(phase: Phase, layer: u32, position: u32, experts: &[u32]) -> Vec<RouteRow> {
        let row = |(slot, expert): (usize, &u32)| RouteRow {
            event: 0,
            turn: 0,
            ubatch: 0,
            phase,
            layer,
            position,
            slot: slot as u32,
            expert: *expert,
            weight: None,
            residency: None,
            read_bytes: None,
        };
        experts.iter().enumerate().map(row).collect()
    }

    #[test]
    fn prefill_is_left_out_and_overlap_is_of_neighbours() {
        let routes = [
            route(Phase::Prefill, 1, 0, &[3, 2]),
            route(Phase::Decode, 1, 1, &[0, 1]),
            route(Phase::Decode, 1, 2, &[1, 2]),
            route(Phase::Decode, 1, 3, &[1, 2]),
        ]
        .concat();
        let routing = Routing::new(&routes, 4).unwrap();
        assert_eq!((routing.tokens, routing.top_k), (3, 2));
        assert_eq!(routing.layers[0].layer, 1);
        assert_eq!(routing.layers[0].uses, [1, 3, 2, 0]);
        assert_eq!(routing.layers[0].overlap_previous, Some(0.75));
        assert_eq!(routing.layers[0].overlap_eighth, None);
        assert_eq!(routing.touched(), [3]);
        assert!((routing.highest_share() - 1.0).abs() < 1e-12);
        assert_eq!(Routing::new(&routes[..2], 4), None);
    }
}
