//! Where each expert stands on the screen.

use ratatui::layout::{Position, Rect};

use super::Look;

/// Columns for the layers' numbers.
pub(super) const LABELS: u16 = 4;

/// The field of experts: layers downwards, experts to the right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    /// The cells, without labels.
    pub(super) area: Rect,
    /// Experts in a cell: one for a letter each, two (of up to four layers) for the dots of a Braille sign.
    pub(super) experts_per_cell: usize,
    /// See above.
    pub(super) layers_per_cell: usize,
    /// The expert in the first column and the layer in the first row.
    pub(super) first_expert: usize,
    /// See above.
    pub(super) first_layer: usize,
    layers: usize,
    experts: usize,
}

/// The first thing that is shown: the cursor is in the middle as far as there is something on both sides.
pub(super) fn first(cursor: usize, all: usize, room: usize, per_cell: usize) -> usize {
    if all <= room {
        return 0;
    }
    let first = cursor.saturating_sub(room / 2).min(all - room);
    first.div_ceil(per_cell) * per_cell
}

impl Field {
    /// Of so many layers and experts inside a panel.
    pub(super) fn new(
        inside: Rect,
        look: Look,
        (layers, experts): (usize, usize),
        cursor: (usize, usize),
    ) -> Self {
        let area = Rect {
            x: inside.x + LABELS.min(inside.width),
            width: inside.width.saturating_sub(LABELS),
            ..inside
        };
        let (wide, high) = (usize::from(area.width), usize::from(area.height));
        let letters = look == Look::CloseUp || (experts <= wide && layers <= high);
        // Dots grow when there is room.
        let per_row = if layers <= high {
            1
        } else if layers <= high * 2 {
            2
        } else {
            4
        };
        let (experts_per_cell, layers_per_cell) = if letters { (1, 1) } else { (2, per_row) };
        Self {
            area,
            experts_per_cell,
            layers_per_cell,
            first_expert: first(cursor.1, experts, wide * experts_per_cell, experts_per_cell),
            first_layer: first(cursor.0, layers, high * layers_per_cell, layers_per_cell),
            layers,
            experts,
        }
    }

    /// A letter each.
    pub(super) fn has_letters(&self) -> bool {
        self.experts_per_cell == 1
    }

    /// Cells in use.
    pub(super) fn cells(&self) -> impl Iterator<Item = Position> + use<> {
        let used = |all: usize, first: usize, per: usize, room: u16| {
            (all.saturating_sub(first).div_ceil(per)).min(usize::from(room)) as u16
        };
        let wide = used(self.experts, self.first_expert, self.experts_per_cell, self.area.width);
        let high = used(self.layers, self.first_layer, self.layers_per_cell, self.area.height);
        let area = self.area;
        (0..high).flat_map(move |row| {
            (0..wide).map(move |column| Position::new(area.x + column, area.y + row))
        })
    }

    /// The first layer and expert of a cell.
    fn corner(&self, at: Position) -> (usize, usize) {
        let row = usize::from(at.y - self.area.y) * self.layers_per_cell;
        let column = usize::from(at.x - self.area.x) * self.experts_per_cell;
        (self.first_layer + row, self.first_expert + column)
    }

    /// The experts of a cell: (layer, expert, the bits of its Braille dots).
    pub(super) fn experts_at(&self, at: Position) -> impl Iterator<Item = (usize, usize, u8)> {
        // Dots 1 to 8 of a sign, by row and column.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let (layer, expert) = self.corner(at);
        let layers = layer..(layer + self.layers_per_cell).min(self.layers);
        let experts = expert..(expert + self.experts_per_cell).min(self.experts);
        let high = BITS.len() / self.layers_per_cell;
        layers.flat_map(move |l| {
            let rows = BITS[(l - layer) * high..][..high].iter();
            let bits = [0, 1].map(|column| rows.clone().fold(0, |bits, row| bits | row[column]));
            experts.clone().map(move |e| (l, e, bits[(e - expert) % 2]))
        })
    }

    /// The cell of an expert, when it is shown.
    pub(super) fn cell_of(&self, layer: usize, expert: usize) -> Option<Position> {
        let row = layer.checked_sub(self.first_layer)? / self.layers_per_cell;
        let column = expert.checked_sub(self.first_expert)? / self.experts_per_cell;
        let inside = row < usize::from(self.area.height) && column < usize::from(self.area.width);
        inside.then(|| Position::new(self.area.x + column as u16, self.area.y + row as u16))
    }

    /// The first expert of the cell at a place.
    pub(super) fn expert_at(&self, at: Position) -> Option<(usize, usize)> {
        if !self.area.contains(at) {
            return None;
        }
        let (layer, expert) = self.corner(at);
        (layer < self.layers && expert < self.experts).then_some((layer, expert))
    }

    /// Layers and experts that are shown, when that is not all.
    pub(super) fn part(&self) -> Option<String> {
        let end = |first: usize, per: usize, room: u16, all: usize| {
            (first + per * usize::from(room)).min(all)
        };
        let layer = end(self.first_layer, self.layers_per_cell, self.area.height, self.layers);
        let expert = end(self.first_expert, self.experts_per_cell, self.area.width, self.experts);
        let (layers, experts) = (layer - self.first_layer, expert - self.first_expert);
        (layers < self.layers || experts < self.experts).then(|| {
            format!(
                "rows {} to {layer} of {}, experts {} to {} of {}",
                self.first_layer + 1,
                self.layers,
                self.first_expert,
                expert.saturating_sub(1),
                self.experts
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: Rect = Rect { x: 1, y: 2, width: 78, height: 13 };

    #[test]
    fn the_usual_large_model_fits_the_smallest_terminal() {
        let field = Field::new(INSIDE, Look::Overview, (48, 128), (0, 0));
        assert_eq!((field.has_letters(), field.part()), (false, None));
        let mut seen = vec![0; 48 * 128];
        for at in field.cells() {
            let mut bits = 0;
            for (layer, expert, bit) in field.experts_at(at) {
                assert_eq!((bits & bit, field.cell_of(layer, expert)), (0, Some(at)));
                bits |= bit;
                seen[layer * 128 + expert] += 1;
            }
        }
        assert!(seen.iter().all(|n| *n == 1));
    }

    #[test]
    fn what_does_not_fit_is_scrolled_with_the_cursor_and_said() {
        for cursor in [(0, 0), (30, 200), (59, 383), (17, 5)] {
            for look in [Look::Overview, Look::CloseUp] {
                let field = Field::new(INSIDE, look, (60, 384), cursor);
                let at = field.cell_of(cursor.0, cursor.1).expect("the cursor is shown");
                let (layer, expert) = field.expert_at(at).unwrap();
                assert!(cursor.0 - layer < 4 && cursor.1 - expert < 2);
                assert!(field.part().is_some());
            }
        }
        let field = Field::new(INSIDE, Look::CloseUp, (60, 384), (59, 383));
        assert_eq!(field.part().unwrap(), "rows 48 to 60 of 60, experts 310 to 383 of 384");
        assert_eq!(field.expert_at(Position::new(2, 2)), None);
    }

    #[test]
    fn dots_are_as_large_as_there_is_room_for() {
        let bits = |layers| {
            let field = Field::new(INSIDE, Look::Overview, (layers, 128), (0, 0));
            let at = field.cells().next().unwrap();
            field.experts_at(at).map(|(_, _, bits)| bits).collect::<Vec<u8>>()
        };
        assert_eq!(bits(13), [0x47, 0xb8]);
        assert_eq!(bits(26), [0x03, 0x18, 0x44, 0xa0]);
        assert_eq!(bits(27).len(), 8);
    }

    #[test]
    fn small_models_have_a_letter_for_each_expert_at_once() {
        let field = Field::new(INSIDE, Look::Overview, (12, 32), (0, 0));
        assert!(field.has_letters());
        assert_eq!(field.cells().count(), 12 * 32);
        assert_eq!(Field::new(INSIDE, Look::Overview, (0, 0), (0, 0)).cells().count(), 0);
    }
}
