//! A host joins a team with a code, by a server that both hosts reach. No secret of a host leaves it, and the code is of use
//! to one host only.
//!
//! ```text
//!   command, on the authority    invite: a code with a secret, for one name
//!   command, on the new host     join: keys are made there; they go out with a proof of the secret
//!   answer, on the authority     its relay checks the proof and sends the certificate, which the code's public key verifies
//! ```

mod answer;
mod code;
mod command;
mod invite;

pub(crate) use answer::answer;
pub(crate) use code::login_of;
pub(crate) use command::{JoinOptions, join};
pub(crate) use invite::{InviteOptions, invite};
