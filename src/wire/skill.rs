//! Skills as `SKILL.md` files define them: a name, a description, and instructions for one kind of work.
//!
//! The format is that of agentskills.io. Keys that grant something, such as `allowed-tools`, have no effect.

use super::front_matter;

/// The maximum length of a name and of a description, in characters, as the format defines them.
const NAME_CHARS: usize = 64;
const DESCRIPTION_CHARS: usize = 1024;

/// The content of a `SKILL.md` file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skill {
    /// The name, which is that of its folder.
    pub name: String,
    /// The kind of work that it is for, in one line.
    pub description: String,
    /// The instructions.
    pub body: String,
}

impl Skill {
    /// Parses a `SKILL.md` file in a folder of this name.
    ///
    /// # Errors
    /// The reason for which the file defines no skill.
    pub fn parse(folder: &str, text: &str) -> Result<Self, String> {
        let front_matter::Document { fields, body, .. } = front_matter::parse(text);
        if fields.is_empty() {
            return Err("it does not begin with front matter (`name` and `description` between \
                        two `---` lines)"
                .into());
        }
        let text_of = |key: &str| {
            let field = fields.iter().find(|field| field.key == key);
            let text = field.map(|field| field.value.text()).unwrap_or_default();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let (name, description) = (text_of("name"), text_of("description"));
        if !is_name(&name) {
            let rule = "lower-case letters and digits, with single `-` between them, at most 64";
            return Err(format!("its name is {name:?}; a skill is named by {rule}"));
        }
        if name != folder {
            return Err(format!("its name is {name:?}, which is not that of its folder"));
        }
        if description.is_empty() {
            return Err("it has no `description`, by which a model chooses it".into());
        }
        if text_of("disable-model-invocation") == "true" {
            return Err(
                "it says `disable-model-invocation`, and here only models use skills".into()
            );
        }
        let description = description.chars().take(DESCRIPTION_CHARS).collect();
        Ok(Self { name, description, body })
    }
}

/// Whether a text can name a skill.
pub fn is_name(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    text.len() <= NAME_CHARS && text.split('-').all(is_word)
}

/// Lists skills, given as name and description, in the order given: a line each, in at most `most` bytes. The last line
/// counts those that do not fit.
pub fn list<'a>(skills: impl IntoIterator<Item = (&'a str, &'a str)>, most: usize) -> String {
    let lines = skills.into_iter().map(|(name, about)| format!("- {name}: {about}\n"));
    let lines: Vec<String> = lines.collect();
    let count = |more: usize| format!("- and {more} more, which do not fit here\n");
    if lines.iter().map(String::len).sum::<usize>() <= most {
        return lines.concat();
    }
    let room = most.saturating_sub(count(lines.len()).len());
    let mut taken = 0;
    let listed = lines.iter().take_while(|line| {
        taken += line.len();
        taken <= room
    });
    let listed = listed.count();
    lines.iter().take(listed).cloned().collect::<String>() + &count(lines.len() - listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_skill_has_a_name_a_description_and_a_body() {
        let text = "---\nname: pdf-forms\ndescription: >\n  Fills forms.\n  Use it for PDF files.\n\
                    license: MIT\nallowed-tools: Bash(pdftk:*) Read\nmetadata:\n  version: \"1\"\n---\n\n# Forms\nDo it.\n";
        let skill = Skill::parse("pdf-forms", text).unwrap();
        let expected = Skill {
            name: "pdf-forms".into(),
            description: "Fills forms. Use it for PDF files.".into(),
            body: "# Forms\nDo it.".into(),
        };
        assert_eq!(skill, expected);
        let long = format!("---\nname: a\ndescription: {}\n---\n", "é".repeat(5000));
        assert_eq!(Skill::parse("a", &long).unwrap().description.chars().count(), 1024);
    }

    #[test]
    fn a_file_that_defines_no_skill_says_the_reason() {
        for (text, why) in [
            ("Do it.", "front matter"),
            ("", "front matter"),
            ("---\nname: a\ndescription: b\n", "front matter"),
            ("---\ndescription: b\n---\n", "its name is \"\""),
            ("---\nname: A\ndescription: b\n---\n", "its name is \"A\""),
            ("---\nname: b\ndescription: b\n---\n", "not that of its folder"),
            ("---\nname: a\ndescription: ' '\n---\n", "no `description`"),
            ("---\nname: a\n---\n", "no `description`"),
            ("---\nname: a\ndescription: b\ndisable-model-invocation: true\n---\n", "only models"),
        ] {
            let found = Skill::parse("a", text).unwrap_err();
            assert!(found.contains(why), "{text:?}: {found}");
        }
        for name in ["../x", "a--b", "-a", "a-", "a_b", "a b", "é", &"a".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_name("a") && is_name("pdf-2-text") && is_name(&"a".repeat(64)));
    }

    proptest! {
        #[test]
        fn a_list_fits_and_has_whole_lines_and_the_count_of_the_rest(
            abouts in proptest::collection::vec("[aé漢 ]{1,200}", 0..40),
            most in 60_usize..3000,
        ) {
            let text = list(abouts.iter().map(|about| ("name", about.as_str())), most);
            prop_assert!(text.len() <= most);
            let lines: Vec<&str> = text.split_terminator('\n').collect();
            let more = lines.last().and_then(|last| last.strip_prefix("- and ")?.split(' ').next());
            let more: usize = more.map_or(0, |more| more.parse().unwrap());
            let listed = lines.len() - usize::from(more > 0);
            prop_assert_eq!(listed + more, abouts.len());
            for (line, about) in lines.iter().zip(abouts.iter().take(listed)) {
                prop_assert_eq!(*line, format!("- name: {about}"));
            }
        }
    }
}
