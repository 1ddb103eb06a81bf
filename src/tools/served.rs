//! Models that other programs run: they call the tools of the team over MCP, and get their mail with the results.

use super::call::{Call, ToolError};
use crate::wire::inbox_block::inbox_block;
use crate::wire::newest::Newest;
use serde_json::{Map, Value};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// The circumstances of a model that another program runs, which calls the tools over MCP.
pub(crate) struct ServedModel {
    pub(crate) mail: Rc<dyn MailHandout>,
    /// Whether its plans can be approved.
    pub(crate) submits_plans: bool,
}

/// The mail for the result of a call, oldest first.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Handout {
    pub(crate) mail: Vec<Map<String, Value>>,
    /// The number of unread messages for which the result has no room.
    pub(crate) more: usize,
}

impl Handout {
    /// Returns the mail for a model; `None` if there is none.
    pub(crate) fn block(&self) -> Option<String> {
        let more = match self.more {
            0 => String::new(),
            more => format!("\n[{more} more unread: use check_inbox]"),
        };
        (!self.mail.is_empty()).then(|| inbox_block(&self.mail) + &more)
    }
}

/// The future of the mail for a call.
pub(crate) type HandoutFuture<'a> = Pin<Box<dyn Future<Output = Result<Handout, ToolError>> + 'a>>;

/// The mail of a member whose model runs in another program: it is handed out with the results of calls.
pub(crate) trait MailHandout {
    /// Takes the unread mail for the result of a call. Waits for mail for up to `wait` if there is none. The mail is in
    /// the transcript when this resolves. Dropping the future loses none of it: the next result has it.
    fn take<'a>(&'a self, call: &'a Call, wait: Duration) -> HandoutFuture<'a>;

    /// Returns the newest mail that was handed out since the process started.
    fn handed_out(&self) -> Newest<Map<String, Value>>;
}
