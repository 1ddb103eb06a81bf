//! A queue that keeps the newest entries within a number of bytes, so that what nobody fetches does not collect
//! without end.

use std::collections::VecDeque;

/// The newest entries that fit into `room` bytes, oldest first.
#[derive(Debug, Clone)]
pub(crate) struct Newest<T> {
    room: usize,
    entries: VecDeque<(usize, T)>,
    bytes: usize,
    dropped: usize,
}

impl<T> Newest<T> {
    /// Creates an empty queue with room for `room` bytes.
    pub(crate) const fn within(room: usize) -> Self {
        Self { room, entries: VecDeque::new(), bytes: 0, dropped: 0 }
    }

    /// Adds an entry of `bytes` bytes. The oldest entries make room for it; one that is longer than the room is not
    /// kept.
    pub(crate) fn push(&mut self, bytes: usize, entry: T) {
        self.entries.push_back((bytes, entry));
        self.bytes += bytes;
        while self.bytes > self.room
            && let Some((bytes, _)) = self.entries.pop_front()
        {
            self.bytes -= bytes;
            self.dropped += 1;
        }
    }

    /// Returns the entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Returns the number of entries that found no room or made room.
    pub(crate) const fn dropped(&self) -> usize {
        self.dropped
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.dropped == 0
    }

    /// Removes everything and returns it.
    #[must_use]
    pub(crate) fn take(&mut self) -> Self {
        let room = self.room;
        std::mem::replace(self, Self::within(room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_make_room() {
        let mut newest = Newest::within(10);
        assert!(newest.is_empty());
        for entry in 1..=4 {
            newest.push(3, entry);
        }
        assert_eq!(
            (newest.iter().copied().collect::<Vec<_>>(), newest.dropped()),
            (vec![2, 3, 4], 1)
        );
        newest.push(11, 5);
        assert_eq!((newest.iter().count(), newest.dropped(), newest.is_empty()), (0, 5, false));
        assert_eq!(newest.take().dropped(), 5);
        newest.push(10, 6);
        assert_eq!((newest.iter().count(), newest.dropped()), (1, 0));
    }
}
