//! The size of the terminal.

use nix::libc;

/// Returns the columns of the terminal on stdout; `None` if there is none or its size is unknown.
pub(crate) fn columns() -> Option<usize> {
    size().map(|(columns, _)| usize::from(columns))
}

/// Returns the columns and rows of the terminal on stdout; `None` if there is none or its size is unknown.
pub(crate) fn size() -> Option<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    #[expect(unsafe_code, reason = "neither std nor nix has a safe call for the window size")]
    // SAFETY: the request writes one `winsize`, which lives until after the call.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some((size.ws_col, size.ws_row))
}
