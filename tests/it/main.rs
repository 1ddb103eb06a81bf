//! The one integration-test binary. `tidy` fails when a file of this folder is not listed here.

mod tidy;
