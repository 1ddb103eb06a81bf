//! P19: the size of the programs that `cargo install` puts into its folder.

use crate::figure::{Figure, Size, Target};

/// The programs, as the build of this benchmark made them.
const PROGRAMS: [&str; 3] =
    [env!("CARGO_BIN_EXE_team"), env!("CARGO_BIN_EXE_lead"), env!("CARGO_BIN_EXE_teammate")];

/// The number of bytes in a megabyte.
const MEGABYTE: f64 = 1e6;

pub(crate) fn measure(_: &Size) -> Vec<Figure> {
    let bytes: u64 = PROGRAMS.iter().map(|path| std::fs::metadata(path).unwrap().len()).sum();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53 bytes")]
    let ours = bytes as f64 / MEGABYTE;
    vec![Figure {
        id: "P19",
        measure: "`team`, `lead` and `teammate` on the disk, together".into(),
        unit: "MB",
        ours,
        reference: None,
        target: Target::AtMost(16.0),
    }]
}
