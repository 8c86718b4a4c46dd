//! Collects every mistake of an input, so that all of them are reported at once.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use std::cell::RefCell;
use std::fmt::Display;

/// The mistakes found so far. Dropping it without [`finish`](Errors::finish) is a bug of the macro and panics:
/// a forgotten mistake would let a wrong program compile.
pub(crate) struct Errors {
    found: RefCell<Option<Vec<syn::Error>>>,
}

impl Errors {
    pub(crate) fn new() -> Self {
        Self { found: RefCell::new(Some(Vec::new())) }
    }

    /// A mistake at these tokens.
    pub(crate) fn on(&self, tokens: &(impl ToTokens + ?Sized), message: impl Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// A mistake at this span.
    pub(crate) fn at(&self, span: Span, message: impl Display) {
        self.push(syn::Error::new(span, message));
    }

    /// A mistake the parser found.
    pub(crate) fn push(&self, error: syn::Error) {
        if let Some(found) = self.found.borrow_mut().as_mut() {
            found.push(error);
        }
    }

    /// How many there are; a caller compares two counts to learn whether a part was sound.
    pub(crate) fn count(&self) -> usize {
        self.found.borrow().as_ref().map_or(0, Vec::len)
    }

    /// The mistakes as tokens that make the compiler say them.
    pub(crate) fn finish(self) -> TokenStream {
        let found = self.found.borrow_mut().take().unwrap_or_default();
        found.iter().map(syn::Error::to_compile_error).collect()
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        let unread = self.found.borrow().is_some();
        assert!(!unread || std::thread::panicking(), "the macro dropped its list of mistakes unread");
    }
}
