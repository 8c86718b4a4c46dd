#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| session_fuzz::targets::target("wire")(bytes));
