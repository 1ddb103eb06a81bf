//! Mail: sending, draining, seals, bad messages and names, other implementations of the format.

mod attachments;
mod bad_messages;
mod bad_names;
mod bus;
mod exchange_limits;
mod external_senders;
mod golden;
mod idle_notifications;
mod killed_senders_and_readers;
mod lead_seals;
mod mailbox;
mod seals;
mod second_implementation;
mod send_from_commands;
