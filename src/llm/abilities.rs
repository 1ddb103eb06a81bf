//! The abilities of models, known by their names.

use crate::wire::model_abilities::ModelAbilities;

/// The beginnings of the names of models that are trained on the format of `apply_patch`, beside `gpt-5` and later.
const PATCHES: [&str; 5] = ["gpt-4.1", "gpt-oss", "codex", "o3", "o4"];

/// The beginnings of the names of models that see images, beside `gpt-5` and later.
const IMAGES: [&str; 10] =
    ["claude-", "gemini-", "gpt-4o", "gpt-4.1", "o1", "o3", "o4", "llava", "pixtral", "llama4"];

/// Parts of the names of models that see images.
const IMAGE_PARTS: [&str; 5] = ["vision", "-vl", "vl-", "gemma-3", "gemma3"];

/// Returns the abilities of the model with this label, such as `openai/gpt-5`. A model of an unknown name has none.
pub(crate) fn abilities_of(label: &str) -> ModelAbilities {
    // A router names a model with its maker.
    let name = label.rsplit('/').next().unwrap_or_default().to_lowercase();
    let begins = |all: &[&str]| all.iter().any(|begin| name.starts_with(begin));
    let generation = name.strip_prefix("gpt-").map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or_default()
    });
    let is_recent = generation.is_some_and(|number| number >= 5);
    ModelAbilities {
        knows_patches: is_recent || begins(&PATCHES),
        sees_images: is_recent
            || begins(&IMAGES)
            || IMAGE_PARTS.iter().any(|part| name.contains(part)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_are_known_by_the_name() {
        for (label, knows_patches, sees_images) in [
            ("openai/gpt-5", true, true),
            ("openai/gpt-5.1-codex", true, true),
            ("openai/openai/gpt-10-mini", true, true),
            ("openai/gpt-4o", false, true),
            ("openai/gpt-3.5-turbo", false, false),
            ("openai/gpt-oss-20b", true, false),
            ("openai/o4-mini", true, true),
            ("anthropic/claude-sonnet-4-5", false, true),
            ("local/qwen2.5-vl-7b", false, true),
            ("local/qwen2.5-coder-1.5b", false, false),
            ("rehearsal", false, false),
            ("", false, false),
        ] {
            let abilities = ModelAbilities { knows_patches, sees_images };
            assert_eq!(abilities_of(label), abilities, "{label}");
        }
    }
}
