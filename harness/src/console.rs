//! A report's benchmark tables, with their columns aligned for a terminal.

/// The tables of token rates among a report's Markdown, one per model, below the model's heading.
pub(crate) fn benchmark_tables(report: &str) -> String {
    let mut out = String::new();
    let mut heading = "";
    let mut lines = report.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
        } else if line.starts_with('|') {
            let mut table = vec![line];
            while let Some(row) = lines.next_if(|next| next.starts_with('|')) {
                table.push(row);
            }
            if line.contains("| tok/s mean |") {
                out += &format!("{heading}\n{}", align(&table));
            }
        }
    }
    out
}

/// Pads the cells of a Markdown table: numbers to the right, as its second line says.
fn align(table: &[&str]) -> String {
    let cells = |row: &str| -> Vec<String> {
        row.trim_matches('|').split('|').map(|cell| cell.trim().replace("**", "")).collect()
    };
    let rows: Vec<Vec<String>> = table.iter().map(|row| cells(row)).collect();
    let right: Vec<bool> =
        rows.get(1).into_iter().flatten().map(|rule| rule.ends_with(':')).collect();
    let width = |column: usize| {
        let cells = rows.iter().enumerate().filter(|(i, _)| *i != 1);
        cells.filter_map(|(_, row)| row.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..right.len()).map(width).collect();
    let mut out = String::new();
    for (_, row) in rows.iter().enumerate().filter(|(i, _)| *i != 1) {
        let padded: Vec<String> = row
            .iter()
            .zip(widths.iter().zip(&right))
            .map(
                |(cell, (&width, right))| {
                    if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
                },
            )
            .collect();
        out += &format!("  {}\n", padded.join("  ").trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_rates_are_picked_out_and_aligned() {
        let report = "# r\n\n## one\n\n| configuration | tok/s mean | verdict |\n|---|---:|---|\n\
                      | mmap (baseline) | 2.30 | valid |\n| stream | 13.93 | **failed**: no |\n\n\
                      | what | value |\n|---|---|\n| kernel | 6 |\n";
        insta::assert_snapshot!(benchmark_tables(report), @r"
        one
          configuration    tok/s mean  verdict
          mmap (baseline)        2.30  valid
          stream                13.93  failed: no
        ");
    }
}
