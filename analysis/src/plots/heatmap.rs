//! How often each expert of each layer was used.

use super::canvas::Picture;
use super::grid::{Grid, Scale};
use super::theme::Theme;
use crate::markdown::one_line;
use crate::routes::tokens::Phases;
use crate::routes::views::Hot;

/// Layer by expert, colour = share of the tokens routed there.
#[derive(Debug, Clone)]
pub struct Heatmap<'a> {
    /// The routes.
    pub hot: &'a Hot,
    /// The model's name.
    pub model: &'a str,
    /// Which run the routes are of.
    pub run: &'a str,
}

impl Heatmap<'_> {
    /// Draws it.
    ///
    /// # Errors
    /// The plotting library failed.
    pub fn render(&self, theme: Theme) -> Result<Picture, String> {
        Picture::render(&self.grid(), theme)
    }

    fn grid(&self) -> Grid {
        let hot = self.hot;
        let tokens = match hot.phases {
            Phases::Decode => "decode tokens",
            Phases::Prefill => "prompt tokens",
            Phases::All => "tokens",
        };
        // Layers from the first to the last MoE layer; a dense layer between them leaves its row empty.
        let layers = hot.layers.first().zip(hot.layers.last());
        let numbers = layers.map_or(0..0, |(first, last)| first.layer..last.layer + 1);
        let mut cells = vec![None; numbers.len() * hot.n_expert as usize];
        let rows = cells.chunks_mut(hot.n_expert.max(1) as usize);
        let mut of_layers = hot.layers.iter().peekable();
        for (row, number) in rows.zip(numbers.clone()) {
            let Some(layer) = of_layers.next_if(|l| l.layer == number) else { continue };
            for (cell, uses) in row.iter_mut().zip(&layer.uses) {
                *cell = (*uses > 0).then(|| layer.share(*uses));
            }
        }
        let even = hot.top_k as f64 / f64::from(hot.n_expert.max(1));
        let percents = [0, 1, 2, 5, 10, 20, 30, 40, 60, 80, 100];
        Grid {
            title: format!("{}: which experts the {tokens} used", one_line(self.model)),
            subtitle: format!(
                "{} MoE layer{} × {} experts, top-{}, {} {tokens}; run: {}",
                hot.layers.len(),
                if hot.layers.len() == 1 { "" } else { "s" },
                hot.n_expert,
                hot.top_k,
                hot.tokens,
                one_line(self.run)
            ),
            rows: numbers.map(|number| number.to_string()).collect(),
            columns: (0..hot.n_expert).map(|expert| expert.to_string()).collect(),
            cells,
            x_name: "expert (in index order)".to_owned(),
            y_name: "layer".to_owned(),
            scale: Scale::Bar {
                highest: hot.highest_share(),
                square_root: true,
                heading: vec![format!("share of {tokens}, %"), "(square-root scale)".to_owned()],
                labels: percents.map(|p| (f64::from(p) / 100.0, p.to_string())).to_vec(),
                mark: Some((even, format!("{:.1} if even", even * 100.0))),
            },
            nothing: "not used",
        }
    }
}
