//! What a person may order from the page. How it is done is for whoever opens the page.

use serde::Deserialize;
use std::pin::Pin;

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Order {
    /// Send a message from `user`.
    Send {
        /// Whom; `all` for everybody.
        to: String,
        /// The text.
        text: String,
    },
    /// End a member by the shutdown ladder.
    Stop {
        /// Whom.
        name: String,
    },
    /// Let an agent do what it asks for, this once.
    Approve {
        /// Which request.
        id: String,
    },
    /// Do not.
    Deny {
        /// Which request.
        id: String,
    },
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was carried out.
    Done {
        /// What there is to say about it.
        said: String,
    },
    /// It was not.
    Failed {
        /// What did not work.
        what: String,
        /// Why.
        why: String,
        /// What to do now.
        hint: String,
    },
}

/// Carries out orders.
pub(crate) trait Control {
    /// Does what is ordered; takes as long as that takes.
    fn carry_out(&self, order: Order) -> Pin<Box<dyn Future<Output = Outcome>>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_orders_are_understood() {
        let read = |text: &str| serde_json::from_str::<Order>(text).ok();
        let stop = Order::Stop { name: "alice".into() };
        assert_eq!(read(r#"{"do":"stop","name":"alice"}"#), Some(stop));
        assert_eq!(read(r#"{"do":"stop","name":"alice","now":true}"#), None);
        assert_eq!(read(r#"{"do":"purge"}"#), None);
    }
}
