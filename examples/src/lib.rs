//! The programs of this crate are in `src/bin`, each with words about what it shows. Its library is the book: every
//! Rust block of the READMEs and of the pages is compiled, and run where it can run, by the tests of this crate.

/// The pages with code.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../session-derive/README.md")]
    struct DeriveReadme;
    #[doc = include_str!("../../session-openraft/README.md")]
    struct EngineReadme;
    #[doc = include_str!("../../session-runtime/README.md")]
    struct RuntimeReadme;
    #[doc = include_str!("../../book/src/concepts/compiler.md")]
    struct Compiler;
    #[doc = include_str!("../../book/src/concepts/watermark.md")]
    struct Watermark;
    #[doc = include_str!("../../book/src/guides/engine.md")]
    struct Engine;
    #[doc = include_str!("../../book/src/guides/evolving.md")]
    struct Evolving;
    #[doc = include_str!("../../book/src/guides/halts.md")]
    struct Halts;
    #[doc = include_str!("../../book/src/guides/limits.md")]
    struct Limits;
    #[doc = include_str!("../../book/src/internals/expansion.md")]
    struct Expansion;
    #[doc = include_str!("../../book/src/reference/attributes.md")]
    struct Attributes;
    #[doc = include_str!("../../book/src/reference/client.md")]
    struct Client;
    #[doc = include_str!("../../book/src/reference/formats.md")]
    struct Formats;
    #[doc = include_str!("../../book/src/tutorial/embedded.md")]
    struct Embedded;
    #[doc = include_str!("../../book/src/tutorial/first-machine.md")]
    struct FirstMachine;
    #[doc = include_str!("../../book/src/tutorial/rejections.md")]
    struct Rejections;
    #[doc = include_str!("../../book/src/tutorial/server-requests.md")]
    struct ServerRequests;
    #[doc = include_str!("../../book/src/tutorial/snapshots.md")]
    struct Snapshots;
    #[doc = include_str!("../../book/src/tutorial/testing.md")]
    struct Testing;
}
