//! The report's Markdown as HTML.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use serde::Serialize;

/// The report's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Body {
    /// Plain text of its first heading.
    pub(super) title: String,
    /// Headings of the second level.
    pub(super) sections: Vec<Section>,
    pub(super) html: String,
}

/// A place to jump to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Section {
    pub(super) id: String,
    pub(super) title: String,
}

impl Body {
    /// Names in a report come from files and command lines: whatever looks like HTML in it is text, and links lead to
    /// files and web pages only. Pictures are put in where they stand.
    pub(super) fn new(markdown: &str, svg_of: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut body = Self { title: String::new(), sections: Vec::new(), html: String::new() };
        let mut events = Vec::new();
        let mut picture: Option<(String, String)> = None;
        let mut heading: Option<(HeadingLevel, usize, String)> = None;
        for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
            if let Some((address, alt)) = &mut picture {
                match event {
                    Event::End(TagEnd::Image) => {
                        events.push(Event::InlineHtml(figure(alt, svg_of(address)).into()));
                        picture = None;
                    }
                    Event::Text(text) | Event::Code(text) | Event::InlineHtml(text) => {
                        alt.push_str(&text);
                    }
                    _ => {}
                }
                continue;
            }
            if let (
                Some((.., title)),
                Event::Text(text) | Event::Code(text) | Event::InlineHtml(text),
            ) = (&mut heading, &event)
            {
                title.push_str(text);
            }
            match event {
                Event::Html(text) | Event::InlineHtml(text) => events.push(Event::Text(text)),
                Event::Start(Tag::Image { dest_url, .. }) => {
                    picture = Some((dest_url.into_string(), String::new()));
                }
                Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                    let dest_url =
                        if leads_elsewhere(&dest_url) { CowStr::from("#") } else { dest_url };
                    events.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
                }
                Event::Start(Tag::Heading { level, .. }) => {
                    heading = Some((level, events.len(), String::new()));
                    events.push(event);
                }
                Event::End(TagEnd::Heading(_)) => {
                    if let Some((level, at, title)) = heading.take() {
                        body.heading(&mut events, level, at, title);
                    }
                    events.push(event);
                }
                Event::Start(Tag::Table(_)) => {
                    events.push(Event::Html("<div class=\"table\" tabindex=\"0\">".into()));
                    events.push(event);
                }
                Event::End(TagEnd::Table) => {
                    events.push(event);
                    events.push(Event::Html("</div>\n".into()));
                }
                other => events.push(other),
            }
        }
        html::push_html(&mut body.html, events.into_iter());
        body
    }

    fn heading(&mut self, events: &mut [Event<'_>], level: HeadingLevel, at: usize, title: String) {
        if level == HeadingLevel::H1 && self.title.is_empty() {
            self.title = title;
        } else if level == HeadingLevel::H2 {
            let section = Section { id: format!("part-{}", self.sections.len() + 1), title };
            if let Some(Event::Start(Tag::Heading { id, .. })) = events.get_mut(at) {
                *id = Some(section.id.clone().into());
            }
            self.sections.push(section);
        }
    }
}

/// Whether a link is to something else than a place in the page, a file beside it, or a web page.
fn leads_elsewhere(address: &str) -> bool {
    let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| !scheme.contains('/') && scheme != "https" && scheme != "http")
}

fn figure(alt: &str, svg: Option<String>) -> String {
    let label = minijinja::HtmlEscape(alt);
    match svg {
        Some(svg) => {
            format!("<span class=\"plot\" role=\"img\" aria-label=\"{label}\">{svg}</span>")
        }
        None => format!("<span class=\"plot\">{label}</span>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_headings_and_pictures() {
        let markdown = "# A *b*\n\n## C\n\n| x | n |\n|---|---:|\n| 1 \\<b> | 2 |\n\n![alt \"<i>](plots/p.svg)\n";
        let svg = |address: &str| (address == "plots/p.svg").then(|| "<svg></svg>".to_owned());
        let body = Body::new(markdown, &svg);
        insta::assert_snapshot!(body.html, @r##"
        <h1>A <em>b</em></h1>
        <h2 id="part-1">C</h2>
        <div class="table" tabindex="0"><table><thead><tr><th>x</th><th style="text-align: right">n</th></tr></thead><tbody>
        <tr><td>1 &lt;b&gt;</td><td style="text-align: right">2</td></tr>
        </tbody></table>
        </div>
        <p><span class="plot" role="img" aria-label="alt &quot;&lt;i&gt;"><svg></svg></span></p>
        "##);
        assert_eq!(body.title, "A b");
        assert_eq!(body.sections, [Section { id: "part-1".into(), title: "C".into() }]);
    }

    #[test]
    fn links_lead_to_files_and_web_pages() {
        for (address, elsewhere) in [
            ("plots/a.png", false),
            ("https://example.org/a:b", false),
            ("a/b:c", false),
            ("JavaScript:alert(1)", true),
            ("data:text/html,x", true),
        ] {
            assert_eq!(leads_elsewhere(address), elsewhere, "{address}");
        }
    }
}
