//! Experts that tokens must use, whatever the router chooses.

/// The experts of every token in every MoE layer, of a recorded run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForcedRoutes {
    top_k: usize,
    tokens: u32,
    layers: Vec<Layer>,
}

/// One MoE layer's part: `top_k` experts for each token, and whether they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Layer {
    experts: Vec<u16>,
    known: Vec<bool>,
}

impl ForcedRoutes {
    /// Room for a text of so many tokens; no expert is known yet.
    #[must_use]
    pub fn new(moe_layers: usize, tokens: u32, top_k: u32) -> Self {
        let (tokens_of, top_k) = (tokens as usize, top_k as usize);
        let layer = Layer { experts: vec![0; tokens_of * top_k], known: vec![false; tokens_of] };
        Self { top_k, tokens, layers: vec![layer; moe_layers] }
    }

    /// Experts per token.
    #[must_use]
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Tokens of the text, prompt included.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Sets a token's experts in a layer (among the MoE layers), in the router's order.
    ///
    /// # Panics
    /// If there is no such layer or position, or the experts aren't `top_k`.
    pub fn set(&mut self, layer: usize, position: u32, experts: &[u16]) {
        let (at, layer) = (position as usize, &mut self.layers[layer]);
        layer.experts[at * self.top_k..(at + 1) * self.top_k].copy_from_slice(experts);
        layer.known[at] = true;
    }

    /// A token's experts in a layer, when they are known.
    #[must_use]
    pub fn experts(&self, layer: usize, position: u32) -> Option<&[u16]> {
        let (at, layer) = (position as usize, self.layers.get(layer)?);
        let known = *layer.known.get(at)?;
        known.then(|| &layer.experts[at * self.top_k..(at + 1) * self.top_k])
    }
}
