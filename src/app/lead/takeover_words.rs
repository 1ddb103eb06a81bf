//! The last words of a lead that another one has replaced (`--takeover`).

use crate::os::local_time;
use crate::store::takeover::Takeover;
use crate::ui::sanitize::sanitize;

/// Returns the last words of a lead whose place another one has taken.
pub(super) fn taken_over(note: &Takeover) -> String {
    let Takeover { pid, user, terminal, at, .. } = note;
    let user = if user.is_empty() { String::new() } else { format!(" of {user}") };
    let terminal = if terminal.is_empty() { String::new() } else { format!(" on {terminal}") };
    let at = local_time(*at);
    let words =
        format!("another lead took over at {at}: process {pid}{user}{terminal} (--takeover)");
    sanitize(&words).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_name_what_is_known_of_the_other_lead() {
        let note = Takeover { pid: 7, user: "ann".into(), ..Takeover::default() };
        let words = taken_over(&Takeover { terminal: "/dev/pts/3".into(), ..note.clone() });
        assert!(words.ends_with(": process 7 of ann on /dev/pts/3 (--takeover)"), "{words}");
        let words = taken_over(&Takeover { user: "\u{1b}[2J".into(), ..note });
        assert!(!words.contains('\u{1b}'), "{words:?}");
    }
}
