//! Words for values in the log, which people read: no debug form of a type reaches it.

use std::fmt::Display;

/// Returns the items, separated by commas, or `none`.
pub(crate) fn listed<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "none".into() } else { items.join(", ") }
}

/// Returns `done`, or the error.
pub(crate) fn done<T, E: Display>(result: &Result<T, E>) -> String {
    result.as_ref().map_or_else(E::to_string, |_| "done".into())
}

/// Returns `done`, or the error of work that another thread was to do.
pub(crate) fn work_done<T, E: Display, J: Display>(result: &Result<Result<T, E>, J>) -> String {
    result.as_ref().map_or_else(J::to_string, done)
}

/// Returns the items that work on another thread has found, or the error.
pub(crate) fn work_listed<T: Display, J: Display>(result: &Result<Vec<T>, J>) -> String {
    result.as_ref().map_or_else(J::to_string, listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_lists_are_words() {
        let failed = || Err::<u8, _>("no room");
        assert_eq!((done(&Ok::<_, u8>(1)), done(&failed())), ("done".into(), "no room".into()));
        assert_eq!(work_done(&Ok::<_, u8>(failed())), "no room");
        assert_eq!(work_done(&Err::<Result<u8, u8>, _>("lost")), "lost");
        assert_eq!((listed([1, 2]), listed::<u8>([])), ("1, 2".into(), "none".into()));
        assert_eq!(work_listed(&Err::<Vec<u8>, _>("lost")), "lost");
        assert_eq!(work_listed(&Ok::<_, u8>(vec![7])), "7");
    }
}
