//! Notebooks of Jupyter (nbformat 4) as text: the cells with their outputs, without images and metadata.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The number of characters of an output that are shown.
const OUTPUT_CHARS: usize = 4_000;

#[derive(Deserialize)]
struct Notebook {
    nbformat: u64,
    cells: Vec<Cell>,
    #[serde(default)]
    metadata: Value,
}

#[derive(Deserialize)]
struct Cell {
    #[serde(rename = "cell_type")]
    kind: String,
    #[serde(default)]
    source: Text,
    #[serde(default)]
    outputs: Vec<Output>,
}

/// A text, which the format also permits as a list of lines.
#[derive(Default)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(text_of(&Value::deserialize(deserializer)?)))
    }
}

#[derive(Deserialize)]
struct Output {
    #[serde(default)]
    text: Text,
    #[serde(default)]
    data: Map<String, Value>,
    /// One text for each step.
    #[serde(default)]
    traceback: Value,
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

/// Returns a notebook as text; `None` if the bytes are none.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let notebook: Notebook = serde_json::from_slice(bytes).ok()?;
    if notebook.nbformat < 4 {
        return None;
    }
    let language = notebook.metadata.pointer("/kernelspec/language").and_then(Value::as_str);
    let language = language.unwrap_or("code");
    let cells = notebook.cells.iter().enumerate().map(|(at, cell)| cell.text(at + 1, language));
    Some(cells.collect::<Vec<_>>().join("\n"))
}

impl Cell {
    fn text(&self, number: usize, language: &str) -> String {
        let kind = if self.kind == "code" { language } else { &self.kind };
        let mut text = format!("[cell {number}: {kind}]\n{}\n", self.source.0.trim_end());
        for output in &self.outputs {
            text.push_str(&output.text(number));
        }
        text
    }
}

impl Output {
    fn text(&self, number: usize) -> String {
        let plain = self.data.get("text/plain").map(text_of).unwrap_or_default();
        let steps = self.traceback.as_array().into_iter().flatten().map(text_of);
        let traceback = steps.collect::<Vec<_>>().join("\n");
        let [printed, traceback] = [&self.text.0, &traceback].map(|text| without_colors(text));
        let shown =
            [printed.as_str(), &plain, &traceback].into_iter().find(|text| !text.is_empty());
        let other = self.data.keys().find(|kind| *kind != "text/plain");
        let body = match (shown, other) {
            (Some(shown), _) => cut(shown.trim_end()),
            (None, Some(kind)) => format!("({kind} is not shown)"),
            (None, None) => return String::new(),
        };
        format!("[output of cell {number}]\n{body}\n")
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(OUTPUT_CHARS) {
        Some((at, _)) => format!("{}\n[… {} characters]", &text[..at], text[at..].chars().count()),
        None => text.to_owned(),
    }
}

/// Returns a text without the escape sequences of a terminal.
fn without_colors(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        let after = after.trim_start_matches(|sign: char| (' '..='?').contains(&sign));
        rest = after.strip_prefix(|sign: char| ('@'..='~').contains(&sign)).unwrap_or(after);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_and_outputs_are_shown() {
        let notebook = json!({ "nbformat": 4, "metadata": { "kernelspec": { "language": "python" } }, "cells": [
            { "cell_type": "markdown", "source": ["# Title\n", "text"], "metadata": {} },
            { "cell_type": "code", "source": "print(1)\n2", "outputs": [
                { "output_type": "stream", "name": "stdout", "text": ["1\n"] },
                { "output_type": "execute_result", "data": { "text/plain": "2", "text/html": "<b>2</b>" } },
                { "output_type": "display_data", "data": { "image/png": "iVBORw0" } },
                { "output_type": "error", "ename": "E", "traceback": ["\u{1b}[0;31mE\u{1b}[0m: why", "last"] } ] },
            { "cell_type": "code", "source": [] } ] });
        let shown = text(notebook.to_string().as_bytes()).unwrap();
        let wanted = "[cell 1: markdown]\n# Title\ntext\n\n[cell 2: python]\nprint(1)\n2\n[output of cell 2]\n1\n\
            [output of cell 2]\n2\n[output of cell 2]\n(image/png is not shown)\n[output of cell 2]\nE: why\nlast\n\n[cell 3: python]\n\n";
        assert_eq!(shown, wanted);
    }

    #[test]
    fn only_escape_sequences_are_left_out() {
        for (text, plain) in [
            ("\u{1b}[0;31mred\u{1b}[0m", "red"),
            ("\u{1b}[1~keep", "keep"),
            ("a \u{1b}[12 34\n56 I", "a \n56 I"),
            ("end\u{1b}[", "end"),
        ] {
            assert_eq!(without_colors(text), plain);
        }
    }

    #[test]
    fn what_is_no_notebook_is_left_as_it_is() {
        for bytes in ["", "{}", "[]", "{\"nbformat\":3,\"cells\":[]}", "{\"nbformat\":4}", "text"] {
            assert_eq!(text(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
