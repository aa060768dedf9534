#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ratelimit_runtime::fuzz::key(bytes));
