//! HTML as Markdown. No tree is built: of hostile HTML it would be deeper than the stack, or larger than the memory.

use super::markdown::{ContainerKind, SpanKind, Writer};
use html5gum::{HtmlString, Token, Tokenizer, naive_next_state};
use reqwest::Url;
use std::sync::atomic::{AtomicBool, Ordering};

type Tag = html5gum::StartTag<()>;

/// The maximum length of a title, in characters.
const TITLE_CHARS: usize = 200;

/// The maximum length of the address to which a page lets its links be relative, in bytes.
const BASE_BYTES: usize = 4096;

/// Elements of which nothing is shown.
const SKIPPED: [&str; 11] = [
    "script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "audio",
    "video", "noembed",
];

/// Elements that end a formula in which they begin, besides blocks and headings (HTML, 13.2.6.5).
const BREAKOUTS: [&str; 24] = [
    "a",
    "b",
    "big",
    "blockquote",
    "code",
    "dd",
    "dt",
    "em",
    "embed",
    "font",
    "hr",
    "i",
    "img",
    "li",
    "meta",
    "ol",
    "pre",
    "s",
    "small",
    "span",
    "strong",
    "table",
    "tt",
    "ul",
];

/// A page as text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Converted {
    pub(super) title: Option<String>,
    pub(super) text: String,
    /// Whether the text would have been too long, so that its end is missing.
    pub(super) is_cut: bool,
}

/// Converts a page that came from `base`, into about `most` bytes. It ends early once nobody waits for it.
pub(super) fn to_markdown(
    html: &str,
    base: &Url,
    most: usize,
    is_dropped: &AtomicBool,
) -> Converted {
    let mut page = Page {
        base: base.clone(),
        has_base: false,
        writer: Writer::new(most),
        skipped: None,
        foreign: None,
        title: String::new(),
        is_title: false,
    };
    let mut is_cut = false;
    let mut tokens = Tokenizer::new(html);
    while let Some(Ok(token)) = tokens.next() {
        is_cut = page.writer.is_full() || is_dropped.load(Ordering::Relaxed);
        if is_cut {
            break;
        }
        match token {
            Token::StartTag(tag) => {
                page.begin(&tag);
                // In drawings and formulas a style or a title is an element like others, and may be empty.
                let state = naive_next_state(&tag.name).filter(|_| page.foreign.is_none());
                if let Some(state) = state {
                    tokens.set_state(state);
                }
            }
            Token::EndTag(tag) => page.end(&name_of(&tag.name)),
            Token::String(text) => page.text(&String::from_utf8_lossy(&text.value)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    let title = page.title.split_whitespace().collect::<Vec<_>>().join(" ");
    let title: String = title.chars().take(TITLE_CHARS).collect();
    Converted {
        title: Some(title).filter(|title| !title.is_empty()),
        text: page.writer.finish(),
        is_cut,
    }
}

/// A page that is being converted.
struct Page {
    /// The address to which the addresses of links are relative.
    base: Url,
    /// Whether the page has named it. Only the first time counts.
    has_base: bool,
    writer: Writer,
    /// The element of which nothing is shown, and the number of elements of this name that are open.
    skipped: Option<(String, usize)>,
    /// The drawing or formula, and the number of elements of this name that are open.
    foreign: Option<(String, usize)>,
    title: String,
    is_title: bool,
}

fn name_of(name: &HtmlString) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Returns the value of an attribute.
fn attribute(tag: &Tag, name: &str) -> Option<String> {
    let value = tag.attributes.get(name.as_bytes())?;
    Some(String::from_utf8_lossy(&value.value).into_owned())
}

impl Page {
    fn text(&mut self, text: &str) {
        if self.is_title {
            // A title that is never closed is no title.
            if self.title.len() < TITLE_CHARS * 4 {
                self.title.push_str(text);
            }
        } else if self.skipped.is_none() {
            self.writer.text(text);
        }
    }

    fn begin(&mut self, tag: &Tag) {
        let name = name_of(&tag.name);
        let is_foreign = self.begin_foreign(&name, tag.self_closing);
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(*skipped == name && !tag.self_closing);
            return;
        }
        if is_foreign && tag.self_closing {
            return;
        }
        if SKIPPED.contains(&name.as_str()) {
            self.skipped = Some((name, 1));
            return;
        }
        let writer = &mut self.writer;
        match name.as_str() {
            "title" => self.is_title = self.title.is_empty(),
            "base" => self.set_base(tag),
            "a" => self.begin_link(tag),
            "img" => self.image(tag),
            "b" | "strong" => writer.begin_span(SpanKind::Strong),
            "i" | "em" => writer.begin_span(SpanKind::Emphasis),
            "code" | "kbd" | "samp" | "tt" if !writer.is_preformatted() => {
                writer.begin_span(SpanKind::Code);
            }
            "code" => writer.set_language(language(tag)),
            "pre" | "listing" | "xmp" | "textarea" => writer.begin_preformatted(language(tag)),
            "br" if writer.is_preformatted() => writer.text("\n"),
            "hr" => writer.rule(),
            "ul" | "menu" => writer.begin_container(ContainerKind::List(None)),
            "ol" => {
                let first = attribute(tag, "start").and_then(|it| it.trim().parse().ok());
                writer.begin_container(ContainerKind::List(Some(first.unwrap_or(1))));
            }
            "li" => writer.begin_container(ContainerKind::Item),
            "blockquote" => writer.begin_container(ContainerKind::Quote),
            "dt" => {
                writer.end_definition();
                writer.separate(1);
            }
            "dd" => {
                writer.end_definition();
                writer.begin_container(ContainerKind::Definition);
            }
            "table" => writer.begin_table(),
            "tr" => writer.end_row(),
            "td" | "th" => writer.begin_cell(),
            other => match (heading(other), breaks_around(other)) {
                (Some(sign), _) => writer.heading(sign),
                (None, Some(breaks)) => writer.separate(breaks),
                (None, None) => {}
            },
        }
    }

    /// Notes which drawing or formula a tag begins or ends. Returns whether the tag is of one.
    fn begin_foreign(&mut self, name: &str, is_closed: bool) -> bool {
        let is_root = matches!(name, "svg" | "math");
        match &mut self.foreign {
            Some((foreign, depth)) if foreign == name => *depth += usize::from(!is_closed),
            Some((foreign, _)) if foreign == "math" && is_breakout(name) => self.foreign = None,
            Some(_) => {}
            None if is_root && !is_closed => self.foreign = Some((name.to_owned(), 1)),
            None => return is_root,
        }
        self.foreign.is_some()
    }

    fn end_foreign(&mut self, name: &str) {
        if let Some((_, depth)) = self.foreign.as_mut().filter(|(foreign, _)| foreign == name) {
            *depth -= 1;
            if *depth == 0 {
                self.foreign = None;
            }
        }
    }

    fn end(&mut self, name: &str) {
        self.end_foreign(name);
        if let Some((skipped, depth)) = &mut self.skipped {
            if skipped == name {
                *depth -= 1;
                if *depth == 0 {
                    self.skipped = None;
                    // A drawing within it that was never closed ends with it.
                    self.foreign.take_if(|(foreign, _)| foreign == "svg");
                }
            }
            return;
        }
        let writer = &mut self.writer;
        match name {
            "title" => self.is_title = false,
            "a" => writer.end_span(&SpanKind::Link(None)),
            "b" | "strong" => writer.end_span(&SpanKind::Strong),
            "i" | "em" => writer.end_span(&SpanKind::Emphasis),
            "code" | "kbd" | "samp" | "tt" => writer.end_span(&SpanKind::Code),
            "pre" | "listing" | "xmp" | "textarea" => writer.end_preformatted(),
            "ul" | "menu" | "ol" => writer.end_container(ContainerKind::List(None)),
            "li" => writer.end_container(ContainerKind::Item),
            "blockquote" => writer.end_container(ContainerKind::Quote),
            "dd" | "dl" => {
                writer.end_definition();
                writer.separate(if name == "dl" { 2 } else { 1 });
            }
            "table" => writer.end_table(),
            "tr" => writer.end_row(),
            "td" | "th" => writer.end_cell(),
            other => match (heading(other), breaks_around(other)) {
                (Some(_), _) => writer.separate(2),
                (None, Some(breaks)) => writer.separate(breaks),
                (None, None) => {}
            },
        }
    }

    fn set_base(&mut self, tag: &Tag) {
        let Some(href) = attribute(tag, "href").filter(|_| !self.has_base) else { return };
        self.has_base = true;
        let base = Some(href.trim()).filter(|href| href.len() <= BASE_BYTES);
        let base = base.and_then(|href| self.base.join(href).ok()).filter(is_web);
        if let Some(base) = base.filter(|base| base.as_str().len() <= BASE_BYTES) {
            self.base = base;
        }
    }

    fn begin_link(&mut self, tag: &Tag) {
        // A link in a link ends the outer one.
        self.writer.end_span(&SpanKind::Link(None));
        let href = attribute(tag, "href").unwrap_or_default();
        let href = href.trim();
        let is_inside = href.is_empty() || href.starts_with('#');
        let target = self.base.join(href).ok().filter(|url| !is_inside && is_web(url));
        self.writer.begin_span(SpanKind::Link(target.map(String::from)));
    }

    fn image(&mut self, tag: &Tag) {
        let alt = attribute(tag, "alt").unwrap_or_default();
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        let source = attribute(tag, "src").and_then(|it| self.base.join(it.trim()).ok());
        if let (Some(source), false) = (source.filter(is_web), alt.is_empty()) {
            self.writer.word(&format!("![{alt}]({source})"));
        }
    }
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Returns the language in the class of preformatted text; empty if there is none.
fn language(tag: &Tag) -> String {
    let class = attribute(tag, "class").unwrap_or_default();
    let named = class.split_whitespace().find_map(|word| {
        let language = word.strip_prefix("language-").or_else(|| word.strip_prefix("lang-"))?;
        let is_plain = language.chars().all(|c| c.is_ascii_alphanumeric() || "+#-_.".contains(c));
        (is_plain && language.len() <= 20).then(|| language.to_owned())
    });
    named.unwrap_or_default()
}

/// Whether an element ends the formula in which it begins.
fn is_breakout(name: &str) -> bool {
    BREAKOUTS.contains(&name) || heading(name).is_some() || breaks_around(name).is_some()
}

fn heading(name: &str) -> Option<&'static str> {
    Some(match name {
        "h1" => "# ",
        "h2" => "## ",
        "h3" => "### ",
        "h4" => "#### ",
        "h5" => "##### ",
        "h6" => "###### ",
        _ => return None,
    })
}

/// Returns the number of line breaks before and after an element; `None` for one within a line.
fn breaks_around(name: &str) -> Option<usize> {
    Some(match name {
        "p" | "dl" | "figure" | "article" | "section" | "main" | "header" | "footer" | "nav"
        | "aside" | "details" | "form" | "fieldset" | "body" => 2,
        "div" | "br" | "address" | "center" | "summary" | "figcaption" | "caption" | "legend"
        | "option" | "optgroup" | "dialog" | "search" | "hgroup" => 1,
        _ => return None,
    })
}
