//! The prices of models.

use super::money::Price;
use std::fmt;
use std::sync::Arc;

/// Looks up the price of a model.
type LookUp = dyn Fn(&str) -> Option<Price> + Send + Sync;

/// The prices of models, by `provider/name`.
#[derive(Clone)]
pub struct PriceList(Arc<LookUp>);

impl PriceList {
    /// Creates a list from a function that looks a model up.
    pub fn new(look_up: impl Fn(&str) -> Option<Price> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    /// Returns the price of a model; `None` if it is not known.
    pub fn get(&self, model: &str) -> Option<Price> {
        (self.0)(model)
    }
}

impl Default for PriceList {
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl fmt::Debug for PriceList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("PriceList").finish_non_exhaustive()
    }
}
