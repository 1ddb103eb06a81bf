//! The commands of the page: data, and the trait that carries them out.

use serde::Deserialize;
use std::pin::Pin;

/// A command from the page.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Order {
    /// Send a message from `user`.
    Send {
        /// The recipient; `all` for a broadcast.
        to: String,
        /// The text.
        text: String,
    },
    /// Stop a member by the shutdown ladder.
    Stop {
        /// The member.
        name: String,
    },
    /// Approve a request, once.
    Approve {
        /// The id of the request.
        id: String,
    },
    /// Deny a request.
    Deny {
        /// The id of the request.
        id: String,
    },
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was carried out.
    Done {
        /// A sentence for the person.
        said: String,
    },
    /// It failed.
    Failed {
        /// The failure.
        what: String,
        /// Its reason.
        why: String,
        /// The advice.
        hint: String,
    },
}

/// Carries out commands.
pub(crate) trait Control {
    /// Carries out a command and waits for its result.
    fn carry_out(&self, order: Order) -> Pin<Box<dyn Future<Output = Outcome>>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_order_is_refused() {
        let read = |text: &str| serde_json::from_str::<Order>(text).ok();
        let stop = Order::Stop { name: "alice".into() };
        assert_eq!(read(r#"{"do":"stop","name":"alice"}"#), Some(stop));
        assert_eq!(read(r#"{"do":"stop","name":"alice","now":true}"#), None);
        assert_eq!(read(r#"{"do":"purge"}"#), None);
    }
}
