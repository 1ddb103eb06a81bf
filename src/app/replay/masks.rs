//! Masks for the parts of a text that differ between two runs of the same work: ids, times, process ids, durations,
//! folders, models. They stand in the text of the record and in the new one.

/// The names of the months, as `ls` and `date` write them.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const UNITS: [&str; 11] = [
    "milliseconds",
    "seconds",
    "minutes",
    "second",
    "minute",
    "hours",
    "min",
    "ms",
    "µs",
    "s",
    "h",
];

const ID: &str = "<id>";
const TIME: &str = "<time>";
const DURATION: &str = "<duration>";
const PID: &str = "<pid>";

/// The names of one team: its folder and its models.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    /// Each name with its mask, the longest first.
    names: Vec<(String, &'static str)>,
}

impl Names {
    pub(super) fn add(&mut self, name: impl Into<String>, mask: &'static str) {
        let name = name.into();
        if name.len() > 1 {
            self.names.push((name, mask));
            self.names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        }
    }

    /// Returns a text with masks.
    pub(super) fn mask(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, mask) in &self.names {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), mask);
            }
        }
        mask_words(&text)
    }
}

/// Replaces what changes from run to run in a text.
fn mask_words(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let found = (!before.is_alphanumeric()).then(|| changing(rest)).flatten();
        let (length, shown) = found.unwrap_or((next.len_utf8(), ""));
        let (taken, left) = rest.split_at(length);
        masked.push_str(if shown.is_empty() { taken } else { shown });
        before = taken.chars().next_back().unwrap_or(' ');
        rest = left;
    }
    masked
}

/// Returns the length of a changing part at the beginning of a text, and its mask.
fn changing(text: &str) -> Option<(usize, &'static str)> {
    let first = text.chars().next()?;
    if !first.is_ascii_alphanumeric() {
        return None;
    }
    let word = length_of(text, |c| c.is_ascii_hexdigit() || c == '-');
    let id = text.get(..word).unwrap_or_default();
    let is_word = !text.get(word..)?.starts_with(char::is_alphanumeric);
    if is_word && (is_uuid(id) || is_incarnation(id) || is_batch(id)) {
        return Some((word, ID));
    }
    let digits = text.strip_prefix("pid ").map_or(0, |rest| length_of(rest, is_digit));
    if digits > 0 {
        return Some((digits + 4, PID));
    }
    date(text).or_else(|| clock(text).map(|length| (length, TIME))).or_else(|| number(text))
}

fn length_of(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn is_uuid(text: &str) -> bool {
    text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

/// Whether a text is an id of 32 digits, as incarnations and runs have it.
fn is_incarnation(text: &str) -> bool {
    text.len() == 32 && !text.contains('-')
}

/// Whether a text is the id of a batch of mail.
fn is_batch(text: &str) -> bool {
    let parts = text.split_once('-');
    parts.is_some_and(|(count, random)| {
        count.len() == 12 && count.chars().all(is_digit) && random.len() == 8
    })
}

/// A date: `2026-11-26T17:07:33Z`, `Nov 26 17:07`, `Nov 26 2026`.
fn date(text: &str) -> Option<(usize, &'static str)> {
    if is_form(text, "0000-00-00") {
        let rest = text.get(10..)?;
        let separator = rest.starts_with(['T', ' ']);
        let time = rest.get(1..).filter(|_| separator).and_then(clock);
        return Some((10 + time.map_or(0, |length| length + 1), TIME));
    }
    let month = MONTHS.iter().find(|month| text.starts_with(**month))?;
    let rest = text.get(month.len()..)?.trim_start_matches(' ');
    let day = length_of(rest, is_digit);
    if !(1..=2).contains(&day) || text.get(3..4) != Some(" ") {
        return None;
    }
    let after = rest.get(day..)?;
    let rest = after.trim_start_matches(' ');
    let time = clock(rest).or_else(|| is_form(rest, "0000").then_some(4));
    let end = time.map_or(after, |length| rest.get(length..).unwrap_or_default());
    Some((text.len() - end.len(), TIME))
}

/// Returns the length of a time of day: `17:07`, `17:07:33.5`, with its zone.
fn clock(text: &str) -> Option<usize> {
    if !is_form(text, "00:00") {
        return None;
    }
    let mut length = 5;
    if is_form(text.get(5..)?, ":00") {
        length += 3;
        if text.get(length..)?.starts_with('.') {
            length += 1 + length_of(text.get(length + 1..)?, is_digit);
        }
    }
    let zone = text.get(length..)?;
    if zone.starts_with('Z') {
        length += 1;
    } else if is_form(zone, "+00:00") || is_form(zone, "-00:00") {
        length += 6;
    }
    Some(length)
}

/// A time in seconds since 1970, or a duration.
fn number(text: &str) -> Option<(usize, &'static str)> {
    let whole = length_of(text, is_digit);
    if whole == 0 {
        return None;
    }
    let rest = text.get(whole..)?;
    let part = rest.strip_prefix('.').map_or(0, |rest| length_of(rest, is_digit));
    let length = if part > 0 { whole + 1 + part } else { whole };
    let rest = text.get(length..)?;
    if whole == 10 && text.starts_with('1') && !rest.starts_with(char::is_alphanumeric) {
        return Some((length, TIME));
    }
    let unit = rest.strip_prefix(' ').unwrap_or(rest);
    let known = UNITS.iter().find(|it| {
        let after = unit.strip_prefix(**it);
        after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })?;
    Some((text.len() - unit.len() + known.len(), DURATION))
}

/// Whether a text begins in this form: `0` is any digit.
fn is_form(text: &str, form: &str) -> bool {
    let mut chars = text.chars();
    form.chars().all(|wanted| {
        chars.next().is_some_and(|c| if wanted == '0' { is_digit(c) } else { c == wanted })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_from_run_to_run_is_masked() {
        for (text, masked) in [
            ("alice:01a218d3-6b52-751e-b5c5-0dc4a991ab4f", "alice:<id>"),
            ("run 01a218d3650f76df96ad12e78495eb0c ends", "run <id> ends"),
            ("-rw-r--r-- 1 me me 219 Nov 26 17:07 a.sql", "-rw-r--r-- 1 me me 219 <time> a.sql"),
            ("Nov  6  2026 b", "<time> b"),
            ("at 2026-11-26T17:07:33.25Z, then", "at <time>, then"),
            ("2026-11-26 17:07:33+02:00", "<time>"),
            (r#""timestamp":1795712838.628357,"#, r#""timestamp":<time>,"#),
            ("on m, pid 30443. It", "on m, <pid>. It"),
            ("took 0.25s and 3 seconds, 5 ms", "took <duration> and <duration>, <duration>"),
            ("ran at 17:07:33", "ran at <time>"),
        ] {
            assert_eq!(mask_words(text), masked, "{text}");
        }
    }

    #[test]
    fn other_texts_stay() {
        for text in [
            "wrote 219 bytes to schema.sql",
            "Sent to 2 of 2:",
            "rehearsal-01a218d3650f76df96ad12e78495eb0c-1x",
            "Marching 5 steps; May be; 3 sets",
            "v1.2.3 é 12345678901 deadbeef",
            "",
        ] {
            assert_eq!(mask_words(text), text, "{text}");
        }
    }

    #[test]
    fn the_names_of_a_team_are_masked_longest_first() {
        let mut names = Names::default();
        names.add("/tmp/a", "<folder>");
        names.add("/tmp/a/b", "<other>");
        names.add("replay", "<model>");
        names.add("", "<never>");
        assert_eq!(
            names.mask("cd /tmp/a/b && ls /tmp/a on replay"),
            "cd <other> && ls <folder> on <model>"
        );
    }
}
