//! The one integration-test binary. `tidy` fails when a file of this folder is not listed here.

#[cfg(test)]
mod bad_files;
#[cfg(test)]
mod bus;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod child;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod history;
#[cfg(test)]
mod mailbox;
#[cfg(test)]
mod outsiders;
#[cfg(test)]
mod roster;
#[cfg(test)]
mod tidy;
