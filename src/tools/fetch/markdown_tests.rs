//! Tests of the conversion of HTML.

use super::html::{Converted, to_markdown};
use proptest::prelude::*;
use reqwest::Url;
use std::sync::atomic::AtomicBool;

fn converted(html: &str, most: usize) -> Converted {
    let url = Url::parse("https://docs.example.com/a/b?c").unwrap();
    to_markdown(html, &url, most, &AtomicBool::default())
}

fn markdown(html: &str) -> String {
    converted(html, 1 << 20).text
}

#[test]
fn a_page_becomes_markdown() {
    for (html, wanted) in [
        ("", ""),
        ("one  two\n three", "one two three"),
        (
            "<p>one<p>two</p><div>three</div><div>four<br>five</div>",
            "one\n\ntwo\n\nthree\nfour\nfive",
        ),
        ("<h1>Title</h1>text<h3> x <b>y</b></h3>", "# Title\n\ntext\n\n### x **y**"),
        ("a <b> b </b> c, <em>d</em>, <i><b>e</b></i>", "a **b** c, *d*, ***e***"),
        ("<b></b><p><b>a<p>b</b>", "**a**\n\nb"),
        ("use <code>a  b</code>.", "use `a b`."),
        ("caf&eacute; &lt;b&gt; &amp;&nbsp;x", "café <b> & x"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<script>var a = '<p>x</p>';</script><style>p{}</style>a<noscript>b</noscript>", "a"),
        ("<svg><title>x</title><svg><text>y</text></svg>z</svg>a<svg/>b", "ab"),
        ("<!-- x --><!doctype html><template>y</template>a", "a"),
        ("<details><summary>s</summary>t</details>", "s\nt"),
    ] {
        assert_eq!(markdown(html), wanted, "{html}");
    }
}

#[test]
fn the_first_address_of_a_page_counts_unless_it_is_long() {
    let base = |bytes: usize| format!("/{}/", "b".repeat(bytes - 2));
    let fits = base(4096 - "https://docs.example.com".len());
    for (html, place) in [
        ("<base target=x><base href=/r/><base href=/s/>".to_owned(), "/r/c"),
        ("<base href=file:///x/><base href=/s/>".to_owned(), "/a/c"),
        (format!("<base href={}>", base(4096)), "/a/c"),
        (format!("<base href={}><base href=/s/>", base(5000)), "/a/c"),
        (format!("<base href={fits}>"), &format!("{fits}c")),
    ] {
        let wanted = format!("[x](https://docs.example.com{place})");
        assert_eq!(markdown(&format!("{html}<a href=c>x</a>")), wanted, "{html}");
    }
}

#[test]
fn an_empty_element_of_a_drawing_or_a_formula_hides_nothing_after_it() {
    for name in ["style", "script", "title", "textarea", "iframe", "noembed", "xmp", "plaintext"] {
        for (html, wanted) in [
            (format!("a <svg><{name}/></svg> b"), "a b"),
            (format!("a <svg><g><{name}/><svg/></g></svg> b<style>p</style>"), "a b"),
            (format!("a <math><{name}/><mi>x</mi></math> b<script>'<p>'</script>"), "a x b"),
            (format!("a <math><{name}/><svg><{name}/>y</svg></math> b"), "a b"),
            (format!("a <object><svg><{name}/></object> b<script>'<p>'</script>"), "a b"),
            (format!("a <math><mi>x<p>b<script>'<{name}/></p>'</script> c"), "a x\n\nb c"),
        ] {
            assert_eq!(markdown(&html), wanted, "{html}");
        }
    }
    for (html, wanted) in [
        ("a<svg/><script>'<p>'</script>b", "ab"),
        ("a<math/><script>'<p>'</script>b", "ab"),
        ("<svg><style>a</style><script>b</script></svg>c", "c"),
        ("a<script/>b</script>c", "ac"),
    ] {
        assert_eq!(markdown(html), wanted, "{html}");
    }
}

#[test]
fn links_and_images_have_whole_addresses() {
    for (html, wanted) in [
        ("<a href=c>x</a>", "[x](https://docs.example.com/a/c)"),
        ("<a href='/c d'> x </a>y", "[x](https://docs.example.com/c%20d) y"),
        ("<a href=//other.example/#f>x</a>", "[x](https://other.example/#f)"),
        ("<a href=c_(d)>x</a>", "[x](<https://docs.example.com/a/c_(d)>)"),
        ("<a href='#f'>x</a> <a>y</a> <a href='javascript:z()'>z</a>", "x y z"),
        ("<h2><a href='#f'>§</a>Title<a href='#f'>¶</a></h2>", "## Title"),
        ("a<a href=c></a>b", "ab"),
        (
            "<a href=c>x<a href=d>y</a>",
            "[x](https://docs.example.com/a/c)[y](https://docs.example.com/a/d)",
        ),
        ("<a href=c><h3>x</h3><p>y</p></a>", "### [x](https://docs.example.com/a/c)\n\ny"),
        (
            "<img src=i.png alt=' an  image '><img src=j.png>",
            "![an image](https://docs.example.com/a/i.png)",
        ),
        ("<img src=data:image/png;base64,AAAA alt=x>", ""),
        ("<base href=/r/><a href=c>x</a>", "[x](https://docs.example.com/r/c)"),
        ("<base href=file:///etc/><a href=c>x</a>", "[x](https://docs.example.com/a/c)"),
    ] {
        assert_eq!(markdown(html), wanted, "{html}");
    }
}

#[test]
fn lists_and_quotes_are_nested() {
    for (html, wanted) in [
        ("a<ul><li>b<li>c</ul>d", "a\n\n- b\n- c\n\nd"),
        ("<ol start=9><li>a</li><li>b</li></ol>", "9. a\n10. b"),
        ("<ul><li><p>a</p><p>b</p></li><li><p>c</p></ul>", "- a\n\n  b\n\n- c"),
        ("<ul><li>a<ol><li>b<li>c</ol></li><li>d</ul>", "- a\n  1. b\n  2. c\n- d"),
        ("<ul><li></li><li>a</ul>b", "- a\n\nb"),
        (
            "x<blockquote><p>a</p><p>b</p><blockquote>c</blockquote></blockquote>d",
            "x\n\n> a\n>\n> b\n>\n> > c\n\nd",
        ),
        ("<dl><dt>a<dd>b<dd>c<dt>d<dd>e</dl>f", "a\n: b\n: c\nd\n: e\n\nf"),
        ("</ul></li></blockquote></td></pre></a></b>a", "a"),
    ] {
        assert_eq!(markdown(html), wanted, "{html}");
    }
}

#[test]
fn preformatted_text_keeps_its_lines() {
    for (html, wanted) in [
        (
            "a<pre><code class='x language-rust'>fn <b>a</b>() {\n\n    b\n}\n</code></pre>c",
            "a\n\n```rust\nfn a() {\n\n    b\n}\n```\n\nc",
        ),
        ("<pre class=lang-sh>\nls &lt; a</pre>", "```sh\nls < a\n```"),
        ("<pre>a\n```\nb</pre>", "````\na\n```\nb\n````"),
        ("<pre><div>a</div><div>b</div>c<br>d</pre>", "```\na\nb\nc\nd\n```"),
        ("<pre> \n </pre>a", "a"),
        ("<pre> <code class=language-c>a<code class=language-d>b</pre>", "```c\n ab\n```"),
        ("<ul><li>a<pre>b\nc</pre>", "- a\n\n  ```\n  b\n  c\n  ```"),
        ("<pre>a<ul><td><h1>b", "```\na\nb\n```"),
        ("<textarea>a\n<b>b</textarea>c", "```\na\n<b>b\n```\n\nc"),
    ] {
        assert_eq!(markdown(html), wanted, "{html}");
    }
}

#[test]
fn tables_of_data_are_tables_and_those_of_layout_are_text() {
    for (html, wanted) in [
        (
            "a<table><tr><th>A<th>B<tr><td>1|2<td><a href=c>x</a><tr><td><td><p>y</p></table>b",
            "a\n\n| A | B |\n|---|---|\n| 1\\|2 | [x](https://docs.example.com/a/c) |\n|  | y |\n\nb",
        ),
        (
            "<table><tr><td></td><td> </td></tr><tr><td>a</td><td>b</td></tr></table>",
            "|  |  |\n|---|---|\n| a | b |",
        ),
        ("<table><tr><td>a</td></tr><tr><td>b</td></tr></table>", "a\nb"),
        ("<table><tr><td>a<td><h1>b</h1><p>c<td>d</table>", "a\n\n# b\n\nc\nd"),
        (
            "<table><tr><td>x<td><table><tr><td>a<td>b</table><td>y</table>z",
            "x\n\n| a | b |\n|---|---|\n\ny\n\nz",
        ),
        ("<table><tr><td>a<ul><li>b</ul></table>c", "a\n\n- b\n\nc"),
        ("<table><tr><td><pre>a</pre>b</table>", "```\na\n```\n\nb"),
        ("<tr><td>a<td>b", "a\nb"),
    ] {
        assert_eq!(markdown(html), wanted, "{html}");
    }
}

#[test]
fn the_title_is_one_line() {
    let title = |html: &str| converted(html, 1000).title;
    assert_eq!(title("<title> a\n &lt;b&gt;  c</title>x").as_deref(), Some("a <b> c"));
    assert_eq!(title("<title></title><p>x<svg><title>y</title></svg>"), None);
    assert_eq!(title(&format!("<title>{}", "é".repeat(9000))).unwrap().chars().count(), 200);
}

fn many(count: usize, part: impl Fn(usize) -> String) -> String {
    (0..count).map(part).collect::<Vec<_>>().concat()
}

/// Such pages are what a parser that builds a tree cannot bear.
#[test]
fn hostile_pages_are_converted_in_bounded_time_and_memory() {
    let most = 1 << 20;
    let long_base = format!("<base href=https://a.example/{}/>", "b".repeat(4000));
    for (name, html) in [
        (
            "deep",
            format!("{}x", "<div><ul><li><blockquote><b><a href=c><table><tr><td>".repeat(20_000)),
        ),
        ("wide", "<b>x</b>".repeat(100_000)),
        ("formats", many(3000, |n| format!("<b id={n}><a href={n}>")) + &"<p>x".repeat(9000)),
        ("links", long_base.clone() + &"<a href=c>x</a>".repeat(50_000)),
        ("cells", long_base + "<table><tr><td>" + &"<a href=c>x</a>".repeat(50_000)),
        ("lines", format!("{}<pre>{}", "<blockquote>".repeat(99), "\n".repeat(400_000) + "x")),
        ("rows", "<table>".to_owned() + &"<tr><td><td>".repeat(100_000)),
        ("attributes", format!("<p {}>", many(50_000, |n| format!("a{n}=b ")))),
        ("languages", format!("<pre>{}{}", "\n".repeat(1_000_000), "<code>".repeat(300_000))),
        ("unclosed", "<pre><a href=".repeat(100_000)),
        ("entities", "&CounterClockwiseContourIntegral;&".repeat(50_000)),
    ] {
        let Converted { text, is_cut, .. } = converted(&html, most);
        // The end of the last word, line or row may come on top.
        assert!(text.len() < most * 5, "{name}: {} bytes of {}", text.len(), html.len());
        assert_eq!(is_cut, text.len() >= most, "{name}: {}", text.len());
    }
}

#[test]
fn the_conversion_ends_when_nobody_waits_for_it() {
    let url = Url::parse("https://docs.example.com/").unwrap();
    let [wanted, dropped] = [false, true]
        .map(|is_dropped| to_markdown("<p>a<p>b", &url, 100, &AtomicBool::new(is_dropped)).text);
    assert_eq!((wanted.as_str(), dropped.as_str()), ("a\n\nb", ""));
}

proptest! {
    /// No page makes it panic, and no tag of a script is shown.
    #[test]
    fn any_tags_are_converted(parts in prop::collection::vec(prop::sample::select(vec![
        "<p>", "</p>", "<ul>", "</ul>", "<ol>", "<li>", "</li>", "<pre>", "</pre>", "<code>", "</code>", "<table>",
        "</table>", "<tr>", "<td>", "</td>", "<a href=x>", "<a href=#>", "</a>", "<b>", "</b>", "<i>", "<h2>", "</h2>",
        "<blockquote>", "</blockquote>", "<dd>", "<dt>", "</dl>", "<hr>", "<br>", "<script>secret</script>",
        "<img src=x alt=y>", "é", " x ", "\n", "#", "|", "`", "<", "&",
    ]), 0..60)) {
        let html = parts.concat();
        let text = markdown(&html);
        prop_assert!(!text.contains("secret"), "{text}");
        let is_pre = parts.contains(&"<pre>");
        let words = |text: &str| text.matches('x').count();
        let shown = parts.iter().filter(|part| **part == " x ").count();
        prop_assert!(words(&text) >= shown || is_pre || html.contains("<é"), "{html} {text}");
    }

    #[test]
    fn any_text_is_converted(html: String) {
        markdown(&html);
    }
}
