//! The abilities of models on which tools depend.

/// The abilities of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelAbilities {
    /// Whether it is trained on the patch format of `apply_patch`.
    pub knows_patches: bool,
    /// Whether it sees images.
    pub sees_images: bool,
}
