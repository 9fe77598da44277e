//! Tables of reports within other documents, kept fresh between markers.
//!
//! ```text
//! <!-- bmoe report results/quickstart | quickstart | configuration, tok/s mean, hit % -->
//! (the table stands here)
//! <!-- bmoe end -->
//! ```
//!
//! The folder is relative to the document; then the heading of the report below which the table stands, and, if
//! not all of them are wanted, its columns.

use std::fmt::Write;

const BEGIN: &str = "<!-- bmoe report ";
const CLOSE: &str = " -->";
const END: &str = "<!-- bmoe end -->";

/// Why a document can't be refreshed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct SpliceError {
    /// Line of the document, from 1.
    pub line: usize,
    /// What is wrong there, what was expected, and what to do.
    pub message: String,
}

/// A place in a document.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    folder: &'a str,
    heading: &'a str,
    columns: Option<Vec<&'a str>>,
}

impl<'a> Place<'a> {
    fn parse(marker: &'a str) -> Result<Self, String> {
        let inside = marker.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(CLOSE));
        let parts: Vec<_> = inside.unwrap_or_default().split('|').map(str::trim).collect();
        let (folder, heading, columns) = match parts[..] {
            [folder, heading] => (folder, heading, None),
            [folder, heading, columns] => {
                (folder, heading, Some(columns.split(',').map(str::trim).collect()))
            }
            _ => ("", "", None),
        };
        if folder.is_empty() || heading.is_empty() {
            return Err(format!(
                "\"{marker}\" names no table; expected \"{BEGIN}FOLDER | HEADING{CLOSE}\" or \"{BEGIN}FOLDER | HEADING | \
                 COLUMN, COLUMN{CLOSE}\""
            ));
        }
        Ok(Self { folder, heading, columns })
    }
}

/// The document with every table between markers taken anew from its report. `report` gives a folder's
/// `report.md`. Gives the new text and the number of tables.
///
/// # Errors
/// A marker is wrong or never ended, a report has no such table, or `report` fails.
pub fn refresh(
    document: &str,
    report: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<(String, usize), SpliceError> {
    let mut out = String::with_capacity(document.len());
    let mut tables = 0;
    let mut lines = document.lines().enumerate();
    while let Some((at, text)) = lines.next() {
        out.push_str(text);
        out.push('\n');
        let error = |message: String| SpliceError { line: at + 1, message };
        let marker = text.trim();
        if marker == END {
            return Err(error(format!(
                "\"{END}\" ends nothing; remove it, or the marker before it is misspelt"
            )));
        }
        if !marker.starts_with(BEGIN.trim_end()) {
            continue;
        }
        let place = Place::parse(marker).map_err(error)?;
        let report = report(place.folder).map_err(error)?;
        let table = table(&report, place.heading).ok_or_else(|| {
            error(format!(
                "the report of {} has no table below a heading \"{}\"; its headings are {}",
                place.folder,
                place.heading,
                headings(&report)
            ))
        })?;
        write_table(&mut out, &table, place.columns.as_deref()).map_err(error)?;
        let _ = writeln!(out, "\nFrom `bmoe report {}`.", place.folder);
        if !lines.any(|(_, text)| text.trim() == END) {
            return Err(error(format!(
                "\"{marker}\" is never ended; expected a line \"{END}\" behind it"
            )));
        }
        out.push_str(END);
        out.push('\n');
        tables += 1;
    }
    Ok((out, tables))
}

fn heading(line: &str) -> Option<&str> {
    line.starts_with('#').then(|| line.trim_start_matches('#').trim())
}

fn headings(report: &str) -> String {
    let all: Vec<_> = report.lines().filter_map(heading).map(|h| format!("\"{h}\"")).collect();
    all.join(", ")
}

/// The first table below a heading, before the next one.
fn table<'r>(report: &'r str, wanted: &str) -> Option<Vec<&'r str>> {
    let below = report.lines().skip_while(|line| heading(line) != Some(wanted)).skip(1);
    let section = below.take_while(|line| heading(line).is_none());
    let rows: Vec<_> = section
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .collect();
    (rows.len() > 2).then_some(rows)
}

fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim).collect()
}

fn write_table(out: &mut String, table: &[&str], columns: Option<&[&str]>) -> Result<(), String> {
    let header = cells(table[0]);
    let chosen: Vec<usize> = match columns {
        None => (0..header.len()).collect(),
        Some(columns) => columns
            .iter()
            .map(|wanted| {
                header.iter().position(|name| name == wanted).ok_or_else(|| {
                    format!(
                        "the table has no column \"{wanted}\"; its columns are {}",
                        header.join(", ")
                    )
                })
            })
            .collect::<Result<_, _>>()?,
    };
    for row in table {
        let cells = cells(row);
        for &column in &chosen {
            let _ = write!(out, "| {} ", cells.get(column).unwrap_or(&""));
        }
        out.push_str("|\n");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "# r\n\n## m\n\ntext\n\n| a | b | c |\n|---|---:|---:|\n| x | 1 | 2 |\n| y | 3 | 4 |\n\n### more\n\n| d |\n|---|\n| z |\n\n### none\n";

    fn refreshed(document: &str) -> Result<(String, usize), SpliceError> {
        refresh(document, &mut |folder| match folder {
            "r/s" => Ok(REPORT.to_owned()),
            other => Err(format!("{other} is no result folder")),
        })
    }

    #[test]
    fn what_stands_between_markers_is_replaced_and_nothing_else() {
        let document = "before\n<!-- bmoe report r/s | m | a, c -->\nold\n<!-- bmoe end -->\nbetween\n\
                        <!-- bmoe report r/s | more -->\n<!-- bmoe end -->\nbehind\n";
        let expected = "before\n<!-- bmoe report r/s | m | a, c -->\n| a | c |\n| --- | ---: |\n| x | 2 |\n| y | 4 |\n\n\
                        From `bmoe report r/s`.\n<!-- bmoe end -->\nbetween\n<!-- bmoe report r/s | more -->\n\
                        | d |\n| --- |\n| z |\n\nFrom `bmoe report r/s`.\n<!-- bmoe end -->\nbehind\n";
        let (once, tables) = refreshed(document).unwrap();
        assert_eq!((once.as_str(), tables), (expected, 2));
        assert_eq!(refreshed(&once).unwrap().0, once, "a fresh document stays as it is");
    }

    #[test]
    fn a_place_that_cannot_be_filled_is_named() {
        let message = |document: &str| refreshed(document).unwrap_err().to_string();
        let cases = [
            (
                "a\n<!-- bmoe report r/s -->\n<!-- bmoe end -->",
                "line 2: \"<!-- bmoe report r/s -->\" names no table",
            ),
            (
                "<!-- bmoe report r/s | m -->\n",
                "line 1: \"<!-- bmoe report r/s | m -->\" is never ended",
            ),
            (
                "<!-- bmoe report r/s | x -->\n<!-- bmoe end -->",
                "no table below a heading \"x\"; its headings are \"r\", \"m\"",
            ),
            (
                "<!-- bmoe report r/s | none -->\n<!-- bmoe end -->",
                "no table below a heading \"none\"",
            ),
            (
                "<!-- bmoe report r/s | m | e -->\n<!-- bmoe end -->",
                "no column \"e\"; its columns are a, b, c",
            ),
            ("<!-- bmoe report q | m -->\n<!-- bmoe end -->", "line 1: q is no result folder"),
            ("x\n\n<!-- bmoe end -->", "line 3: \"<!-- bmoe end -->\" ends nothing"),
        ];
        for (document, expected) in cases {
            let said = message(document);
            assert!(said.contains(expected), "{said}\n{expected}");
        }
    }
}
