//! The console without a pane: lines are read as they are, and every change is printed once, as text.

use super::super::live::Live;
use super::super::style::Palette;
use super::exchange::{Input, Update, write_out};
use crate::os::terminal_size;
use std::io::{self, BufRead};
use std::sync::mpsc::Receiver;
use tokio::sync::mpsc::UnboundedSender;

/// Prints updates until the sender is dropped.
pub(super) fn print_lines(palette: Palette, updates: &Receiver<Update>, is_terminal: bool) {
    let mut live = Live::new(palette);
    while let Ok(update) = updates.recv() {
        let width = terminal_size::columns().filter(|_| is_terminal);
        match update {
            Update::Progress(progress) => {
                write_out(&live.rows(&progress, width));
            }
            Update::Print(text) => write_out(&(live.finish_text(width) + &text)),
            Update::Folded(folded) => {
                write_out(&live.folded_rows(folded, width, false));
            }
            Update::Members(members) => live.colors = members.into_iter().collect(),
            // A pane shows these; here they are printed as events.
            Update::Closing(text) | Update::Notice(text) => write_out(&format!("{text}\n")),
            Update::Files(_)
            | Update::Question(_)
            | Update::Working(_)
            | Update::Status(_)
            | Update::Offer(_) => {}
            Update::End => break,
        }
    }
    write_out(&live.finish_text(None));
}

/// Reads lines until the end of the input.
pub(super) fn read_lines(inputs: &UnboundedSender<Input>) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let input = match stdin.read_until(b'\n', &mut line) {
            Ok(0) => Input::EndOfInput,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                Input::Line(text.trim_end_matches(['\n', '\r']).to_owned())
            }
            Err(_) => Input::Closed,
        };
        let last = !matches!(input, Input::Line(_));
        if inputs.send(input).is_err() || last {
            return;
        }
    }
}
