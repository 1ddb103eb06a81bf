//! A program in a pseudo-terminal, and its frames.

use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// The sequence at the end of each frame, which hides the cursor.
const FRAME_END: &[u8] = b"\x1b[?25l";

/// A program that is killed on drop.
pub(crate) struct Watcher(pub(crate) Child);

impl Drop for Watcher {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A reader of the frames of a program.
pub(crate) struct Frames {
    terminal: File,
    printed: Vec<u8>,
}

/// Starts a program in a pseudo-terminal. Returns it with its screen, and the terminal for keys.
pub(crate) fn start(mut command: Command) -> (Watcher, Frames, File) {
    let window = Winsize { ws_row: 50, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&window), None).unwrap();
    command.stdin(Stdio::from(pty.slave.try_clone().unwrap()));
    command.stdout(Stdio::from(pty.slave.try_clone().unwrap())).stderr(Stdio::null());
    let program = Watcher(command.spawn().unwrap());
    drop((command, pty.slave));
    let keys = File::from(pty.master);
    let screen = Frames { terminal: keys.try_clone().unwrap(), printed: Vec::new() };
    (program, screen, keys)
}

impl Frames {
    /// Reads until a frame is complete, and returns its bytes.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut bytes = [0; 4096];
        loop {
            let end = self.printed.windows(FRAME_END.len()).position(|it| it == FRAME_END);
            if let Some(end) = end {
                return self.printed.drain(..end + FRAME_END.len()).collect();
            }
            let count = self.terminal.read(&mut bytes).unwrap();
            self.printed.extend_from_slice(bytes.get(..count).unwrap());
        }
    }

    /// Discards the output until the program has closed the terminal.
    pub(crate) fn discard(mut self) {
        let mut bytes = [0; 4096];
        while self.terminal.read(&mut bytes).is_ok_and(|count| count > 0) {}
    }
}
