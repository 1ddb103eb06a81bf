//! The table of models that is shipped with the program: context sizes, prices and abilities by the model's name.

use crate::wire::model_facts::ModelFacts;
use crate::wire::money::{Money, Price};
use serde::Deserialize;
use std::cmp::Reverse;
use std::sync::LazyLock;

/// The table as its file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelTable {
    made: String,
    source: String,
    model: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The model's name, or its beginning if the row is for a family.
    name: String,
    /// The provider at whose own address the price holds, or the maker of open weights.
    maker: String,
    #[serde(default)]
    family: bool,
    #[serde(default)]
    open: bool,
    context_tokens: Option<u64>,
    answer_tokens: Option<u32>,
    input: Option<Money>,
    output: Option<Money>,
    cache_read: Option<Money>,
    cache_write: Option<Money>,
    price_up_to: Option<u64>,
    knows_patches: Option<bool>,
    sees_images: Option<bool>,
}

static TABLE: LazyLock<ModelTable> = LazyLock::new(|| {
    let mut table = parse(include_str!("models.toml"));
    // The longest name wins, and of two equal ones that of the model itself.
    table.model.sort_by_key(|row| (row.family, Reverse(row.name.len())));
    table
});

#[expect(clippy::expect_used, reason = "the text is a part of the program, and a test reads it")]
fn parse(text: &str) -> ModelTable {
    toml::from_str(text).expect("the table of models is valid")
}

/// Parts of the names of models that see images.
const IMAGE_PARTS: [&str; 3] = ["vision", "-vl", "vl-"];

/// The facts about a model in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TableEntry {
    pub(crate) facts: ModelFacts,
    /// The provider at whose own address the price holds.
    pub(crate) maker: Option<&'static str>,
    /// Whether the weights are open, so that a server may give it a smaller context.
    pub(crate) is_open: bool,
}

/// Returns the day on which the table was made.
pub(crate) fn made() -> &'static str {
    &TABLE.made
}

/// Returns the sources of the table, in words.
pub(crate) fn source() -> &'static str {
    &TABLE.source
}

/// Returns the sentence about the origin of costs.
pub(crate) fn cost_note() -> String {
    format!(
        "cost: an estimate in dollars, by the table of public prices of {} and the prices of your settings",
        made()
    )
}

/// Looks up a model by its name, also one that a router names with its maker (`openai/gpt-5`).
pub(crate) fn look_up(name: &str) -> TableEntry {
    let name = plain(name);
    let mut entry = TableEntry::default();
    for row in TABLE.model.iter().filter(|row| row.fits(&name)) {
        entry.facts = entry.facts.or(row.facts());
        entry.maker = entry.maker.or(Some(&row.maker));
        entry.is_open |= row.open;
    }
    entry.facts = entry.facts.or(by_parts(&name));
    entry
}

impl Row {
    fn fits(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(self.name.as_str()) else { return false };
        self.family || rest.is_empty() || is_version(rest)
    }

    fn facts(&self) -> ModelFacts {
        let Self { cache_read, cache_write, .. } = *self;
        let price = |(input, output)| Price { input, output, cache_read, cache_write };
        ModelFacts {
            context_tokens: self.context_tokens,
            answer_tokens: self.answer_tokens,
            price: self.input.zip(self.output).map(price),
            price_up_to: self.price_up_to,
            knows_patches: self.knows_patches,
            sees_images: self.sees_images,
        }
    }
}

/// Returns the name as the table has it: without the maker, and with the dashes of Anthropic's own names.
fn plain(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or_default().to_lowercase().replace('@', "-");
    // Clouds put their own names before it.
    match name.find("claude-") {
        Some(at) => name[at..].replace('.', "-"),
        None => name,
    }
}

/// Whether a text after a model's name says only its version: `-20250929`, `-2025-08-07`, `-001`, `-latest`.
fn is_version(rest: &str) -> bool {
    let Some(version) = rest.strip_prefix('-') else { return false };
    let digits = version.chars().filter(char::is_ascii_digit).count();
    let is_number = version.chars().all(|c| c.is_ascii_digit() || c == '-');
    version == "latest" || is_number && matches!(digits, 3 | 8)
}

/// Returns what a name says by itself: GPT 5 and later know patches and see images, and some names tell of vision.
fn by_parts(name: &str) -> ModelFacts {
    let generation = name.strip_prefix("gpt-").map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or_default()
    });
    let is_recent = generation.is_some_and(|number| number >= 5);
    let sees = is_recent || IMAGE_PARTS.iter().any(|part| name.contains(part));
    ModelFacts {
        knows_patches: is_recent.then_some(true),
        sees_images: sees.then_some(true),
        ..ModelFacts::default()
    }
}

/// Whether the table has a price for a model with this label, such as `openai/gpt-5`.
pub(crate) fn has_public_price(label: &str) -> bool {
    let name = label.split_once('/').map_or(label, |(_, name)| name);
    look_up(name).facts.price.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::model_abilities::ModelAbilities;

    fn dollars(name: &str) -> Option<(f64, f64)> {
        let price = look_up(name).facts.price?;
        Some((price.input.into(), price.output.into()))
    }

    #[test]
    fn abilities_are_known_by_the_name() {
        for (name, knows_patches, sees_images) in [
            ("gpt-5", true, true),
            ("gpt-5.1-codex", true, true),
            ("openai/gpt-10-mini", true, true),
            ("gpt-4o", false, true),
            ("gpt-3.5-turbo", false, false),
            ("gpt-oss-20b", true, false),
            ("o4-mini", true, true),
            ("claude-sonnet-4-5", false, true),
            ("qwen2.5-vl-7b", false, true),
            ("gemma3:4b", false, true),
            ("qwen2.5-coder-1.5b", false, false),
            ("rehearsal", false, false),
            ("", false, false),
        ] {
            let abilities = ModelAbilities { knows_patches, sees_images };
            assert_eq!(look_up(name).facts.abilities(), abilities, "{name}");
        }
    }

    #[test]
    fn dated_and_routed_names_have_the_facts_of_their_model() {
        for (name, price) in [
            ("claude-sonnet-4-5", Some((3.0, 15.0))),
            ("claude-sonnet-4-5-20250929", Some((3.0, 15.0))),
            ("anthropic/claude-sonnet-4.5", Some((3.0, 15.0))),
            ("us.anthropic.claude-sonnet-4-5", Some((3.0, 15.0))),
            ("claude-sonnet-4-5@20250929", Some((3.0, 15.0))),
            ("claude-sonnet-4-20250514", Some((3.0, 15.0))),
            ("claude-opus-4-5-20251101", Some((5.0, 25.0))),
            ("claude-opus-4-20250514", Some((15.0, 75.0))),
            ("openai/gpt-5", Some((1.25, 10.0))),
            ("gpt-5-2025-08-07", Some((1.25, 10.0))),
            ("gpt-5-mini", Some((0.25, 2.0))),
            ("gpt-4o-2024-05-13", Some((5.0, 15.0))),
            ("gpt-4o-2024-11-20", Some((2.5, 10.0))),
            ("models/gemini-2.5-pro", Some((1.25, 10.0))),
            ("gemini-2.5-flash-001", Some((0.3, 2.5))),
            // Another model of the same family may have any price.
            ("gpt-5-ultra", None),
            ("claude-opus-4-55", None),
            ("gemini-flash-latest", None),
            ("gpt-5.6-sol", None),
            ("fake", None),
        ] {
            assert_eq!(dollars(name), price, "{name}");
        }
        let first = look_up("gpt-4o-2024-05-13").facts;
        assert_eq!((first.context_tokens, first.answer_tokens), (Some(128_000), Some(4_096)));
        assert_eq!(look_up("gpt-5-ultra").facts.context_tokens, None);
    }

    #[test]
    fn the_table_is_dated_and_no_family_has_a_price() {
        assert!(made().parse::<jiff::civil::Date>().is_ok() && !source().is_empty());
        for row in &TABLE.model {
            let facts = row.facts();
            let says = ModelFacts { price_up_to: None, ..facts } != ModelFacts::default();
            assert!(says, "{} says nothing", row.name);
            assert!(!(row.family && facts.price.is_some()), "{}", row.name);
            assert!(row.input.is_some() == row.output.is_some(), "{}", row.name);
            assert!(row.input.is_some() || row.price_up_to.is_none(), "{}", row.name);
            assert_eq!(plain(&row.name), row.name);
            let same =
                TABLE.model.iter().filter(|it| (&it.name, it.family) == (&row.name, row.family));
            assert_eq!(same.count(), 1, "{} is twice in the table", row.name);
            let price = facts.price;
            for (cheaper, dearer) in price.iter().flat_map(|it| {
                [
                    (it.cache_read, Some(it.input)),
                    (Some(it.input), it.cache_write),
                    (Some(it.input), Some(it.output)),
                ]
            }) {
                let is_in_order =
                    cheaper.zip(dearer).is_none_or(|(cheaper, dearer)| cheaper <= dearer);
                assert!(is_in_order, "{}", row.name);
            }
        }
    }
}
