//! One HTML file with a whole report in it: text, tables, pictures, and routes that can be looked through.
//!
//! It loads nothing: style, scripts and data are in the file, and its content policy forbids anything else.

mod body;
mod routes;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, context};

pub(crate) use routes::Runs;

const TEMPLATE: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
const TABLES_JS: &str = include_str!("tables.js");
const MATRIX_JS: &str = include_str!("matrix.js");

/// The page of a report that is there as Markdown. `svg_of` gives the text of a picture by the address that the
/// Markdown has for it.
///
/// # Errors
/// The template failed, which no input can make it do.
pub(crate) fn page(
    markdown: &str,
    svg_of: &dyn Fn(&str) -> Option<String>,
    runs: &Runs,
) -> Result<String, String> {
    let report = body::Body::new(markdown, svg_of);
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment
        .render_named_str(
            "page.html",
            TEMPLATE,
            context! {
                title => report.title,
                sections => Serde(&report.sections),
                body => report.html,
                has_routes => !runs.is_empty(),
                runs => Serde(runs.embedded()),
                notes => runs.notes(),
                css => CSS,
                tables_js => TABLES_JS,
                matrix_js => MATRIX_JS,
            },
        )
        .map_err(|e| format!("{e:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::{RouteEvent, RouteLayer, RouteTrace};

    #[test]
    fn names_never_become_markup() {
        let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
        let mut trace = RouteTrace::new(evil.into(), String::new(), vec![RouteLayer::default()], 4);
        trace
            .push(&RouteEvent { positions: &[0], experts: &[1, 2], ..RouteEvent::default() })
            .unwrap();
        let mut runs = Runs::default();
        runs.add(evil.to_owned(), &trace);
        let markdown = format!(
            "# {evil}\n\n## {evil}\n\n{evil}\n\n| a |\n|---|\n| {} |\n\n[x](javascript:alert(3))\n",
            crate::markdown::escape(evil)
        );
        let page = page(&markdown, &|_| None, &runs).unwrap();
        let own = page.matches("<script").count();
        assert_eq!((own, page.matches("</script>").count()), (4, 4), "{page}");
        assert!(!page.contains("<img") && !page.contains("href=\"javascript"));
        assert!(page.contains("<title>&lt;&#x2f;script&gt;&lt;script&gt;alert(1)"));
    }

    #[test]
    fn nothing_is_loaded_from_anywhere() {
        let page = page("# a\n\n![b](plots/b.svg)\n", &|_| None, &Runs::default()).unwrap();
        for loads in ["src=", "<link", "@import", "url(", "fetch(", "http:", "https:"] {
            assert!(!page.contains(loads), "{loads}");
        }
        // The template ends a script only where it means to.
        assert!(!TABLES_JS.contains("</") && !MATRIX_JS.contains("</"));
        assert!(page.contains("default-src 'none'"));
    }
}
