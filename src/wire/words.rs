//! Enums of the format whose values are words.

/// Declares an enum so that a value and its word on disk are one row.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $( $(#[$about:meta])* $value:ident = $word:literal, )* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name { $( $(#[$about])* #[serde(rename = $word)] $value, )* }

        impl $name {
            /// Every value, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// Returns the word for the value in files and messages.
            pub const fn word(self) -> &'static str {
                match self { $( Self::$value => $word, )* }
            }
        }
    };
}

pub(super) use words;
