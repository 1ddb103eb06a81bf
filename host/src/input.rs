//! The end of standard input: the one that has started this relay is gone, or wants it to end.

use std::io::{self, Read};
use std::thread;
use tokio::sync::oneshot;

/// Returns what is ready once standard input has ended.
pub(crate) fn of_standard_input() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    // It waits as long as the process lives, and does not hold up its end.
    thread::spawn(move || {
        let mut rest = [0; 256];
        while io::stdin().read(&mut rest).is_ok_and(|count| count > 0) {}
        // The relay may have ended for another reason.
        let _gone = sender.send(());
    });
    receiver
}
